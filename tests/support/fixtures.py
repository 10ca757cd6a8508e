"""Short names for the types of pytest's own fixtures."""

from __future__ import annotations

from typing import TypeAlias

import pytest

__all__ = ["Caplog", "Capsys", "Patch"]

Caplog: TypeAlias = pytest.LogCaptureFixture
Capsys: TypeAlias = pytest.CaptureFixture[str]
Patch: TypeAlias = pytest.MonkeyPatch
