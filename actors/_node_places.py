"""The rules, the transports and the exposed addresses of a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..protocol import Address, AddressLike
from ._node_messages import NodeMessages
from ._transport import Listener, Transport
from .access._exposed import Exposed
from .routing._given import several
from .routing._rules import Rule

__all__ = ["NodePlaces"]


class NodePlaces(NodeMessages):
    """A node with ways to other places; see `Node`."""

    # --- rules ------------------------------------------------------------------------

    def add_rule(self, address_type: int, rule: Rule, *, owner: object = None) -> None:
        """Add a rule that resolves the addresses of a type.

        Args:
            address_type: 1 to 255. A worker at the same address has precedence.
            rule: Function that returns the message with its first address replaced; a list of
                such messages, for several receivers; a `Pending`, so that the node keeps the
                message until the rule can resolve it; or `None` when it has taken the message
                over. It runs on the sender's thread, must not block, and raises its errors to the
                sender. Of several messages, those that cannot be delivered are dead letters; only
                if none can is the first error raised. A rule for one of them may not return
                several again.
            owner: The owner of the rule, by default the rule itself. Only the owner can replace
                its rule.

        Raises:
            ValueError: The type is out of range.
            RuleInUse: The type has a rule of another owner.
        """
        self.parts.router.rules.add(address_type, rule, owner)

    def remove_rule(self, address_type: int, *, owner: object = None) -> bool:
        """Remove the rule for a type of address, if it is the owner's.

        Messages that wait for the rule are lost, with `UnknownAddressType`.

        Args:
            address_type: The type.
            owner: The owner of the rule; by default a rule is removed that was added without
                an owner.

        Returns:
            Whether a rule of the owner was removed.
        """
        return self.parts.router.remove_rule(address_type, owner)

    # --- transports and exposed addresses ---------------------------------------------

    def add_transport(self, transport_class: type[Transport]) -> None:
        """Add a transport without an entry point; it precedes those with one."""
        self.parts.transports.add(transport_class)

    def transport(self, scheme: str) -> Transport:
        """Return the node's transport for a scheme; load and make it if necessary.

        With it, options can be set for addresses in routes, which have no place for them.
        Safe from any thread.

        Args:
            scheme: A scheme, such as `tcp`, or a URI.

        Raises:
            UnknownScheme: There is no transport for the scheme.
            NodeStopped: The node has not started, or is stopping.
        """
        return self.parts.transports.use(scheme)

    async def listen(
        self,
        uri: str,
        *,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        error_replies: bool = False,
        **options: Any,
    ) -> Listener:
        """Accept connections at a URI.

        Args:
            uri: The URI to listen at; its scheme selects the transport.
            expose: The local addresses that are reachable from outside; none by default. An
                address that no worker has a second later is logged as a warning.
            allow: The addresses that messages from outside may visit behind exposed workers,
                besides the exposed ones. In a value, `*` stands for any text: `"order-*"`,
                `"1#10.0.0.*:4000"`. None by default, so that no peer can make this node connect
                to places of its choice.
            error_replies: Whether error replies of this node may go to the peers.
            **options: The options of the transport.

        Raises:
            UnknownScheme: There is no transport for the scheme.
            TypeError: `expose` or `allow` is one address and not several, or there is no such
                option.
        """
        exposed = Exposed(several("expose", expose), several("allow", allow))
        work = self.parts.transports.listen(uri, exposed, error_replies, options)
        return await self.parts.run_queue.on_loop(work)

    async def connect(
        self,
        uri: str,
        *,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        error_replies: bool = False,
        **options: Any,
    ) -> Address:
        """Connect to a URI.

        Args:
            uri: The URI to connect to; its scheme selects the transport.
            expose: The local addresses that the peer can reach; none by default.
            allow: As for `listen`.
            error_replies: Whether error replies of this node may go to the peer.
            **options: The options of the transport.

        Returns:
            The address of the link: put it in front of a route.

        Raises:
            UnknownScheme: There is no transport for the scheme.
            TypeError: `expose` or `allow` is one address and not several, or there is no such
                option.
        """
        exposed = Exposed(several("expose", expose), several("allow", allow))
        work = self.parts.transports.connect(uri, exposed, error_replies, options)
        return await self.parts.run_queue.on_loop(work)

    def expose(self, at: AddressLike, address: AddressLike) -> None:
        """Allow the peer of a link to send to a worker. Safe from any thread.

        For workers that are made for a peer while the node runs. The permission ends with
        the worker, and with the link or listener. Idempotent.

        Args:
            at: The address of a link, or of a listener for all its present and future links.
            address: The address of the worker to expose.

        Raises:
            UnknownAddress: There is no such worker, or no such link or listener.
            LimitReached: `NodeLimits.exposed` addresses are exposed there.
        """
        self.parts.guards.expose(at, address)

    def hide(self, at: AddressLike, address: AddressLike) -> bool:
        """Undo `expose`. Addresses that a link was configured to expose stay exposed.

        Args:
            at: As given to `expose`.
            address: As given to `expose`.

        Returns:
            Whether the address was exposed there.
        """
        return self.parts.guards.hide(at, address)
