"""Two tenants of one broker that try everything to see or to reach one another.

The same is done by `red` in two worlds: in one of them `blue` is there, with destinations, requests
under way, waiting and refused, and registrations that come and go; in the other it is not. Red may
not see a byte that differs, and nothing may arrive at blue. So what is refused, and what only finds
no destination, tells nothing about blue, whatever the way.

What red can find out is whether a route id is in use, by registering it; one cannot be guessed.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, Handlers, Request, WaitingOptions
from onward.actors.monitoring import Monitor
from onward.actors.tracing import HopTracer
from onward.protocol import Address, TraceMark, decode_hop_report, with_trace_mark
from onward.protocol.broker import parse_query
from onward.protocol.security import Principal
from onward.transports.admin import admin_paths, answer_paths
from tests.support.pages import ROOT
from tests.support.rsocket_peer import *
from tests.support.workers import Echo, Forwarder, Recorder
from tests.transports.rsocket.test_authorization import SHARD_KEY, STICKY, hinted

ROUTE_ID, REGION = 2, 6
ROUTE = b"message/x.onward.route.v0"
ROUTING = b"message/x.rsocket.routing.v0"
TRACING = b"message/x.onward.tracing.v0"
REPORT = b"message/x.onward.hop-report.v0"
_RANDOM: Final = re.compile(r"[0-9a-f]{32}")
_SINCE: Final = re.compile(rb'^...|"(since|timestamp)": ?[0-9.]+|(?<="10.0.0.1):[0-9]+', re.DOTALL)
"""The length of a frame, which depends on the digits of times, the times, and the port of red."""
AT_ONCE: Final = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))
WAITS: Final = BrokerOptions(waiting=WaitingOptions(no_route_timeout=5))

RULES = """
[[rule]]
roles = ["team"]
register = ["service=orders region=* colour=*", "service=blueprints", "service=none"]
request = ["service=orders", "service=blueprints", "service=none", "route=*", "region=*"]
"""

RED = Principal("red-1", "token", frozenset({"team"}), parse_query("tenant=red"))
BLUE = Principal("blue-1", "token", frozenset({"team"}), parse_query("tenant=blue"))
BLUE_ID, FREE_ID, RED_ID = UUID(int=0xB1B1B1), UUID(int=0xF2F2F2), UUID(int=0xED)
BLUE_HOST = "10.9.9.9"
PACKAGES = tuple(str(ROOT / name) for name in ("protocol", "actors", "transports"))
SECRETS = ("blue-1", BLUE_HOST, "blue data", "blue-worker: ")


def without_names(raw: bytes) -> bytes:
    """Return a report of a hop without random names, and without its time; others as they are."""
    if REPORT not in raw:
        return raw
    report = decode_hop_report(raw[raw.index(REPORT) + len(REPORT) + 3 :])
    routes = report.onward_route, report.return_route
    shown = [[_RANDOM.sub("?", str(each)) for each in route] for route in routes]
    return repr((report.trace, report.kind, shown)).encode()


class Blue(NamedTuple):
    """What blue has: a requester, its destinations, and what reached its workers."""

    requester: Peer
    destinations: tuple[Peer, ...]
    recorder: Recorder
    handled: list[Request]


class Scene(NamedTuple):
    """A world, with what red has in it, and blue, if it is there."""

    w: World
    red: Peer
    own: Peer | None
    blue: Blue | None

    def same(self, frames: list[bytes]) -> list[bytes]:
        """Return frames without what is random in each world."""
        broker = self.w.broker.broker_id
        return [
            _SINCE.sub(b"", without_names(raw))
            .replace(broker.bytes, b"B" * 16)
            .replace(str(broker).encode(), b"the broker")
            for raw in frames
        ]


def as_peer(w: World, principal: Principal, host: str) -> Peer:
    peer = w.connect(host)
    peer.link.session.principal = principal
    return peer


async def joined(
    w: World, principal: Principal, host: str, service: str, tags: Any = None, route_id: Any = None
) -> Peer:
    peer = as_peer(w, principal, host)
    wanted = route_setup(route_id or FREE_ID, service, tags)
    assert await peer.ask(setup(composite((BROKER_FRAME, wanted)))) == []
    return peer


async def settle_blue(w: World) -> Blue:
    tags: dict[int | str, str] = {REGION: "eu", "colour": "indigo"}
    recorder, handled, handlers = Recorder(), list[Request](), Handlers()

    @handlers.response
    async def handle(request: Request) -> bytes:
        handled.append(request)
        return b"blue data"

    @handlers.fire_and_forget
    async def drop(request: Request) -> None:
        handled.append(request)

    await w.node.start(lambda: recorder, address="blue-worker")
    w.broker.register("blue-worker", service="orders", tags={"tenant": "blue", "colour": "indigo"})
    w.broker.serve(handlers, service="blueprints", tags={"tenant": "blue"})
    first = await joined(w, BLUE, BLUE_HOST, "orders", tags, BLUE_ID)
    second = await joined(w, BLUE, BLUE_HOST, "blueprints", None, UUID(int=0xB2B2B2))
    requester = as_peer(w, BLUE, BLUE_HOST)
    assert await requester.ask(setup()) == []
    return Blue(requester, (first, second), recorder, handled)


async def never() -> object:
    raise AssertionError("it is not allowed")


@asynccontextmanager
async def scene(
    blue: bool, own: bool, options: BrokerOptions = AT_ONCE, traced: bool = False
) -> AsyncGenerator[Scene]:
    async with world(options, rules=RULES, expose=("relay", "32#*"), allow=("32#*", "echo")) as w:
        if traced:
            w.node.add_instrument(HopTracer(w.node))
        answer_paths(w.broker, admin_paths(Monitor(w.node, w.broker)))
        w.broker.operations.update(dict.fromkeys(("drain", "undo-drain", "reload"), never))
        await w.node.start(Forwarder, address="relay")
        await w.node.start(Echo, address="echo")
        there = await settle_blue(w) if blue else None
        mine = None
        if own:
            mine = await joined(w, RED, "10.0.0.1", "orders", {REGION: "eu"}, RED_ID)
        red = as_peer(w, RED, "10.0.0.1")
        assert await red.ask(setup()) == []
        yield Scene(w, red, mine, there)


# --- all ways to ask --------------------------------------------------------------------------
def to(*addresses: bytes) -> bytes:
    return composite(*((BROKER_FRAME, each) for each in addresses))


def named(route: str) -> bytes:
    return composite((ROUTE, route.encode()))


def marked() -> bytes:
    text = with_trace_mark({}, TraceMark("5" * 32, "0" * 16, 0, Address(0, b"tracer")))
    assert text is not None
    return composite((TRACING, text.encode()))


def of_blue(more: dict[int | str, str] | None = None) -> dict[int | str, str]:
    return {1: "orders", "tenant": "blue", **(more or {})}


INDIGO: Final[dict[int | str, str]] = {1: "orders", "colour": "indigo"}
BY_ID: Final[dict[int | str, str]] = {ROUTE_ID: str(BLUE_ID)}
BLUE_TAGS = address(of_blue(), mime=FORWARDING)

FORMS: Final[dict[str, bytes]] = {
    "its service": asked_for("orders"),
    "its service and tenant": asked_for({1: "orders", "tenant": "red"}),
    "the other tenant": asked_for(of_blue()),
    "both tenants": to(address({1: "orders", "tenant": "red"}), address(of_blue())),
    "both tenants, the other way": to(address(of_blue()), address({1: "orders", "tenant": "red"})),
    "a service of the other": asked_for("blueprints"),
    "a tag of the other": asked_for(INDIGO),
    "a tag of none": asked_for({1: "orders", "colour": "pink"}),
    "a region": asked_for({REGION: "eu"}),
    "another key for the tenant": asked_for({1: "orders", "Tenant": "blue"}),
    "an empty tenant": asked_for({1: "orders", "tenant": ""}),
    "a route id": asked_for(BY_ID),
    "a route id and the tenant": asked_for({**BY_ID, "tenant": "blue"}),
    "a route id of none": asked_for({ROUTE_ID: str(FREE_ID)}),
    "all": asked_for("orders", MULTICAST),
    "all of a region": asked_for({REGION: "eu"}, MULTICAST),
    "all with a tag of the other": asked_for(INDIGO, MULTICAST),
    "all of the other": asked_for(of_blue(), MULTICAST),
    "a route id, to all": asked_for(BY_ID, MULTICAST),
    "a shard": hinted({1: "orders", 10: "ann"}, (SHARD_KEY, "user"), flags=SHARD),
    "a shard of the other": hinted(of_blue({10: "ann"}), (SHARD_KEY, "tenant"), flags=SHARD),
    "sticky": hinted({1: "orders", 10: "ann"}, (STICKY, "user")),
    "sticky to the other": hinted(of_blue(), (STICKY, "tenant")),
    "encrypted": asked_for("orders", UNICAST | ENCRYPTED),
    "a forged origin": to(address("orders", origin=BLUE_ID.bytes)),
    "its own origin": to(address("orders", origin=RED_ID.bytes)),
    "wrapped": to(address("orders", wrapped=address(of_blue()))),
    "wrapped in composite": to(address("orders", wrapped=to(address(of_blue())))),
    "another dialect": composite((FORWARDING, address("orders", mime=FORWARDING))),
    "another dialect, of the other": composite((FORWARDING, BLUE_TAGS)),
    "the first dialect": composite((ROUTING_FRAME, address(of_blue()))),
    "two dialects": to(address("orders")) + composite((FORWARDING, BLUE_TAGS)),
    "an address and a route": to(address("orders")) + named("32#service=orders tenant=blue"),
    "a name": named("32#service=orders"),
    "a name of the other": named("32#service=orders tenant=blue"),
    "a name of a tag": named("32#service=orders colour=indigo"),
    "a name of a route id": named(f"32#route={BLUE_ID}"),
    "a name of all": named("32#@multicast service=orders"),
    "a name of all of the other": named("32#@multicast service=orders tenant=blue"),
    "a name of a shard": named("32#@shard=user service=orders user=ann"),
    "a name behind a relay": named("relay => 32#service=orders"),
    "a name of the other behind a relay": named("relay => 32#service=orders tenant=blue"),
    "two names": named("32#service=orders => 32#service=orders tenant=blue"),
    "a route id behind a relay": named(f"relay => 32#route={BLUE_ID}"),
    "a worker": named("blue-worker"),
    "a worker behind a relay": named("relay => blue-worker"),
    "the index": named("broker/tags => 32#service=orders tenant=blue"),
    "the broker": named("relay => broker"),
    "traced": marked() + asked_for("orders"),
    "traced, of the other": marked() + asked_for(INDIGO),
    "no address": composite((b"text/plain", b"x")),
    "a registration of the other": to(route_setup(BLUE_ID, "orders")),
}
KINDS: Final = {"response": RR, "fnf": FNF, "stream": STREAM, "channel": CHANNEL, "push": PUSH}


def frames_of(kind: int, stream: int, metadata: bytes, fragments: bool) -> list[bytes]:
    if kind == PUSH:
        return [push(metadata)]
    n = 5 if kind in (STREAM, CHANNEL) else None
    if not fragments:
        return [request(kind, stream, metadata, b"red data", n=n)]
    cut = len(metadata) // 2
    return [
        request(kind, stream, metadata[:cut], n=n, flags=F),
        payload(stream, b"red data", N | C, metadata=metadata[cut:]),
    ]


async def answer_all(own: Peer) -> list[bytes]:
    """Answer what has come to a destination, and return it."""
    got = [raw for raw in await own.received() if raw != IS_IT_ALIVE]
    for raw in got:
        if kind_of(raw) in (RR, STREAM, CHANNEL):
            own.send(payload(stream_of(raw), b"own", N | C))
    return got


async def walk(of: Scene, fragments: bool) -> dict[str, list[list[bytes]]]:
    """Ask in all ways, and return all that red gets to see."""
    seen: dict[str, list[list[bytes]]] = {}
    stream = 1
    for name, metadata in FORMS.items():
        if name == "a registration of the other":
            continue  # by a METADATA_PUSH it ends the connection: see below
        for kind_name, kind in KINDS.items():
            red = of.red
            frames = await red.ask(*frames_of(kind, stream, metadata, fragments))
            arrived = [] if of.own is None else await answer_all(of.own)
            frames += await red.received()
            if red.streams:
                frames += await red.ask(cancel(stream))
            assert not red.closed, (name, kind_name, errors(frames))
            seen[f"{name}, {kind_name}"] = [of.same(frames), of.same(arrived)]
            stream += 2
            if of.blue is not None:
                await untouched(of.blue)
    return seen


async def untouched(blue: Blue) -> None:
    """Check that nothing has come to blue."""
    for each in (blue.requester, *blue.destinations):
        got = [raw for raw in await each.received() if raw != IS_IT_ALIVE]
        assert got == []
        assert not each.closed
    assert blue.recorder.messages == []
    assert blue.handled == []


def hides(seen: object) -> None:
    """Check that nothing of blue is in what red sees, that red has not said itself."""
    text = repr(seen)
    for secret in SECRETS:
        assert secret not in text, secret


@pytest.mark.parametrize("fragments", [False, True])
@pytest.mark.parametrize("own", [False, True])
@in_memory
async def test_no_way_to_ask_tells_or_reaches_anything(own: bool, fragments: bool) -> None:
    transcripts: list[dict[str, list[list[bytes]]]] = []
    for blue in (True, False):
        async with scene(blue, own, traced=True) as of:
            transcripts.append(await walk(of, fragments))
    with_blue, without = transcripts
    assert len(with_blue) == (len(FORMS) - 1) * len(KINDS)
    for name, seen in with_blue.items():
        assert seen == without[name], name
    hides(with_blue)
    # Red is not refused whatever it asks: its own destination is reached in many ways.
    reached = [name for name, (_, arrived) in with_blue.items() if arrived]
    assert len(reached) > 50 if own else not reached


# --- as a destination -------------------------------------------------------------------------
@pytest.mark.parametrize("late", [False, True])
@in_memory
async def test_what_blue_asks_does_not_come_to_red(late: bool) -> None:
    """Red registers what blue has, before blue asks or while blue's requests wait."""
    async with scene(True, False, WAITS) as of:
        w, blue = of.w, of.blue
        assert blue is not None
        asker = blue.requester
        wanted: list[dict[int | str, str]] = [
            {1: "none"},
            {1: "none", "tenant": "blue"},
            {1: "orders", "colour": "pink"},
            {ROUTE_ID: str(RED_ID)},
        ]

        async def ask() -> None:
            for number, tags in enumerate(wanted):
                for flags in (UNICAST, MULTICAST):
                    stream = 1 + 4 * number + (2 if flags == MULTICAST else 0)
                    assert await asker.ask(request(RR, stream, asked_for(tags, flags))) == []

        if late:
            await ask()
        mine = [
            await joined(w, RED, "10.0.0.1", "none", None, RED_ID),
            await joined(w, RED, "10.0.0.1", "orders", {"colour": "pink"}, FREE_ID),
        ]
        if not late:
            await ask()
        for each in mine:
            assert [raw for raw in await each.received() if raw != IS_IT_ALIVE] == []
        # Blue is told that there is no destination, as if red were not there.
        await asyncio.sleep(10)
        told = errors(await asker.received())
        assert [code for _, code, _ in told] == [0x202] * 8
        assert {text.partition(":")[0] for _, _, text in told} == {"no route"}


