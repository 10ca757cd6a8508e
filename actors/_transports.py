"""The transports of a node: how they are found, and what they listen at and connect to.

A transport is found by the scheme of a URI in the entry-point group `onward.transports`, or by
the type of an address in a route, as a decimal number, in the group `onward.address_types`. It
is loaded when it is first needed, and made once for each node.
"""

from __future__ import annotations

import logging
import threading
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from ..protocol import LOCAL, Address
from ._errors import UnknownScheme
from ._log import shown
from ._transport import Listener, Transport
from .access._exposed import Exposed
from .access._guards import Guards
from .runtime._run_queue import Phase

if TYPE_CHECKING:
    from ._node import Node

__all__ = ["Transports"]

_logger = logging.getLogger("onward.actors")

GROUP: Final = "onward.transports"
"""The entry points of transports, by the scheme of their URIs."""

TYPES_GROUP: Final = "onward.address_types"
"""The entry points of transports, by the type of the addresses that they resolve."""

EXPOSED_WITHIN: Final = 1.0
"""Seconds after which an exposed address without a worker is logged."""


class Transports:
    """The transports of one node.

    Args:
        node: The node, for the transports to know.
        guards: Its guards, with the exposed addresses and the router.
    """

    __slots__ = (
        "_classes",
        "_exposures",
        "_lock",
        "_made",
        "_node",
        "_rules",
        "_run_queue",
        "_table",
        "_types",
    )

    def __init__(self, node: Node, guards: Guards) -> None:
        self._node: Final = node
        self._exposures: Final = guards.exposures
        self._rules: Final = guards.router.rules
        self._run_queue: Final = guards.router.run_queue
        self._table: Final = guards.router.addresses
        self._lock: Final = threading.RLock()
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
        _logger.warning(
            text, entry.value, kind, str(kind), TYPES_GROUP, extra={"event": "transport.ambiguous"}
        )

    def _load(self, entry: EntryPoint, address_type: int) -> Transport | None:
        try:
            found = check_transport(entry.load())
        except Exception:
            # With a broken plug-in the sender gets `UnknownAddressType`.
            _logger.exception(
                "the transport for addresses of type %s cannot be loaded",
                entry.name,
                extra={"event": "transport.load_failed"},
            )
            return None
        if found.address_type != address_type:
            text = "%s is registered for addresses of type %s and resolves those of type %s"
            _logger.error(
                text,
                entry.value,
                entry.name,
                found.address_type,
                extra={"event": "transport.mismatched"},
            )
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
                self._rules.add(transport_class.address_type, rule, transport)
            self._made[transport_class] = transport
        return transport

    def use(self, uri: str) -> Transport:
        """Return the transport for the scheme of a URI; from any thread.

        Raises:
            UnknownScheme: There is none.
            NodeStopped: The node has not started, or is stopping.
        """
        if self._run_queue.phase is not Phase.OPEN:
            raise self._run_queue.stopped_error()
        with self._lock:
            return self.for_uri(uri)

    def load_type(self, address_type: int) -> None:
        """Load the transport that resolves an address type, if there is one; from any thread."""
        with self._lock:
            self.for_type(address_type)

    # --- listeners and links ----------------------------------------------------------

    async def listen(
        self, uri: str, expose: Exposed, error_replies: bool, options: Any
    ) -> Listener:
        """Accept connections at a URI; see `Node.listen`. On the loop."""
        listener = await self.use(uri).listen(uri, expose=expose, **options)
        self._look_at_exposed(expose, listener.uri)
        self._note(listener.address, self._exposures.listeners)
        if error_replies:
            self._note(listener.address, self._exposures.error_replies)
        return listener

    async def connect(
        self, uri: str, expose: Exposed, error_replies: bool, options: Any
    ) -> Address:
        """Connect to a URI; see `Node.connect`. On the loop."""
        address = await self.use(uri).connect(uri, expose=expose, **options)
        self._look_at_exposed(expose, uri)
        if error_replies:
            self._note(address, self._exposures.error_replies)
        return address

    def _look_at_exposed(self, exposed: frozenset[Address], uri: str) -> None:
        """Log exposed addresses that no worker has a little later: a name may be misspelt."""
        if self._missing(exposed):
            # A program may listen first and spawn the workers then.
            self._run_queue.loop.call_later(EXPOSED_WITHIN, self._tell_missing, exposed, uri)

    def _tell_missing(self, exposed: frozenset[Address], uri: str) -> None:
        missing = self._missing(exposed)
        if missing and self._run_queue.phase is Phase.OPEN:
            text = "node %r exposes addresses at %s that no worker has: %s"
            names = ", ".join(map(str, missing))
            _logger.warning(
                text,
                self._run_queue.name,
                shown(uri),
                shown(names),
                extra={"event": "listener.expects_address"},
            )

    def _missing(self, exposed: frozenset[Address]) -> list[Address]:
        expected = self._exposures.expected
        return sorted(
            each
            for each in exposed
            if each.type == LOCAL and each not in expected and each not in self._table.targets
        )

    def _note(self, at: Address, places: set[Address]) -> None:
        with self._table.lock:
            if at in self._table.targets:  # or the entry would outlive the worker
                places.add(at)


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
