"""The way from one node to another: its faults, its random numbers, and what it counts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias
from zlib import crc32

from ...protocol import Message
from ._faults import Event, Faults, Traffic

if TYPE_CHECKING:
    from ._clockwork import Clockwork

__all__ = ["Arrived", "Way"]

Arrived: TypeAlias = Callable[[int, Message], object]
"""Called with a message and its number when it has come."""


class Way:
    """One direction between two nodes. It outlives links, and nodes that start again.

    The random numbers are its own, so that what happens on one way depends on no other.

    Args:
        clockwork: The network's.
        source: Where it begins: the name of a node.
        target: Where it ends.
        seed: Of the network.
        faults: What goes wrong on it.
        own: Whether it is of links that have faults of their own, and so random numbers too.
    """

    __slots__ = (
        "arrived",
        "clockwork",
        "copied",
        "cut_off",
        "cut_short",
        "faults",
        "gone",
        "lost",
        "overtaken",
        "random",
        "sent",
        "source",
        "target",
    )

    def __init__(
        self,
        clockwork: Clockwork,
        source: str,
        target: str,
        seed: int,
        faults: Faults,
        *,
        own: bool = False,
    ) -> None:
        self.clockwork: Final = clockwork
        self.source = source
        self.target = target
        self.faults = faults
        # A text, not a tuple: the hash of a tuple of texts differs from process to process.
        which = f"/{faults}" if own else ""
        repeatable = Random(f"{seed}/{source}/{target}{which}")  # noqa: S311 - it has to repeat
        self.random = repeatable.random
        self.cut_off = False
        self.sent = 0
        self.copied = 0
        self.arrived = 0
        self.lost = 0
        self.cut_short = 0
        self.gone = 0
        self.overtaken = 0

    def latency(self) -> float:
        """Draw the time of one message, in seconds."""
        shortest, longest = self.faults.latency
        return shortest + (longest - shortest) * self.random()

    def send(self, message: Message, not_before: float, arrived: Arrived) -> tuple[float, int]:
        """Put a message on the way.

        Args:
            message: What.
            not_before: When what was sent before it comes, in seconds.
            arrived: What to call then.

        Returns:
            When what is sent after it may come at the earliest, and how many, of the message
            and its copy, are on the way now.
        """
        self.sent += 1
        number = self.clockwork.number()
        self.note("sent", number, message)
        not_before, count = self._launch(number, message, not_before, arrived)
        faults = self.faults
        if faults.duplicate and self.random() < faults.duplicate:
            self.copied += 1
            self.note("copied", number, message)
            not_before, more = self._launch(number, message, not_before, arrived)
            count += more
        return not_before, count

    def _launch(
        self, number: int, message: Message, not_before: float, arrived: Arrived
    ) -> tuple[float, int]:
        faults = self.faults
        if self.cut_off:
            self.cut_short += 1
            self.note("cut", number, message)
            return not_before, 0
        if faults.loss and self.random() < faults.loss:
            self.lost += 1
            self.note("lost", number, message)
            return not_before, 0
        when = self.clockwork.loop.time() + self.latency()
        if faults.reorder and self.random() < faults.reorder:
            # Those behind it are not held back by it, which is what lets them overtake.
            when = max(when, not_before) + faults.reorder_by * self.random()
        else:
            not_before = when = max(when, not_before)
        self.clockwork.at(when, arrived, number, message)
        return not_before, 1

    def note(self, kind: str, number: int, message: Message) -> None:
        """Remember what happened to a message."""
        onward, back, payload, _, _ = message
        steps = onward + back
        check = crc32(b"/".join([value for _, value in steps]), crc32(payload))
        check = crc32(bytes([len(onward), *[kind for kind, _ in steps]]), check)
        history = self.clockwork.history
        at = self.clockwork.loop.time()
        history.append(Event(at, kind, self.source, self.target, number, len(payload), check))

    def traffic(self) -> Traffic:
        """Return what is counted."""
        ended = self.arrived + self.lost + self.cut_short + self.gone
        return Traffic(
            sent=self.sent,
            copied=self.copied,
            arrived=self.arrived,
            lost=self.lost,
            cut=self.cut_short,
            gone=self.gone,
            overtaken=self.overtaken,
            on_the_way=self.sent + self.copied - ended,
        )