@pytest.mark.parametrize(
    ("service", "tags"),
    [
        ("orders", {"tenant": "blue"}),
        ("orders", {"tenant": ""}),
        ("orders", {"colour": "x", "tenant": "blue"}),
        ("stock", {}),
        ("onward.management", {}),
    ],
)
@in_memory
async def test_red_cannot_register_as_blue(service: str, tags: dict[int | str, str]) -> None:
    answers: list[list[tuple[int, int, str]]] = []
    for there in (True, False):
        async with scene(there, False) as of:
            for late in (False, True):
                peer = as_peer(of.w, RED, "10.0.0.1")
                metadata = to(route_setup(FREE_ID, service, tags))
                frames = [setup(), push(metadata)] if late else [setup(metadata)]
                answers.append(errors(await peer.ask(*frames)))
                assert peer.closed
            assert of.w.broker.index.table.get(FREE_ID.bytes) is None
    assert answers[:2] == answers[2:]
    assert {text for found in answers for _, _, text in found} == {"not allowed: register"}


@in_memory
async def test_red_cannot_take_the_route_of_blue() -> None:
    async with scene(True, False) as of:
        for late in (False, True):
            peer = as_peer(of.w, RED, "10.0.0.1")
            metadata = to(route_setup(BLUE_ID, "orders"))
            frames = [setup(), push(metadata)] if late else [setup(metadata)]
            ((_, _, text),) = errors(await peer.ask(*frames))
            assert text == "not allowed: register"
            assert of.blue is not None
            await untouched(of.blue)


