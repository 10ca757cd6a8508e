"""The tests of the broker with the express path and without it."""

from __future__ import annotations

import os
from typing import Any, Final

import pytest

from onward.actors.broker import BrokerOptions
from tests.support.counts import exhaustive

__all__ = ["WAYS", "set_express_path"]

OFF: Final = os.environ.get("ONWARD_EXPRESS_PATH") == "off"
"""Whether all tests of the broker run without the express path, and none with it."""

WAYS: Final[list[Any]] = (
    [pytest.param(False, id="hops")]
    if OFF
    else [pytest.param(True, id="express"), *exhaustive(False)]
)
"""Whether the express path is on: `make test` tries it, `make test-all` tries both ways."""


def set_express_path(monkeypatch: pytest.MonkeyPatch, on: bool) -> None:
    """Switch the express path off for all brokers of a test, whatever options they are given."""
    if not on:
        off = property(lambda _: False, lambda _, __: None)
        monkeypatch.setattr(BrokerOptions, "express_path", off)
