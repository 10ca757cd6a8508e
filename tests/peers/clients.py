"""Requesters and destinations of each make, behind one interface.

What they have in common is what `js/requester.js` and `js/destination.js` say: the names of the
interactions, what a destination answers to which text, and credit of five elements at a time.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, Protocol, Self

from tests.peers import onward_client, rsocket_client
from tests.peers.javascript import JAVASCRIPT
from tests.peers.jvm import FAST_START, java_command
from tests.peers.onward_client import OnwardDestination
from tests.peers.programs import TIMEOUT, Program
from tests.peers.rsocket_client import Outcome, Received

__all__ = [
    "APPLICATION_ERROR",
    "CANCELED",
    "INVALID",
    "REJECTED",
    "Ask",
    "Destination",
    "Java",
    "JavaDestination",
    "JavaRequester",
    "JavascriptDestination",
    "ProgramDestination",
    "ProgramRequester",
    "PythonDestination",
    "ask_from_javascript",
    "start_asking",
    "start_destination",
    "to_others",
]

APPLICATION_ERROR = 0x201
REJECTED = 0x202
CANCELED = 0x203
INVALID = 0x204

Ask = Callable[[str, str], Awaitable[Outcome]]
"""Sends one request, an interaction and its argument, to the service of the test."""


class Destination(Protocol):
    """A destination of any make."""

    async def received(self) -> Received:
        """Wait for the next request it got."""
        ...

    async def canceled(self) -> int:
        """Wait until a request is canceled; return how many elements it had sent by then."""
        ...

    async def kill(self) -> None:
        """End its connection in the middle of whatever it does."""
        ...


# --- Python -----------------------------------------------------------------------------------
class PythonDestination:
    """A client of the `rsocket` package, in this process."""

    def __init__(self, destination: rsocket_client.Destination, stack: AsyncExitStack) -> None:
        self._destination = destination
        self._stack = stack

    @classmethod
    async def start(cls, uri: str, service: str, stack: AsyncExitStack) -> PythonDestination:
        """Connect it; the stack closes it."""
        destination = rsocket_client.Destination()
        own_stack = await stack.enter_async_context(AsyncExitStack())
        await own_stack.enter_async_context(rsocket_client.connect(uri, service, destination))
        return cls(destination, own_stack)

    async def received(self) -> Received:
        async with asyncio.timeout(TIMEOUT):
            return await self._destination.received.get()

    async def canceled(self) -> int:
        async with asyncio.timeout(TIMEOUT):
            return await self._destination.canceled.get()

    async def kill(self) -> None:
        await self._stack.aclose()


# --- programs ---------------------------------------------------------------------------------
class ProgramDestination:
    """A program that prints a line of JSON for each event, in their order, as `destination.js`."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @classmethod
    async def run(cls, command: Sequence[str], stack: AsyncExitStack) -> Self:
        """Start it; the stack stops it."""
        program = await stack.enter_async_context(Program.running(*command))
        report = await program.report()
        assert report == {"event": "ready"}, report
        return cls(program)

    async def received(self) -> Received:
        return _received(await self._program.report())

    async def canceled(self) -> int:
        return _canceled(await self._program.report())

    async def kill(self) -> None:
        await self._program.kill()