# --- the management service, events and the admin interface -----------------------------------
def question(text: str, rest: bytes = b"", kind: int = RR, stream: int = 1) -> bytes:
    metadata = to(address("onward.management")) + composite(
        (ROUTING, bytes((len(text),)) + text.encode())
    )
    return request(kind, stream, metadata, rest, n=None if kind == RR else 1000)


QUERIES: Final = (
    "service=orders",
    "service=orders colour=indigo",
    "service=blueprints",
    "service=orders tenant=blue",
    f"route={BLUE_ID}",
    f"route={FREE_ID}",
    "region=eu",
    "@multicast service=orders",
    "@shard=user service=orders user=ann",
    "tenant=blue",
    "",
)
FOR_READERS: Final = ("statistics", "workers", "dead-letters", "drain", "undo-drain", "reload")


def of_paths(w: World) -> list[str]:
    paths = admin_paths(Monitor(w.node, w.broker))
    return [path for path in paths if path.startswith(("/api/", "/debug/", "/metrics"))]


async def manage(of: Scene) -> dict[str, list[bytes]]:
    """Ask all that there is to ask, and return what red is told."""
    seen: dict[str, list[bytes]] = {}
    stream = 1

    async def ask(text: str, rest: bytes = b"", kind: int = RR) -> None:
        nonlocal stream
        frames = await of.red.ask(question(text, rest, kind, stream))
        for _ in range(20):
            if frames:
                break
            frames += await of.red.received()
        seen[f"{text} {rest.decode()} {kind}"] = of.same(frames)
        if of.red.streams:
            await of.red.ask(cancel(stream))
        stream += 2

    for text in ("routes", "services", *FOR_READERS, "nonsense", "shut-down"):
        await ask(text)
    for query in QUERIES:
        await ask("resolve", query.encode())
    for path in of_paths(of.w):
        for more in ("", "?q=service%3Dorders%20tenant%3Dblue", "?limit=5&state=closed"):
            await ask(path + more)
        await ask(path, b'{"query": "service=orders tenant=blue"}')
    await ask("table", kind=STREAM)
    return seen


