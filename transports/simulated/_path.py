"""One direction between two nodes: its faults, random numbers and counters."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias
from zlib import crc32

from ...protocol import Message
from ._faults import Event, Faults, Traffic

if TYPE_CHECKING:
    from ._clockwork import Clockwork

__all__ = ["Arrived", "NetworkPath"]

Arrived: TypeAlias = Callable[[int, Message], object]
"""The callback for a message that arrives, with its number."""


class NetworkPath:
    """One direction between two nodes. It outlives links and restarts of nodes.

    It has its own random numbers, so it does not depend on other traffic.

    Args:
        clockwork: The scheduler of the network.
        source: The name of the sending node.
        target: The name of the receiving node.
        seed: The seed of the network.
        faults: The faults.
        own: Whether it belongs to links with faults of their own, and so has its own seed.
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
        "parts",
        "random",
        "resent",
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
        # A text, not a tuple: the hash of a tuple of texts differs between processes.
        which = f"/{faults}" if own else ""
        repeatable = Random(f"{seed}/{source}/{target}{which}")  # noqa: S311 - has to be repeatable
        self.random = repeatable.random
        self.cut_off = False
        self.sent = 0
        self.copied = 0
        self.arrived = 0
        self.lost = 0
        self.cut_short = 0
        self.gone = 0
        self.overtaken = 0
        self.parts = 0  # of byte streams, which count apart from messages
        self.resent = 0

    def is_lost(self) -> bool:
        """Draw whether a part of a byte stream is lost this time."""
        loss = self.faults.loss
        return bool(loss) and self.random() < loss

    def latency(self) -> float:
        """Return the random latency of one message, in seconds."""
        shortest, longest = self.faults.latency
        return shortest + (longest - shortest) * self.random()

    def send(self, message: Message, not_before: float, arrived: Arrived) -> tuple[float, int]:
        """Put a message in transit.

        Args:
            message: The message.
            not_before: The arrival time of the previous message, in seconds.
            arrived: Called when the message arrives.

        Returns:
            The earliest arrival time of the next message, and how many of the message and its copy
            are in transit.
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
            # Later messages are not held back, so they may overtake it.
            when = max(when, not_before) + faults.reorder_by * self.random()
        else:
            not_before = when = max(when, not_before)
        self.clockwork.at(when, arrived, number, message)
        return not_before, 1

    def note(self, kind: str, number: int, message: Message) -> None:
        """Record an event of a message."""
        onward, back, payload, _, _ = message
        steps = onward + back
        check = crc32(b"/".join([value for _, value in steps]), crc32(payload))
        check = crc32(bytes([len(onward), *[kind for kind, _ in steps]]), check)
        history = self.clockwork.history
        at = self.clockwork.loop.time()
        history.append(Event(at, kind, self.source, self.target, number, len(payload), check))

    def traffic(self) -> Traffic:
        """Return the counters."""
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
            parts=self.parts,
            resent=self.resent,
        )
