"""Deliveries of Proton's library in C, without the objects of its Python package.

That package makes six objects for each event of a delivery, with a record of attributes each, and
they are most of what a message costs. Here an event is two pointers, and a delivery one object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, Protocol, TypeAlias, cast

from ._proton import ACCEPTED, RELEASED, AmqpLink, Collector, Disposition, Session

__all__ = ["PART", "Binding", "Delivery", "Pointer", "impl_of", "load_binding"]

Pointer: TypeAlias = Hashable
"""A pointer to an object of the library, which equals another one to the same object."""

PART: Final = 64 * 1024
"""The bytes of a message that are read at a time."""


class Library(Protocol):
    """The functions of the library that are called for each message."""

    PN_DELIVERY: int

    def pn_collector_peek(self, collector: Pointer) -> Pointer: ...
    def pn_event_type(self, event: Pointer) -> int: ...
    def pn_event_delivery(self, event: Pointer) -> Pointer: ...
    def pn_session_outgoing_bytes(self, session: Pointer) -> int: ...
    def pn_link_current(self, link: Pointer) -> Pointer: ...
    def pn_link_recv(self, link: Pointer, into: object, size: int) -> int: ...
    def pn_delivery(self, link: Pointer, tag: tuple[int, object]) -> Pointer: ...
    def pn_delivery_link(self, delivery: Pointer) -> Pointer: ...
    def pn_delivery_tag(self, delivery: Pointer) -> Any: ...
    def pn_delivery_readable(self, delivery: Pointer) -> bool: ...
    def pn_delivery_partial(self, delivery: Pointer) -> bool: ...
    def pn_delivery_aborted(self, delivery: Pointer) -> bool: ...
    def pn_delivery_pending(self, delivery: Pointer) -> int: ...
    def pn_delivery_settled(self, delivery: Pointer) -> bool: ...
    def pn_delivery_remote_state(self, delivery: Pointer) -> int: ...
    def pn_delivery_update(self, delivery: Pointer, state: int) -> None: ...
    def pn_delivery_settle(self, delivery: Pointer) -> None: ...
    def pn_delivery_abort(self, delivery: Pointer) -> None: ...
    def pn_incref(self, counted: Pointer) -> object: ...
    def pn_decref(self, counted: Pointer) -> int: ...


class Memory(Protocol):
    """The memory of the library."""

    def gc(self, pointer: Pointer, free: Callable[[Pointer], object]) -> Pointer: ...
    def new(self, kind: str, size: int) -> object: ...
    def from_buffer(self, data: bytes) -> object: ...
    def buffer(self, pointer: object, size: int) -> memoryview: ...


class Binding:
    """The functions of the library, for the engine of a connection and its links.

    Connections share nothing, since their nodes may run in threads of their own, and the
    interpreter lets other threads run around each call of the library.

    Args:
        library: The functions of the library.
        memory: Its memory.
        wrap: Returns the delivery of Proton's package for a pointer.

    Attributes:
        library: As given.
    """

    def __init__(
        self, library: Library, memory: Memory, wrap: Callable[[Pointer], HasDispositions]
    ) -> None:
        self.library: Final = library
        self._memory: Final = memory
        self._wrap: Final = wrap
        # It is made for the first message that comes: at most `PART` bytes for a connection, little
        # beside the frames that it may have in a session (`SESSION_FRAMES`). One is enough for all
        # of its links: what is read is copied before anything else is done with the connection.
        self._buffer: object | None = None

    def next_delivery(self, collector: Collector) -> tuple[Pointer, Pointer] | None:
        """Return the link and the delivery of the next event; `None` if it is another event."""
        library = self.library
        event = library.pn_collector_peek(impl_of(collector))
        if not event or library.pn_event_type(event) != library.PN_DELIVERY:
            return None
        delivery = library.pn_event_delivery(event)
        return library.pn_delivery_link(delivery), delivery

    def unsent(self, session: Session) -> int:
        """Return the bytes of deliveries of a session that Proton has not begun to write."""
        return self.library.pn_session_outgoing_bytes(impl_of(session))

    def current(self, link: AmqpLink) -> Delivery | None:
        """Return the delivery that is read from a link, or written to it."""
        found = self.library.pn_link_current(impl_of(link))
        return Delivery(self, found) if found else None

    def begin(self, link: AmqpLink, tag: bytes) -> Delivery:
        """Begin a delivery of a link."""
        # The library copies the tag.
        made = self.library.pn_delivery(impl_of(link), (len(tag), self._memory.from_buffer(tag)))
        return Delivery(self, made)

    def read(self, link: AmqpLink, most: int = PART) -> bytes:
        """Return a part of the current delivery of a link; nothing if no more of it is there.

        Args:
            link: The link.
            most: Most bytes of it.
        """
        buffer = self._buffer
        if buffer is None:
            buffer = self._buffer = self._memory.new("char[]", PART)
        size = self.library.pn_link_recv(impl_of(link), buffer, min(most, PART))
        return bytes(self._memory.buffer(buffer, size)) if size > 0 else b""

    def bytes_of(self, found: Any) -> bytes:
        """Return a copy of bytes of the library."""
        return bytes(self._memory.buffer(found.start, found.size))

    def counted(self, pointer: Pointer) -> Pointer:
        """Return a pointer that keeps its object there for as long as it is there itself."""
        self.library.pn_incref(pointer)
        return self._memory.gc(pointer, self.library.pn_decref)

    def references(self, session: Session) -> int:
        """Return the references to a session: of its objects, of events, and of its links."""
        self.library.pn_incref(impl_of(session))
        return self.library.pn_decref(impl_of(session))

    def wrapped(self, pointer: Pointer) -> HasDispositions:
        """Return a delivery as Proton's package has it."""
        return self._wrap(pointer)


