"""One process of `onward broker --processes`: its place among them, and its ties to them.

It is an `onward broker` with the same options. What differs is told by a variable of its
environment: the sockets to listen at, its identity, and the folder with the sockets by which the
processes reach one another. It prints nothing; it tells the `onward broker` that has started it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast
from urllib.parse import quote, urlsplit
from uuid import UUID

from ..actors import Listener, ReloadFailed
from ..actors.broker import BrokerEvent
from ..protocol import OnwardError, counted
from ..transports.rsocket import UnixOptions, number_connections
from ._process_channel import Channel, Said
from ._run import Pace, StopRequest
from ._service import Service
from ._status import CommandError, Status, status_of

if TYPE_CHECKING:
    from ..transports.admin import AdminPaths, HttpRequest, HttpResponse
    from ._broker_plan import Listening
    from ._cluster import Clustering

__all__ = ["Place", "Process", "Totals", "share"]

T = TypeVar("T")

VARIABLE: Final = "ONWARD_PROCESS"
"""The variable of the environment with the place of a process."""

DECISION: Final = 30.0
"""Seconds for which what was prepared for a reload is kept; then it is dropped."""

ASKED: Final = 60.0
"""Most seconds for an operation on all processes, and of a wait for their events."""

SLACK: Final = 5.0
"""Seconds by which a question about all processes may take longer than that."""

BYTES: Final = "surrogateescape"
"""How bytes of a client that are no UTF-8 are in the text of a line: the path refuses them."""


class Totals(NamedTuple):
    """The figures of a broker at its end."""

    accepted: int
    destinations: int
    waited: int
    rejected: int
    lost: int

    def __str__(self) -> str:
        """Return them as a line."""
        return (
            f"stopped: {counted(self.accepted, 'connection')} taken, "
            f"{counted(self.destinations, 'destination')} left, "
            f"{counted(self.waited, 'request')} waited, "
            f"{self.rejected} rejected, {self.lost} lost"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a process among those of one `onward broker`.

    Attributes:
        index: Its number, from 0 on.
        count: The number of processes.
        brokers: The identity of the broker of each process, which one in its place after it has,
            too.
        folder: The folder of the sockets of all processes.
        listen: The URI that it opens for each listener.
        channel: The number of the file of its channel.
    """

    index: int
    count: int
    brokers: tuple[str, ...]
    folder: str
    listen: tuple[str, ...]
    channel: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Place | None:
        """Return the place of this process by its environment; `None` if it has none."""
        text = environment.get(VARIABLE)
        if text is None:
            return None
        found: dict[str, Any] = json.loads(text)
        for name in ("brokers", "listen"):
            found[name] = tuple(found[name])
        return cls(**found)

    def environment(self) -> dict[str, str]:
        """Return the variables by which a process finds its place."""
        return {VARIABLE: json.dumps(asdict(self))}

    def address(self, index: int | None = None) -> str:
        """Return the URI of a process for operators; by default of this one."""
        return self._uri(self.index if index is None else index, "sock")

    def peer(self, index: int | None = None) -> str:
        """Return the URI of a process for the others; by default of this one."""
        return self._uri(self.index if index is None else index, "peer")

    def _uri(self, index: int, kind: str) -> str:
        return f"rsocket+unix://{quote(self.folder)}/{index}.{kind}"

    @property
    def broker_id(self) -> str:
        """The identity of the broker of this process."""
        return self.brokers[self.index]

    @property
    def siblings(self) -> frozenset[str]:
        """The identities of the brokers of the other processes."""
        return frozenset(self.brokers) - {self.broker_id}

    @property
    def others(self) -> tuple[str, ...]:
        """The URIs of the other processes for this one."""
        return tuple(self.peer(each) for each in range(self.count) if each != self.index)


