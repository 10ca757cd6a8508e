"""`Identities`: what a program does with the identities of a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...actors import LimitReached
from ...actors.access import Exposed
from ...actors.identity import (
    ROUTER,
    Correspondence,
    DirectoryService,
    IdentityOptions,
    RouterWorker,
)
from ...protocol import IDENTITY, Address, AddressLike, Message, Route, address as as_address
from ...protocol.identity import (
    TRUST_BANNED,
    TRUST_DEFAULT,
    Destination,
    DestinationKind,
    DirectoryLimits,
    Identity,
    Ordering,
    Reliability,
    ResultCode,
    RoutingPrefs,
    RoutingScope,
    Security,
    SigningKey,
    Target,
    TransportPrefs,
    destination_text,
    parse_target,
    target_text,
)
from ...protocol.options import check_value
from ._correspondent import Correspondent

if TYPE_CHECKING:
    from ...actors import Node

__all__ = ["Identities"]

_OPTIONS: Final = IdentityOptions()


class Identities:
    """The identities of a node: messages to public keys, which are resolved by the rule of 36.

    ```python
    identities = await Identities.attach(node, SigningKey(seed))
    orders = identities.engine("orders")  # a worker, which now has an identity
    await identities.join("tcp://127.0.0.1:4000", to=b)  # another node, which proves its key
    answer = await node.request(f"36#engine:{identity_text(far)}", b"12 apples")
    ```

    All its methods are called on the node's loop. Nothing of it can be reached from outside but
    what is exposed: `ROUTER` at a listener, for other nodes.

    Args:
        worker: The worker of its router.
    """

    def __init__(self, worker: RouterWorker) -> None:
        self._worker: Final = worker
        self._router: Final = worker.router

    @classmethod
    async def attach(
        cls,
        node: Node,
        key: SigningKey,
        options: IdentityOptions = _OPTIONS,
        *,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        directory: Path | None = None,
        clock: Callable[[], float] | None = None,
    ) -> Identities:
        """Give a node an identity.

        Args:
            node: The node.
            key: Its key.
            options: The options.
            expose: The addresses that other identities may send to, by `36#node:… => address`, for
                the node itself; none by default. Engines need not be among them.
            allow: As for `Node.listen`.
            directory: The file that remembers what the node knows of identities, its bans included;
                it is made if it is not there. `None`: the node forgets it when it stops.
            clock: Returns the time since the Unix epoch, in seconds, such as that of a simulation;
                by default that of the machine.

        Raises:
            AddressInUse: The node has an identity.
            DirectoryFileInUse: Another node has the file of the directory.
            DirectoryFileFailed: It cannot be opened, or is damaged.
            NewerDirectory: A newer version of Onward has written it.
        """
        check_value("options", options, IdentityOptions)
        now = time.time if clock is None else clock
        worker = RouterWorker(key, options, lambda: int(now() * 1000), directory)
        await node.start(lambda: worker, address=ROUTER)
        exposed = Exposed(map(as_address, expose), map(as_address, allow))

        def open_link(own: Identity, identity: Identity) -> tuple[Correspondence, Address]:
            link = Correspondent(own, identity, worker.router, exposed)
            return link, worker.spawn(lambda: link)

        worker.router.links.open = open_link
        return cls(worker)

    @property
    def own(self) -> Identity:
        """The identity of the node."""
        return self._router.own

    @property
    def directory(self) -> DirectoryService:
        """The directory: all that the node knows of identities."""
        return self._router.directory

    def engine(self, worker: AddressLike, key: SigningKey | None = None) -> Identity:
        """Make a worker of the node an engine, until it ends, and return its identity.

        Other identities may send to it from now on.

        Args:
            worker: Its address.
            key: A key of its own; without, the node signs for it.

        Raises:
            UnknownAddress: There is no such worker.
            EngineInUse: It is an engine already, or another one has this key.
            LimitReached: There are `IdentityOptions.max_engines`.
        """
        return self._router.add_engine(as_address(worker), key).identity

    async def join(self, to: str | Address, *, identity: Identity | None = None) -> Identity:
        """Join another node over a link, once both have proved their keys.

        The link is dialled again after a loss.

        Args:
            to: The URI to connect to, or the address of a link.
            identity: The identity that the other node must have; `None`: any, which is then that of
                the node that has answered there.

        Returns:
            The identity of the other node.

        Raises:
            PeerRefused: The other node has not proved its key in time, has another identity, or
                refuses; or this node has as many links as it may, or its router has ended.
            LinkDown: There is no connection.
            UnknownAddress: There is no such link.
        """
        return await self._router.peers.join(to, identity)

    def peers(self) -> tuple[Identity, ...]:
        """Return the nodes that have proved their keys and take messages."""
        sessions = self._router.peers.sessions
        return tuple(node for node, session in sessions.items() if session.is_greeted)

    def ban(self, identity: Identity) -> None:
        """Refuse all messages from an identity and to it, and end the link to it, if it is a node.

        Requests that wait for it raise `LinkLost`. It says nothing to the other node. The directory
        remembers it, as a trust of 0.

        Raises:
            LimitReached: It is banned until the node ends, as the directory has no place for it.
        """
        self._router.ban(identity)
        if self.directory.set_trust(identity, TRUST_BANNED) is not ResultCode.OK:
            raise LimitReached("identities that the directory holds", DirectoryLimits().max_known)

    def unban(self, identity: Identity) -> None:
        """Accept messages of an identity again, with the trust of any. A node has to join anew."""
        self.directory.set_trust(identity, TRUST_DEFAULT)
        self._router.unban(identity)

    def refused(self) -> dict[str, int]:
        """Return what was refused or dropped since the start, by its reason."""
        return dict(self._router.counts + self._router.peers.counts)

    def route_to(
        self,
        to: Destination | Identity | str,
        *rest: AddressLike,
        relays: Iterable[Identity] = (),
        scope: RoutingScope | None = None,
        ordered: bool = True,
        reliable: bool = True,
        hops: int = 0,
    ) -> Route:
        """Return the route to an identity, which any worker may send to.

        Args:
            to: What it is to: a destination, its text as in `engine:…`, or an engine.
            rest: The addresses behind it.
            relays: The relays that it goes through, each of which opens one layer of encryption.
            scope: How far the message may go; anywhere by default.
            ordered: Whether its order is to be kept.
            reliable: Whether it is to wait while no way to it is known.
            hops: The fewest relays that it may go through; over fewer it is refused.

        Raises:
            BadIdentity: The text is of no destination.
            BadRecord: There are more hops than a message may have.
        """
        target = parse_target(to) if isinstance(to, str) else Target(_destination(to))
        if scope is not None:
            target = replace(target, rprefs=RoutingPrefs(scope))
        if hops or not (ordered and reliable):
            prefs = TransportPrefs(
                Ordering.ORDERED if ordered else Ordering.UNORDERED,
                Reliability.RELIABLE if reliable else Reliability.UNRELIABLE,
                Security.ONION if hops else Security.DIRECT,
                hops,
            )
            target = replace(target, tprefs=prefs)
        way = [Target(Destination(DestinationKind.RELAY, each)) for each in relays]
        first = (Address(IDENTITY, target_text(each).encode()) for each in (*way, target))
        return *first, *map(as_address, rest)

    def send(
        self,
        to: Destination | Identity | str,
        payload: bytes,
        *,
        rest: Iterable[AddressLike] = (),
        relays: Iterable[Identity] = (),
    ) -> None:
        """Send a message of the node to an identity; see `route_to` and `Node.send`."""
        self._worker.node.send(self.route_to(to, *rest, relays=relays), payload)

    async def request(
        self,
        to: Destination | Identity | str,
        payload: bytes,
        *,
        rest: Iterable[AddressLike] = (),
        relays: Iterable[Identity] = (),
        timeout: float = 30.0,
    ) -> Message:
        """Send a request of the node to an identity, and return its answer.

        See `route_to` and `Node.request`; a worker that is an engine asks by `Worker.request`, and
        is then the one that asks.
        """
        route = self.route_to(to, *rest, relays=relays)
        return await self._worker.node.request(route, payload, timeout=timeout)

    def address_of(self, identity: Identity) -> Address:
        """Return the address of an identity: `36#node:…` for this node, or `36#engine:…`."""
        node = identity == self.own
        kind = DestinationKind.NODE if node else DestinationKind.ENGINE
        return Address(IDENTITY, destination_text(Destination(kind, identity)).encode())


def _destination(to: Destination | Identity) -> Destination:
    return to if isinstance(to, Destination) else Destination(DestinationKind.ENGINE, to)
