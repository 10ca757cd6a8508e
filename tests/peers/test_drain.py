"""Brokers that drain under the load of clients of other languages, and a rolling restart of two.

Each client sends one request after the other. A drain has to cancel none of them: what is not
answered was REJECTED, or crossed the end of its connection, and no destination got it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from onward.actors.broker import Handlers, Request
from onward.protocol.broker import Dialect
from onward.transports.client import ClientOptions, connect
from tests.peers.clients import JavaRequester, to_others
from tests.peers.loads import Load, loaded
from tests.peers.makes import Makes
from tests.peers.programs import LISTENING, Program

pytestmark = [
    pytest.mark.peer(destination="onward"),
    pytest.mark.asyncio(loop_scope="module"),
]

on_the_module = pytest_asyncio.fixture(scope="module", loop_scope="module")

MAKES = ("java", "js-0.0.27", "js-alpha", "python")
"""Makes with programs that connect to the next broker when a connection ends."""
CLIENTS = 3
"""Clients of each make: each has one request at a time."""
WORK = 0.02
"""Seconds a request takes at its destination."""
SPREAD = 1.0
"""Seconds in which a drain begins with all connections."""
DRAIN = ("--drain-grace", "0.2", "--drain-spread", str(SPREAD), "--drain-timeout", "15")

CROSSED = ("closed", "rejected")
"""What becomes of requests that no destination may have got."""


# --- brokers ------------------------------------------------------------------------------------
class Broker:
    """A broker that can be told to drain, and started again at its port.

    Attributes:
        uri: Where it listens.
    """

    def __init__(self, stack: AsyncExitStack, options: Sequence[str]) -> None:
        self._stack = stack
        self._options = options
        self._program: Program | None = None
        self.uri = "tcp://127.0.0.1:0"

    async def start(self) -> None:
        """Start it, at the port it had before, and wait until it listens."""
        onward = str(Path(sys.executable).with_name("onward"))
        command = [onward, "broker", "--listen", f"rsocket+{self.uri}", "--log", "error"]
        running = Program.running(*command, *DRAIN, *self._options)
        self._program = await self._stack.enter_async_context(running)
        self.uri = (await self._program.line()).partition(LISTENING)[2]
        assert self.uri

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._program
        self._program.tell_signal(number)

    async def ended(self) -> None:
        """Wait until it has ended, and check that it did so cleanly."""
        assert self._program
        assert await self._program.finished() == 0


@asynccontextmanager
async def brokers(count: int, *options: str) -> AsyncGenerator[list[Broker]]:
    """Run brokers; they are killed in the end if they still run."""
    async with AsyncExitStack() as stack:
        made = [Broker(stack, options) for _ in range(count)]
        for broker in made:
            await broker.start()
        yield made


# --- load ---------------------------------------------------------------------------------------
class Shop:
    """A destination at all brokers, which counts what it gets.

    Attributes:
        got: The texts of the requests.
    """

    def __init__(self) -> None:
        self.got = Counter[str]()

    @asynccontextmanager
    async def open(self, service: str, brokers: Sequence[Broker]) -> AsyncGenerator[None]:
        """Connect to all brokers, and again to each that comes back."""
        handlers = Handlers()

        @handlers.response
        async def answer(request: Request) -> bytes:
            text = request.data.decode()
            self.got[text] += 1
            await asyncio.sleep(WORK)
            return f"{text} from onward".encode()

        options = ClientOptions(dialect=Dialect.REFERENCE, drain_timeout=0.05)
        async with AsyncExitStack() as stack:
            for broker in brokers:
                uri = f"rsocket+{broker.uri}"
                client = connect(uri, service=service, handlers=handlers, options=options)
                await stack.enter_async_context(client)
            yield


async def clients(
    makes: Makes, make: str, brokers: Sequence[Broker], service: str, stack: AsyncExitStack
) -> list[Load]:
    """Connect clients of a make, each to another broker first, and later to the next one."""
    found: list[Load] = []
    for number in range(CLIENTS):
        uris = [broker.uri for broker in brokers]
        turned = uris[number % len(uris) :] + uris[: number % len(uris)]
        ask = await makes.requester(make, ",".join(turned), service, stack)
        found.append(Load(f"{make}-{number}", ask))
    return found


@on_the_module
async def makes() -> AsyncGenerator[Makes]:
    async with AsyncExitStack() as stack:
        yield Makes(stack)


@pytest_asyncio.fixture(loop_scope="module")
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def each_make(*makes: str) -> pytest.MarkDecorator:
    """Parametrize with each make."""
    cases = [pytest.param(make, marks=pytest.mark.peer(requester=make)) for make in makes]
    return pytest.mark.parametrize("make", cases)


def check(loads: Sequence[Load], shop: Shop, about: str) -> Counter[str]:
    """Check that no request was canceled or came twice, and print what became of all."""
    total = Counter[str]()
    for load in loads:
        total.update(load.outcomes)
    crossed = [text for load in loads for kind in CROSSED for text in load.texts.get(kind, ())]
    processed = [text for text in crossed if shop.got[text]]
    print(f"{about}: {sum(total.values())} requests, {dict(total)}, {len(processed)} in doubt")
    assert set(total) <= {"answered", "rejected", "closed", "unsent"}, total
    assert not processed
    assert max(shop.got.values()) == 1
    return total


# --- tests --------------------------------------------------------------------------------------
@each_make(*MAKES)
@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM], ids=lambda each: each.name)
async def test_a_drain_under_load_cancels_no_request(
    makes: Makes, make: str, number: signal.Signals, service: str, stack: AsyncExitStack
) -> None:
    shop = Shop()
    async with brokers(1) as (broker,), shop.open(service, [broker]):
        loads = await clients(makes, make, [broker], service, stack)
        async with loaded(loads):
            broker.tell(number)
            await broker.ended()
    total = check(loads, shop, f"{make}, a drain by {number.name}")
    assert total["answered"] > CLIENTS


@pytest.mark.peer(requester="java")
async def test_a_client_with_leases_gets_none_while_the_broker_drains(
    makes: Makes, service: str, stack: AsyncExitStack
) -> None:
    shop = Shop()
    leases = ("--lease-requests", "20", "--lease-time", "0.5")
    async with brokers(1, *leases) as (broker,), shop.open(service, [broker]):
        loads: list[Load] = []
        for name in range(CLIENTS):
            requester = await JavaRequester.start(await makes.java(), broker.uri, lease=1)
            stack.push_async_callback(requester.close)
            loads.append(Load(f"leases-{name}", to_others(service, requester.ask)))
        async with loaded(loads):
            broker.tell(signal.SIGUSR2)
            await broker.ended()
    check(loads, shop, "java with leases, a drain")


@each_make(*MAKES)
@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM], ids=lambda each: each.name)
async def test_a_rolling_restart_of_two_brokers(
    makes: Makes, make: str, number: signal.Signals, service: str, stack: AsyncExitStack
) -> None:
    shop = Shop()
    async with brokers(2) as both, shop.open(service, both):
        loads = await clients(makes, make, both, service, stack)
        async with loaded(loads):
            for broker in both:
                broker.tell(number)
                await broker.ended()
                await broker.start()
                for load in loads:
                    await load.one_more()
    check(loads, shop, f"{make}, a rolling restart by {number.name}")
