"""`Identities`: what a program does with the identities of a node."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...actors import LimitReached
from ...actors.access import Exposed
from ...actors.identity import (
    ADDRESS_WEIGHT,
    ROUTER,
    Admit,
    Correspondence,
    DirectoryService,
    DomainStatistics,
    Engine,
    IdentityKeys,
    IdentityOptions,
    PassedOn,
    Relays,
    RelayStatistics,
    RouterWorker,
    SubscriberHooks,
    TopicRefused,
    TopicReport,
    admit_none,
)
from ...protocol import (
    IDENTITY,
    Address,
    AddressLike,
    Message,
    Route,
    address as as_address,
    check_bytes,
)
from ...protocol.identity import (
    SCOPE_ANY,
    SCOPE_LOCAL,
    SEED_SIZE,
    TRUST_BANNED,
    TRUST_DEFAULT,
    AdvertEnvelope,
    AdvertSource,
    Destination,
    DestinationKind,
    DirectoryLimits,
    Identity,
    IdentityRecord,
    Ordering,
    PutOutcome,
    RelayLoadLimits,
    RelayPolicy,
    Reliability,
    Reservation,
    ReservationLimits,
    ReservationRequest,
    ResultCode,
    RoutingPrefs,
    RoutingScope,
    SealingKeys,
    Security,
    SigningKey,
    Target,
    TopicAdvert,
    TransportPrefs,
    destination_text,
    parse_target,
    read_advert,
    sign_advert,
    target_text,
)
from ...protocol.options import check_value
from ._correspondent import Correspondent
from ._topic import Topic

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
        self._topics: Final = worker.topics
        self._relays: Relays

    @classmethod
    async def attach(
        cls,
        node: Node,
        key: SigningKey | IdentityKeys,
        options: IdentityOptions = _OPTIONS,
        *,
        expose: Iterable[AddressLike] = (),
        allow: Iterable[AddressLike] = (),
        addresses: Iterable[str] = (),
        directory: Path | None = None,
        clock: Callable[[], float] | None = None,
        relay: RelayPolicy | None = None,
        relay_limits: RelayLoadLimits | None = None,
        reservation_limits: ReservationLimits | None = None,
    ) -> Identities:
        """Give a node an identity.

        Args:
            node: The node.
            key: Its keys, as of `load_key_file`; or the one to sign with alone, to which a key to
                seal to is drawn. What is sealed to that one cannot be read after a restart.
            options: The options.
            expose: The addresses that other identities may send to, by `36#node:… => address`, for
                the node itself; none by default. Engines need not be among them.
            allow: As for `Node.listen`.
            addresses: The URIs by which other nodes reach it, which its advert has; see
                `advertise`.
            directory: The file that remembers what the node knows of identities, its bans included;
                it is made if it is not there. `None`: the node forgets it when it stops.
            clock: Returns the time since the Unix epoch, in seconds, such as that of a simulation;
                by default that of the machine.
            relay: What the node relays for others; by default nothing.
            relay_limits: The limits of what it spends on that.
            reservation_limits: The limits of reservations.

        Raises:
            AddressInUse: The node has an identity.
            DirectoryFileInUse: Another node has the file of the directory.
            DirectoryFileFailed: It cannot be opened, or is damaged.
            NewerDirectory: A newer version of Onward has written it.
        """
        check_value("options", options, IdentityOptions)
        now = time.time if clock is None else clock
        if isinstance(key, IdentityKeys):
            signing, sealing = key.signing, key.sealing_keys()
        else:
            signing, sealing = key, SealingKeys(secrets.token_bytes(SEED_SIZE))
        worker = RouterWorker(signing, sealing, options, lambda: int(now() * 1000), directory)
        await node.start(lambda: worker, address=ROUTER)
        allowed = tuple(map(as_address, allow))
        exposed = Exposed(map(as_address, expose), allowed)
        relays = Relays(
            worker.router,
            worker,
            signing,
            sealing,
            anonymous=options.anonymous,
            policy=relay,
            limits=relay_limits,
            reservations=reservation_limits,
        )
        worker.router.add_part(relays)

        def open_link(own: Identity, identity: Identity) -> tuple[Correspondence, Address]:
            served = worker.router.domains.served.get(own)
            here = exposed if served is None else Exposed((served.worker, *served.expose), allowed)
            link = Correspondent(
                own,
                identity,
                worker.router,
                here,
                relays.service.passes,
                relays.service.passes_back,
            )
            return link, worker.spawn(lambda: link)

        worker.router.links.open = open_link
        made = cls(worker)
        made._relays = relays
        for each in addresses:
            made.advertise(each)
        return made

    @property
    def own(self) -> Identity:
        """The identity of the node."""
        return self._router.own

    @property
    def node(self) -> Node:
        """The node."""
        return self._worker.node

    @property
    def sealing_key(self) -> bytes:
        """The public key that others seal to for this node, which its advert has."""
        return self._relays.sealing.public

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

    def serve(
        self, domain: Identity, worker: AddressLike, *, expose: Iterable[AddressLike] = ()
    ) -> None:
        """Serve a domain by a worker of the node, in the place of the one before, until it ends.

        Requests to the domain reach it as `36#domain:…`, and its address and those exposed as
        `36#domain:… => address`. It answers each once. The node has to be a member for others to
        send to it.

        Args:
            domain: The domain.
            worker: The address of the worker.
            expose: Other addresses of the node that requests to the domain may go to.

        Raises:
            UnknownAddress: There is no such worker.
            LimitReached: The node serves as many domains as it may.
        """
        exposed = frozenset(map(as_address, expose))
        self._router.domains.serve(domain, as_address(worker), exposed)

    def stop_serving(self, domain: Identity) -> bool:
        """Serve a domain no more; return whether it was served. What is in hand is answered."""
        return self._router.domains.stop(domain)

    def found_domain(
        self,
        key: SigningKey,
        nodes: Iterable[Identity] | None = None,
        *,
        admit: Admit = admit_none,
    ) -> Identity:
        """Sign the members of a domain, tell them to all nodes, and return its identity.

        Called again, `nodes` and `admit` take the place of those before. The key is used until the
        node ends: found it anew when the node is started again.

        Args:
            key: The key of the domain.
            nodes: The members, at most `MAX_DOMAIN_NODES`; by default those that the directory
                knows, which it keeps in its file, or this node if it knows of none.
            admit: Decides whether a node that asks to join is let in; no node is by default. What
                it shows is `JoinRequest.auth`. It runs on the loop, and may be a coroutine
                function, which is cancelled after 25 seconds; the node gets `TIMEOUT` then.

        Raises:
            LimitReached: There are more members than there may be, or more domains.
            ValueError: The domain is banned here.
        """
        members = None if nodes is None else tuple(dict.fromkeys(nodes))
        self._router.domains.memberships.found(key, members, admit)
        return key.identity

    async def join_domain(
        self, domain: Identity, via: Identity, auth: bytes | None = None
    ) -> ResultCode:
        """Ask to be a member of a domain, at the node that has its key.

        Args:
            domain: The domain.
            via: That node; there has to be a link to it.
            auth: What is shown to be let in, at most `MAX_JOIN_AUTH` bytes. The node sees it.

        Returns:
            `OK`; or `EXISTS` if the node is a member, `DENIED`, `OVERFLOW`, `UNKNOWN` if the other
            node does not have the key, and `TIMEOUT` if it has not decided after 25 seconds, or
            has not answered after 30.

        Raises:
            LinkDown: There is no link to the node.
            LinkLost: The link has ended meanwhile.
            LimitReached: 64 such requests are under way.
            BadRecord: There is more to show than there may be.
        """
        return await self._router.domains.memberships.join(domain, via, auth)

    def domain_statistics(self) -> DomainStatistics:
        """Return the domains and the requests to them at this moment."""
        return self._router.domains.statistics()

    async def join(self, to: str | Address, *, identity: Identity | None = None) -> Identity:
        """Join another node over a link, once both have proved their keys.

        The link is dialled again after a loss. If it was one of the other node, as both have joined
        each other, `to` is dialled after a while; and the addresses in the newest advert of the
        node, by the schemes of `IdentityOptions.dials`.

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
        node = await self._router.peers.join(to, identity)
        self._router.dialling.keep(node, to)
        return node

    async def reserve(
        self,
        relay: Identity,
        *,
        duration: int = 3600,
        size: int = 64 * 1024 * 1024,
        messages: int = 65_536,
    ) -> Reservation:
        """Reserve at a relay, so that others reach this node through it.

        It is asked for again at half of its time, and when the link to the relay is back, until
        `release`. While it lasts the advert of the node says so.

        Args:
            relay: The relay, which there is a link to.
            duration: Its time, in seconds.
            size: The bytes that may be relayed to this node, in bytes.
            messages: The messages that may be relayed to this node.

        Returns:
            What the relay gives, which may be less.

        Raises:
            RelayRefused: The relay refuses, or does not answer in 10 seconds.
            LinkDown: There is no link to it, or it has ended.
            LimitReached: There are reservations at 8 relays.
            BadRecord: A number is out of its range.
        """
        request = ReservationRequest(duration, size, messages)
        return await self._relays.reserved.reserve(relay, request)

    def release(self, relay: Identity) -> bool:
        """Reserve at a relay no more; return whether there was a reservation.

        The one that there is ends at its time, or with the link.
        """
        return self._relays.reserved.release(relay)

    def reserved_at(self) -> tuple[Identity, ...]:
        """Return the relays at which this node has a reservation now."""
        return self._relays.reserved.relays()

    def watch_relay(self, on_passed: Callable[[PassedOn], object]) -> Callable[[], None]:
        """Call a function for all that this node passes on as a relay, with what it can see of it.

        Args:
            on_passed: Receives each. It neither waits nor raises.

        Returns:
            A function that ends it.
        """
        watchers = self._relays.service.on_passed
        watchers.append(on_passed)
        return lambda: watchers.remove(on_passed)

    def reload(self, keys: IdentityKeys) -> bool:
        """Use the sealing key of a key file that was rotated.

        The key before opens what is under way for ten minutes more.

        Args:
            keys: The keys, as of `load_key_file`.

        Returns:
            Whether it is another one than before.

        Raises:
            ValueError: The keys are of another identity.
        """
        return self._relays.rotate(keys)

    def relay_statistics(self) -> RelayStatistics:
        """Return what this node has relayed, and what it holds for that."""
        return self._relays.statistics()

    def peers(self) -> tuple[Identity, ...]:
        """Return the nodes that have proved their keys and take messages."""
        sessions = self._router.peers.sessions
        return tuple(node for node, session in sessions.items() if session.is_greeted)

    # --- topics -------------------------------------------------------------------------------

    @property
    def updates(self) -> Identity:
        """The topic of the router, to which it alone publishes: each change of the directory.

        Its publications are `IdentityUpdated`, as `parse_control` reads them.
        """
        return self._topics.updates

    def create_topic(
        self,
        topic: SigningKey | Identity,
        *,
        engine: AddressLike,
        scope: RoutingScope = SCOPE_LOCAL,
        advert: AdvertEnvelope | None = None,
        publishers: Iterable[Identity] = (),
    ) -> Identity:
        """Create a topic, which an engine of this node owns: it alone may delete it.

        Args:
            topic: Its key, by which its advert is signed; or its identity.
            engine: The address of the worker that owns it, which becomes an engine if it is none.
            scope: How far it goes.
            advert: Its advert, which a scope beyond the node needs. It has the same scope, and its
                first publisher is an engine of this node, or the node. With the key of the topic,
                one is made.
            publishers: The identities that may publish besides the engine, in the advert that is
                made; others may not.

        Returns:
            The identity of the topic.

        Raises:
            TopicRefused: It is not created.
            UnknownAddress: There is no such worker.
        """
        owner = self._engine_at(engine)
        identity = topic.identity if isinstance(topic, SigningKey) else topic
        if advert is None and isinstance(topic, SigningKey) and scope != SCOPE_LOCAL:
            now = self._router.milliseconds()
            who = tuple(dict.fromkeys((owner.identity, *publishers)))
            # The version is the time in seconds, above that of any advert before.
            version = max(now // 1000, self._version_of(identity) + 1)
            advert = sign_advert(TopicAdvert(identity, (), who, scope, version, now), topic)
        envelope = b"" if advert is None else advert.envelope
        result = self._topics.create(identity, owner, scope, envelope)
        if result.code is not ResultCode.OK:
            raise TopicRefused(identity, result.code, result.detail or "")
        return identity

    def _version_of(self, identity: Identity) -> int:
        record = self.directory.peek(identity)
        if record is None or record.advert is None:
            return -1
        return read_advert(record.advert).advert.version

    def delete_topic(self, topic: Identity, *, engine: AddressLike) -> None:
        """Delete a topic, with all its subscriptions.

        Args:
            topic: The topic.
            engine: The address of the worker that owns it.

        Raises:
            TopicRefused: There is no such topic, or another engine owns it.
        """
        _check(topic, self._topics.delete(topic, self._router.engines.at(as_address(engine))))

    async def subscribe(
        self,
        topic: Identity,
        worker: AddressLike,
        *,
        scope: RoutingScope = SCOPE_ANY,
        on_lost: Callable[[int | None], object] | None = None,
        on_end: Callable[[ResultCode], object] | None = None,
    ) -> None:
        """Subscribe a worker to a topic, until it ends.

        Args:
            topic: The topic.
            worker: The address of the worker, which becomes an engine if it is none.
            scope: How far the topic may be.
            on_lost: Receives the number of events that were missed for good; `None` as the number
                if it is not known, as the node that publishes has started anew.
            on_end: Receives the reason when the topic is gone.

        Raises:
            TopicRefused: The worker is not subscribed.
            UnknownAddress: There is no such worker.
        """
        result: asyncio.Future[ResultCode] = self.node.loop.create_future()

        def done(code: ResultCode) -> None:
            if not result.done():
                result.set_result(code)

        hooks = SubscriberHooks(on_lost, on_end)
        engine = self._engine_at(worker)
        self._topics.subscribe(topic, engine, scope, hooks, done)
        try:
            code = await result
        except asyncio.CancelledError:
            self._topics.cancel(topic, engine)
            raise
        _check(topic, code)

    def unsubscribe(self, topic: Identity, worker: AddressLike) -> None:
        """End the subscription of a worker.

        Raises:
            TopicRefused: It is not subscribed.
        """
        _check(topic, self._topics.unsubscribe(topic, self._router.engines.at(as_address(worker))))

    def publish(
        self, topic: Identity, payload: bytes, *, source: AddressLike | None = None
    ) -> None:
        """Publish to a topic, as `36#topic:…` in a route does.

        Args:
            topic: The topic.
            payload: The payload.
            source: The address of the worker that it is of, which receives answers; by default the
                node is the source.

        Raises:
            PayloadNotBytes: The payload is not `bytes`.
            DeliveryError: As `Node.route`.
        """
        to = Address(IDENTITY, destination_text(Destination(DestinationKind.TOPIC, topic)).encode())
        if source is None:
            self.node.send((to,), payload)
            return
        check_bytes(payload)
        own = self._engine_at(source).address
        self.node.parts.router.dispatch(Message((to,), (own,), payload, own))

    def topic(self, topic: Identity, *, scope: RoutingScope = SCOPE_ANY) -> Topic:
        """Return a topic, for functions that subscribe to it."""
        return Topic(self, topic, scope)

    def topics(self) -> tuple[TopicReport, ...]:
        """Return the topics that are created here, and those of other nodes that are followed."""
        return self._topics.reports()

    def _engine_at(self, worker: AddressLike) -> Engine:
        address = as_address(worker)
        found = self._router.engines.at(address)
        return self._router.add_engine(address, None) if found is None else found

    # --- trust --------------------------------------------------------------------------------

    def advertise(self, address: str, weight: int = ADDRESS_WEIGHT) -> None:
        """Add an address of the node, which other nodes are told, and tell on to those that ask.

        Args:
            address: The URI of a listener that exposes `ROUTER`, as others reach it.
            weight: From 0 to 255; the address with the greatest is tried first.

        Raises:
            ValueError: It is empty or too long, or there is no such weight.
            LimitReached: There are `MAX_ADVERT_ADDRESSES`.
        """
        self._router.own_adverts.advertise(address, weight)

    def withdraw(self, address: str) -> bool:
        """Remove an address of the node; return whether there was such."""
        return self._router.own_adverts.withdraw(address)

    async def lookup(self, identity: Identity) -> IdentityRecord | None:
        """Return what is known of an identity; if this node has no advert of it, others are asked.

        Args:
            identity: The identity.

        Returns:
            Its record; without an advert or `None` if no node has one, or none has answered within
            five seconds, or a moment ago none had.
        """
        record = self.directory.lookup(identity)
        if record is None or record.advert is None:
            ended = self._router.lookups.lookup(identity)
            if ended is not None:
                await asyncio.shield(ended)
            record = self.directory.lookup(identity)
        return record

    def put_advert(self, envelope: AdvertEnvelope) -> PutOutcome:
        """Put an advert into the directory, which counts as used by this node.

        Args:
            envelope: The advert; it is verified here.
        """
        return self.directory.put(envelope, AdvertSource.LOCAL)

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
        forgotten = self._topics.table.counters.forgotten
        counts = Counter({"publications that were forgotten, so they may come again": forgotten})
        return dict(self._router.counts + self._router.peers.counts + counts)

    def route_to(
        self,
        to: Destination | Identity | str,
        *rest: AddressLike,
        relays: Iterable[Identity] = (),
        scope: RoutingScope | None = None,
        ordered: bool = True,
        reliable: bool = True,
        hops: int = 0,
        exit: bool = False,  # noqa: A002
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
            exit: Whether the last relay lets it out, and finds the node of the destination. It can
                read the message.

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
        if exit:
            target = replace(target, exit=True)
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


def _check(topic: Identity, code: ResultCode) -> None:
    if code is not ResultCode.OK:
        raise TopicRefused(topic, code)