class HasDispositions(Protocol):
    """A delivery of Proton's package."""

    local: Disposition
    remote: Disposition

    def update(self, state: int) -> None: ...


class Delivery:
    """A delivery.

    Args:
        binding: The functions of the library.
        pointer: The pointer to it.

    Attributes:
        key: A pointer to it.
    """

    __slots__ = ("_binding", "_library", "key")

    def __init__(self, binding: Binding, pointer: Pointer) -> None:
        self._binding: Final = binding
        self._library: Final = binding.library
        self.key: Final = binding.counted(pointer)

    @property
    def tag(self) -> bytes:
        """Its tag, which is any bytes."""
        return self._binding.bytes_of(self._library.pn_delivery_tag(self.key))

    @property
    def local(self) -> Disposition:
        """Its state at this end."""
        return self._binding.wrapped(self.key).local

    @property
    def remote(self) -> Disposition:
        """Its state at the end of the peer."""
        return self._binding.wrapped(self.key).remote

    @property
    def readable(self) -> bool:
        """Whether there is something to read."""
        return self._library.pn_delivery_readable(self.key)

    @property
    def partial(self) -> bool:
        """Whether more of it is to come."""
        return self._library.pn_delivery_partial(self.key)

    @property
    def aborted(self) -> bool:
        """Whether the peer has given it up."""
        return self._library.pn_delivery_aborted(self.key)

    @property
    def pending(self) -> int:
        """The bytes that are there to be read."""
        return self._library.pn_delivery_pending(self.key)

    @property
    def remote_state(self) -> int:
        """The state that the peer has given it; 0 for none."""
        return self._library.pn_delivery_remote_state(self.key)

    @property
    def settled(self) -> bool:
        """Whether the peer has settled it."""
        return self._library.pn_delivery_settled(self.key)

    def update(self, state: int) -> None:
        """Give it a state, with what `local` has of it."""
        if state in (ACCEPTED, RELEASED):
            self._library.pn_delivery_update(self.key, state)
        else:
            self._binding.wrapped(self.key).update(state)

    def settle(self) -> None:
        """Settle it at this end."""
        self._library.pn_delivery_settle(self.key)

    def abort(self) -> None:
        """Give it up, in the middle of its message."""
        self._library.pn_delivery_abort(self.key)


def impl_of(wrapped: object) -> Pointer:
    """Return the pointer of an object of Proton's package."""
    found: Any = wrapped
    pointer: Pointer = found._impl
    return pointer


def load_binding() -> Binding:
    """Return a binding of the library for one connection."""
    return Binding(*_load_library())


@lru_cache(1)
def _load_library() -> tuple[Library, Memory, Callable[[Pointer], HasDispositions]]:
    """Import the library, which is installed with Proton."""
    binding, proton = import_module("cproton"), import_module("proton")
    return cast("Library", binding.lib), cast("Memory", binding.ffi), proton.Delivery.wrap
