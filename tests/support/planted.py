"""Faults planted into the code under test, one at a time."""

from __future__ import annotations

import inspect
from typing import Any, cast

import pytest

__all__ = ["Planted", "PlantedError", "plant"]


class PlantedError(Exception):
    """What a planted fault raises."""


class Planted:
    """A fault that raises once, from the first call after `arm`.

    Attributes:
        fired: Whether it has raised.
    """

    def __init__(self) -> None:
        self.armed = False
        self.fired = False

    def arm(self) -> None:
        """Raise at the next call."""
        self.armed = True

    def pass_by(self) -> None:
        """Raise if it is armed.

        Raises:
            PlantedError: It is.
        """
        if self.armed:
            self.armed = False
            self.fired = True
            raise PlantedError("planted")


def plant(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Planted:
    """Have a function or method raise once, in place of what it does.

    Args:
        monkeypatch: Pytest's; it takes the fault out after the test.
        owner: The module, class or object. Of an object that takes no attributes, the method of
            its class raises when it is called for this object.
        name: The function's name.
    """
    planted = Planted()
    kind = cast("Any", type(owner))
    closed = not inspect.isclass(owner) and hasattr(kind, "__slots__")
    place = kind if closed else owner
    real = getattr(place, name)

    def faulty(*args: Any, **named: Any) -> Any:
        if not closed or args[0] is owner:
            planted.pass_by()
        return real(*args, **named)

    monkeypatch.setattr(place, name, faulty)
    return planted
