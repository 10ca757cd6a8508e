"""The protocols of transports and listeners, and the look-up of transports.

The protocols are structural, so that this package imports nothing of `onward.transports`.
A transport is found by the scheme of a URI in the entry-point group `onward.transports`, or by
the type of an address in a route, as a decimal number, in the group `onward.address_types`. It
is loaded when it is first needed, and made once for each node.
"""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from ..protocol import Address, Message
from ._errors import UnknownScheme

if TYPE_CHECKING:
    from ._node import Node

__all__ = ["Listener", "Transport"]

_logger = logging.getLogger("onward.actors")

GROUP: Final = "onward.transports"
"""The entry points of transports, by the scheme of their URIs."""

TYPES_GROUP: Final = "onward.address_types"
"""The entry points of transports, by the type of the addresses that they resolve."""


class Listener(Protocol):
    """A listener, which accepts connections at a URI."""

    @property
    def uri(self) -> str:
        """The URI it listens at, with the actual port."""
        ...

    @property
    def address(self) -> Address:
        """The address of its worker."""
        ...

    async def close(self) -> None:
        """Stop accepting connections."""
        ...


class Transport(Protocol):
    """A transport, which joins nodes; `onward.transports.Transport` is the base class."""

    scheme: ClassVar[str]
    """The scheme of its URIs."""

    address_type: ClassVar[int | None]
    """The type of address it resolves in a route, or `None`."""

    def __init__(self, node: Node) -> None: ...

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        """Accept connections at the URI; only the exposed addresses are reachable."""
        ...

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        """Connect to the URI and return the address of the link."""
        ...

    def resolve(self, message: Message) -> Message | None:
        """Return the message with its first address replaced, or take it over."""
        ...

    async def stop(self) -> None:
        """Close all listeners and connections."""
        ...


class Transports:
    """The transports of one node.

    Args:
        node: The node.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._classes: dict[str, type[Transport]] = {}
        self._made: dict[type[Transport], Transport] = {}
        # By type; read once, as messages for unknown types must not search all installed
        # packages.
        self._types: dict[str, EntryPoint] | None = None

    def add(self, transport_class: type[Transport]) -> None:
        """Add a class for its scheme and address type, with precedence over entry points.

        Raises:
            TypeError: The class declares no scheme or address type.
            ValueError: The node uses another class for the scheme.
        """
        check_transport(transport_class)
        present = self._classes.setdefault(transport_class.scheme, transport_class)
        if present is not transport_class:
            raise ValueError(
                f"the node uses {present.__name__} for {transport_class.scheme}:// already, "
                f"so not {transport_class.__name__}"
            )

    def for_uri(self, uri: str) -> Transport:
        """Return the transport for the scheme of a URI.

        Raises:
            UnknownScheme: There is none.
            TypeError: The class declares no scheme or address type.
        """
        scheme = uri.partition("://")[0]
        if scheme not in self._classes:
            for entry in entry_points(group=GROUP, name=scheme):
                self._classes[scheme] = found = check_transport(entry.load())
                self._look_at_type(entry, found)
        if scheme not in self._classes:
            names = {*self._classes, *(entry.name for entry in entry_points(group=GROUP))}
            raise UnknownScheme(uri, tuple(sorted(names)))
        return self.make(self._classes[scheme])

    def for_type(self, address_type: int) -> Transport | None:
        """Return the transport that resolves an address type, if there is one."""
        for transport_class in self._classes.values():
            if transport_class.address_type == address_type:
                return self.make(transport_class)
        # Looked up once: afterwards its rule is installed, or it cannot be loaded.
        entry = self._by_type().pop(str(address_type), None)
        return None if entry is None else self._load(entry, address_type)

    def _by_type(self) -> dict[str, EntryPoint]:
        if self._types is None:
            self._types = {entry.name: entry for entry in entry_points(group=TYPES_GROUP)}
        return self._types

    def _look_at_type(self, entry: EntryPoint, found: type[Transport]) -> None:
        """Warn of a transport that a message to its addresses would not load."""
        kind = found.address_type
        if kind is None or str(kind) in self._by_type() or found in self._made:
            return
        text = (
            "%s resolves addresses of type %d, but no entry point %r in the group %s names it: "
            "before its first use by URI, messages to them raise UnknownAddressType"
        )
        _logger.warning(text, entry.value, kind, str(kind), TYPES_GROUP)

    def _load(self, entry: EntryPoint, address_type: int) -> Transport | None:
        try:
            found = check_transport(entry.load())
        except Exception:
            # With a broken plug-in the sender gets `UnknownAddressType`.
            _logger.exception("the transport for addresses of type %s cannot be loaded", entry.name)
            return None
        if found.address_type != address_type:
            text = "%s is registered for addresses of type %s and resolves those of type %s"
            _logger.error(text, entry.value, entry.name, found.address_type)
            return None
        # A class that was added for the scheme has precedence, even without such addresses.
        return self.make(found) if self._classes.setdefault(found.scheme, found) is found else None

    def take_all(self) -> list[Transport]:
        """Return the transports made so far, newest first, and forget them."""
        made = list(reversed(self._made.values()))
        self._made.clear()
        return made

    def make(self, transport_class: type[Transport]) -> Transport:
        """Return the one instance of a class; make it and install its rule if necessary.

        Raises:
            RuleInUse: Another owner resolves the addresses of its type.
        """
        transport = self._made.get(transport_class)
        if transport is None:
            transport = transport_class(self._node)
            if transport_class.address_type is not None:
                rule = transport.resolve
                self._node.add_rule(transport_class.address_type, rule, owner=transport)
            self._made[transport_class] = transport
        return transport


def check_transport(found: type[Transport]) -> type[Transport]:
    """Return a class that declares what a node has to know of a transport.

    Raises:
        TypeError: It does not.
    """
    scheme: object = getattr(found, "scheme", None)
    kind: object = getattr(found, "address_type", False)
    name = getattr(found, "__qualname__", repr(found))
    if not isinstance(scheme, str) or not scheme:
        raise TypeError(f"{name} is no transport: its `scheme` is {scheme!r}, not a text")
    if not (kind is None or (type(kind) is int and 0 < kind <= 255)):
        text = "its `address_type` is neither None nor a number from 1 to 255"
        raise TypeError(f"{name} is no transport: {text}")
    return found
