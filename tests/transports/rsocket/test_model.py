"""Random walks of a broker and its peers, against a model that knows nothing of how it works.

The model keeps, for each request, who asked, who has it in hand and what all sides have said;
and for each stream of each peer what has to arrive there next, byte by byte. After each step
everything must have arrived, no stream may be left over on any side, and the broker's table
must say what the model says. A peer has connected to the broker, or the broker to the peer:
that makes no difference but for the numbers of the streams.

Each class walks by a seed of its own, so that they run side by side and always the same way:
in `make test-all` together at least 20,000 steps.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, seed, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from onward.actors.broker import BrokerOptions, MulticastOptions
from onward.protocol.rsocket import Setup
from onward.transports.rsocket import FlowOptions, LinkOptions
from tests.support.broker_model import MULTICAST, REGION, SHARD, UNICAST, Leg, Request, Wanted
from tests.support.counts import runs, times
from tests.support.rsocket_peer import (
    BROKER_FRAME,
    CANCEL,
    CHANNEL,
    ERROR,
    FNF,
    FORWARDING,
    IS_IT_ALIVE,
    PAYLOAD,
    REQUEST_N,
    RR,
    SERVICE_NAME,
    SETUP,
    STREAM,
    C,
    MemoryLoop,
    N,
    Peer,
    World,
    cancel,
    composite,
    error,
    frame,
    kind_of,
    payload,
    push,
    request_n,
    restamped,
    route_setup,
    setup,
    stream_of,
    world,
)

WINDOW = 4
REJECTED, CANCELED, INVALID = 0x202, 0x203, 0x204
LIFETIME = 1_200_000
REQUESTS = {RR, FNF, STREAM, CHANNEL}
KINDS = st.sampled_from([RR, FNF, STREAM, CHANNEL])
SERVICES, REGIONS = st.sampled_from("ab"), st.sampled_from(["", "eu", "us"])

WANTED = st.builds(
    Wanted,
    flags=st.sampled_from([UNICAST] * 6 + [MULTICAST] * 3 + [0, 0x0C0, 0x060, 0x0E0]),
    service=st.sampled_from("ab" * 6 + "c"),
    region=st.sampled_from(["", "", "", "eu", "us"]),
) | st.builds(
    Wanted,
    flags=st.just(SHARD),
    service=st.sampled_from(["a", "a", "b", ""]),
    region=st.sampled_from(["", "", "", "eu"]),
    user=st.sampled_from(["1", "2", "3", "4", ""]),
    keys=st.sampled_from([("user",)] * 6 + [("service",), ("user", "region"), ("nobody",), ()]),
    method=st.sampled_from(["", "", "jump", "Modulo", "unheard-of"]),
)


class Destination:
    """What the model knows of a peer that is in the table."""

    def __init__(self, route_id: UUID, service: str, region: str, registration: int) -> None:
        self.route_id = route_id
        self.service = service
        self.tags: set[tuple[int | str, str]] = {(SERVICE_NAME, service)}
        if region:
            self.tags.add((REGION, region))
        self.registration = registration


class Model(RuleBasedStateMachine):
    """The model, and the steps."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=MemoryLoop)
        self.context = world(
            BrokerOptions(multicast=MulticastOptions(window=WINDOW)),
            LinkOptions(flow=FlowOptions(credit_window=WINDOW)),
        )
        self.peers: list[Peer] = []
        self.accepted: set[Peer] = set()
        self.destinations: dict[Peer, Destination] = {}
        self.waiting: list[Request] = []
        self.live: list[Request] = []
        self.marked: dict[bytes, Request] = {}
        self.expected: dict[tuple[Peer, int], deque[bytes | int]] = defaultdict(deque)
        self.taken: dict[tuple[Peer, int], tuple[Request, Leg]] = {}
        self.next_stream: dict[Peer, int] = {}
        self.number = 0
        self.registrations = 0
        # Where the key of a shard request has gone, as long as the same destinations match.
        self.placed: dict[object, Peer] = {}

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize(
        specification=st.booleans(),
        opened=st.booleans(),
        first=st.lists(st.tuples(SERVICES, REGIONS, st.booleans()), min_size=1, max_size=4),
    )
    def start(self, specification: bool, opened: bool, first: list[tuple[str, str, bool]]) -> None:
        self.specification = specification
        self.mime = FORWARDING if specification else BROKER_FRAME
        self.world: World = self.run(self.context.__aenter__())
        self.run(self.connect(None, opened))
        for each in first:
            self.a_destination(*each)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.run(self.context.__aexit__(None, None, None))
        self.runner.close()

    # --- who is there -----------------------------------------------------------------------

    @rule(service=st.none() | SERVICES, region=REGIONS, opened=st.booleans())
    def somebody_comes(self, service: str | None, region: str, opened: bool) -> None:
        if service is None:
            self.run(self.connect(None, opened))
        else:
            self.a_destination(service, region, opened)

    def a_destination(self, service: str, region: str, opened: bool) -> None:
        destination = self.registered(self.world.new_id(), service, region)
        self.run(self.connect(destination, opened))

    def registered(self, route_id: UUID, service: str, region: str) -> Destination:
        self.registrations += 1
        return Destination(route_id, service, region, self.registrations)

    def registration(self, destination: Destination) -> bytes:
        """Return the metadata with the ROUTE_SETUP of a destination."""
        tags: dict[int | str, str] = {
            key: value for key, value in destination.tags if key != SERVICE_NAME
        }
        raw = route_setup(destination.route_id, destination.service, tags)
        return composite((self.mime, raw))

    async def connect(self, destination: Destination | None, opened: bool) -> None:
        """Connect a peer to the broker, or the broker to a peer; the role makes no difference."""
        registration = None if destination is None else self.registration(destination)
        if opened:
            peer = await self.world.opened(Setup(keepalive=LIFETIME // 2, lifetime=LIFETIME))
            assert [kind_of(raw) for raw in await peer.received()] == [SETUP]
        else:
            peer = self.world.connect()
            self.accepted.add(peer)
        self.next_stream[peer] = 2 if opened else 1
        self.peers.append(peer)
        if destination is not None:
            self.destinations[peer] = destination
        if not opened:
            peer.send(setup(registration, lifetime=LIFETIME))
        elif registration is not None:
            peer.send(push(registration))
        await self.settle(joined=peer)

    @precondition(lambda self: self.peers)
    @rule(
        data=st.data(),
        what=st.sampled_from(["tags", "tags", "place", "eof", "die", "break"]),
        service=SERVICES,
        region=REGIONS,
    )
    def somebody_changes(self, data: st.DataObject, what: str, service: str, region: str) -> None:
        peer = data.draw(st.sampled_from(self.peers))
        if what == "tags":
            self.other_tags(peer, service, region)
        elif what == "place" and peer in self.destinations:
            self.another_takes_its_place(peer, service, region, data.draw(st.booleans()))
        else:
            self.leaves(peer, what)

    def other_tags(self, peer: Peer, service: str, region: str) -> None:
        """It sends ROUTE_SETUP again, or for the first time; what it has in hand it keeps."""
        known = self.destinations.get(peer)
        route_id = known.route_id if known else self.world.new_id()
        made = self.destinations[peer] = self.registered(route_id, service, region)
        peer.send(push(self.registration(made)))
        self.run(self.settle(joined=peer))

    def another_takes_its_place(self, old: Peer, service: str, region: str, opened: bool) -> None:
        """A new connection has the route id of an old one, which is closed."""
        made = self.registered(self.destinations[old].route_id, service, region)
        self.gone(old)
        self.run(self.connect(made, opened))
        assert old.closed

    def leaves(self, peer: Peer, how: str) -> None:
        """It goes; before or after what it has sent, or by breaking the protocol."""
        self.gone(peer)
        if how in {"eof", "die"}:
            getattr(peer, how)()
        else:
            peer.send(frame(0, 0x20))
        self.run(self.settle())

    def gone(self, peer: Peer) -> None:
        """End what a peer that goes has asked for, and what it has in hand."""
        self.peers.remove(peer)
        self.destinations.pop(peer, None)
        for asked in list(self.waiting):
            if asked.requester is peer and asked.kind == FNF:
                self.end(asked)  # what waits does not wait longer than its requester is there
        for asked in self.cancellable():  # a fire-and-forget on its way needs it no more
            if asked.requester is peer:
                self.cancelled(asked)
            else:
                for branch in asked.in_hand:
                    if branch.destination is peer and not asked.over:
                        self.left(asked, branch)

    def left(self, asked: Request, branch: Leg) -> None:
        """A destination goes with a request in hand; of several, it is passed over."""
        if asked.merged:
            branch.done = asked.lost = True
            self.go_on(asked)
        else:
            self.end(asked)
            self.expect(asked.requester, asked.stream, CANCELED)

    def cancelled(self, asked: Request, raw: bytes | None = None) -> None:
        """The requester wants no more: all who have the request are told."""
        self.end(asked)
        for branch in asked.in_hand:
            word = cancel(branch.stream) if raw is None else restamped(raw, branch.stream)
            self.expect(branch.destination, branch.stream, word)

    # --- requests ---------------------------------------------------------------------------

    @precondition(lambda self: self.peers)
    @rule(
        data=st.data(),
        kind=KINDS,
        wanted=WANTED,
        n=st.integers(1, 12),
        fragments=st.booleans(),
        at_once=st.booleans(),
        last=st.booleans(),
    )
    def somebody_asks(
        self,
        data: st.DataObject,
        kind: int,
        wanted: Wanted,
        n: int,
        fragments: bool,
        at_once: bool,
        last: bool,
    ) -> None:
        peer = data.draw(st.sampled_from(self.peers))
        asked = self.request(peer, kind, wanted, n, fragments, last)
        self.run(self.ask(asked, at_once))

    @precondition(lambda self: self.destinations)
    @rule(
        data=st.data(),
        flags=st.sampled_from([UNICAST, UNICAST, MULTICAST]),
        narrow=st.booleans(),
        n=st.integers(1, 12),
    )
    def somebody_asks_for_all_kinds(
        self, data: st.DataObject, flags: int, narrow: bool, n: int
    ) -> None:
        """One request of each kind, in one piece, that somebody can take."""
        peer = data.draw(st.sampled_from(self.peers))
        there = data.draw(st.sampled_from(list(self.destinations.values())))
        region = next((value for key, value in there.tags if key == REGION), "")
        wanted = Wanted(flags, there.service, region if narrow else "")
        requests = [self.request(peer, kind, wanted, n, False) for kind in (RR, STREAM, CHANNEL)]
        peer.send(*(frame for asked in requests for frame in asked.frames))
        self.run(self.settle())

    @precondition(lambda self: self.peers)
    @rule(
        data=st.data(),
        region=st.sampled_from(["ap", "sa"]),
        n=st.integers(1, 12),
        opened=st.booleans(),
    )
    def several_ask_before_anybody_comes(
        self, data: st.DataObject, region: str, n: int, opened: bool
    ) -> None:
        """They come in the order in which they were asked, unless somebody is there already."""
        peer = data.draw(st.sampled_from(self.peers))
        wanted = Wanted(UNICAST, "a", region)
        for kind in (STREAM, RR, CHANNEL):
            peer.send(*self.request(peer, kind, wanted, n, False).frames)
        self.run(self.settle())
        self.a_destination("a", region, opened)

    def request(
        self, peer: Peer, kind: int, wanted: Wanted, n: int, fragments: bool, last: bool = False
    ) -> Request:
        """Make a request, and say what becomes of it."""
        if kind == CHANNEL and wanted.flags == MULTICAST:
            kind = STREAM
        stream = self.next_stream[peer]
        self.next_stream[peer] += 2
        self.number += 1
        mark = b"request %08d" % self.number
        last = last and kind == CHANNEL
        done = last or kind != CHANNEL
        asked = Request(peer, stream, kind, wanted, mark, n, requester_done=done)
        given = n if kind in {STREAM, CHANNEL} else None
        asked.write(self.specification, given, fragments=fragments, data=b"data", last=last)
        if not wanted.wrong(specification=self.specification):
            self.marked[mark] = asked
            self.waiting.append(asked)
            if wanted.flags == MULTICAST:
                asked.expects = max(1, len(self.matching(asked)))
        elif kind != FNF:
            self.expect(peer, stream, INVALID)
        return asked

    async def ask(self, asked: Request, at_once: bool) -> None:
        if at_once:
            asked.requester.send(*asked.frames)
        else:
            for each in asked.frames:
                asked.requester.send(each)
                await self.world.loop.idle()
        await self.settle()

    @precondition(lambda self: self.waiting)
    @rule()
    def time_passes(self) -> None:
        self.run(self.wait())

    async def wait(self) -> None:
        for asked in list(self.waiting):
            self.end(asked)
            if asked.kind != FNF:
                self.expect(asked.requester, asked.stream, REJECTED)
        await asyncio.sleep(5.1)
        await self.settle()

    # --- what both sides say ----------------------------------------------------------------

    @precondition(lambda self: self.creditors())
    @rule(data=st.data(), flags=st.sampled_from([N, N, N, N | C]), text=st.binary(max_size=3))
    def an_answer(self, data: st.DataObject, flags: int, text: bytes) -> None:
        asked, branch = data.draw(st.sampled_from(self.creditors()))
        self.run(self.answer(asked, branch, [payload(branch.stream, text, flags)]))

    @precondition(lambda self: self.creditors())
    @rule(data=st.data(), last=st.booleans())
    def all_the_answers_there_is_credit_for(self, data: st.DataObject, last: bool) -> None:
        asked, branch = data.draw(st.sampled_from(self.creditors()))
        frames = [payload(branch.stream, b"%d" % n) for n in range(asked.credit(branch))]
        if last and asked.kind != RR:
            frames.append(payload(branch.stream, b"", C))
        self.run(self.answer(asked, branch, frames))

    @precondition(lambda self: any(each.merged for each in self.streaming()))
    @rule(data=st.data())
    def all_of_several_answer(self, data: st.DataObject) -> None:
        """Each says all it may, which may be more than the requester wants."""
        asked = data.draw(st.sampled_from([each for each in self.streaming() if each.merged]))
        for branch in asked.open:
            frames = [payload(branch.stream, b"%d" % n) for n in range(asked.credit(branch))]
            if frames:
                self.run(self.answer(asked, branch, frames))

    @precondition(lambda self: self.answerable())
    @rule(data=st.data())
    def the_last_answer(self, data: st.DataObject) -> None:
        asked, branch = data.draw(st.sampled_from(self.answerable()))
        self.run(self.answer(asked, branch, [payload(branch.stream, b"", C)]))

    async def answer(self, asked: Request, branch: Leg, frames: list[bytes]) -> None:
        if asked.merged and asked.kind == RR:
            self.last_word(asked, branch, frames[0])
        elif asked.merged:
            self.merge(asked, branch, frames)
        else:
            self.relay(asked, branch, frames)
        branch.destination.send(*frames)
        await self.settle()

    def relay(self, asked: Request, branch: Leg, frames: list[bytes]) -> None:
        """All that a destination says goes to the requester as it is."""
        for raw in frames:
            flags = int.from_bytes(raw[7:9])
            branch.answered += bool(flags & N)
            branch.done |= bool(flags & C) or asked.kind == RR
            self.expect(asked.requester, asked.stream, restamped(raw, asked.stream))
        if branch.done and asked.requester_done:
            self.end(asked)

    def merge(self, asked: Request, branch: Leg, frames: list[bytes]) -> None:
        """What one of several says goes on as far as there is credit, and the end with the last."""
        for raw in frames:
            if raw[8] & N:
                branch.answered += 1
                asked.held.append(raw[9:])
            if raw[8] & C:
                branch.done = branch.completed = True
        self.go_on(asked)

    def go_on(self, asked: Request) -> None:
        """Send what is held to the requester, and the end if nobody has more to say."""
        while asked.held and asked.delivered < asked.granted:
            asked.delivered += 1
            self.expect(asked.requester, asked.stream, payload(asked.stream, asked.held.popleft()))
        if asked.open or asked.held:
            return
        self.end(asked)
        if asked.said:
            self.expect(asked.requester, asked.stream, payload(asked.stream, b"", C))
        else:
            self.expect(asked.requester, asked.stream, CANCELED if asked.lost else REJECTED)

    def last_word(self, asked: Request, branch: Leg, raw: bytes) -> None:
        """What one says ends the request; if there are others they are cancelled."""
        self.end(asked)
        self.expect(asked.requester, asked.stream, restamped(raw, asked.stream))
        for other in asked.in_hand:
            if other is not branch:
                self.expect(other.destination, other.stream, cancel(other.stream))

    @precondition(lambda self: self.in_hand())
    @rule(data=st.data(), code=st.sampled_from([0x201, REJECTED, 0x301, 0xFFFFFFFE]))
    def an_error(self, data: st.DataObject, code: int) -> None:
        asked, branch = data.draw(st.sampled_from(self.in_hand()))
        raw = error(branch.stream, code, b"text")
        if asked.merged and code == REJECTED and not branch.answered:
            branch.done = True  # it has not taken the request: the others may
            self.go_on(asked)
        else:
            self.last_word(asked, branch, raw)
        branch.destination.send(raw)
        self.run(self.settle())

    @precondition(lambda self: self.cancellable())
    @rule(data=st.data())
    def a_cancel(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.cancellable()))
        raw = cancel(asked.stream)
        self.cancelled(asked, raw)
        asked.requester.send(raw)
        self.run(self.settle())

    @precondition(lambda self: self.channels())
    @rule(data=st.data())
    def an_error_of_the_requester(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.channels()))
        raw = error(asked.stream, 0x301, b"mine")
        self.cancelled(asked, raw)
        asked.requester.send(raw)
        self.run(self.settle())

    @precondition(lambda self: self.streaming())
    @rule(data=st.data(), n=st.integers(1, 10))
    def more_credit(self, data: st.DataObject, n: int) -> None:
        asked = data.draw(st.sampled_from(self.streaming()))
        asked.granted += n
        if asked.merged:
            self.go_on(asked)
        asked.requester.send(request_n(asked.stream, n))
        self.run(self.settle())

    @precondition(lambda self: self.channels(taken=True))
    @rule(data=st.data(), n=st.integers(1, 3))
    def credit_for_the_requester(self, data: st.DataObject, n: int) -> None:
        asked = data.draw(st.sampled_from(self.channels(taken=True)))
        branch = asked.only
        branch.up_granted += n
        raw = request_n(branch.stream, n)
        self.expect(asked.requester, asked.stream, restamped(raw, asked.stream))
        branch.destination.send(raw)
        self.run(self.settle())

    @precondition(lambda self: any(each.only.up_granted for each in self.channels(taken=True)))
    @rule(data=st.data(), flags=st.sampled_from([N, N, N | C]))
    def an_element_of_the_requester(self, data: st.DataObject, flags: int) -> None:
        able = [each for each in self.channels(taken=True) if each.only.up_granted]
        asked = data.draw(st.sampled_from(able))
        asked.only.up_granted -= 1
        self.run(self.element(asked, payload(asked.stream, b"up", flags)))

    @precondition(lambda self: self.channels())
    @rule(data=st.data())
    def the_requester_is_complete(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.channels()))
        self.run(self.element(asked, payload(asked.stream, b"", C)))

    async def element(self, asked: Request, raw: bytes) -> None:
        asked.requester_done |= bool(raw[8] & C)
        for branch in asked.branches:
            self.expect(branch.destination, branch.stream, restamped(raw, branch.stream))
        if not asked.branches:
            asked.frames.append(raw)
        elif asked.requester_done and not asked.open:
            self.end(asked)
        asked.requester.send(raw)
        await self.settle()

    @precondition(lambda self: self.channels(taken=True))
    @rule(data=st.data())
    def the_destination_wants_no_more(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.channels(taken=True)))
        asked.requester_done = True
        raw = cancel(asked.only.stream)
        self.expect(asked.requester, asked.stream, restamped(raw, asked.stream))
        if not asked.open:
            self.end(asked)
        asked.only.destination.send(raw)
        self.run(self.settle())

    # --- which requests ---------------------------------------------------------------------

    def in_hand(self) -> list[tuple[Request, Leg]]:
        # A merge may live on when all have answered: what it holds waits for credit.
        return [(asked, branch) for asked in self.live for branch in asked.in_hand]

    def answerable(self) -> list[tuple[Request, Leg]]:
        """Those that a destination may answer, with the destinations that may."""
        return [(asked, branch) for asked in self.live for branch in asked.open]

    def creditors(self) -> list[tuple[Request, Leg]]:
        """Those of them that there is credit for."""
        return [each for each in self.answerable() if each[0].credit(each[1]) > 0]

    def cancellable(self) -> list[Request]:
        return [each for each in [*self.live, *self.waiting] if each.kind != FNF]

    def streaming(self) -> list[Request]:
        return [each for each in self.cancellable() if each.kind in {STREAM, CHANNEL}]

    def channels(self, *, taken: bool = False) -> list[Request]:
        found = self.live if taken else [*self.live, *self.waiting]
        return [each for each in found if each.kind == CHANNEL and not each.requester_done]

    def matching(self, asked: Request) -> list[Peer]:
        """Those who carry the tags of a request."""
        query = asked.wanted.query
        return [peer for peer, each in self.destinations.items() if query <= each.tags]

    # --- what has to happen -----------------------------------------------------------------

    def expect(self, peer: Peer, stream: int, what: bytes | int) -> None:
        if peer in self.peers:
            self.expected[peer, stream].append(what)

    def end(self, asked: Request) -> None:
        assert not asked.over, "a request ended twice"
        asked.over = True
        (self.waiting if asked in self.waiting else self.live).remove(asked)

    async def settle(self, *, joined: Peer | None = None) -> None:
        """Let everything arrive, and compare it with what has to.

        Args:
            joined: Who has just joined: those that waited for it come in their order.
        """
        await self.world.loop.idle()
        for peer in list(self.peers):
            came = [self.arrived(peer, raw) for raw in await peer.received()]
            order = [mark for mark in came if mark]
            assert peer is not joined or order == sorted(order)
        left = {key: what for key, what in self.expected.items() if what}
        assert not left
        for asked in self.live:
            assert len(asked.branches) == asked.expects

    def arrived(self, peer: Peer, raw: bytes) -> bytes:
        """Compare a frame with what is expected; return the mark of a request, or nothing."""
        stream, kind = stream_of(raw), kind_of(raw)
        if raw == IS_IT_ALIVE:
            assert peer in self.destinations  # with a request, after a while without a word of it
            return b""
        assert stream, raw
        if kind in REQUESTS:
            return self.handed_over(peer, raw)
        if kind == REQUEST_N and (stream - self.next_stream[peer]) % 2:
            self.taken[peer, stream][1].passed += int.from_bytes(raw[9:13])
            return b""
        assert self.expected[peer, stream], (peer, raw)
        wanted = self.expected[peer, stream].popleft()
        if isinstance(wanted, int):
            assert (kind, int.from_bytes(raw[9:13])) == (ERROR, wanted)
        else:
            assert raw == wanted
            assert kind in {CANCEL, PAYLOAD, ERROR, REQUEST_N}
        return b""

    def handed_over(self, peer: Peer, raw: bytes) -> bytes:
        """A request has arrived where it may."""
        at = raw.index(b"request ")
        asked = self.marked[raw[at : at + 16]]
        assert peer in self.matching(asked)
        if asked in self.waiting:
            self.waiting.remove(asked)
            self.live.append(asked)
        stream = stream_of(raw)
        first = restamped(asked.frames[0], stream)
        passed = 0
        if asked.kind in {STREAM, CHANNEL}:
            passed = int.from_bytes(raw[9:13])
            assert passed == (1 if asked.merged else min(asked.granted, WINDOW))
            first = first[:9] + raw[9:13] + first[13:]
        assert raw == first
        branch = Leg(peer, self.destinations[peer].registration, stream, passed)
        asked.branches.append(branch)
        self.taken[peer, stream] = asked, branch
        for each in asked.rest(stream):
            self.expect(peer, stream, each)
        if asked.wanted.flags == SHARD:
            self.same_place(asked, peer)
        if asked.kind == FNF and len(asked.branches) == asked.expects:
            self.end(asked)
        return asked.mark

    def same_place(self, asked: Request, peer: Peer) -> None:
        """A key goes where it went, as long as there are the same destinations to go to."""
        wanted = asked.wanted
        routes = frozenset(self.destinations[each].route_id for each in self.matching(asked))
        method = wanted.method.lower()
        key = (wanted.query, wanted.shard, method.replace("unheard-of", ""), routes)
        assert self.placed.setdefault(key, peer) is peer

    # --- what always holds ------------------------------------------------------------------

    @invariant()
    def the_table_says_what_the_model_says(self) -> None:
        if not hasattr(self, "world"):
            return
        type(self).steps += 1
        services = [each.service for each in self.destinations.values()]
        assert sorted(self.world.services()) == sorted(services)
        statistics = self.world.broker.statistics()
        assert statistics.waiting == len(self.waiting)
        # A destination that came with other tags is counted anew.
        now = {peer: each.registration for peer, each in self.destinations.items()}
        branches = [branch for asked in self.live for branch in asked.in_hand]
        mine = [each for each in branches if now.get(each.destination) == each.registration]
        outstanding = sum(row.outstanding for row in self.world.broker.routes())
        assert outstanding == len(mine)
        assert self.world.listener.statistics().connections == len(self.accepted & set(self.peers))

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        for asked in self.waiting:
            assert not self.matching(asked)

    @invariant()
    def no_stream_is_left_over(self) -> None:
        streams = dict.fromkeys(self.peers, 0)
        for asked in self.cancellable():
            if asked.requester in streams:
                streams[asked.requester] += 1
        for asked in self.live:
            for branch in asked.in_hand:
                streams[branch.destination] += 1
        assert streams == {peer: peer.streams for peer in self.peers}

    @invariant()
    def credit_is_passed_on_and_never_invented(self) -> None:
        for asked, branch in self.answerable():
            if asked.kind in {STREAM, CHANNEL}:
                assert branch.ahead <= WINDOW
                assert branch.passed <= asked.granted
                if asked.merged:
                    assert branch.ahead > 0 or asked.delivered == asked.granted
                else:
                    assert branch.ahead > 0 or branch.passed == asked.granted


EXAMPLES, STEPS = times(24, 96), 50
AT_LEAST = 26
"""Steps that an example takes on average. Some end before their last step."""

WALK = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("number", runs(2, 8))
def test_random_walks(number: int) -> None:
    walk: type[Model] = seed(number)(type(f"Walk{number}", (Model,), {}))
    run_state_machine_as_test(walk, settings=WALK)
    assert walk.steps >= AT_LEAST * EXAMPLES
