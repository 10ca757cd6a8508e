"""Clusters of real brokers in a network of namespaces, in trouble, and clients of all makes.

Each broker is a process at a host of its own, which is killed, stopped, or cut off, one way or
both. Meanwhile clients of all makes ask destinations of all makes at all brokers, by all
interactions, one request after the other. A summary has what became of the requests of each client.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

import pytest

from onward.protocol import DeliveryError
from onward.transports.client import Client
from tests.peers import onward_client
from tests.peers.clients import Destination
from tests.peers.loads import Handled, Load, finished, loaded
from tests.peers.makes import Makes
from tests.peers.networked import NetworkedBroker, brokers, joined, network_of, until
from tests.support.fixtures import Capsys
from tests.support.namespaces import Network

pytestmark = [pytest.mark.peer(requester="all", destination="all")]

REQUESTERS: Final = ("java", "js-alpha", "js-0.0.27", "python", "onward", "go")
DESTINATIONS: Final = ("onward", "java", "python", "js-alpha", "go", "js-0.0.27")
LISTENERS: Final = ("onward", "java", "python")
"""Makes of the destinations of multicasts."""
ANSWERED: Final = ("request_response", "request_stream", "fire_and_forget", "request_channel")
PUSHERS: Final = frozenset({"java", "python", "onward", "go"})
"""Makes whose metadata pushes can be routed."""
STAYING: Final = "go"
"""The make whose program does not connect to another broker."""
PAUSE: Final = 0.02
"""Seconds between two requests of a client: the load is bounded."""
WHILE: Final = 2.0
"""Seconds of load in each state of trouble."""
OPTIONS: Final = (
    *("--no-route-timeout", "0.5", "--cluster-hold", "5", "--cluster-locality", "even"),
    *("--drain-grace", "0.2", "--drain-spread", "1", "--drain-timeout", "15"),
)
EXPECTED: Final = {"answered", "told", "rejected", "canceled", "closed", "unsent"}


class Trial:
    """A cluster with clients of all makes, and the books of what they sent and got.

    Attributes:
        network: The network of the brokers.
        made: The brokers by name.
        loads: The clients that send requests.
        handled: What destinations got of these.
        heard: What the destinations of multicasts got, by their present names.
        cast: The texts of the multicasts.
    """

    def __init__(
        self, network: Network, made: dict[str, NetworkedBroker], stack: AsyncExitStack
    ) -> None:
        self.network = network
        self.made = made
        self.loads: list[Load] = []
        self.handled, self.heard = Handled(), Handled()
        self.cast: set[str] = set()
        self._present: dict[str, str] = {}
        self._casters: dict[str, Client] = {}
        self._makes = Makes(stack)
        self._numbers = itertools.count(1)
        self._stack = stack
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def of(cls, network: Network, made: dict[str, NetworkedBroker]) -> AsyncGenerator[Trial]:
        """Prepare the books, without clients."""
        async with AsyncExitStack() as stack:
            trial = cls(network, made, stack)
            try:
                yield trial
            finally:
                for task in trial._tasks:
                    task.cancel()
                await asyncio.gather(*trial._tasks, return_exceptions=True)

    async def populate(self) -> None:
        """Connect destinations to each broker, and requesters of all makes."""
        for name in self.made:
            await self.serve(name)
        for number, make in enumerate(REQUESTERS * 2):
            await self.request(make, number)
        for name, each in self.made.items():
            client = onward_client.connect(each.uri, f"caster-{name}")
            self._casters[name] = await self._stack.enter_async_context(client)
        await self.equal_tables()

    async def serve(self, name: str) -> None:
        """Connect a destination of a service of its own, and one of multicasts, to a broker."""
        place = sorted(self.made).index(name)
        make = DESTINATIONS[place % len(DESTINATIONS)]
        await self.destination(make, self.made[name].uri, f"at-{name}")
        await self.listen(LISTENERS[place % len(LISTENERS)], name, self.made[name].uri)

    async def destination(self, make: str, uri: str, service: str) -> None:
        """Connect a destination, and note what it gets."""
        served = await self._makes.destination(make, uri, service, self._stack)
        self._record(self.handled, service, served)

    async def listen(self, make: str, name: str, uri: str) -> None:
        """Connect the destination of multicasts that a broker has from now on."""
        listening = await self._makes.destination(make, uri, "all", self._stack)
        self._present[name] = f"{name}-{next(self._numbers)}"
        self._record(self.heard, self._present[name], listening)

    def _record(self, books: Handled, name: str, destination: Destination) -> None:
        self._tasks.append(asyncio.create_task(books.record(name, destination)))

    async def request(self, make: str, number: int, services: Sequence[str] = ()) -> None:
        """Connect a requester to a broker; it goes to the next one when its connection ends."""
        uris = [each.uri for each in self.made.values()]
        first = 0 if make == STAYING else (number + number // len(REQUESTERS)) % len(uris)
        turned = uris[first : first + 1] if make == STAYING else uris[first:] + uris[:first]
        at = sorted(self.made)[first]
        await self.load(make, ",".join(turned), at, services or self.services)

    @property
    def services(self) -> list[str]:
        """The services of the destinations, one at each broker."""
        return [f"at-{name}" for name in self.made]

    async def load(self, make: str, uri: str, at: str, services: Sequence[str]) -> Load:
        """Connect a requester, which is named after its make and the broker."""
        ask = await self._makes.requester(make, uri, services[0], self._stack)
        by = (*ANSWERED, "metadata_push") if make in PUSHERS else ANSWERED
        load = Load(f"{make}@{at}{len(self.loads) + 1}", ask, services, by, PAUSE)
        self.loads.append(load)
        return load

    # --- multicasts ---------------------------------------------------------------------------
    async def cast_one(self, name: str) -> str:
        """Send a multicast from a broker; return its text, which is empty if it was not sent."""
        text = f"cast-{next(self._numbers)}"
        try:
            await self._casters[name].send("@multicast service=all", text.encode(), route="echo")
        except DeliveryError:
            return ""
        self.cast.add(text)
        return text

    async def casting(self) -> None:
        """Send multicasts from each broker in turn, without an end."""
        for name in itertools.cycle(self.made):
            await self.cast_one(name)
            await asyncio.sleep(0.1)

    async def cast_at_rest(self) -> None:
        """Check that a multicast from each broker reaches each destination."""
        texts = [await self.cast_one(name) for name in self.made]
        assert all(texts)

        async def got() -> list[int]:
            return [self.heard.at[name][text] for name in self._present.values() for text in texts]

        await until(got, [1] * len(self._present) * len(texts), "multicasts at rest")

    # --- rest -----------------------------------------------------------------------------------
    async def equal_tables(self) -> None:
        """Wait until all brokers have the same routes, of all clients."""

        async def different() -> list[str]:
            tables = {name: await each.routes() for name, each in self.made.items()}
            wanted = Counter(f"at-{name}" for name in self.made)
            wanted["all"] = len(self.made)
            found = Counter(service for _, service in next(iter(tables.values())))
            wrong = [f"{key}: {found[key]}" for key in wanted if found[key] != wanted[key]]
            first = next(iter(tables.values()))
            return wrong + [name for name, table in tables.items() if table != first]

        await until(different, [], "tables")

    async def rest(self, capsys: Capsys) -> None:
        """Check what holds when all are back: one table, each reaches each, each multicast once."""
        await joined(self.made)
        await self.equal_tables()
        for load in self.loads:
            for service in load.services:
                assert await load.one("request_response", service) == "answered"
        await self.cast_at_rest()
        for name, each in self.made.items():
            lines = [line[:2] for line in await each.table(capsys)]
            assert {line[0] for line in lines[1:] if line[1] == "up"} == {*self.made} - {name}

    async def check(self, expected: set[str] = EXPECTED) -> None:
        """Check the books: each request has one end, and none was handled twice."""
        for load in self.loads:
            assert load.sent == load.outcomes.total(), load.name
            assert set(load.outcomes) <= expected, (load.name, load.outcomes)
        texts = self.handled.texts

        async def missing() -> list[str]:
            return [text for text in self._texts("answered") if text not in texts]

        await until(missing, [], "answered, and not handled")
        for kind in ("rejected", "unsent"):
            assert [text for text in self._texts(kind) if text in texts] == [], kind
        assert [text for text, count in texts.items() if count > 1] == []
        streams = sum((load.counts for load in self.loads), Counter[tuple[str, str]]())
        sure = streams["request_stream", "answered"]
        never = streams["request_stream", "rejected"] + streams["request_stream", "unsent"]
        total = sum(n for (interaction, _), n in streams.items() if interaction == "request_stream")
        assert sure <= self.handled.counts["request_stream"] <= total - never
        twice = [(at, text) for at, got in self.heard.at.items() for text in got if got[text] > 1]
        assert twice == []
        assert {text for got in self.heard.at.values() for text in got} <= self.cast

    def _texts(self, kind: str) -> list[str]:
        return [text for load in self.loads for text in load.texts.get(kind, ())]

    def in_doubt(self, load: Load) -> int:
        """Return how many requests of a client crossed the end of a connection and were handled."""
        crossed = (*load.texts.get("closed", ()), *load.texts.get("canceled", ()))
        return sum(text in self.handled.texts for text in crossed)

    @asynccontextmanager
    async def under_load(self) -> AsyncGenerator[None]:
        """Run all clients; in the end each has had an end of its last request."""
        casting = asyncio.create_task(self.casting())
        try:
            async with loaded(self.loads):
                yield
                await finished(self.loads)
        finally:
            casting.cancel()
            await asyncio.wait([casting])

    # --- trouble --------------------------------------------------------------------------------
    async def lost(self, at: str, *others: str) -> None:
        """Wait until a broker has no link with some others, and a while longer."""

        async def there() -> set[str]:
            return await self.made[at].up() & {*others}

        await until(there, set[str](), f"lost at {at}")
        await asyncio.sleep(WHILE)

    async def killed(self, name: str) -> None:
        """Kill a broker, and start it again, with clients of its own."""
        await self.made[name].kill()
        await self.lost("a", name)
        await self.made[name].start()
        await joined(self.made)
        await self.serve(name)
        await self.equal_tables()

    async def stopped(self, name: str) -> None:
        """Stop the process of a broker until others have given it up, and let it go on."""
        self.made[name].tell(SIGSTOP)
        try:
            await self.lost("a", name)
        finally:
            self.made[name].tell(SIGCONT)
        await joined(self.made)

    async def cut_one_way(self, sender: str, receiver: str) -> None:
        """Lose what one broker sends to another, until the link is lost at both, and heal."""
        self.network.cut(sender, receiver)
        await self.lost(sender, receiver)
        await self.lost(receiver, sender)
        self.network.heal()
        await joined(self.made)

    async def parted(self, *sides: str) -> None:
        """Part the brokers until each side is without the others, and heal."""
        self.network.part(*sides)
        for side in sides:
            others = [name for other in sides if other != side for name in other]
            for name in side:
                await self.lost(name, *others)
        self.network.heal()
        await joined(self.made)


@asynccontextmanager
async def trial_of(count: int, folder: Path) -> AsyncGenerator[Trial]:
    """Run a cluster of brokers, with clients."""
    names = "abcdefghi"[:count]
    async with network_of(names) as network, brokers(network, names, folder, *OPTIONS) as made:
        await joined(made)
        async with Trial.of(network, made) as trial:
            yield trial


Record = Callable[[str, object], None]


def record(trial: Trial, name: str, record_property: Record) -> None:
    """Have the summary print what became of the requests of each client."""
    for load in trial.loads:
        found = load.outcomes
        row = {
            "scenario": name,
            "client": load.name,
            "sent": load.sent,
            "answered": found["answered"],
            "told": found["told"],
            "REJECTED": found["rejected"],
            "CANCELED": found["canceled"],
            "closed": found["closed"],
            "unsent": found["unsent"],
            "in doubt": trial.in_doubt(load),
        }
        record_property("cluster", row)


async def test_three_brokers(tmp_path: Path, capsys: Capsys, record_property: Record) -> None:
    async with trial_of(3, tmp_path) as trial:
        await trial.populate()
        await trial.rest(capsys)
        async with trial.under_load():
            await trial.killed("b")
            await trial.stopped("c")
            await trial.cut_one_way("a", "c")
            await trial.parted("a", "bc")
        await trial.rest(capsys)
        await trial.check()
        record(trial, "three brokers", record_property)


async def test_five_brokers(tmp_path: Path, capsys: Capsys, record_property: Record) -> None:
    async with trial_of(5, tmp_path) as trial:
        await trial.populate()
        async with trial.under_load():
            await trial.stopped("e")
            await trial.parted("ab", "cde")
            await trial.killed("d")
            await trial.cut_one_way("b", "e")
        await trial.rest(capsys)
        await trial.check()
        record(trial, "five brokers", record_property)


async def test_nine_brokers(tmp_path: Path, capsys: Capsys, record_property: Record) -> None:
    async with trial_of(9, tmp_path) as trial:
        await trial.populate()
        async with trial.under_load():
            await trial.parted("abcd", "efghi")
            await trial.killed("g")
            await trial.stopped("i")
            await trial.cut_one_way("d", "f")
        await trial.rest(capsys)
        await trial.check()
        record(trial, "nine brokers", record_property)


async def test_a_rolling_restart_of_five(tmp_path: Path, record_property: Record) -> None:
    async with trial_of(5, tmp_path) as trial:
        uris = [each.uri for each in trial.made.values()]
        for at in range(len(uris)):
            # Each knows two brokers, and is at the next one while its own is away.
            places = ",".join((uris[at], uris[(at + 1) % len(uris)]))
            await trial.destination("onward", places, "echo")
        for number, make in enumerate(REQUESTERS * 2):
            if make != STAYING:
                await trial.request(make, number, ["echo"])
        async with loaded(trial.loads):
            for each in trial.made.values():
                await each.end()
                await each.start()
                await joined(trial.made)
                for load in trial.loads:
                    await load.one_more()
            await finished(trial.loads)
        await trial.check(EXPECTED - {"canceled"})
        record(trial, "a rolling restart of five", record_property)
        assert [load.name for load in trial.loads if trial.in_doubt(load)] == []