class ProgramRequester:
    """A program that reads lines `INTERACTION=ARGUMENT` and prints a line of JSON for each."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @classmethod
    async def run(cls, command: Sequence[str], stack: AsyncExitStack) -> ProgramRequester:
        """Start it; the stack stops it."""
        return cls(await stack.enter_async_context(Program.running(*command)))

    async def ask(self, interaction: str, argument: str) -> Outcome:
        """Send one request, and wait for what becomes of it, or of the connection."""
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._program.tell(f"{interaction}={argument}")
        report = await self._program.report()
        if report.get("event") == "failed":
            return Outcome([], None, report["message"])
        assert report["interaction"] == interaction
        return _outcome(report)


# --- JavaScript -------------------------------------------------------------------------------
class JavascriptDestination(ProgramDestination):
    """The program `destination.js`."""

    @classmethod
    async def start(
        cls, node: str, uri: str, service: str, stack: AsyncExitStack, *tags: str
    ) -> JavascriptDestination:
        """Start it; the stack stops it. A tag is the number of its key and its text: `0x86=eu`."""
        command = [node, str(JAVASCRIPT / "destination.js"), uri, service, *tags]
        return await cls.run(command, stack)


async def ask_from_javascript(
    node: str, uri: str, service: str, interaction: str, argument: str, *tags: str
) -> Outcome:
    """Run `requester.js` with one request, and more tags in its ADDRESS."""
    words = [*(f"tag:{tag}" for tag in tags), f"{interaction}={argument}"]
    command = [node, str(JAVASCRIPT / "requester.js"), uri, service, *words]
    async with Program.running(*command) as program:
        report = await program.report()
        if report.get("event") == "failed":
            return Outcome([], None, report["message"])
        assert await program.finished() == 0
    assert report["interaction"] == interaction
    return _outcome(report)


# --- Java -------------------------------------------------------------------------------------
class Java:
    """The program `Clients`: a JVM with any number of connections of the Java client."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._ids = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._events: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        self._ended = False
        self._reading = asyncio.create_task(self._read())

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncGenerator[Java]:
        """Start the JVM; kill it in the end.

        Raises:
            JavaMissing: There is no Java, or the programs cannot be built.
        """
        async with Program.running(*java_command("Clients", options=FAST_START)) as program:
            java = cls(program)
            try:
                yield java
            finally:
                await java.kill()

    async def _read(self) -> None:
        """Give each line to who waits for it, until there are no more.

        However that ends, nobody waits for a line that cannot come.
        """
        try:
            while line := await self._program.line_or_end():
                self._take(json.loads(line))
        finally:
            self._ended = True
            for events in self._events.values():
                events.put_nowait({"event": "ended"})
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(EOFError())

    def _take(self, report: dict[str, Any]) -> None:
        if "event" in report:
            self._events[report["connection"]].put_nowait(report)
            return
        # A request that was given up is answered all the same, when its connection closes at the
        # latest. Nobody waits for that.
        answer = self._answers.get(report["id"])
        if answer and not answer.done():
            answer.set_result(report)

    async def do(self, **command: Any) -> dict[str, Any]:
        """Give a command, and wait for the answer, whose `id` is the command's.

        Raises:
            EOFError: The program ended, or what it prints can no longer be read.
        """
        if self._ended:
            raise EOFError
        self._ids += 1
        number = self._ids
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await self._program.tell(json.dumps({"id": number, **command}))
            return await asyncio.wait_for(answer, TIMEOUT)
        finally:
            del self._answers[number]

    async def close(self, connection: int) -> None:
        """End a connection in the middle of whatever it does."""
        answer = await self.do(do="close", connection=connection)
        assert answer["outcome"] == "closed", answer

    async def connect(
        self,
        uri: str,
        service: str,
        tags: dict[str, str] | None = None,
        *,
        route_id: uuid.UUID,
        **options: int,
    ) -> int:
        """Connect to a broker, and return the connection's number.

        Args:
            uri: Where the broker is.
            service: The service name.
            tags: More tags.
            route_id: The route id.
            options: `fragment`: the size of frames over which payloads go in fragments, in bytes;
                `lease`: with leases; others may send so many requests in all.

        Raises:
            ConnectionError: It came to nothing.
        """
        self._events[self._ids + 1] = asyncio.Queue()
        answer = await self.do(
            do="connect",
            uri=uri,
            service=service,
            tags=tags or {},
            route_id=str(route_id),
            options=options,
        )
        if answer["outcome"] != "connected":
            raise ConnectionError(answer["message"])
        number: int = answer["id"]
        return number

    async def event(self, connection: int) -> dict[str, Any]:
        """Wait for the next event of a connection."""
        async with asyncio.timeout(TIMEOUT):
            return await self._events[connection].get()

    async def kill(self) -> None:
        """End the JVM, with all connections, without a chance to say goodbye."""
        self._program.signal()
        await self._reading


class JavaDestination:
    """A connection of the Java client that answers requests.

    Attributes:
        route_id: Its identity.
        tags: The tags in the ADDRESS of the request that came last, as the Java client reads it.
    """

    def __init__(self, java: Java, connection: int, route_id: uuid.UUID) -> None:
        self._java = java
        self._connection = connection
        self.route_id = route_id
        self.tags: dict[str, str] = {}

    @classmethod
    async def start(
        cls, java: Java, uri: str, service: str, tags: dict[str, str] | None = None, **options: int
    ) -> JavaDestination:
        """Connect it; the options are those of `Java.connect`."""
        route_id = uuid.uuid4()
        connection = await java.connect(uri, service, tags, route_id=route_id, **options)
        return cls(java, connection, route_id)

    async def received(self) -> Received:
        event = await self._java.event(self._connection)
        self.tags = event.get("tags", {})
        return _received(event)

    async def canceled(self) -> int:
        return _canceled(await self._java.event(self._connection))

    async def closed(self) -> None:
        """Wait until the other side has closed the connection."""
        event = await self._java.event(self._connection)
        assert event["event"] == "closed", event

    async def kill(self) -> None:
        await self._java.close(self._connection)


