"""Trials of a cluster in a network of namespaces: its clients, its troubles, and the books."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

import pytest

from onward.protocol import DeliveryError
from onward.transports.client import Client
from tests.peers import onward_client
from tests.peers.calm import Calm
from tests.peers.clients import Destination
from tests.peers.foreign import PeerMissing
from tests.peers.loads import Handled, Load, finished, loaded
from tests.peers.makes import Makes, absent
from tests.peers.networked import NetworkedBroker, brokers, joined, network_of, until
from tests.support.fixtures import Capsys
from tests.support.namespaces import Network

__all__ = ["EXPECTED", "OPTIONS", "Record", "Trial", "absent_makes", "record", "trial_of"]

REQUESTERS: Final = ("java", "js-alpha", "js-0.0.27", "python", "onward", "go", "rust")
FOREIGN: Final = frozenset(REQUESTERS) - {"onward", "python"}
"""Makes with programs of other languages, of which a trial has one at least."""
DESTINATIONS: Final = ("onward", "java", "python", "js-0.0.27", "go")
"""Makes of destinations. `rsocket-js` 1.0.0-alpha ends its connection when it gets a push."""
LISTENERS: Final = ("onward", "java", "python")
"""Makes of the destinations of multicasts."""
ANSWERED: Final = ("request_response", "request_stream", "fire_and_forget", "request_channel")
WITHOUT_CREDIT: Final = ("request_response", "request_stream", "fire_and_forget")
"""What the crate `rsocket_rust` can ask by: all elements of its channels come at once."""
PUSHERS: Final = frozenset({"java", "python", "onward", "go"})
"""Makes whose metadata pushes can be routed."""
STAYING: Final = frozenset({"go", "python", "rust"})
"""Makes at the broker that is never killed. The programs in Go and Rust do not connect to another
one; and the Python package fails, and does not tell of the end of a connection, if a channel was
asked for that has not been granted credit yet."""
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
        absent: The makes that are left out, with the reasons.
        requesters: The makes of requesters that are there.
        loads: The clients that send requests.
        handled: What destinations got of these.
        calm: The times between troubles.
        java: The URI for clients of a Java broker that is in the cluster, or an empty text.
        heard: What the destinations of multicasts got, by their present names.
        cast: The texts of the multicasts.
    """

    def __init__(
        self,
        network: Network,
        made: dict[str, NetworkedBroker],
        absent: Mapping[str, str],
        stack: AsyncExitStack,
    ) -> None:
        self.network = network
        self.made = made
        self.absent = absent
        self.requesters, self._destinations, self._listeners = (
            tuple(make for make in makes if make not in absent)
            for makes in (REQUESTERS, DESTINATIONS, LISTENERS)
        )
        self.loads: list[Load] = []
        self.handled, self.heard = Handled(), Handled()
        self.cast: set[str] = set()
        self.java = ""
        self._joins = 0
        self._present: dict[str, str] = {}
        self._casters: dict[str, Client] = {}
        self._makes = Makes(stack)
        self._numbers = itertools.count(1)
        self.calm = Calm(made, self.loads, self.handled, self.joined)
        self._staying: list[Load] = []
        self._stack = stack
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    @asynccontextmanager
    async def of(
        cls, network: Network, made: dict[str, NetworkedBroker], absent: Mapping[str, str]
    ) -> AsyncGenerator[Trial]:
        """Prepare the books, without clients."""
        async with AsyncExitStack() as stack:
            trial = cls(network, made, absent, stack)
            try:
                yield trial
            finally:
                for task in trial._tasks:
                    task.cancel()
                await asyncio.gather(*trial._tasks, return_exceptions=True)

    async def populate(self) -> None:
        """Connect destinations to each broker, and requesters of all makes that are there."""
        for name in self.made:
            await self.serve(name)
        first, staying = next(iter(self.made.items()))
        for number, make in enumerate(self.requesters * 2):
            if make in STAYING:
                load = await self.load(make, staying.uri, first, self.services)
                self._staying.append(load)
            else:
                await self.request(make, number)
        for name, each in self.made.items():
            client = onward_client.connect(each.uri, f"caster-{name}")
            self._casters[name] = await self._stack.enter_async_context(client)
        await self.equal_tables()

    async def serve(self, name: str) -> None:
        """Connect a destination of a service of its own, and one of multicasts, to a broker.

        Those of Onward come back by themselves when the broker was killed.
        """
        place, again = sorted(self.made).index(name), name in self._present
        make = self._destinations[place % len(self._destinations)]
        if not (again and make == "onward"):
            await self.destination(make, self.made[name].uri, f"at-{name}")
        make = self._listeners[place % len(self._listeners)]
        if not (again and make == "onward"):
            await self.listen(make, name, self.made[name].uri)

    async def serve_java(self) -> None:
        """Connect destinations to the Java broker, which tells of them; and ask for the new one.

        It told of those before once only, and a link may have been lost since.
        """
        self._joins += 1
        service = self.services[-1]

        async def known(wanted: str) -> int:
            tables = [await each.routes() for each in self.made.values()]
            return min(sum(wanted == found for _, found in table) for table in tables)

        before = await known("all")
        await self.destination("java", self.java, service)
        # Of two that join at once it may tell of one only.
        await until(lambda: known(service), 1, service)
        await self.listen("onward", "java", self.java)
        await until(lambda: known("all"), before + 1, "all")
        for load in self.loads:
            load.services = tuple(self.services)

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
        first = (number + number // len(self.requesters)) % len(uris)
        turned = uris[first:] + uris[:first]
        at = sorted(self.made)[first]
        await self.load(make, ",".join(turned), at, services or self.services)

    @property
    def services(self) -> list[str]:
        """The services of the destinations, one at each broker; that of the Java broker is last."""
        ours = [f"at-{name}" for name in self.made]
        return [*ours, f"at-java-{self._joins}"] if self._joins else ours

    async def load(self, make: str, uri: str, at: str, services: Sequence[str]) -> Load:
        """Connect a requester, which is named after its make and the broker."""
        ask = await self._makes.requester(make, uri, services[0], self._stack)
        by = WITHOUT_CREDIT if make == "rust" else ANSWERED
        if make in PUSHERS:
            by = (*by, "metadata_push")
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

    async def joined(self) -> None:
        """Wait until each broker has links with all others."""
        await joined(self.made, *(["java"] if self.java else []))

    # --- rest -----------------------------------------------------------------------------------
    async def equal_tables(self) -> None:
        """Wait until all brokers have the same routes, of all clients."""

        async def different() -> list[str]:
            tables = {name: await each.routes() for name, each in self.made.items()}
            wanted = Counter(self.services)
            wanted["all"] = len(self.services)
            found = Counter(service for _, service in next(iter(tables.values())))
            wrong = [f"{key}: {found[key]}" for key in wanted if found[key] != wanted[key]]
            first = next(iter(tables.values()))
            return wrong + [name for name, table in tables.items() if table != first]

        await until(different, [], "tables")

    async def rest(self, capsys: Capsys) -> None:
        """Check what holds when all are back: one table, each reaches each, each multicast once."""
        await self.joined()
        await self.equal_tables()
        for load in self.loads:
            for service in load.services:
                assert await load.one("request_response", service) == "answered"
        await self.cast_at_rest()
        for name, each in self.made.items():
            states = [line[1] for line in await each.table(capsys)]
            assert states.count("up") == len(self.services) - 1, name

    async def check(self, expected: set[str] = EXPECTED) -> None:
        """Check the books: each request has one end, and none was handled twice."""
        assert [task for task in self._tasks if task.done() and task.exception()] == []
        for load in self.loads:
            assert load.sent == load.outcomes.total(), load.name
            assert set(load.outcomes) <= expected, (load.name, load.outcomes)
        texts = self.handled.texts
        await self.calm.end()
        # They stay at the first broker, which has no trouble, and so has its destination.
        local = f"at-{next(iter(self.made))}"
        told = [each for load in self._staying for each in load.told if each.service == local]
        await self.calm.arrived(told)

        async def missing() -> list[str]:
            return [text for text in self._texts("answered") if text not in texts]

        await until(missing, [], "answered, and not handled")
        for kind in ("rejected", "unsent"):
            assert [text for text in self._texts(kind) if text in texts] == [], kind
        assert [text for text, count in texts.items() if count > 1] == []
        pushed = sum((load.pushes for load in self.loads), Counter[str]())
        assert self.handled.pushes <= pushed
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
                await self.calm.begin()
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
        async with self.calm.broken():
            await self.made[name].kill()
            await self.lost("a", name)
            await self.made[name].start()
            await self.joined()
            await self.serve(name)

    async def stopped(self, name: str) -> None:
        """Stop the process of a broker until others have given it up, and let it go on."""
        async with self.calm.broken():
            self.made[name].tell(SIGSTOP)
            try:
                await self.lost("a", name)
            finally:
                self.made[name].tell(SIGCONT)

    async def cut_one_way(self, sender: str, receiver: str) -> None:
        """Lose what one broker sends to another, until the link is lost at both, and heal."""
        async with self.calm.broken():
            self.network.cut(sender, receiver)
            for at, other in ((sender, receiver), (receiver, sender)):
                if at in self.made:
                    await self.lost(at, other)
            self.network.heal()

    async def parted(self, *sides: Sequence[str]) -> None:
        """Part the brokers until each side is without the others, and heal."""
        async with self.calm.broken():
            self.network.part(*sides)
            for side in sides:
                others = [name for other in sides if other != side for name in other]
                for name in side:
                    if name in self.made:
                        await self.lost(name, *others)
            self.network.heal()


def absent_makes(*needed: str) -> dict[str, str]:
    """Return the makes that are left out, with the reasons; the others are built.

    It is asked before the network is entered, from which no registry can be reached. The test is
    skipped without any foreign make.

    Args:
        needed: Makes without which it is skipped as well.
    """
    try:
        found = absent(REQUESTERS)
    except PeerMissing as error:
        pytest.skip(f"clusters in trouble: {error}")
    if found.keys() >= FOREIGN or found.keys() & {*needed}:
        reasons = "; ".join(f"{make}: {reason}" for make, reason in found.items())
        pytest.skip(f"clusters in trouble: {reasons}")
    return found


@asynccontextmanager
async def trial_of(count: int, folder: Path) -> AsyncGenerator[Trial]:
    """Run a cluster of brokers, with clients."""
    names = "abcdefghi"[:count]
    without = absent_makes()
    async with network_of(names) as network, brokers(network, names, folder, *OPTIONS) as made:
        await joined(made)
        async with Trial.of(network, made, without) as trial:
            yield trial


Record = Callable[[str, object], None]


def record(trial: Trial, name: str, record_property: Record) -> None:
    """Have the summary print what became of the requests of each client, and who was left out."""
    for make, reason in trial.absent.items():
        record_property("absent", f"{name} without {make}: {reason}")
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
            "cut": load.cut,
            "in doubt": trial.in_doubt(load),
            "sure": sum(each.text in trial.calm.sure for each in load.told),
        }
        record_property("cluster", row)
