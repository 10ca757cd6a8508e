"""Faults planted into the code under test, one at a time."""

from __future__ import annotations

from typing import Any

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
        owner: The module, class or object.
        name: The function's name.
    """
    planted = Planted()
    real = getattr(owner, name)

    def faulty(*args: Any, **named: Any) -> Any:
        planted.pass_by()
        return real(*args, **named)

    monkeypatch.setattr(owner, name, faulty)
    return planted