class JavaRequester:
    """A connection of the Java client that sends requests."""

    def __init__(self, java: Java, connection: int) -> None:
        self._java = java
        self._connection = connection

    @classmethod
    async def start(cls, java: Java, uri: str, **options: int) -> JavaRequester:
        """Connect it; the options are those of `Java.connect`."""
        route_id = uuid.uuid4()
        return cls(
            java, await java.connect(uri, "java-requester", None, route_id=route_id, **options)
        )

    async def ask(
        self,
        to: str | dict[str, str],
        interaction: str,
        argument: str,
        routing: str = "UNICAST",
        *,
        bearer: str | None = None,
    ) -> Outcome:
        """Send one request, and wait for what becomes of it.

        Args:
            to: The service, or all tags: the names of well-known keys as in Java's enumeration,
                such as SERVICE_NAME, or any others.
            interaction: As in `js/requester.js`, or `metadata_push`.
            argument: As there; that of a push is the name of its route.
            routing: UNICAST, MULTICAST or SHARD.
            bearer: A token in the metadata of the request itself.
        """
        tags = {"SERVICE_NAME": to} if isinstance(to, str) else to
        report = await self._java.do(
            do="request",
            connection=self._connection,
            interaction=interaction,
            argument=argument,
            routing=routing,
            tags=tags,
            bearer=bearer,
        )
        return _outcome(report)

    async def close(self) -> None:
        """End the connection in the middle of whatever it does."""
        await self._java.close(self._connection)


# --- by language ------------------------------------------------------------------------------
async def start_destination(
    language: str, java: Java | None, uri: str, service: str, stack: AsyncExitStack
) -> Destination:
    """Start a destination in Java, in Python with the `rsocket` package, or with Onward's client.

    Args:
        language: `java`, `python` or `onward`.
        java: The JVM, for Java.
        uri: Where the broker is; for a requester, or several of them, separated by commas.
        service: The service name.
        stack: What stops it.
    """
    if language == "python":
        return await PythonDestination.start(uri, service, stack)
    if language == "onward":
        client = OnwardDestination()
        await client.start(uri, service)
        stack.push_async_callback(client.kill)
        return client
    assert java
    destination = await JavaDestination.start(java, uri, service)
    stack.push_async_callback(destination.kill)
    return destination


async def start_asking(
    language: str, java: Java | None, uri: str, service: str, stack: AsyncExitStack
) -> Ask:
    """Connect a requester, and return what asks the service with it. See `start_destination`."""
    if language == "python" and "," in uri:
        return to_others(service, rsocket_client.Wandering(uri, "python-requester", stack).ask)
    if language == "python":
        rsocket = await stack.enter_async_context(rsocket_client.connect(uri, "python-requester"))
        return to_others(service, partial(rsocket_client.ask, rsocket))
    if language == "onward":
        client = await stack.enter_async_context(onward_client.connect(uri, "onward-requester"))
        return to_others(service, partial(onward_client.ask, client))
    assert java
    requester = await JavaRequester.start(java, uri)
    stack.push_async_callback(requester.close)
    return to_others(service, requester.ask)


def to_others(service: str, ask: Callable[[str, str, str], Awaitable[Outcome]]) -> Ask:
    """Return what asks the service, or with `INTERACTION@OTHER` another one."""

    def asked(interaction: str, argument: str) -> Awaitable[Outcome]:
        name, _, other = interaction.partition("@")
        return ask(other or service, name, argument)

    return asked


# --- lines of the programs --------------------------------------------------------------------
def _received(report: dict[str, Any]) -> Received:
    match report:
        case {"event": "received", "interaction": interaction, "data": data, "route": route}:
            return Received(interaction, data, route)
        case other:
            raise AssertionError(f"not a request: {other}")


def _canceled(report: dict[str, Any]) -> int:
    match report:
        case {"event": "canceled", "sent": int(sent)}:
            return sent
        case other:
            raise AssertionError(f"not a cancellation: {other}")


def _outcome(report: dict[str, Any]) -> Outcome:
    assert (report["outcome"] == "failed") == ("code" in report)
    message = report.get("message")
    if report["outcome"] == "failed" and message is None:
        message = ""  # None is for those that have completed
    return Outcome(report["elements"], report.get("code"), message)
