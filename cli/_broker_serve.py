"""A broker that runs until it is asked to stop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Final, cast
from uuid import UUID

from ..actors import DiagnosticsOptions, LimitReached, Node
from ..actors.broker import MANAGEMENT_SERVICE, Broker, BrokerOptions
from ..actors.cluster import Cluster
from ..actors.security import Authentication
from ..protocol import LOCAL
from ..protocol.broker import SnapshotRoute
from ..transports.rsocket import RSocketListener
from ._admin import Admin, administered
from ._broker_plan import Listening
from ._cluster import Clustering, advertised, attach_cluster, hint, told_clients
from ._event_log import total
from ._listen import listen
from ._process import Process, Totals
from ._reconfigure import Reconfiguration
from ._run import Interrupted, StopRequest
from ._service import Service, drain, operations_of
from ._status import CommandError, Status

__all__ = ["serve"]

EXPECT_SLICE: Final = 1000
"""Routes that are expected in one step: some 10 milliseconds of the loop's time."""

_OPTIONS: Final = BrokerOptions()
_LISTENING: Final = Listening()


async def serve(
    stop: StopRequest,
    uris: list[str],
    options: BrokerOptions = _OPTIONS,
    listening: Listening = _LISTENING,
    *,
    own: Sequence[Listening] = (),
    name: str = "broker",
    quiet: bool = False,
    expected: Sequence[SnapshotRoute] = (),
    opened: Callable[[Node], Awaitable[None]] | None = None,
    service: Service | None = None,
    admin: Admin | None = None,
    running: Reconfiguration | None = None,
    clustering: Clustering | None = None,
    process: Process | None = None,
) -> None:
    """Run a broker until it is asked to stop.

    Args:
        stop: The request to stop.
        uris: The URIs to listen at.
        options: The limits of the broker.
        listening: The limits of the listeners and their connections.
        own: The same for each listener, if they differ.
        name: The name of its node.
        quiet: Whether to print no totals at the end.
        expected: Destinations to expect from the start.
        opened: Called with the broker's node before the broker starts: to attach its event log.
        service: Its ties to the system; by default those of the process.
        admin: Its admin interface; `None` for none.
        running: Its configuration, which a reload reads anew; `None` for one that stays.
        clustering: Its part in a cluster; `None` for none.
        process: Its ties to others, as one of several; `None` for a broker alone.

    Raises:
        CommandError: It cannot listen at one of the URIs, has not enough room for the expected
            destinations, or an address to expose does not exist; or an error of `opened`.
        UnknownScheme: There is no transport for one of the URIs.
    """
    service, own = service or Service(), own or [listening] * len(uris)
    listeners: list[RSocketListener] = []

    def options_now() -> dict[str, object]:
        return {listener.uri: listener.options for listener in listeners}

    async with Node(name, diagnostics=DiagnosticsOptions(hold=5.0, block=1.0)) as node:
        try:
            if opened is not None:
                await stop.unless(_called(opened, node))
            broker_id = None if clustering is None else clustering.broker_id
            broker = await stop.unless(_start(node, options, own, listening, expected, broker_id))
            operations = operations_of(stop, broker, service)
            if process is not None:
                operations = process.operations(operations)
            broker.operations.update(operations)
            cluster = await stop.unless(attach_cluster(node, broker, clustering))
            with _frozen():
                async with administered(
                    node, broker, admin, service, cluster, process, listeners=options_now
                ) as started:
                    # The last step of the start: a client may come the moment one is open.
                    await stop.unless(_listen(node, broker, cluster, uris, own, listeners))
                    configured = listeners if process is None else process.shared(listeners)
                    _reloads(service, running, broker, cluster, configured)
                    if cluster is not None and clustering is not None:
                        hint(clustering, [listener.uri for listener in listeners])
                        first = listeners[0].uri
                        cluster.join(advertised(clustering, first), told_clients(clustering, first))
                    for part, authentication in _authentications(uris, [listening, *own]).items():
                        service.reloads.add(part, authentication.prepare_reload)
                    started(listeners)
                    with service.serving(", ".join(listener.uri for listener in listeners)):
                        await stop.wait()
                        while not await drain(stop, broker, service):
                            await stop.wait()
        except Interrupted:
            return
        totals = _totals(broker, listeners if process is None else process.shared(listeners))
    if process is not None:
        process.ended(totals, total(node))
    elif not quiet:
        # After the log's own end: its totals include the last records.
        print(f"{totals}{total(node)}", flush=True)


async def _called(opened: Callable[[Node], Awaitable[None]], node: Node) -> None:
    await opened(node)


@contextmanager
def _frozen() -> Generator[None]:
    """Keep the objects made so far out of the cycle collector's view.

    They stay until the end. To look through them all takes it about 10 ms, in which no frame is
    relayed.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


async def _start(
    node: Node,
    options: BrokerOptions,
    own: Sequence[Listening],
    listening: Listening,
    expected: Sequence[SnapshotRoute],
    broker_id: UUID | None,
) -> Broker:
    broker = await Broker.attach(
        node, options, authorization=listening.authorization, broker_id=broker_id
    )
    for exposed in chain.from_iterable(each.expose for each in own):
        if exposed.type == LOCAL and not node.has(exposed):
            raise CommandError(f"there is no worker {exposed} to expose", Status.USAGE)
    try:
        for at in range(0, len(expected), EXPECT_SLICE):
            broker.expect(expected[at : at + EXPECT_SLICE])
            # In steps, so that Ctrl-C and the rest of the node need not wait for all of them.
            await asyncio.sleep(0)
    except LimitReached as error:
        raise CommandError(f"--index: {error}") from error
    return broker


async def _listen(
    node: Node,
    broker: Broker,
    cluster: Cluster | None,
    uris: list[str],
    own: Sequence[Listening],
    listeners: list[RSocketListener],
) -> None:
    for uri, each in zip(uris, own, strict=True):
        options = each.options(uri)
        listener = await listen(node, uri, "rsocket+", broker=broker, peers=cluster, **options)
        # The meaning of the scheme, which Node.listen does not know.
        listeners.append(cast("RSocketListener", listener))


def _reloads(
    service: Service,
    running: Reconfiguration | None,
    broker: Broker,
    cluster: Cluster | None,
    listeners: Sequence[RSocketListener],
) -> None:
    """Read the certificates and the limits of the listeners anew at each reload."""
    for number, listener in enumerate(listeners):
        newest = None if running is None else partial(running.tls, number)
        service.reloads_certificates(listener, newest)
    if running is not None:
        running.serves(broker, listeners, cluster)


def _authentications(
    uris: Sequence[str], listenings: Sequence[Listening]
) -> dict[str, Authentication]:
    """Return the authentications, each once, by their names in a reload."""
    found: dict[Authentication, str] = {}
    for where, each in zip(("", *uris), listenings, strict=True):
        if each.authentication is not None:
            name = "authentication" if not found else f"authentication of {where}"
            found.setdefault(each.authentication, name)
    return {name: authentication for authentication, name in found.items()}


def _totals(broker: Broker, listeners: Sequence[RSocketListener]) -> Totals:
    """Return the broker's totals."""
    accepted = sum(listener.statistics().accepted for listener in listeners)
    own = [row for row in broker.routes() if not row.broker and row.service != MANAGEMENT_SERVICE]
    figures = broker.statistics()
    return Totals(accepted, len(own), figures.waited, figures.rejected, figures.lost)
