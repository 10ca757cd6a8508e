"""A cluster at work: what its membership asks for is done, in tasks that end with the worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import chain
from math import inf
from typing import Any

from ...protocol import LinkDown, OnwardError
from ...protocol.cluster import (
    BROKERS_ROUTE,
    REMOTE_BROKER_INFO_ROUTE,
    ClusterFrameError,
    Compare,
    Dial,
    Linked,
    LinkRefusal,
    Tell,
)
from .._log import SeldomLogger, shown
from ..broker import Broker
from ..runtime._timer import Timer
from ._cluster_inspection import ClusterInspection
from ._gateways import GatewayWorker
from ._options import ClusterOptions
from ._peer_connection import ConnectPeer, PeerHandlers, ResolveSeed

__all__ = ["ClusterTasks"]

_logger = logging.getLogger("onward.actors.cluster")


class ClusterTasks(ClusterInspection):
    """A cluster that resolves seeds, dials brokers, tells them of others and compares lists.

    Args:
        broker: The broker.
        options: The options.
        connect: Dials another broker.
        dialled: Returns the handlers of a link that is dialled, by its URI.
        resolve: Resolves the names of seeds; by default they are dialled as they are.
    """

    _seldom: SeldomLogger  # once it is started

    def __init__(
        self,
        broker: Broker,
        options: ClusterOptions,
        connect: ConnectPeer,
        dialled: Callable[[str], PeerHandlers],
        resolve: ResolveSeed | None,
    ) -> None:
        super().__init__(broker, options)
        self._connect = connect
        self._dialled = dialled
        self._resolve_seed = resolve
        # The addresses of each seed when it was resolved last.
        self._resolved: dict[str, tuple[str, ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._joined = False
        self._timer: Timer | None = None

    def _now(self) -> float:
        return self.node.loop.time()

    def _resolve_all(self) -> None:
        if self._resolve_seed is not None:
            self._run(self._resolve(self._resolve_seed))

    async def _resolve(self, resolve: ResolveSeed) -> None:
        """Look the names of all seeds up; one that fails keeps the addresses it had."""
        seeds = self.options.seeds
        found = await asyncio.gather(*(self._addresses_of(seed, resolve) for seed in seeds))
        if seeds == self.options.seeds:
            self._resolved = dict(zip(seeds, found, strict=True))
            self.membership.replace_seeds(list(chain(*found)), self._now())
            self._arm()

    async def _addresses_of(self, seed: str, resolve: ResolveSeed) -> tuple[str, ...]:
        """Look the name of a seed up."""
        try:
            async with asyncio.timeout(self.options.connect_timeout):
                return await resolve(seed)
        except (OSError, TimeoutError, ValueError):
            # The name itself is dialled in vain, and shown with the cause.
            return self._resolved.get(seed, (seed,))

    def _arm(self) -> None:
        """Set the timer to the time at which the membership has something to do."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._joined:
            return
        at = self.membership.get_timer()
        if at < inf:
            self._timer = self.after(max(0.0, at - self._now()), self._work)

    def _work(self) -> None:
        self._timer = None
        tells: dict[bytes, list[Tell]] = {}
        for task in self.membership.due(self._now()):
            if isinstance(task, Dial):
                if not self._use_again(task.uri):
                    self._run(self._dial(task.uri))
            elif isinstance(task, Tell):
                tells.setdefault(task.to, []).append(task)
            else:
                self._run(self._compare(task))
        for each in tells.values():
            self._run(self._tell(each))
        self._retire()
        self._arm()

    def _use_again(self, uri: str) -> bool:
        """Use a link again that one to a better broker of its zone had replaced, if it is there.

        Args:
            uri: The URI to dial.

        Returns:
            Whether there is such a link: then there is nothing to dial.
        """
        for gateway in self.links.gateways.values():
            connection = gateway.connection
            if gateway.uri == uri and gateway.spare and connection is not None:
                info, now = gateway.info, self._now()
                verdict = self.membership.connected(info, connection, dialled=uri, now=now)
                if isinstance(verdict, Linked):
                    gateway.used_again()
                    other = verdict.replaces and self.links.with_link(verdict.replaces)
                    if isinstance(other, GatewayWorker):
                        other.replaced()
                return True
        return False

    def _retire(self) -> None:
        """Stop the workers of peer brokers that are forgotten, or have been started anew."""
        known = {each.info.broker_id for each in self._shown()}
        for workers in (self.links.mesh, self.links.gateways):
            for broker_id, worker in tuple(workers.items()):
                # A broker of another zone is one of many: what is over is of no use.
                gone = broker_id not in known or isinstance(worker, GatewayWorker)
                if worker.over and gone:
                    del workers[broker_id]
                    worker.retire()
                    if isinstance(worker, GatewayWorker) and worker.duplicates is not None:
                        worker.duplicates.on_left(worker.info.zone)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, uri: str) -> None:
        cause, level = "", logging.INFO
        try:
            async with asyncio.timeout(self.options.connect_timeout):
                await self._connect(uri, self._dialled(uri))
        except TimeoutError:
            cause = "no answer in time"
        except (OnwardError, OSError, ValueError) as error:
            cause = str(error) or type(error).__name__
            level = logging.INFO if _passes(error) else logging.WARNING
        except Exception as error:  # noqa: BLE001 - reported
            cause = str(error) or type(error).__name__
            # A mistake of a transport: the address is dialled again all the same.
            self._seldom.log(
                logging.ERROR,
                f"peer.failed {uri}",
                "%s cannot be dialled",
                uri,
                error=error,
                extra={"event": "peer.failed", "peer": uri},
            )
        if cause:
            self._failed += 1
            self.membership.failed(uri, cause, self._now())
            self._seldom.log(
                level,
                f"peer.unreachable {uri}",
                "%s is not reached: %s",
                uri,
                shown(cause),
                extra={"event": "peer.unreachable", "peer": uri, "reason": shown(cause)},
            )
        self._arm()

    async def _tell(self, tells: list[Tell]) -> None:
        for each in tells:
            told = await self._ask(each.to, REMOTE_BROKER_INFO_ROUTE, each.info.serialize())
            if told is None:
                self.membership.untold(each)

    async def _compare(self, task: Compare) -> None:
        answer = await self._ask(task.to, BROKERS_ROUTE, task.digest)
        worker = self.links.of(task.to)
        if answer is None or worker is None:
            return
        try:
            self.membership.compared(task.to, answer, self._now())
        except ClusterFrameError as error:
            worker.fault(error)
        info = self.membership.info_of(task.to)
        if info is not None:
            worker.tell(info)
        self._arm()

    async def _ask(self, to: bytes, route: str, data: bytes) -> bytes | None:
        """Return the answer of a peer broker; `None` if there is none."""
        worker = self.links.of(to)
        connection = None if worker is None else worker.connection
        if connection is None or connection.java:
            # A Java broker would dial each broker that it is told of, whether it knows it or not.
            return None
        try:
            async with asyncio.timeout(self.options.connect_timeout):
                return await connection.request(route, data)
        except (OnwardError, TimeoutError) as error:
            # A lost link is told by itself; what was told is compared again in a while.
            _logger.debug(
                "%s is not answered by a peer broker: %s",
                route,
                error,
                extra={"event": "peer.unanswered", "reason": str(error)},
            )
            return None


_UNREACHABLE = (ConnectionError, FileNotFoundError, LinkDown)
_PASSING = frozenset(each.value for each in LinkRefusal if not each.is_mistake)


def _passes(error: Exception) -> bool:
    """Whether a broker that cannot be reached may be without a change by an operator.

    Brokers start in any order, so one that is not there yet is no mistake. A name that does not
    resolve, a missing token or a refusal is.
    """
    # A plain one is of several addresses, or of the network.
    return isinstance(error, _UNREACHABLE) or type(error) is OSError or str(error) in _PASSING
