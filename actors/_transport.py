"""What a node expects of a transport, and how it finds one.

The protocols are structural, so that this package imports nothing of `onward.transports`.
A transport is found by the scheme of a URI, or by the type of an address in a route, in
the entry-point group `onward.transports`; it is loaded when first needed and made once
for each node.
"""

from __future__ import annotations

import logging
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from ..protocol import Address, Message
from ._errors import UnknownScheme

if TYPE_CHECKING:
    from ._node import Node

__all__ = ["Listener", "Transport"]

_logger = logging.getLogger("onward.actors")

GROUP: Final = "onward.transports"


class Listener(Protocol):
    """Something that accepts connections."""

    @property
    def uri(self) -> str:
        """Where it listens, with the port it really has."""
        ...

    @property
    def address(self) -> Address:
        """The address of its worker."""
        ...

    async def close(self) -> None:
        """Stop accepting connections."""
        ...


class Transport(Protocol):
    """What joins nodes; `onward.transports.Transport` is the class to derive from."""

    scheme: ClassVar[str]
    """The scheme of the URIs it takes."""

    address_type: ClassVar[int | None]
    """The type of address it resolves in a route, or `None`."""

    def __init__(self, node: Node) -> None: ...

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        """Accept connections at the URI; only the exposed addresses are reachable."""
        ...

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        """Connect to the URI and return the address of the connection's worker."""
        ...

    def resolve(self, message: Message) -> Message | None:
        """Give the message back with its first address replaced, or take it over."""
        ...

    async def stop(self) -> None:
        """Close everything that is still open."""
        ...


class Transports:
    """The transports of one node.

    Args:
        node: Whose they are.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._classes: dict[str, type[Transport]] = {}
        self._made: dict[type[Transport], Transport] = {}
        self._all_loaded = False

    def add(self, transport_class: type[Transport]) -> None:
        """Use this class for its scheme and address type, before any entry point."""
        self._classes[transport_class.scheme] = transport_class

    def for_uri(self, uri: str) -> Transport:
        """Return the transport for the scheme of a URI.

        Raises:
            UnknownScheme: There is none.
        """
        scheme = uri.partition("://")[0]
        if scheme not in self._classes:
            for entry in entry_points(group=GROUP, name=scheme):
                self._classes[scheme] = entry.load()
        if scheme not in self._classes:
            names = {*self._classes, *(entry.name for entry in entry_points(group=GROUP))}
            raise UnknownScheme(uri, tuple(sorted(names)))
        return self.make(self._classes[scheme])

    def for_type(self, address_type: int) -> Transport | None:
        """Return the transport that resolves a type of address, if there is one."""
        if not self._all_loaded:
            self._load_all()
        for transport_class in self._classes.values():
            if transport_class.address_type == address_type:
                return self.make(transport_class)
        return None

    def _load_all(self) -> None:
        # Once: a message for an unknown type must not cost a look through all that is installed.
        self._all_loaded = True
        for entry in entry_points(group=GROUP):
            if entry.name in self._classes:
                continue
            try:
                self._classes[entry.name] = entry.load()
            except Exception:
                # One broken plug-in must not take the others with it.
                _logger.exception("the transport %r cannot be loaded", entry.name)

    def take_all(self) -> list[Transport]:
        """Return those made so far, newest first, and forget them."""
        made = list(reversed(self._made.values()))
        self._made.clear()
        return made

    def make(self, transport_class: type[Transport]) -> Transport:
        """Return the one instance of a class, and install its rule when it is made."""
        transport = self._made.get(transport_class)
        if transport is None:
            transport = self._made[transport_class] = transport_class(self._node)
            if transport_class.address_type is not None:
                self._node.add_rule(transport_class.address_type, transport.resolve)
        return transport
