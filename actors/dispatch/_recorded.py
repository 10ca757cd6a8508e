"""What an event log is told of messages to names: each received once, and ended once.

A message is counted under the name by which it entered the dispatcher, also if it is redirected to
another one, so that the outcomes of a name add up. Its copies are counted under the name of the
consumer that they were handed to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.dispatch import Accepted, Modified, Name, NameKind, Outcome, Rejected, Released
from ...protocol.eventlog import Kind, Outcome as Logged

if TYPE_CHECKING:
    from .._node import Node
    from ._arrival import Arrival
    from ._consumer_record import ConsumerRecord

__all__ = [
    "NameInstrument",
    "consumer_label",
    "count_copy",
    "count_end",
    "count_passed",
    "count_received",
    "label_of",
]

_NAME: Final = int(Kind.NAME)
_LEG: Final = int(Kind.NAME_LEG)
_AGAIN: Final = int(Kind.NAME_AGAIN)
_COPY: Final = int(Kind.NAME_COPY)
_LOGGED: Final[dict[type[Outcome | Logged], int]] = {
    Accepted: int(Logged.DELIVER),
    Rejected: int(Logged.FAILED),
    Released: int(Logged.RELEASED),
    Modified: int(Logged.MODIFIED),
}

_RECEIVED: Final = int(Logged.RECEIVED)

CLIENTS: Final = "(clients)"
"""The label of all consumers of a node that ask for messages by credit, as clients of AMQP do."""


class NameInstrument:
    """The part of an instrument that a dispatcher calls: what `Instrument.names_part` returns.

    One instrument of a node can have one. Its methods must not raise.
    """

    __slots__ = ()

    def count(self, kind: int, outcome: int, name: str, to: str, size: int) -> None:
        """Count a message to a name, or a copy of one.

        Args:
            kind: `NAME`, `NAME_LEG`, `NAME_AGAIN` or `NAME_COPY` of `Kind`.
            outcome: See `Outcome`.
            name: The name, as the address in a route; of all temporary ones of a node one.
            to: The consumer, or the route of a redirect; else empty.
            size: Bytes of its payload.
        """
        raise NotImplementedError


def label_of(name: Name) -> str:
    """Return a name as it is in the log: temporary ones would fill it."""
    return f"34#_temp/{name.node}/*" if name.kind is NameKind.TEMPORARY else f"34#{name.text}"


def consumer_label(node: Node, record: ConsumerRecord) -> str:
    """Return the label of a consumer: its worker, or the link to it; empty if it is a name here."""
    if record.local is not None:
        return ""
    return f"{node.name}/{record.route[0] if record.route else CLIENTS}"


def count_received(node: Node, arrival: Arrival, label: str) -> None:
    """Count that a message was received, unless it is here already, as after a redirect."""
    instruments = node.instruments
    if instruments is None or arrival.entered:
        return
    part = instruments.names
    arrival.entered = label
    if isinstance(part, NameInstrument):
        arrival.log = part
        kind, size = _kind_of(arrival), len(arrival.message[2])
        part.count(kind, _RECEIVED, label, "", size)


def count_end(arrival: Arrival, outcome: Outcome | Logged) -> None:
    """Count the end of a message, if it is the first: that is what its sender was told, if it was.

    Args:
        arrival: The message.
        outcome: The outcome that is told, or that of a message without one.
    """
    log = arrival.log
    if log is None or arrival.ended:
        return
    arrival.ended = True
    logged = _logged(outcome)
    kind, size = _kind_of(arrival), len(arrival.message[2])
    log.count(kind, logged, arrival.entered, "", size)


def count_passed(arrival: Arrival, outcome: Logged, to: str = "") -> None:
    """Count that a message is on hold, or is redirected."""
    if arrival.log is not None:
        kind, size = _kind_of(arrival), len(arrival.message[2])
        arrival.log.count(kind, outcome, arrival.entered, to, size)


def count_copy(node: Node, label: str, consumer: str, outcome: Outcome | Logged) -> None:
    """Count the end of a copy that was handed to a consumer.

    Args:
        node: The node.
        label: That of the name.
        consumer: The label of the consumer.
        outcome: Its outcome.
    """
    instruments = node.instruments
    if instruments is None or not consumer:
        return
    part = instruments.names
    if isinstance(part, NameInstrument):
        part.count(_COPY, _logged(outcome), label, consumer, 0)


def _kind_of(arrival: Arrival) -> int:
    if arrival.again:
        return _AGAIN
    return _LEG if arrival.leg else _NAME


def _logged(outcome: Outcome | Logged) -> int:
    return outcome if isinstance(outcome, Logged) else _LOGGED[type(outcome)]
