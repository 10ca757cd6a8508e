"""Circuits that are broken on purpose: a harness that does not catch them shows nothing."""

from __future__ import annotations

from typing import Any, Final
from unittest import mock

from onward.actors.dispatch._circuit_table import CircuitTable
from onward.protocol.dispatch import CircuitFrameKind, Circuits
from tests.simulated.circuits import checked_run

__all__ = ["BROKEN", "catches", "caught"]

_receive = Circuits.receive


class ForgetsLinks:
    """Does not learn of a link that is lost."""

    place, method = CircuitTable, "link_lost"

    @staticmethod
    def instead(*_given: Any) -> None:
        """Do nothing."""


class TellsNoSide:
    """Ends the circuits of a link that is lost, and tells neither side."""

    place, method = Circuits, "link_lost"

    @staticmethod
    def instead(*_given: Any) -> tuple[()]:
        """Return no frame."""
        return ()


class Doubles:
    """Passes each transfer on twice."""

    place, method = Circuits, "receive"

    @staticmethod
    def instead(circuits: Circuits, number: int, side: Any, data: bytes, now: float) -> Any:
        """Return the frames, transfers twice."""
        sends = _receive(circuits, number, side, data, now)
        return sends * 2 if data[2] == CircuitFrameKind.TRANSFER else sends


BROKEN: Final[tuple[type[Any], ...]] = (ForgetsLinks, TellsNoSide, Doubles)


def catches(broken: type[Any], seed: int) -> bool:
    """Whether the run of a seed catches a mistake."""
    with mock.patch.object(broken.place, broken.method, broken.instead):
        return bool(checked_run(seed)[2])


def caught(given: tuple[int, int]) -> tuple[int, bool]:
    """Return the number of a mistake, and whether the run of a seed catches it."""
    kind, seed = given
    return kind, catches(BROKEN[kind], seed)
