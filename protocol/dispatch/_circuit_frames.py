"""The frames of a circuit, as values, with their limits. `_circuit_codec` reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from ._errors import DispatchError

__all__ = [
    "CIRCUIT_KEY_SIZE",
    "CIRCUIT_SOURCE_SIZE",
    "CIRCUIT_VERSION",
    "MAX_CIRCUIT_FRAME",
    "MAX_CREDIT",
    "MAX_STATE",
    "MAX_TAG",
    "MAX_UNSETTLED",
    "CircuitAlive",
    "CircuitAttach",
    "CircuitAttached",
    "CircuitDetach",
    "CircuitDisposition",
    "CircuitDrained",
    "CircuitFlow",
    "CircuitFrame",
    "CircuitFrameError",
    "CircuitFrameKind",
    "CircuitRefused",
    "CircuitTransfer",
    "DetachKind",
    "UnsettledMap",
]

CIRCUIT_KEY_SIZE: Final = 16
"""Bytes of the key of a circuit."""

CIRCUIT_SOURCE_SIZE: Final = 8
"""Bytes of the source of a circuit, if it has one."""

CIRCUIT_VERSION: Final = 1
"""The version of these frames."""

MAX_CIRCUIT_FRAME: Final = 1024 * 1024
"""Most bytes of a frame. A longer delivery is sent as several transfers."""

MAX_TAG: Final = 32
"""Most bytes of a delivery's tag, as AMQP has it."""

MAX_STATE: Final = 768
"""Most bytes of the state of a delivery: a rejection with the longest texts is shorter."""

MAX_UNSETTLED: Final = 1024
"""Most deliveries in an unsettled map: with tags and states of full length they fit in a frame."""

MAX_CREDIT: Final = (1 << 32) - 1
"""Most credit that a producer may have, as AMQP has it."""

UnsettledMap: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Tag and last state of each unsettled delivery, in the order in which they were sent."""


class CircuitFrameError(DispatchError):
    """Bytes that are no frame of a circuit.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"no frame of a circuit: {self.reason}"


class CircuitFrameKind(IntEnum):
    """The kind of a frame: its second item."""

    ATTACH = 1
    ATTACHED = 2
    REFUSED = 3
    FLOW = 4
    DRAINED = 5
    TRANSFER = 6
    DISPOSITION = 7
    DETACH = 8
    ALIVE = 9


class DetachKind(IntEnum):
    """The way in which a circuit ends."""

    DETACHED = 0
    """An end has detached, and may come back. The other end answers."""
    CLOSED = 1
    """An end has closed the circuit for good. The other end answers."""
    LOST = 2
    """A part of the circuit is gone. There is no answer."""


@dataclass(frozen=True, slots=True)
class CircuitAttach:
    """An end asks for a circuit to a container of a name.

    Attributes:
        name: The name, at most 512 bytes.
        producer: Whether the end that attaches is the producer.
        key: 16 random bytes that the circuit keeps when it is resumed.
        path: Digests of the nodes that the frame has passed, 4 bytes each.
        limit: Number of unsettled deliveries that this end bears.
        properties: What this end tells the other one; nodes do not read it. At most 16 KiB.
        unsettled: Its unsettled deliveries if the circuit is to be resumed; `None` if it is new.
        source: What the circuit is counted with: 8 bytes that the first node has for the connection
            or the principal that attaches; empty for a program of that node.
        anonymous: Whether that is a connection that is not authenticated, as the first node says.
    """

    name: str
    producer: bool
    key: bytes
    path: bytes = b""
    limit: int = MAX_UNSETTLED
    properties: bytes = b""
    unsettled: UnsettledMap | None = None
    source: bytes = b""
    anonymous: bool = False


@dataclass(frozen=True, slots=True)
class CircuitAttached:
    """The other end has accepted a circuit.

    Attributes:
        limit: Number of unsettled deliveries that this end bears.
        properties: What this end tells the one that has attached. At most 16 KiB.
        unsettled: Its unsettled deliveries before the two maps were compared; `None` if the circuit
            is not resumed.
    """

    limit: int = MAX_UNSETTLED
    properties: bytes = b""
    unsettled: UnsettledMap | None = None


@dataclass(frozen=True, slots=True)
class CircuitRefused:
    """There is no circuit.

    Attributes:
        condition: The reason as a word, such as `no-route`; at most 128 bytes.
        description: The reason as a text; at most 512 bytes.
    """

    condition: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class CircuitFlow:
    """The consumer gives credit.

    Attributes:
        credit: How many deliveries more the producer may begin.
        drain: Whether the producer shall use up all credit, or give back what it does not use.
    """

    credit: int
    drain: bool = False


@dataclass(frozen=True, slots=True)
class CircuitDrained:
    """The producer gives credit back.

    Attributes:
        credit: How many deliveries it will not begin.
    """

    credit: int


@dataclass(frozen=True, slots=True)
class CircuitTransfer:
    """A delivery, or a part of one.

    Attributes:
        tag: The tag of the delivery, at most 32 bytes.
        payload: Its bytes, or further ones.
        more: Whether a further part follows; no other delivery begins before the last part.
        aborted: Whether the delivery is given up.
        settled: Whether the producer keeps nothing of the delivery.
    """

    tag: bytes
    payload: bytes
    more: bool = False
    aborted: bool = False
    settled: bool = False


@dataclass(frozen=True, slots=True)
class CircuitDisposition:
    """The state of a delivery, as one end has it.

    Attributes:
        tag: The tag of the delivery.
        state: The state, at most 512 bytes: nodes do not read it.
        settled: Whether this end keeps nothing more of the delivery.
    """

    tag: bytes
    state: bytes = b""
    settled: bool = False


@dataclass(frozen=True, slots=True)
class CircuitDetach:
    """The end of a circuit.

    Attributes:
        how: Whether it is detached, closed or lost.
        condition: The reason as a word, at most 128 bytes; empty for none.
        description: The reason as a text; at most 512 bytes.
    """

    how: DetachKind
    condition: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class CircuitAlive:
    """An end is there, and has nothing else to send."""


CircuitFrame: TypeAlias = (
    CircuitAttach
    | CircuitAttached
    | CircuitRefused
    | CircuitFlow
    | CircuitDrained
    | CircuitTransfer
    | CircuitDisposition
    | CircuitDetach
    | CircuitAlive
)
"""Any frame of a circuit."""
