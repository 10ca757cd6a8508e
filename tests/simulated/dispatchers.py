"""Dispatchers of simulated nodes, and what has to be true of their messages whatever the seed.

Two to six nodes, joined at random, with links of different delays and costs. On each there are
producers of names with all patterns: direct with each rule for a second consumer, closest,
balanced, multicast with one, two or all accepts, names that hold, redirect, drop or reject what no
consumer takes, and names that hold on disk, multicasts among them, accept at once, or know
duplicates. Consumers come, go and move; they are quick, slow, of changing mind, or settle nothing
at all, and some ask for each few messages by credit, slowly. Messages are sent by producers, as
requests, and as plain ones with a return route. In half of the runs most messages go the fast path:
nodes have no event log, most messages are plain ones, and names are such as may have it. In some
runs a consumer has to settle a message in a short time. Links are cut, with and without a word, and
become slow; nodes crash and are started again, with the files that they had. Then all is healed,
and after a while it has to hold, besides what `violations` says of each message, that:

1. Each node knows the nodes with consumers of each name, and no others; of a direct name at most
   one consumer in the network is active, and one is if there are any.
2. Producers have all of their credit again.
3. A message to each name from each node reaches one consumer, or with multicast each exactly once,
   and comes to no node twice.
4. What was accepted as it is on disk was taken or refused by a consumer, or its time was over,
   whatever node has crashed.
5. While links and nodes hold, no consumer has a message for longer than it may.
6. Nothing is left in any table or file once all producers and consumers are gone.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Final
from unittest import mock

from onward.actors import DeadLetter, Node, Worker
from onward.actors.dispatch import (
    DISPATCH,
    Accept,
    AnonymousProducer,
    Consumer,
    ConsumerLink,
    ConsumerRefused,
    Dispatcher,
    DispatchOptions,
    OutcomeCallback,
    Producer,
    ProducerClosed,
    Received,
)
from onward.actors.dispatch._credited import CreditedConsumer
from onward.actors.dispatch._hold_store import HoldStore
from onward.protocol import Address, Message, NotDelivered, OnwardError, read_error_reply
from onward.protocol.dispatch import (
    ACCEPTED,
    ALL,
    MODIFIED,
    RELEASED,
    Accepted,
    ConsumerTarget,
    DeliveryLimits,
    DropReason,
    Gate,
    Hold,
    Last,
    Outcome,
    Redirect,
    Rejected,
    Released,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Semantics,
    Settlement,
    Weigh,
)
from onward.transports.simulated import Faults, SimulatedNetwork, simulate
from tests.simulated.pipes import Errors
from tests.support.names import Counted

TROUBLE: Final = 8.0
"""Time for which something happens, in seconds."""
LONGEST: Final = 5.0
"""Longest time in which the outcome of a message is awaited, in seconds."""
SLACK: Final = 0.05
"""Time by which an outcome may be later than that, in seconds."""
CALM: Final = 20.0
"""Time after which all has to be as it should, in seconds: what is slowest is a link, of which the
loss is noticed late, and which is joined anew and advertised."""
ROUNDS: Final = (1, 1, 2)
SPREAD: Final = "any", "two", "all"
"""Multicasts that are in no file."""
MULTICAST: Final = *SPREAD, "all kept", "all on disk"
KEPT: Final = "kept", "all kept"
"""Names of which a message is accepted as it is on disk."""
AT_ONCE: Final = (*KEPT, "at once")
"""Names of which a message is accepted at the node where it enters."""
ON_DISK: Final = "disk", "all on disk"
"""Names of which a message is on disk until it has its outcome."""
AGE: Final = 6.0
"""Time for which a message is worth handling that was accepted as it is on disk, in seconds."""
WINDOW: Final = 8
REFUSED: Final = Rejected("shop:closed", "today")
OPTIONS: Final = DispatchOptions(
    outcome_timeout=LONGEST, deliveries=DeliveryLimits(promise_time=LONGEST)
)
SETTLE_TIME: Final = 1.5
"""Time in which a consumer has to settle a message, in some runs, in seconds."""
BACK: Final = Address(0, b"back")
WEIGHTS: Final = {
    "cut": 3,
    "silent cut": 3,
    "heal": 5,
    "slow": 2,
    "crash": 2,
    "start": 4,
    "consumer": 10,
    "end": 5,
    "move": 6,
    "produce": 3,
}
"""How often each thing happens, relative to the others."""
MANNERS: Final = ("quick", "quick", "changing", "changing", "slow", "silent")


def draw_semantics(draw: random.Random) -> dict[str, Semantics]:
    """Draw what is provisioned."""
    wait = Retry(first=0.5, longest=2.0, hold=Hold(messages=draw.choice((2, 20)), age=3.0))
    few = Retry(rounds=draw.randint(1, 3), first=0.2, longest=1.0, hold=Hold(messages=20, age=4.0))
    direct, balanced = RoutingPattern.DIRECT, RoutingPattern.BALANCED
    return {
        "refuse": Semantics(pattern=direct, window=WINDOW),
        "newest": Semantics(pattern=direct, second=Second.NEWEST, window=WINDOW),
        "standby": Semantics(pattern=direct, second=Second.STANDBY, window=WINDOW),
        "closest": Semantics(
            pattern=RoutingPattern.CLOSEST, weigh=draw.choice((Weigh.NONE, Weigh.LOAD))
        ),
        "balanced": Semantics(window=WINDOW, weigh=draw.choice((Weigh.NONE, Weigh.TIME))),
        "gated": Semantics(gate=Gate.CREDIT, window=WINDOW),
        "any": _multicast(1),
        "two": _multicast(2),
        "all": _multicast(ALL),
        "held": Semantics(undeliverable=(wait, Last.RELEASE), gate=Gate.OPEN, window=WINDOW),
        "tried": Semantics(undeliverable=(few, Last.REJECT), gate=Gate.OPEN, window=WINDOW),
        "redirected": Semantics(
            pattern=draw.choice((direct, balanced)),
            undeliverable=(Redirect("34#balanced"), Last.RELEASE),
            gate=Gate.OPEN,
            window=WINDOW,
        ),
        "dropped": Semantics(undeliverable=(Last.DROP,), gate=Gate.OPEN, window=WINDOW),
        "kept": _on_disk(Settlement.AT_ONCE),
        "disk": _on_disk(Settlement.AS_SENT),
        "at once": Semantics(reliability=Reliability(settle=Settlement.AT_ONCE), window=WINDOW),
        "once": Semantics(reliability=Reliability(deduplicate=5.0), window=WINDOW),
    }


def _on_disk(settle: Settlement, pattern: RoutingPattern = RoutingPattern.BALANCED) -> Semantics:
    hold = Hold(messages=50, age=AGE, disk=True)
    return Semantics(
        pattern=pattern,
        undeliverable=(Retry(first=0.5, longest=2.0, hold=hold), Last.RELEASE),
        reliability=Reliability(settle=settle),
        gate=Gate.OPEN,
        window=WINDOW,
    )


def spread_on_disk() -> dict[str, Semantics]:
    """Return the multicasts that are on disk."""
    return {
        "all kept": _on_disk(Settlement.AT_ONCE, RoutingPattern.MULTICAST),
        "all on disk": _on_disk(Settlement.AS_SENT, RoutingPattern.MULTICAST),
    }


def _multicast(accepts: int) -> Semantics:
    return Semantics(
        pattern=RoutingPattern.MULTICAST,
        reliability=Reliability(accepts=accepts, deadline=3.0),
        window=WINDOW,
    )


def _may_be_quick(semantics: Semantics) -> bool:
    """Whether messages to a name with these semantics may go the fast path."""
    reliability = semantics.reliability
    return not (
        semantics.pattern is RoutingPattern.MULTICAST
        or semantics.weigh is Weigh.TIME
        or semantics.gate is Gate.CREDIT
        or reliability.settle is Settlement.AT_ONCE
        or reliability.deduplicate
    )


class KeptFile(HoldStore):
    """A file of messages on hold that outlives its node, in memory.

    Args:
        files: All files of a run, by their path.
        path: Its path.
        max_messages: Most messages in it.
        max_bytes: Most bytes of their payloads.
    """

    def __init__(
        self, files: dict[str, sqlite3.Connection], path: str, max_messages: int, max_bytes: int
    ) -> None:
        self._files = files
        super().__init__(path, max_messages, max_bytes)

    def _open(self) -> sqlite3.Connection:
        file = self._files.get(str(self.path))
        if file is None:
            file = self._files[str(self.path)] = sqlite3.connect(":memory:", isolation_level=None)
        self._prepare(file)
        return file

    def close(self) -> None:
        """Let go of the file, as a process that ends or is killed."""
        self._file = None


class Seen(Dispatcher):
    """A dispatcher of which the tables are seen."""

    def killed(self) -> None:
        """Take the file from it: what runs on of a node that has crashed writes nothing."""
        if self._core.stored is not None:
            self._core.stored.store.close()

    def known(self, name: str) -> set[str]:
        """Return the other nodes with consumers of a name, as it knows them."""
        return set(self._core.topology.network.nodes_of(name))

    def reached(self) -> set[str]:
        """Return the other nodes that it has a path to."""
        return set(self._core.paths.nodes)

    def ended_fast(self) -> int:
        """Return how many messages have ended on the fast path."""
        return self._core.fast.accepted

    def first_handed(self, now: float) -> float:
        """Return when a consumer here was handed the first message that it has not settled."""
        first = now
        for state in self._core.names.states.values():
            deliveries = state.pure.deliveries
            copies = [
                each for each in deliveries._copies if isinstance(each.target, ConsumerTarget)
            ]
            first = min([first, *(each.sent for each in copies if each.sent is not None)])
            if deliveries.fast is not None:
                entries = deliveries.fast.entries.values()
                here = [each for each in entries if isinstance(each[0].target, ConsumerTarget)]
                first = min([first, *(each[2] for each in here)])
        return first

    def tables(self) -> dict[str, int]:
        """Return the sizes of the tables that end up empty."""
        core, figures = self._core, self.statistics()
        return {
            "names": figures.names,
            "unsettled": figures.unsettled,
            "messages on disk": figures.on_disk,
            "messages on disk alone": figures.left_on_disk,
            "bytes of pre-settled messages": core.totals.settled_size,
            "producers": figures.producers,
            "copies": len(core.copies.tokens),
            "copies at neighbours": len(core.copies.downstream),
            "paths back to neighbours": len(core.copies.upstream),
            "messages on the fast path": len(core.fast.open),
            "of them messages of neighbours": sum(map(len, core.fast.unsettled.came.values())),
            "consumers in all": core.totals.consumers,
            "producers in all": core.totals.producers,
            "bytes": core.totals.size,
            "consumers": sum(len(each.records) for each in core.attachments.watched.values()),
            "names in the network": len([*self._core.topology.network.names()]),
        }


@dataclass(slots=True, eq=False)
class Handing:
    """A message at a consumer.

    Attributes:
        taker: The number of the consumer.
        told: What the consumer has said; empty: nothing yet.
    """

    taker: int
    told: str = ""


@dataclass(slots=True, eq=False)
class Sent:
    """A message.

    Attributes:
        name: The name that it was sent to.
        node: The node that it was sent at.
        settled: Whether it is pre-settled.
        calm: Whether it was sent when all was healed, and stayed so.
        until: When it has its outcome at the latest, in seconds.
        entered: Whether its send has returned, or raised.
        gone: Whether its producer has been lost before.
        outcome: Its outcome.
        ended: When it had its outcome, in seconds.
        handings: Where it was handed over.
        dead: Times that it became a dead letter.
        died: When it was given up that had been accepted as it is on disk, in seconds.
    """

    name: str
    node: str
    settled: bool
    calm: bool
    until: float
    entered: bool = False
    gone: bool = False
    outcome: Outcome | None = None
    ended: float = 0.0
    handings: list[Handing] = field(default_factory=list[Handing])
    dead: int = 0
    died: float = 0.0

    @property
    def handled(self) -> list[Handing]:
        """Where it was handed over and not given back."""
        return [each for each in self.handings if each.told != "released"]


@dataclass
class Outcomes:
    """What has happened in a run.

    Attributes:
        nodes: Number of nodes.
        links: Number of links.
        sent: The messages, by their number.
        happened: What has happened, and how often.
        counts: What the dispatchers have counted.
        wrong: What was seen not to be as promised.
        took: How long it took, in virtual seconds.
    """

    nodes: int
    links: int
    sent: list[Sent] = field(default_factory=list[Sent])
    happened: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    took: float = 0.0

    def tale(self) -> list[tuple[object, ...]]:
        """Return all that has happened to the messages, to compare two runs."""
        return [
            (
                *(each.name, each.node, str(each.outcome), each.ended, each.dead, self.took),
                *((handing.taker, handing.told) for handing in each.handings),
            )
            for each in self.sent
        ]


def violations(outcome: Outcomes) -> list[str]:
    """Say what is not as promised."""
    found = list(outcome.wrong)
    for number, each in enumerate(outcome.sent):
        said = f"{number} to {each.name} at {each.node}"
        found += [f"{said}: {wrong}" for wrong in _of_message(each)]
    return found


def _of_message(sent: Sent) -> Iterator[str]:
    """Yield what is not as promised of one message."""
    takers = Counter(each.taker for each in sent.handled)
    many = sent.name in MULTICAST
    if sent.name in KEPT or (sent.name in ON_DISK and sent.gone):
        yield from _of_kept(sent)  # it may have been sent again, in doubt
    elif any(times > 1 for times in takers.values()) or (not many and takers.total() > 1):
        yield f"handled at {list(takers.elements())}, outcome {sent.outcome}"
    if sent.settled or sent.name == "at once":
        lost = not sent.handings and not sent.dead and isinstance(sent.outcome, Accepted | None)
        if sent.calm and sent.entered and lost:
            yield "pre-settled, and neither handled nor counted as dropped"
    if sent.settled:
        return
    if sent.gone:
        return
    if sent.outcome is None:
        yield "no outcome"
        return
    if sent.ended > sent.until + SLACK:
        yield f"an outcome {sent.ended - sent.until:.2f} s after its deadline"
    if sent.name not in AT_ONCE:
        yield from _of_outcome(sent)


def _of_kept(sent: Sent) -> Iterator[str]:
    """Yield what is not as promised of a message that is on disk."""
    told = Counter(each.told for each in sent.handings)
    if not isinstance(sent.outcome, Accepted) or sent.name not in KEPT or sent.settled:
        if isinstance(sent.outcome, Released) and sent.handled:
            yield f"released, and handled at {[each.taker for each in sent.handled]}"
        return
    if not (told["accepted"] or told["rejected"] or sent.died):
        yield f"accepted as it is on disk, and lost: consumers told {dict(told)}"
    over = min(sent.until, sent.ended + AGE)
    if sent.died and not told["rejected"] and sent.died < over - SLACK:
        yield f"given up {over - sent.died:.2f} s before its time was over"


def _of_outcome(sent: Sent) -> Iterator[str]:
    """Yield what of an outcome is not what consumers have said."""
    told = Counter(each.told for each in sent.handings)
    match sent.outcome:
        case Released():
            if sent.handled:
                yield f"released, and handled at {[each.taker for each in sent.handled]}"
        case Accepted():
            least = 2 if sent.name == "two" else 1
            if told["accepted"] < least and sent.name != "dropped":
                yield f"accepted, and consumers told {dict(told)}"
            if sent.name == "all" and set(told) - {"accepted"}:
                yield f"accepted by all, and consumers told {dict(told)}"
        case Rejected():
            if not told["rejected"] and sent.name != "tried":
                yield f"rejected, and consumers told {dict(told)}"
        case _:
            pass


class Taker:
    """A consumer, which handles deliveries in its manner."""

    def __init__(self, world: World, node: str, name: str, manner: str) -> None:
        self.number = len(world.takers)
        self.node = node
        self.name = name
        self.manner = manner
        self.consumer: Consumer | Reader | None = None
        self.worker: Plain | None = None
        self._world = world
        self._draw = random.Random(f"{world.seed}/taker/{self.number}")

    @property
    def limited(self) -> bool:
        """Whether it has to settle a message in a short time."""
        return self._world.limited

    @property
    def there(self) -> bool:
        """Whether it is attached."""
        return self.consumer is not None and not self.consumer.reason

    def complain(self, text: str) -> None:
        """Note what is not as it should be."""
        self._world.wrong(f"{text}: {self.number} of {self.name}")

    def note(self, payload: bytes) -> Handing:
        """Note that a message was handed over."""
        handing = Handing(self.number)
        self._world.outcome.sent[int.from_bytes(payload)].handings.append(handing)
        return handing

    async def __call__(self, delivery: Received) -> None:
        handing = self.note(delivery.payload)
        draw = self._draw
        match self.manner:
            case "changing":
                if draw.random() < 0.5:
                    await asyncio.sleep(draw.uniform(0, 0.4))
                told = draw.choice(("accepted", "accepted", "rejected", "released", "modified"))
            case "slow":
                await asyncio.sleep(draw.uniform(0.5, 4))
                told = "accepted"
            case "silent":
                return
            case _:
                told = "accepted"
        handing.told = told
        match told:
            case "accepted":
                delivery.accept(b"yes")
            case "rejected":
                delivery.reject(REFUSED.condition, REFUSED.description)
            case "released":
                delivery.release()
            case _:
                delivery.modify()


class Reader:
    """A consumer that asks for a few messages at a time, as a slow client of AMQP.

    Args:
        taker: Handles the messages.
        dispatcher: The dispatcher.
        draw: Its pauses and its credit.
    """

    def __init__(self, taker: Taker, dispatcher: Dispatcher, draw: random.Random) -> None:
        self.reason = ""
        self.unsettled = 0
        self._taker = taker
        self._draw = draw
        self._credit = 0
        self._loop = asyncio.get_running_loop()
        self._link: ConsumerLink = dispatcher.open_consumer(taker.name, self, client=taker)
        self._loop.call_soon(self._ask)

    @property
    def active(self) -> bool:
        """Whether it gets messages."""
        assert isinstance(self._link, CreditedConsumer)
        return self._link.record.active

    def close(self) -> None:
        """Detach it."""
        if not self.reason:
            self.reason = "closed"
            self._link.close()

    def _ask(self) -> None:
        if not self._taker.there:
            return
        quick = self._taker.manner == "quick"
        if not self._credit:
            more = self._draw.choice((1, 2, 5))
            self._credit += more
            self._link.credit(more)
        self._loop.call_later(0.02 if quick else self._draw.uniform(0.2, 1.5), self._ask)

    def deliver(self, message: bytes, told: OutcomeCallback | None) -> None:
        """Take a message."""
        handing = self._taker.note(message)
        self._credit -= 1
        if self._credit < 0:
            self._taker.complain("a reader has more than it has asked for")
        if told is not None:
            quick = self._taker.manner == "quick"
            if not (self._taker.limited and self._taker.manner == "silent"):
                self._loop.call_later(0.0 if quick else 0.5, self._settle, handing, told)

    def _settle(self, handing: Handing, told: OutcomeCallback) -> None:
        if self._taker.there:
            handing.told = "accepted"
            told(ACCEPTED)

    def drained(self) -> None:
        """Receive word that its credit is gone."""

    def end(self, reason: OnwardError) -> None:
        """Receive word that it was detached."""
        self.reason = str(reason)


class Plain(Worker):
    """A consumer that knows nothing of deliveries, and replies."""

    def __init__(self, taker: Taker) -> None:
        super().__init__()
        self._taker = taker

    def handle_message(self, message: Message) -> None:
        self._taker.note(message.payload).told = "accepted"
        if message.return_route:
            self.reply(message, b"yes")


class Back(Worker):
    """The sender of plain messages, which gets their answers, each at a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: dict[bytes, asyncio.Future[Outcome]] = {}

    def handle_message(self, message: Message) -> None:
        future = self.waits.pop(message.onward_route[-1].value)
        error = read_error_reply(message)
        if error is None:
            future.set_result(ACCEPTED)
        elif not error.certain:
            future.set_result(MODIFIED)
        else:
            future.set_result(REFUSED if REFUSED.condition in error.reason else RELEASED)

    async def ask(self, name: str, payload: bytes) -> Outcome:
        """Send a message, and wait for its outcome."""
        future: asyncio.Future[Outcome] = self.node.loop.create_future()
        self.waits[payload] = future
        self.node.send(f"34#{name}", payload, return_route=[BACK, Address(0, payload)])
        return await future