def share(limit: int, processes: int) -> int:
    """Return the part of one process in a limit for all, rounded up."""
    return -(-limit // processes)


class Process:
    """The ties of a process to the `onward broker` that has started it.

    Args:
        place: Its place.
        service: Its parts that a reload reads anew.

    Attributes:
        place: Its place.
        paths: The paths of its own, once it has them.
        parts: Those for all processes together.
    """

    def __init__(self, place: Place, service: Service) -> None:
        self.place = place
        self.paths: AdminPaths | None = None
        self.parts: AdminPaths | None = None
        self._own: Mapping[str, Callable[[], Awaitable[object]]] = {}
        self._stop = StopRequest()
        self._service = service
        self._channel: Channel | None = None
        self._prepared: AsyncExitStack | None = None
        self._apply: Callable[[], tuple[str, ...]] = tuple
        self._expiry: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def runs(self, stop: StopRequest) -> AsyncGenerator[None]:
        """Be a process for a while. The end of the channel stops it, orderly.

        Args:
            stop: The request to stop it.

        Raises:
            SystemExit: It has failed; the others were told why.
        """
        self._stop = stop
        number_connections(self.place.index + 1, self.place.count)
        end = socket.socket(fileno=self.place.channel)
        end.setblocking(False)
        self._channel = channel = await Channel.open(end, self._answered)
        channel.over.add_done_callback(lambda _: self._stopped(Pace.ORDERLY))
        try:
            yield
        except (CommandError, OnwardError, OSError, ValueError) as error:
            channel.tell("failed", text=str(error), status=_status_of(error))
            raise SystemExit(int(_status_of(error))) from None
        finally:
            await channel.close()

    @property
    def channel(self) -> Channel:
        """The channel."""
        if self._channel is None:
            raise AssertionError("the channel is not open")
        return self._channel

    def listeners(
        self,
        given: Sequence[tuple[str, Listening]],
        shared: Listening,
        clustering: Clustering | None,
    ) -> list[tuple[str, Listening]]:
        """Return the URI and the options of each listener of this process.

        After those that all processes share come its own for operators, that for the others, and
        that for brokers elsewhere, if there are any.
        """
        from ._cluster import of_process

        elsewhere: list[tuple[str, Listening]] = []
        advertise = None if clustering is None else clustering.advertise
        if advertise is not None and advertise != self.place.peer():
            # On the interface of the first listener: the address that is told may be a proxy's.
            bound = urlsplit(given[0][0]).netloc.rpartition(":")[0] if given else ""
            elsewhere.append((of_process(advertise, 0, bound or None), shared))
        own = replace(
            shared,
            links=replace(shared.links, proxies=(), proxy_protocol=False),
            unix=UnixOptions(),
        )
        return [
            *(
                (uri, replace(options, shared=True))
                for uri, (_, options) in zip(self.place.listen, given, strict=True)
            ),
            (self.place.address(), own),
            (self.place.peer(), replace(own, authentication=None, siblings=True)),
            *elsewhere,
        ]

    def shared(self, listeners: Sequence[T]) -> Sequence[T]:
        """Return those listeners that all processes share."""
        return listeners[: len(self.place.listen)]

    def operations(
        self, own: Mapping[str, Callable[[], Awaitable[object]]]
    ) -> dict[str, Callable[[], Awaitable[object]]]:
        """Return the operations on all processes, in place of those on this one."""
        self._own = own
        return {name: partial(self.operate, name) for name in ("drain", "undo-drain", "reload")}

    async def operate(self, name: str) -> object:
        """Request an operation on all processes, and return the outcome."""
        try:
            return (await self.channel.ask("operate", ASKED, name=name))["answer"]
        except CommandError as error:
            return {"error": str(error)}

    def request_reload(self) -> None:
        """Ask for a reload of all processes; the outcome is logged and counted."""
        self.channel.tell("operate", name="reload")

    def started(self, listeners: Sequence[Listener]) -> None:
        """Report that the listeners are open."""
        self.channel.tell("started", listeners=[each.uri for each in listeners])

    def ended(self, totals: Totals, log: str) -> None:
        """Report the figures at the end, and those of its event log, if any."""
        self.channel.tell("totals", totals=totals, log=log)

    # --- what is asked ------------------------------------------------------------------------

    async def _answered(self, what: str, said: Said) -> Said:
        if what == "stop":
            self._stopped(Pace[said["pace"]])
            return {}
        if what == "undo-drain":
            return {"answer": await self._own["undo-drain"]() if self._own else None}
        if what == "prepare":
            return {"errors": await self._prepare()}
        if what in ("apply", "abort"):
            return {"parts": await self._decided(apply=what == "apply")}
        if what == "path":
            return await self._path(said)
        if what == "pulse":
            return {}
        raise AssertionError(f"unexpected question {what}")

    def _stopped(self, pace: Pace) -> None:
        # A service manager may send the same signal to this process itself.
        if pace is Pace.AT_ONCE or not self._stop.is_final:
            self._stop.wish(pace)

    async def _prepare(self) -> dict[str, str]:
        """Read all parts anew, and keep them; return the errors."""
        await self._decided(apply=False)
        stack = AsyncExitStack()
        try:
            self._apply = await stack.enter_async_context(self._service.reloads.prepared())
        except ReloadFailed as error:
            return error.errors
        self._prepared = stack
        loop = asyncio.get_running_loop()
        self._expiry = loop.call_later(
            DECISION, lambda: loop.create_task(self._decided(apply=False))
        )
        return {}

    async def _decided(self, *, apply: bool) -> tuple[str, ...]:
        """Apply what was prepared, or drop it."""
        stack, self._prepared = self._prepared, None
        if stack is None:
            return ()
        if self._expiry is not None:
            self._expiry.cancel()
        async with stack:
            return self._apply() if apply else ()

    async def _path(self, said: Said) -> Said:
        from ..transports.admin._part_paths import PART

        paths = self.parts if said["target"].startswith(PART) else self.paths
        if paths is None:
            raise CommandError("it has not started")
        return await answer_of(paths, said)

    # --- what it asks all -----------------------------------------------------------------------

    async def ask_whole(self, request: HttpRequest) -> HttpResponse:
        """Ask all processes together on behalf of a client; see `AskWhole`.

        Raises:
            HttpError: They refuse the question, or have not answered.
        """
        from ..transports.admin import HttpError

        try:
            said = await self.channel.ask("whole", ASKED + SLACK, **await said_of(request))
        except CommandError:
            text = "the processes cannot be asked"
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, text) from None
        return response_of(said)

    async def events_of_all(self) -> AsyncGenerator[BrokerEvent]:
        """Yield the events of all processes as they happen."""
        from ..transports.admin._part_paths import PART
        from ..transports.admin._parts import part_request

        fields = {"wait": str(int(ASKED))}
        while True:
            request = part_request(f"{PART}events", list(fields.items()))
            found = await self.ask_whole(request)
            said = json.loads(cast("bytes", found.body))
            fields["after"] = str(said["last"])
            for row in said["rows"]:
                yield event_of_row(row)


