"""Handlers without a broker, and where they answer to."""

from __future__ import annotations

import pytest

from onward.actors.broker import Handlers
from tests.support.express import WAYS, set_express_path
from tests.support.handled import Written


@pytest.fixture
def handlers() -> Handlers:
    return Handlers(max_handling=4, channel_window=4)


@pytest.fixture
def outlet() -> Written:
    return Written()


@pytest.fixture(autouse=True, params=WAYS)
def express(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run each test with the express path, and with `make test-all` without it as well."""
    on: bool = request.param
    set_express_path(monkeypatch, on)
    return on