class Place:
    """A node of the network, while it lives."""

    def __init__(self, node: Node, dispatcher: Seen, counted: Counted, back: Back) -> None:
        self.back = back
        self.node = node
        self.counted = counted
        self.dispatcher = dispatcher
        self.takers: list[Taker] = []
        self.producers: dict[str, Producer] = {}
        self.anonymous: AnonymousProducer | None = None
        self.sends: set[asyncio.Task[None]] = set()
        self.sent: list[Sent] = []
        self.maker: asyncio.Task[None] | None = None


class World:
    """One run: nodes, what happens to them, and what is seen.

    Args:
        network: Where.
        seed: What the run is drawn from.
    """

    def __init__(self, network: SimulatedNetwork, seed: int) -> None:
        self.seed = seed
        self.draw = draw = random.Random(f"{seed}/dispatchers")
        self.semantics = draw_semantics(draw)
        self.quick = random.Random(f"{seed}/quick").random() < 0.5
        self.limited = random.Random(f"{seed}/settle").random() < 0.3
        quick = [name for name, semantics in self.semantics.items() if _may_be_quick(semantics)]
        self.names = sorted(draw.sample(sorted(quick if self.quick else self.semantics), 6))
        if not self.quick and random.Random(f"{seed}/spread").random() < 0.4:
            self.semantics |= (spread := spread_on_disk())
            self.names += spread
        if "redirected" in self.names and "balanced" not in self.names:
            self.names.append("balanced")
        count = draw.choice((2, 2, 3, 3, 3, 4, 5, 6))
        self.hosts = [f"n{(number * 7) % 10}{number}" for number in range(count)]
        self.costs: dict[tuple[int, int], int] = {
            (draw.randrange(number), number): draw.choice((1, 1, 2)) for number in range(1, count)
        }
        for _ in range(draw.randint(0, count)):
            left, right = sorted(draw.sample(range(count), 2))
            self.costs.setdefault((left, right), draw.choice((1, 1, 2)))
        self.outcome = Outcomes(count, len(self.costs))
        self.takers: list[Taker] = []
        self.places: dict[str, Place] = {}
        self._network = network
        self._links: dict[tuple[int, int], Address] = {}
        self._cut: set[tuple[int, int]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._calm = False
        self._making = False

    async def run(self) -> Outcomes:
        """Let things happen, heal them, and look, a few times."""
        self._network.announce(*self.hosts)
        for host in self.hosts:
            await self._start(host)
        for pair in self.costs:
            self._tasks.append(asyncio.create_task(self._keep(pair)))
        await asyncio.sleep(2)
        for _ in range(self.draw.choice(ROUNDS)):
            await self._trouble()
            await self._heal()
            await asyncio.sleep(CALM)
            self._check_names()
            await self._calm_traffic()
            self._check_credit()
            await self._probe()
            self._check_credit()
            self._check_gates()
        await self._open_a_link()
        await self._end()
        self.outcome.took = self._now()
        for task in self._tasks:
            task.cancel()
        return self.outcome

    def wrong(self, text: str) -> None:
        """Note what is not as it should be."""
        self.outcome.wrong.append(f"{text}, at {self._now():.2f} s")

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # --- nodes and links ----------------------------------------------------------------------

    async def _start(self, host: str) -> None:
        known = host in self._network.nodes
        if known:
            node = await self._network.restart(host)
        else:
            node = await self._network.node(host, error_replies=True)
        counted, back = Counted(), Back()
        if not self.quick:
            node.add_instrument(counted)
        await node.start(lambda: back, address=BACK)
        limits = OPTIONS.deliveries
        if self.limited:
            limits = replace(limits, settle_time=SETTLE_TIME)
        options = replace(OPTIONS, hold_file=f"{host}.db", deliveries=limits)
        dispatcher = await Seen.attach(node, options)
        assert isinstance(dispatcher, Seen)
        for name, semantics in self.semantics.items():
            dispatcher.provision(name, semantics)
        node.dead_letters.subscribe(self._dead)
        await node.listen(f"sim://{host}", expose=[DISPATCH])
        place = self.places[host] = Place(node, dispatcher, counted, back)
        place.anonymous = await dispatcher.produce_any()
        for name in self.names:
            if self.draw.random() < 0.7:
                await self._produce(place, name)
        place.maker = asyncio.create_task(self._make(host, place))

    async def _produce(self, place: Place, name: str) -> None:
        if name not in place.producers:
            place.producers[name] = await place.dispatcher.produce(name)

    async def _crash(self, host: str) -> None:
        place = self.places.pop(host)
        self._collect(place)
        if place.maker is not None:
            place.maker.cancel()
        for sent in place.sent:
            sent.gone = sent.gone or sent.outcome is None
        for task in place.sends:
            task.cancel()
        for taker in place.takers:
            taker.consumer = None
        place.dispatcher.killed()
        await self._network.crash(host)

    async def _keep(self, pair: tuple[int, int]) -> None:
        """Join two nodes whenever they live and no link joins them."""
        one, other = (self.hosts[number] for number in pair)
        while True:
            place, link = self.places.get(one), self._links.get(pair)
            wanted = place is not None and other in self.places and pair not in self._cut
            if wanted and place is not None and (link is None or not place.node.has(link)):
                with suppress(OnwardError, TimeoutError):
                    joined = place.dispatcher.neighbour(f"sim://{other}", self.costs[pair])
                    self._links[pair] = await asyncio.wait_for(joined, 10)
            await asyncio.sleep(0.5)

    # --- messages -----------------------------------------------------------------------------

    def _dead(self, letter: DeadLetter) -> None:
        payload = letter.message.payload
        if len(payload) == 4 and (number := int.from_bytes(payload)) < len(self.outcome.sent):
            sent = self.outcome.sent[number]
            sent.dead += 1
            if letter.reason == "on disk, and not delivered":
                sent.died = sent.died or self._now()

    async def _make(self, host: str, place: Place) -> None:
        """Send messages to names, now and then several at once."""
        draw = random.Random(f"{self.seed}/maker/{host}/{self._now()}")
        while True:
            await asyncio.sleep(draw.choice((0.02, 0.3, 1.0)))
            if self._making:
                name = draw.choice(self.names)
                for _ in range(draw.choice((1, 1, 3, 12))):
                    timeout, kind = draw.uniform(0.2, LONGEST), draw.random()
                    plain = self.quick and 0.2 < kind < 0.8
                    self._send(host, place, name, timeout, 1.0 if plain else kind)

    def _send(self, host: str, place: Place, name: str, timeout: float, kind: float) -> Sent:
        """Send a message: its kind, from 0 to 1, says how, and whether it is pre-settled."""
        if name in AT_ONCE:
            timeout += 10  # it is the time for which the message is worth handling
        until = self._now() + timeout
        sent = Sent(name, host, kind < 0.2, self._calm, until)
        payload = len(self.outcome.sent).to_bytes(4)
        self.outcome.sent.append(sent)
        place.sent.append(sent)
        send: Callable[[], Awaitable[Outcome | None]]
        producer, anonymous = place.producers.get(name), place.anonymous
        if anonymous is not None and 0.15 < kind < 0.3:
            send = partial(anonymous.send_settled, name, payload)
            if not sent.settled:
                send = partial(anonymous.send, name, payload, timeout=timeout)
        elif kind > 0.9 and name not in AT_ONCE:
            sent.until = self._now() + LONGEST
            send = partial(place.back.ask, name, payload)
        elif kind > 0.8 or (producer is None and kind >= 0.2):
            send = partial(self._request, place.node, name, payload, timeout)
        elif producer is None:
            place.node.send(f"34#{name}", payload)
            sent.entered = True
            return sent
        elif sent.settled:
            send = partial(producer.send_settled, payload)
        else:
            send = partial(producer.send, payload, timeout=timeout)
        task = asyncio.create_task(self._sent(sent, send))
        place.sends.add(task)
        task.add_done_callback(place.sends.discard)
        return sent

    async def _request(self, node: Node, name: str, payload: bytes, timeout: float) -> Outcome:
        try:
            await node.request(f"34#{name}", payload, timeout=timeout)
        except NotDelivered as error:
            # What no consumer takes is refused by the dispatcher.
            return REFUSED if REFUSED.condition in str(error) else RELEASED
        except OnwardError:
            return MODIFIED
        return ACCEPTED

    async def _sent(self, sent: Sent, send: Callable[[], Awaitable[Outcome | None]]) -> None:
        try:
            outcome = await send()
        except ProducerClosed:
            sent.gone = True
        else:
            sent.outcome, sent.ended, sent.entered = outcome, self._now(), True
            if sent.settled:
                # It may have waited for credit until something has happened again.
                sent.calm = sent.calm and self._calm

    async def _consume(self, host: str, name: str, manner: str) -> None:
        place = self.places[host]
        if manner == "silent" and name in KEPT:
            manner = "slow"  # what it has would be its own for ever
        taker = Taker(self, host, name, manner)
        self.takers.append(taker)
        window = self.draw.choice((1, 3, 20))
        consume = place.dispatcher.consume
        if self.draw.random() < 0.2 and not self.quick:
            with suppress(ConsumerRefused):
                taker.consumer = Reader(taker, place.dispatcher, random.Random(f"{taker.number}"))
                place.takers.append(taker)
            return
        if self.draw.random() < 0.15:
            worker = taker.worker = Plain(taker)
            address = await place.node.start(lambda: worker)
            taken = consume(name, address, window=window)
        else:
            taken = consume(name, taker, window=window, accept=Accept.SELF)
        with suppress(ConsumerRefused):
            taker.consumer = await taken
            place.takers.append(taker)

    # --- what happens -------------------------------------------------------------------------

    async def _trouble(self) -> None:
        self._making = True
        until = self._now() + TROUBLE
        while self._now() < until:
            await self._happen()
            await asyncio.sleep(self.draw.choice((0.0, 0.03, 0.2, 0.8)))
        self._making = False

    async def _happen(self) -> None:
        draw = self.draw
        what = draw.choices([*WEIGHTS], [*WEIGHTS.values()])[0]
        self.outcome.happened[what] += 1
        pair = draw.choice([*self.costs])
        one, other = (self.hosts[number] for number in pair)
        host, name = draw.choice(self.hosts), draw.choice(self.names)
        manner = draw.choice(MANNERS)
        there = [each for each in self.takers if each.there]
        match what:
            case "cut":
                await self._cut_link(pair)
            case "silent cut":
                self._network.partition({one}, {other})
            case "heal":
                self._cut.discard(pair)
                self._network.heal({one}, {other})
            case "slow":
                self._network.set_faults(one, other, Faults(latency=(0.1, 0.4)))
            case "crash" if host in self.places:
                await self._crash(host)
            case "start" if host not in self.places:
                await self._start(host)
            case "consumer" if host in self.places:
                await self._consume(host, name, manner)
            case "end" | "move" if there:
                taker = draw.choice(there)
                self._close(taker)
                if what == "move" and host in self.places:
                    await self._consume(host, taker.name, taker.manner)
            case "produce" if host in self.places:
                place = self.places[host]
                if (producer := place.producers.pop(name, None)) is None:
                    await self._produce(place, name)
                else:
                    producer.close()
            case _:
                pass

    async def _cut_link(self, pair: tuple[int, int]) -> None:
        self._cut.add(pair)
        place, link = self.places.get(self.hosts[pair[0]]), self._links.get(pair)
        if place is not None and link is not None and place.node.has(link):
            await place.node.stop_worker(link)

    @staticmethod
    def _close(taker: Taker) -> None:
        if taker.worker is not None:
            taker.worker.stop()
        elif taker.consumer is not None:
            taker.consumer.close()

    async def _heal(self) -> None:
        self._network.heal()
        self._network.set_all_faults(Faults())
        self._cut.clear()
        for host in self.hosts:
            if host not in self.places:
                await self._start(host)

    # --- what has to be true ------------------------------------------------------------------

    def _there(self, name: str) -> list[Taker]:
        return [each for each in self.takers if each.name == name and each.there]

    def _check_names(self) -> None:
        for host, place in self.places.items():
            if place.dispatcher.reached() != {*self.hosts} - {host}:
                self.wrong(f"{host} reaches {sorted(place.dispatcher.reached())}")
            for name in self.names:
                with_consumers = {each.node for each in self._there(name)} - {host}
                if (known := place.dispatcher.known(name)) != with_consumers:
                    self.wrong(
                        f"{host} knows {sorted(known)} for {name}, not {sorted(with_consumers)}"
                    )
        for name in self.names:
            if self.semantics[name].pattern is RoutingPattern.DIRECT:
                there = self._there(name)
                active = [each for each in there if each.consumer and each.consumer.active]
                if len(active) != min(1, len(there)):
                    self.wrong(f"{name} has {len(active)} active consumers of {len(there)}")

    def _check_credit(self) -> None:
        for host, place in self.places.items():
            if place.anonymous is not None and place.anonymous.unsettled:
                self.wrong(f"{host} has {place.anonymous.unsettled} unsettled messages to any name")
            for name, producer in place.producers.items():
                semantics = self.semantics[name]
                if producer.unsettled:
                    self.wrong(f"{host} has {producer.unsettled} unsettled messages to {name}")
                if semantics.gate is Gate.CREDIT:
                    continue
                expected = semantics.window
                if semantics.gate is Gate.CONSUMER and not self._there(name):
                    continue
                if producer.credit != expected:
                    self.wrong(f"{host} has credit {producer.credit} of {expected} for {name}")

    def _check_ages(self) -> None:
        """Check that no consumer here has a message for longer than it may."""
        for host, place in self.places.items() if self.limited else ():
            oldest = self._now() - place.dispatcher.first_handed(self._now())
            # It is noticed up to a second late.
            if oldest > SETTLE_TIME + 1 + SLACK:
                self.wrong(f"a consumer of {host} has a message for {oldest:.2f} s")

    def _check_gates(self) -> None:
        """Check that credit is given which waits for that of consumers, as none of them is busy."""
        for host, place in self.places.items():
            for name, producer in place.producers.items():
                gated = self.semantics[name].gate is Gate.CREDIT
                if gated and self._there(name) and not producer.credit:
                    self.wrong(f"{host} has no credit for {name}, which has consumers")

    async def _calm_traffic(self) -> None:
        """Send and move consumers while links and nodes hold: each message is accounted for."""
        self._calm = self._making = True
        for _ in range(6):
            host, name = self.draw.choice(self.hosts), self.draw.choice(self.names)
            there = self._there(name)
            if there and self.draw.random() < 0.5:
                self._close(self.draw.choice(there))
            else:
                await self._consume(host, name, self.draw.choice(MANNERS))
            await asyncio.sleep(0.4)
            self._check_ages()
        self._making = False
        for _ in range(int(LONGEST) + 2):
            await asyncio.sleep(1)
            self._check_ages()
        self._calm = False
        self._check_names()

    async def _probe(self) -> None:
        """Send a message from each node to each name, of which all consumers are quick now."""
        for taker in self.takers:
            taker.manner = "quick"
        for name in self.names:
            # Half of the names have a consumer in any case.
            if not self._there(name) and self.draw.random() < 0.5:
                await self._consume(self.draw.choice(self.hosts), name, "quick")
        await asyncio.sleep(5)
        before = self._duplicates()
        probes = [
            (name, self._send(host, place, name, LONGEST, 0.5))
            for host, place in self.places.items()
            for name in self.names
        ]
        await asyncio.sleep(LONGEST + 1)
        for name, sent in probes:
            self._check_probe(name, sent)
        if (more := self._duplicates() - before) > 0:
            self.wrong(f"{more} copies came to a node that had the message already")

    async def _open_a_link(self) -> None:
        """Send multicasts while a link comes up: each consumer has each of them, once."""
        draw = random.Random(f"{self.seed}/link")
        names = [name for name in self.names if name in SPREAD]
        pairs = [pair for pair in self.costs if self._is_spare(pair)]
        if not (names and pairs):
            return
        pair = draw.choice(pairs)
        for name in names:
            for host in self.hosts:
                await self._consume(host, name, "quick")
        await self._cut_link(pair)
        await asyncio.sleep(5)
        # Nodes learn of the link one after another.
        self._network.set_all_faults(Faults(latency=(0.05, 0.2)))
        self._cut.discard(pair)
        sent: list[Sent] = []
        for _ in range(60):
            for host, place in self.places.items():
                sent.append(self._send(host, place, draw.choice(names), LONGEST, 0.5))
            await asyncio.sleep(0.03)
        self._network.set_all_faults(Faults())
        await asyncio.sleep(LONGEST + 1)
        there = {name: sorted(each.number for each in self._there(name)) for name in names}
        missed = 0
        for each in sent:
            takers = sorted(handing.taker for handing in each.handings)
            missed += takers != there[each.name]
            if len({*takers}) < len(takers):
                self.wrong(f"{each.name} at {each.node} went to {takers} while a link came up")
        self.outcome.happened["multicasts as a link came up"] += len(sent)
        self.outcome.happened["of them not at all consumers"] += missed
        if missed:
            self.wrong(f"{missed} of {len(sent)} multicasts missed a consumer as a link came up")

    def _is_spare(self, pair: tuple[int, int]) -> bool:
        """Whether all nodes are joined without a link."""
        reached, links = {0}, [each for each in self.costs if each != pair]
        for _ in self.hosts:
            for one, other in links:
                if not reached.isdisjoint({one, other}):
                    reached |= {one, other}
        return len(reached) == len(self.hosts)

    def _duplicates(self) -> int:
        """Return how many copies the nodes have dropped as they had the message already."""
        counts = [place.dispatcher.statistics().counts for place in self.places.values()]
        return sum(each.get(DropReason.DUPLICATE, 0) for each in counts)

    def _check_probe(self, name: str, sent: Sent) -> None:
        there = {each.number for each in self._there(name)}
        many = name in MULTICAST
        if not there:
            return
        least = 2 if name == "two" else 1
        if len(there) >= least and not isinstance(sent.outcome, Accepted):
            self.wrong(f"{name} has consumers, and a message at {sent.node} is {sent.outcome}")
        takers = sorted(each.taker for each in sent.handings)
        if (many and takers != sorted(there)) or len(takers) != (len(there) if many else 1):
            self.wrong(f"a message to {name} at {sent.node} came to {takers} of {sorted(there)}")

    async def _end(self) -> None:
        for taker in self.takers:
            self._close(taker)
        for place in self.places.values():
            for producer in (*place.producers.values(), place.anonymous):
                if producer is not None:
                    producer.close()
        await asyncio.sleep(LONGEST + 3)
        for host, place in self.places.items():
            left = {name: count for name, count in place.dispatcher.tables().items() if count}
            if left:
                self.wrong(f"{host} has left {left}")
            if place.counted.open():
                self.wrong(f"{host} has counted no end, or two: {place.counted.open()}")
            self._collect(place)

    def _collect(self, place: Place) -> None:
        self.outcome.counts.update(place.dispatcher.statistics().counts)
        self.outcome.happened["ended on the fast path"] += place.dispatcher.ended_fast()


@contextmanager
def _drawn(seed: int) -> Generator[None]:
    """Draw tokens from a seed, and tell the time of the loop."""
    draw = random.Random(f"{seed}/tokens")
    tokens = SimpleNamespace(token_bytes=draw.randbytes)
    clock = SimpleNamespace(time=lambda: 1_000_000 + asyncio.get_running_loop().time())
    package = "onward.actors.dispatch"
    files: dict[str, sqlite3.Connection] = {}
    with (
        mock.patch(f"{package}._core.secrets", tokens),
        mock.patch(f"{package}._fast_path.secrets", tokens),
        mock.patch(f"{package}._core.time", clock),
        mock.patch(f"{package}._stored.time", clock),
        mock.patch(f"{package}._dispatcher.HoldStore", partial(KeptFile, files)),
    ):
        try:
            yield
        finally:
            for file in files.values():
                file.close()


def run_dispatchers(seed: int) -> Outcomes:
    """Do one run."""
    draw = random.Random(f"{seed}/faults")
    faults = Faults(latency=(0.001, draw.choice((0.001, 0.01, 0.05))))
    with _drawn(seed):
        return simulate(lambda network: World(network, seed).run(), seed=seed, faults=faults)


def checked_run(seed: int) -> tuple[int, Outcomes | None, list[str]]:
    """Do one run and check it; an error in it, or one that is logged, is a violation too."""
    with Errors() as errors:
        try:
            outcome = run_dispatchers(seed)
        except Exception as error:
            return seed, None, [f"{type(error).__name__}: {error}", *errors]
    return seed, outcome, violations(outcome) + errors