@pytest.mark.parametrize("own", [False, True])
@in_memory
async def test_the_management_service_tells_nothing_of_blue(own: bool) -> None:
    transcripts: list[dict[str, list[bytes]]] = []
    for there in (True, False):
        async with scene(there, own) as of:
            assert len(of_paths(of.w)) > 10
            if of.blue is not None:
                await of.blue.requester.ask(request(FNF, 1, asked_for({1: "none"})))
                await of.blue.requester.ask(request(RR, 3, asked_for({1: "none"})))
            transcripts.append(await manage(of))
    with_blue, without = transcripts
    for text, told in with_blue.items():
        assert told == without[text], text
    hides(with_blue)
    for text in FOR_READERS:
        assert b"not allowed: " in b"".join(with_blue[f"{text}  {RR}"])


@in_memory
async def test_no_event_of_blue_is_seen() -> None:
    transcripts: list[list[tuple[str, str | None]]] = []
    for there in (True, False):
        async with scene(there, False) as of:
            w, watcher = of.w, of.red
            assert await watcher.ask(question("watch", b"", STREAM)) == []
            if of.blue is not None:
                another = await joined(w, BLUE, BLUE_HOST, "none", None, UUID(int=0xB3))
                await of.blue.requester.ask(
                    request(FNF, 1, asked_for("none")), request(RR, 3, asked_for({REGION: "eu"}))
                )
                await of.blue.requester.ask(request(RR, 5, asked_for({1: "none", "user": "x"})))
                another.eof()
                await w.loop.idle()
                of.blue.destinations[1].die()
            own = await joined(w, RED, "10.0.0.1", "orders", None, RED_ID)
            own.eof()
            await w.loop.idle()
            seen = [json.loads(each) for each in elements(await watcher.received())]
            transcripts.append([(each["kind"], each.get("service")) for each in seen])
            hides(seen)
            await watcher.ask(cancel(1))
    assert transcripts[0] == transcripts[1] == [("joined", "orders"), ("left", "orders")]


