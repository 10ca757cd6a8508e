"""The part of Proton that the edge uses, with types, and its import.

Proton is an extra (`onward[amqp]`) that is built where it is installed, and typed in part. So it is
imported here alone, when a listener is made, and what is used of it is written down as interfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from importlib import import_module
from typing import Any, Final, Protocol, TypeGuard, cast

__all__ = [
    "ACCEPTED",
    "COORDINATOR",
    "LOCAL_UNINIT",
    "MODIFIED",
    "RECEIVED",
    "REJECTED",
    "RELEASED",
    "AmqpLink",
    "Collector",
    "Condition",
    "Data",
    "Disposition",
    "Event",
    "Proton",
    "Session",
    "Terminus",
    "detach",
    "is_list",
    "is_map",
    "load_proton",
]

RECEIVED: Final = 0x23
ACCEPTED: Final = 0x24
REJECTED: Final = 0x25
RELEASED: Final = 0x26
MODIFIED: Final = 0x27
COORDINATOR: Final = 3
"""The type of a target that is a coordinator of transactions."""
LOCAL_UNINIT: Final = 1
"""The bit of the state of an endpoint that this end has not opened."""


class Condition(Protocol):
    """The reason of an end or of a rejection."""

    name: str | None
    description: str | None
    info: Any


class Endpoint(Hashable, Protocol):
    """A connection, a session, or a link, which is opened and closed."""

    condition: Condition | None

    @property
    def remote_condition(self) -> Condition | None: ...
    @property
    def state(self) -> int: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    def free(self) -> None: ...


class Connection(Endpoint, Protocol):
    """A connection."""

    container: str
    hostname: str
    user: str
    password: str

    def session(self) -> Session: ...

    def collect(self, collector: Collector) -> None: ...


class Session(Endpoint, Protocol):
    """A session."""

    incoming_capacity: int

    def sender(self, name: str) -> AmqpLink: ...
    def receiver(self, name: str) -> AmqpLink: ...


class Data(Protocol):
    """Values of AMQP."""

    def encode(self) -> bytes: ...
    def decode(self, encoded: bytes) -> int: ...
    def put_object(self, obj: object) -> None: ...
    def get_object(self) -> Any: ...
    def rewind(self) -> None: ...
    def next(self) -> int | None: ...


class Terminus(Protocol):
    """The source or the target of a link."""

    type: int
    address: str | None
    dynamic: bool
    durability: int
    expiry_policy: int
    timeout: int
    distribution_mode: int

    @property
    def properties(self) -> Data: ...
    @property
    def capabilities(self) -> Data: ...
    @property
    def outcomes(self) -> Data: ...
    @property
    def filter(self) -> Data: ...
    def copy(self, src: Terminus) -> None: ...


class AmqpLink(Endpoint, Protocol):
    """A link. Messages of a client come by one that is a receiver here."""

    snd_settle_mode: int
    rcv_settle_mode: int
    max_message_size: int
    drain_mode: bool
    name: str
    properties: Any

    @property
    def is_receiver(self) -> bool: ...
    @property
    def session(self) -> Session: ...
    @property
    def source(self) -> Terminus: ...
    @property
    def target(self) -> Terminus: ...
    @property
    def remote_source(self) -> Terminus: ...
    @property
    def remote_target(self) -> Terminus: ...
    @property
    def remote_snd_settle_mode(self) -> int: ...
    @property
    def remote_rcv_settle_mode(self) -> int: ...
    @property
    def remote_max_message_size(self) -> int: ...
    @property
    def remote_properties(self) -> Any: ...
    @property
    def credit(self) -> int: ...
    def detach(self) -> None: ...
    def advance(self) -> bool: ...
    def flow(self, n: int) -> None: ...
    def drain(self, n: int) -> None: ...
    def drained(self) -> int: ...
    def stream(self, data: bytes) -> int: ...


class Disposition(Protocol):
    """The state of a delivery at one of its ends."""

    condition: Condition | None
    failed: bool
    undeliverable: bool
    section_number: int
    section_offset: int
    annotations: Any
    data: Any


class Sasl(Protocol):
    """The SASL layer of a connection."""

    allow_insecure_mechs: bool

    def allowed_mechs(self, mechs: str) -> None: ...


class Transport(Protocol):
    """The bytes of a connection."""

    condition: Condition | None
    tracer: Callable[[object, str], None]
    max_frame_size: int
    channel_max: int
    idle_timeout: float

    @property
    def remote_max_frame_size(self) -> int: ...
    @property
    def remote_channel_max(self) -> int: ...

    def sasl(self) -> Sasl: ...
    def bind(self, connection: Connection) -> None: ...
    def unbind(self) -> None: ...
    def capacity(self) -> int: ...
    def push(self, binary: bytes) -> None: ...
    def close_tail(self) -> None: ...
    def pending(self) -> int: ...
    def peek(self, size: int) -> bytes | None: ...
    def pop(self, size: int) -> None: ...
    def tick(self, now: float) -> float: ...


class EventType(Protocol):
    """The type of an event, by the name of the method that handles it."""

    method: str


class Event(Protocol):
    """An event."""

    @property
    def type(self) -> EventType: ...
    @property
    def session(self) -> Session: ...
    @property
    def link(self) -> AmqpLink: ...


class Collector(Protocol):
    """The events of a connection."""

    def peek(self) -> Event | None: ...
    def pop(self) -> None: ...


class Proton(Protocol):
    """The module."""

    ProtonException: type[Exception]

    def Connection(self) -> Connection: ...  # noqa: N802
    def Collector(self) -> Collector: ...  # noqa: N802
    def Transport(self, mode: int) -> Transport: ...  # noqa: N802
    def Condition(self, name: str, description: str | None) -> Condition: ...  # noqa: N802
    def Data(self) -> Data: ...  # noqa: N802


def load_proton() -> Proton:
    """Import Proton.

    Raises:
        ModuleNotFoundError: The extra `amqp` is not installed.
    """
    try:
        module: Any = import_module("proton")
    except ModuleNotFoundError as error:
        text = "clients of AMQP need python-qpid-proton: pip install 'onward[amqp]'"
        raise ModuleNotFoundError(text, name=error.name) from error
    return cast("Proton", module)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether a value of AMQP is a list."""
    return isinstance(value, list)


def is_map(value: object) -> TypeGuard[dict[Any, Any]]:
    """Whether a value of AMQP is a map."""
    return isinstance(value, dict)


def detach(link: AmqpLink) -> None:
    """Detach a link with its condition, which Proton's own call leaves out."""
    detached: Any = link
    detached._update_cond()
    link.detach()
