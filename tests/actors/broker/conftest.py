"""Handlers without a broker, and where they answer to."""

from __future__ import annotations

import pytest

from onward.actors.broker import Handlers
from tests.support.handled import Written


@pytest.fixture
def handlers() -> Handlers:
    return Handlers(max_handling=4, channel_window=4)


@pytest.fixture
def outlet() -> Written:
    return Written()
