"""The cluster of a broker: the other brokers, the links to them, and the log of its own routes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...protocol import AddressLike
from ...protocol.broker import BrokerInfo, RouteAdd, RouteRemove, format_id
from ...protocol.cluster import (
    CLIENTS_SERVICE,
    DRAINING,
    FILTER_ROUTE,
    GROUPS_ROUTE,
    ROUTES_ROUTE,
    UP,
    ClusterFrameError,
    LinkRefusal,
    LinkRefused,
    LinkRole,
    Membership,
    PeerInfo,
    with_seed_uri,
)
from .._log import SeldomLogger, shown
from ..broker import Broker, Handlers
from ._clients import clients_service
from ._cluster_tasks import ClusterTasks
from ._dialled import ClusterDrain, DialledPeer
from ._duplicate_routes import DuplicateRoutes
from ._feeds import Feeds, RouteStream
from ._gateways import GatewayWorker, ZoneCaller
from ._greetings import Requested, greetings
from ._java_peer import java_greetings
from ._link_workers import LinkEnd
from ._options import ClusterOptions
from ._own_zone import FilterStream, OwnZone
from ._peer_connection import ConnectPeer, PeerConnection, PeerRefused, ResolveSeed
from ._peer_worker import NEARER, REPLACED, STOPPED, PeerWorker

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Cluster"]

_Worker = TypeVar("_Worker", bound=PeerWorker)

_logger = logging.getLogger("onward.actors.cluster")

DEFAULT_ADDRESS: Final = "cluster"

MAX_REASONS: Final = 64
"""Most reasons by which losses are counted; further ones count as `other`."""

STOPS: Final = "the broker stops"


class Cluster(ClusterTasks):
    """The part of a broker in a cluster.

    Attach it after the broker and before the listeners, give it to those that take peer links, and
    join when they are open:

        broker = await Broker.attach(node)
        cluster = await Cluster.attach(node, broker, ClusterOptions(seeds=(uri,)), connect=connect)
        listener = await node.listen(uri, broker=broker, peers=cluster)
        cluster.join(listener.uri)

    It implements `PeerHandlers`. Its methods are for the node's loop.

    Args:
        broker: The broker.
        options: The options.
        connect: Dials another broker.
        random: Returns a random number, 0 or more and less than 1.
        resolve: Resolves the names of seeds; by default they are dialled as they are.

    Attributes:
        options: The options.
        log: The log of the broker's own routes.
    """

    def __init__(
        self,
        broker: Broker,
        options: ClusterOptions,
        connect: ConnectPeer,
        random: Callable[[], float] = random,
        resolve: ResolveSeed | None = None,
    ) -> None:
        super().__init__(broker, options, connect, partial(DialledPeer, self), resolve)
        self._random = random
        self._withdraw: list[Callable[[], object]] = []

    @classmethod
    async def attach(
        cls,
        node: Node,
        broker: Broker,
        options: ClusterOptions = ClusterOptions(),  # noqa: B008 - frozen
        *,
        connect: ConnectPeer,
        address: AddressLike = DEFAULT_ADDRESS,
        random: Callable[[], float] = random,
        resolve: ResolveSeed | None = None,
    ) -> Cluster:
        """Start the cluster of a broker on its node.

        Args:
            node: The node.
            broker: The broker.
            options: The options.
            connect: Dials another broker, by a transport.
            address: The address of its worker.
            random: Returns a random number, 0 or more and less than 1.
            resolve: Resolves the names of seeds, by a transport; by default they are dialled as
                they are.

        Raises:
            AddressInUse: The node has a worker at this address already.
            BrokerFrameError: A text of the options is too long, or a destination that is there
                already has too many tags to be told.
        """
        cluster = cls(broker, options, connect, random, resolve)
        cluster._own.serialize()
        await node.start(lambda: cluster, address=address)
        return cluster

    def on_start(self) -> None:
        """Follow the broker's own routes, and its drains."""
        clock = self.node.loop.time
        self._feeds = Feeds(self.log, clock)
        self._seldom = SeldomLogger(_logger, clock)
        options = self.options
        self.membership = Membership(
            self._own,
            seeds=() if self._resolve_seed else options.seeds,
            allowed=options.allowed_peers,
            limits=options.limits,
            now=clock(),
            random=self._random,
        )
        index = self._broker.index
        index.prefer_own(prefer=options.locality == "prefer")
        self._withdraw = [
            index.own_changes(self._on_own_change),
            self._broker.add_part(ClusterDrain(self)),
        ]
        if options.zone:
            own = self._own
            self._zone = OwnZone(
                own.broker_id, own.instance, options, self.every_route, clock, self.after
            )
            index.follow_zone(self._zone)
            self._duplicates = duplicates = DuplicateRoutes(
                self._broker, self.links, options, self.after, self._run, clock
            )
            index.taken_elsewhere = duplicates.taken
            self._withdraw += [
                lambda: setattr(index, "taken_elsewhere", None),
                lambda: index.follow_zone(None),
                index.own_changes(duplicates.on_own_change),
            ]

    def on_stop(self) -> None:
        """Close all links."""
        self._joined = False
        while self._withdraw:
            self._withdraw.pop()()
        for connection in (*self.links.connections(), *self._replaced):
            connection.close(STOPPED, STOPS)
        for task in tuple(self._tasks):
            task.cancel()

    def join(self, advertise: str = "", clients: str = "") -> None:
        """Dial other brokers from now on, and tell clients of them.

        Args:
            advertise: The URI by which they reach this one, unless the options have one.
            clients: The URI by which clients reach it, likewise.

        Raises:
            BrokerFrameError: The URI is too long.
        """
        uri = self.options.advertise or advertise
        if uri:
            replace(self._own, cluster_uri=uri).serialize()
            self._update(cluster_uri=uri)
        told = self.options.clients or clients
        if told:
            replace(self._own, proxy_uri=told).serialize()
            self._update(proxy_uri=told)
            service = self._broker.serve(clients_service(self), service=CLIENTS_SERVICE)
            self._withdraw.append(service.withdraw)
        self._joined = True
        if self._resolve_seed is not None:
            self._resolve_all()
            self.every(self.options.resolve_interval, self._resolve_all)
        self._arm()

    def adjust(self, options: ClusterOptions) -> None:
        """Change the seeds and the allowed peers while the cluster runs; links stay.

        Args:
            options: The options. Other fields must be as they were.

        Raises:
            ValueError: A field is changed that has to stay.
        """
        old = self.options
        if replace(old, seeds=options.seeds, allowed_peers=options.allowed_peers) != options:
            raise ValueError("only seeds and allowed peers change while the cluster runs")
        self.options = options
        self.membership.replace_allowed(options.allowed_peers, self._now())
        if self._resolve_seed is None:
            self.membership.replace_seeds(options.seeds, self._now())
        else:
            self._resolve_all()
        self._arm()

    # --- own routes ---------------------------------------------------------------------------

    def _on_own_change(self, change: RouteAdd | RouteRemove) -> None:
        # Emitting ROUTE_ADD Frames: "Brokers SHOULD send ROUTE_ADD frames to all connected brokers
        # when a new route is established."
        self.log.add(self._broker.told(change))
        self._feeds.wake()

    def drain(self, *, draining: bool) -> None:
        """Announce to the peer brokers that this one drains, or serves again."""
        self._update(state=DRAINING if draining else UP)

    def _update(self, **changes: Any) -> None:
        self._own = self.membership.update(int(time.time() * 1000), **changes)
        self._arm()

    # --- for the transports -------------------------------------------------------------------

    @property
    def info(self) -> BrokerInfo:
        """The BROKER_INFO of this broker, as of now."""
        return self._own.frame()

    def greet(self, info: BrokerInfo) -> None:
        """Decide on a broker that has dialled; see `PeerHandlers`.

        Raises:
            PeerRefused: It is no peer broker.
        """
        refusal = self.membership.refusal(self._read(info), self._now())
        if refusal is not None:
            self._refused(info, refusal)

    def on_connected(self, connection: PeerConnection) -> Handlers:
        """Use a link that another broker has dialled; see `PeerHandlers`.

        Raises:
            PeerRefused: It is no peer broker.
        """
        return self.use(connection, None)

    def use(self, connection: PeerConnection, dialled: str | None) -> Handlers:
        """Use a link, and return the handlers of the requests that come by it.

        Args:
            connection: The link.
            dialled: The URI that this broker has dialled; `None` if the other has.

        Raises:
            PeerRefused: It is no peer broker.
        """
        info, now = self._read(connection.info), self._now()
        verdict = self.membership.connected(info, connection, dialled=dialled, now=now)
        if isinstance(verdict, LinkRefused):
            self._arm()
            self._refused(connection.info, verdict.reason)
            raise PeerRefused(verdict.reason.value)
        connection.role = verdict.role
        end, streams = self._begin(connection, info)
        if isinstance(end, GatewayWorker):
            end.uri = dialled or ""
        before: PeerConnection | None = verdict.replaces
        if before is not None:
            other = self.links.with_link(before)
            if isinstance(other, GatewayWorker):
                other.replaced()  # by a better broker of its zone
            else:
                self._replaced.add(before, at_once=before.dialled == connection.dialled)
        self._arm()
        if connection.java and isinstance(end, PeerWorker):
            return java_greetings(end, connection)
        return greetings(self, end, connection, streams)

    def _begin(
        self, connection: PeerConnection, info: PeerInfo
    ) -> tuple[LinkEnd, dict[str, Requested]]:
        """Begin to use a link by its role.

        Returns:
            Its other end, and the streams that this may ask for, by the routes of their requests.
        """
        links, broker_id = self.links, info.broker_id
        if connection.role is LinkRole.MESH:
            worker = links.mesh.get(broker_id)
            if worker is None:
                worker = links.mesh[broker_id] = self._start(PeerWorker, info)
            return worker, {ROUTES_ROUTE: worker.connected(connection, info).requested}
        if connection.role is LinkRole.TO_ZONE:
            gateway = links.gateways.get(broker_id)
            if gateway is None:
                gateway = links.gateways[broker_id] = self._start(GatewayWorker, info)
            gateway.duplicates = self._duplicates
            gateway.connected(connection, info)
            return gateway, {}
        if self._zone is None:
            raise AssertionError("a link from another zone, and no own one")
        stream = RouteStream(self._zone.feeds, info.max_batch)
        caller = ZoneCaller(info, connection, stream, self._on_fault)
        links.callers[broker_id] = caller
        filters = FilterStream(self._zone, info.max_batch)
        return caller, {GROUPS_ROUTE: stream.requested, FILTER_ROUTE: filters.requested}

    def on_lost(self, connection: PeerConnection, reason: str) -> None:
        """Remove a link that has ended; see `PeerHandlers`."""
        broker_id = connection.info.broker_id
        self.membership.lost(broker_id, connection, self._now())
        self._replaced.discard(connection)
        end = self.links.with_link(connection)
        if end is None:
            return  # another one has replaced it
        reason = shown(reason)
        # Both have dialled at a time, and the other one knows already which of the links stays.
        replaced = reason == LinkRefusal.DUPLICATE.value
        if not replaced and reason not in (REPLACED, NEARER):
            known = reason in self._lost or len(self._lost) < MAX_REASONS
            self._lost[reason if known else "other"] += 1
        if isinstance(end, PeerWorker):
            end.lost(reason, replaced=replaced)
        else:
            end.connection = None
            del self.links.callers[broker_id]
        self._arm()

    def brokers_for_clients(self) -> Iterator[PeerInfo]:
        """Yield this broker, and the peer brokers that there are links with."""
        yield self._own
        for known in self.membership.brokers():
            if known.linked:
                yield known.info

    def heard(self, info: PeerInfo, worker: LinkEnd) -> None:
        """Receive what a peer broker has told of another broker, or of itself."""
        by = worker.info.broker_id
        self.membership.heard(info, by, self._now())
        if info.broker_id == by:
            worker.tell(info)
        self._arm()

    def _read(self, info: BrokerInfo) -> PeerInfo:
        """Read the list of a BROKER_INFO.

        Raises:
            PeerRefused: It cannot be read.
        """
        try:
            return with_seed_uri(PeerInfo.of(info))
        except ClusterFrameError as error:
            raise PeerRefused(error.reason) from error

    def _refused(self, info: BrokerInfo, reason: LinkRefusal) -> None:
        """Log a refusal, and raise it.

        Raises:
            PeerRefused: Always.
        """
        level = logging.WARNING if reason.is_mistake else logging.DEBUG
        broker_id = format_id(info.broker_id)
        self._seldom.log(
            level,
            f"peer.refused {reason.name}",
            "broker %s is refused: %s",
            broker_id,
            reason.value,
            extra={"event": "peer.refused", "peer": broker_id, "reason": reason.value},
        )
        raise PeerRefused(reason.value)

    def _start(self, kind: type[_Worker], info: PeerInfo) -> _Worker:
        index, feeds, options = self._broker.index, self._feeds, self.options
        worker = kind(info, index, feeds, options, self._on_fault, self._retire)
        self.spawn(lambda: worker)
        return worker

    def _on_fault(self, broker_id: bytes) -> None:
        """Keep a broker away for a while that has broken the protocol."""
        self.membership.pause(broker_id, self._now() + self.options.limits.pause)
        self._arm()
