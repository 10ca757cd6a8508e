"""An instrument that counts messages to names, as an event log does."""

from __future__ import annotations

from collections import Counter

from onward.actors.dispatch._recorded import NameInstrument
from onward.actors.instruments._instrument import Instrument
from onward.protocol.eventlog import Kind, Outcome

__all__ = ["Counted"]


class Counted(Instrument, NameInstrument):
    """Counts what it is told."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[tuple[Kind, Outcome, str, str]] = Counter()

    def names_part(self) -> object:
        return self

    def count(self, kind: int, outcome: int, name: str, to: str, size: int) -> None:
        assert size >= 0
        self.counts[Kind(kind), Outcome(outcome), name, to] += 1

    def of(self, kind: Kind, name: str = "34#orders") -> dict[Outcome | tuple[Outcome, str], int]:
        """Return the counts of a name by outcome, with the receiver if there is one."""
        return {
            (outcome, to) if to else outcome: number
            for (each, outcome, of, to), number in self.counts.items()
            if (each, of) == (kind, name)
        }

    def open(self) -> dict[tuple[Kind, str], int]:
        """Return what was received and has not ended, or has ended twice."""
        found: Counter[tuple[Kind, str]] = Counter()
        for (kind, outcome, name, _), number in self.counts.items():
            if kind is Kind.NAME_COPY or outcome in (Outcome.HOLD, Outcome.REDIRECT):
                continue
            found[kind, name] += number if outcome is Outcome.RECEIVED else -number
        return {key: number for key, number in found.items() if number}