def event_of_row(row: Mapping[str, Any]) -> BrokerEvent:
    """Return the event that a process has told of."""
    given = {name: value for name, value in row.items() if name != "process"}
    route_id = row["route_id"]
    tags = tuple((key, value) for key, value in row["tags"])
    given |= {"route_id": None if route_id is None else UUID(route_id), "tags": tags}
    return BrokerEvent(**given)


async def said_of(request: HttpRequest) -> Said:
    """Return the question for a path as values for the channel."""
    from ..transports.admin._parts import principal_row

    return {
        "target": f"{request.path}?{request.query}" if request.query else request.path,
        "body": request.body.decode(errors=BYTES),
        "principal": principal_row(request.principal),
        "reads": await request.reads(),
        "source": request.source,
    }


async def answer_of(paths: AdminPaths, said: Said) -> Said:
    """Return the answer of a path that was asked for by the channel, or its refusal."""
    from ..transports.admin import HttpError, asked
    from ..transports.admin._parts import TooLong, body_of, principal_of_row

    async def reads() -> bool:
        return bool(said["reads"])

    principal, body = principal_of_row(said["principal"]), said["body"].encode(errors=BYTES)
    try:
        found = await asked(paths, said["target"], body, principal, reads, said["source"])
        text = (await body_of(found)).decode()
    except HttpError as error:
        return {"status": int(error.status), "refused": error.text, "headers": error.headers}
    except TooLong as error:
        status = int(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return {"status": status, "refused": str(error), "headers": {}}
    return {
        "status": int(found.status),
        "type": found.content_type,
        "headers": dict(found.headers),
        "body": text,
    }


def response_of(said: Said) -> HttpResponse:
    """Return the answer of a path that came by the channel.

    Raises:
        HttpError: The path has refused the question.
    """
    from ..transports.admin import HttpError, HttpResponse

    status = HTTPStatus(said["status"])
    if "refused" in said:
        raise HttpError(status, said["refused"], said["headers"])
    return HttpResponse(said["body"].encode(), said["type"], status, said["headers"])


def _status_of(error: Exception) -> Status:
    """Return the exit status for an error."""
    if isinstance(error, CommandError):
        return error.status
    if isinstance(error, OnwardError):
        return status_of(error)
    return Status.FAILED if isinstance(error, OSError) else Status.USAGE