# --- the steps of a refusal ---------------------------------------------------------------------
@contextmanager
def counted() -> Generator[Callable[[], int]]:
    """Count the calls of and by the broker's functions: they repeat, as a clock does not."""
    calls = 0

    def count(frame: FrameType, event: str, _about: object) -> None:
        nonlocal calls
        if event in ("call", "c_call") and frame.f_code.co_filename.startswith(PACKAGES):
            calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(before)


async def steps(of: Scene, metadata: bytes, stream: int) -> int:
    """Return the calls in which a request is refused, from its bytes to the bytes of the answer."""
    asked = request(RR, stream, metadata)
    with counted() as calls:
        of.red.send(asked)
        await of.w.loop.idle()
        found = calls()
    assert errors(await of.red.received())
    return found


ASKED: Final[dict[str, dict[int | str, str]]] = {
    "a service that is not allowed": {1: "stock"},
    "the other tenant": {1: "orders", "tenant": "blue"},
    "a service of the other": {1: "blueprints"},
    "a route id": {ROUTE_ID: str(BLUE_ID)},
    "a tag of the other": {1: "orders", "colour": "indigo"},
    "a tag of several of the other": {1: "orders", "colour": "indigo", REGION: "eu"},
}


UNKNOWN: Final[dict[int | str, str]] = {1: "orders", "colour": "green"}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("own", [False, True])
@in_memory
async def test_the_steps_of_a_refusal_do_not_tell_what_there_is(name: str, own: bool) -> None:
    """For the first time, when the answer is computed, and then when it is remembered."""
    counts: list[list[int]] = []
    for there in (True, False):
        async with scene(there, own) as of:
            if there:
                of.w.broker.serve(Handlers(), service="stock")
            for number in range(3):  # at first, code is loaded
                await steps(of, asked_for({**ASKED[name], "n": f"{number}"}), 101 + 2 * number)
            differences: list[int] = []
            for number in range(3):
                # What else is in the world adds to both: its timers are compared.
                known = await steps(of, asked_for(ASKED[name]), 201 + 4 * number)
                unknown = await steps(of, asked_for(UNKNOWN), 203 + 4 * number)
                differences.append(known - unknown)
            counts.append(differences)
    assert counts[0] == counts[1]
