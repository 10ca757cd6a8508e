"""Random walks of a broker and its peers, against a model that knows nothing of how it works.

The model keeps, for each request, who asked, who has it in hand and what both sides have
said; and for each stream of each peer what has to arrive there next, byte by byte. After each
step everything must have arrived, no stream may be left over on either side, and the
broker's table must say what the model says.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Coroutine
from typing import Any

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from onward.actors.broker import BrokerOptions
from onward.transports.rsocket import LinkOptions
from tests.support.rsocket_peer import (
    BROKER_FRAME,
    CANCEL,
    CHANNEL,
    ERROR,
    FNF,
    PAYLOAD,
    REQUEST_N,
    RR,
    STREAM,
    C,
    F,
    MemoryLoop,
    N,
    Peer,
    World,
    asked_for,
    cancel,
    composite,
    error,
    frame,
    kind_of,
    payload,
    request,
    request_n,
    restamped,
    route_setup,
    setup,
    stream_of,
    world,
)

WINDOW = 4
REJECTED, CANCELED = 0x202, 0x203
LIFETIME = 1_200_000
REQUESTS = {RR, FNF, STREAM, CHANNEL}


class Request:
    """What the model knows of one request."""

    def __init__(self, requester: Peer, stream: int, kind: int, service: str, n: int) -> None:
        self.requester = requester
        self.stream = stream
        self.kind = kind
        self.service = service
        self.granted = n
        self.frames: list[bytes] = []
        self.destination: Peer | None = None
        self.taken = 0
        self.passed = 0
        self.answered = 0
        self.up_granted = 0
        self.requester_done = kind != CHANNEL
        self.responder_done = False
        self.over = False

    @property
    def answer_credit(self) -> int:
        return 1 if self.kind == RR else self.passed - self.answered


class Model(RuleBasedStateMachine):
    """The model, and the steps."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=MemoryLoop)
        self.context = world(BrokerOptions(), LinkOptions(credit_window=WINDOW))
        self.requesters: list[Peer] = []
        self.destinations: dict[Peer, str] = {}
        self.waiting: list[Request] = []
        self.live: list[Request] = []
        self.expected: dict[tuple[Peer, int], deque[bytes | int]] = defaultdict(deque)
        self.by_requester: dict[tuple[Peer, int], Request] = {}
        self.by_destination: dict[tuple[Peer, int], Request] = {}
        self.next_stream: dict[Peer, int] = {}
        self.number = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    @initialize()
    def start(self) -> None:
        self.world: World = self.run(self.context.__aenter__())

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.run(self.context.__aexit__(None, None, None))
        self.runner.close()

    # --- who is there -----------------------------------------------------------------------

    @rule()
    def a_requester_comes(self) -> None:
        self.run(self.connect("", setup(lifetime=LIFETIME)))

    @rule(service=st.sampled_from("ab"))
    def a_destination_comes(self, service: str) -> None:
        wanted = composite((BROKER_FRAME, route_setup(self.world.new_id(), service)))
        self.run(self.connect(service, setup(wanted, lifetime=LIFETIME)))

    async def connect(self, service: str, hello: bytes) -> None:
        peer = self.world.connect()
        self.next_stream[peer] = 1
        self.requesters.append(peer)
        if service:
            self.destinations[peer] = service
        peer.send(hello)
        await self.settle()

    @precondition(lambda self: self.requesters)
    @rule(data=st.data(), how=st.sampled_from(["eof", "die", "break"]))
    def a_peer_goes(self, data: st.DataObject, how: str) -> None:
        peer = data.draw(st.sampled_from(self.requesters))
        self.run(self.drop(peer, how))

    async def drop(self, peer: Peer, how: str) -> None:
        self.requesters.remove(peer)
        self.destinations.pop(peer, None)
        for asked in self.cancellable():  # a fire-and-forget needs its requester no more
            if asked.requester is peer:
                self.end(asked)
                if asked.destination not in {None, peer}:
                    assert asked.destination is not None
                    self.expect(asked.destination, asked.taken, cancel(asked.taken))
            elif asked.destination is peer:
                self.end(asked)
                self.expect(asked.requester, asked.stream, CANCELED)
        if how == "break":
            peer.send(frame(0, 0x20))
        else:
            getattr(peer, how)()
        await self.settle()

    # --- requests ---------------------------------------------------------------------------

    @precondition(lambda self: self.requesters)
    @rule(
        data=st.data(),
        kind=st.sampled_from([RR, FNF, STREAM, CHANNEL]),
        service=st.sampled_from("ab"),
        n=st.integers(1, 12),
        fragments=st.booleans(),
        at_once=st.booleans(),
    )
    def somebody_asks(
        self,
        data: st.DataObject,
        kind: int,
        service: str,
        n: int,
        fragments: bool,
        at_once: bool,
    ) -> None:
        peer = data.draw(st.sampled_from(self.requesters))
        self.run(self.ask(peer, kind, service, n, fragments, at_once))

    async def ask(
        self, peer: Peer, kind: int, service: str, n: int, fragments: bool, at_once: bool
    ) -> None:
        stream = self.next_stream[peer]
        self.next_stream[peer] += 2
        self.number += 1
        asked = Request(peer, stream, kind, service, n)
        given = n if kind in {STREAM, CHANNEL} else None
        metadata = asked_for(service)
        if fragments:
            asked.frames = [
                request(kind, stream, metadata[:20], n=given, flags=F),
                payload(stream, b"%d" % self.number, F, metadata[20:]),
                payload(stream, b"the rest"),
            ]
        else:
            asked.frames = [request(kind, stream, metadata, b"%d" % self.number, n=given)]
        self.by_requester[peer, stream] = asked
        self.waiting.append(asked)
        if at_once:
            peer.send(*asked.frames)
        else:
            for each in asked.frames:
                peer.send(each)
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

    @precondition(lambda self: any(each.answer_credit > 0 for each in self.answerable()))
    @rule(data=st.data(), flags=st.sampled_from([N, N, N, N | C]), text=st.binary(max_size=3))
    def an_answer(self, data: st.DataObject, flags: int, text: bytes) -> None:
        able = [each for each in self.answerable() if each.answer_credit > 0]
        asked = data.draw(st.sampled_from(able))
        self.run(self.answer(asked, [payload(asked.taken, text, flags)]))

    @precondition(lambda self: any(each.answer_credit > 0 for each in self.answerable()))
    @rule(data=st.data(), last=st.booleans())
    def all_the_answers_there_is_credit_for(self, data: st.DataObject, last: bool) -> None:
        able = [each for each in self.answerable() if each.answer_credit > 0]
        asked = data.draw(st.sampled_from(able))
        frames = [payload(asked.taken, b"%d" % n) for n in range(asked.answer_credit)]
        if last and asked.kind != RR:
            frames.append(payload(asked.taken, b"", C))
        self.run(self.answer(asked, frames))

    @precondition(lambda self: self.answerable())
    @rule(data=st.data())
    def the_last_answer(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.answerable()))
        self.run(self.answer(asked, [payload(asked.taken, b"", C)]))

    async def answer(self, asked: Request, frames: list[bytes]) -> None:
        assert asked.destination is not None
        for raw in frames:
            flags = int.from_bytes(raw[7:9])
            asked.answered += bool(flags & N)
            asked.responder_done |= bool(flags & C) or asked.kind == RR
            self.expect(asked.requester, asked.stream, restamped(raw, asked.stream))
        if asked.responder_done and asked.requester_done:
            self.end(asked)
        asked.destination.send(*frames)
        await self.settle()

    @precondition(lambda self: self.answerable())
    @rule(data=st.data(), code=st.sampled_from([0x201, 0x202, 0x301, 0xFFFFFFFE]))
    def an_error(self, data: st.DataObject, code: int) -> None:
        asked = data.draw(st.sampled_from(self.answerable(half_closed=True)))
        raw = error(asked.taken, code, b"text")
        self.run(self.say(asked, asked.destination, raw, asked.requester, asked.stream))

    @precondition(lambda self: self.cancellable())
    @rule(data=st.data())
    def a_cancel(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.cancellable()))
        raw = cancel(asked.stream)
        self.run(self.say(asked, asked.requester, raw, asked.destination, asked.taken))

    @precondition(lambda self: self.channels())
    @rule(data=st.data())
    def an_error_of_the_requester(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.channels()))
        raw = error(asked.stream, 0x301, b"mine")
        self.run(self.say(asked, asked.requester, raw, asked.destination, asked.taken))

    async def say(
        self, asked: Request, sender: Peer | None, raw: bytes, to: Peer | None, stream: int
    ) -> None:
        """Say the last word of a request."""
        assert sender is not None
        self.end(asked)
        if to is not None:
            self.expect(to, stream, restamped(raw, stream))
        sender.send(raw)
        await self.settle()

    @precondition(lambda self: self.streaming())
    @rule(data=st.data(), n=st.integers(1, 10))
    def more_credit(self, data: st.DataObject, n: int) -> None:
        asked = data.draw(st.sampled_from(self.streaming()))
        asked.granted += n
        asked.requester.send(request_n(asked.stream, n))
        self.run(self.settle())

    @precondition(lambda self: self.channels(taken=True))
    @rule(data=st.data(), n=st.integers(1, 3))
    def credit_for_the_requester(self, data: st.DataObject, n: int) -> None:
        asked = data.draw(st.sampled_from(self.channels(taken=True)))
        assert asked.destination is not None
        asked.up_granted += n
        raw = request_n(asked.taken, n)
        self.expect(asked.requester, asked.stream, restamped(raw, asked.stream))
        asked.destination.send(raw)
        self.run(self.settle())

    @precondition(lambda self: any(each.up_granted for each in self.channels(taken=True)))
    @rule(data=st.data(), flags=st.sampled_from([N, N, N | C]))
    def an_element_of_the_requester(self, data: st.DataObject, flags: int) -> None:
        able = [each for each in self.channels(taken=True) if each.up_granted]
        asked = data.draw(st.sampled_from(able))
        asked.up_granted -= 1
        self.run(self.element(asked, payload(asked.stream, b"up", flags)))

    @precondition(lambda self: self.channels())
    @rule(data=st.data())
    def the_requester_is_complete(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.channels()))
        self.run(self.element(asked, payload(asked.stream, b"", C)))

    async def element(self, asked: Request, raw: bytes) -> None:
        asked.requester_done |= bool(raw[8] & C)
        if asked.destination is not None:
            self.expect(asked.destination, asked.taken, restamped(raw, asked.taken))
        else:
            asked.frames.append(raw)
        if asked.requester_done and asked.responder_done:
            self.end(asked)
        asked.requester.send(raw)
        await self.settle()

    @precondition(lambda self: self.channels(taken=True))
    @rule(data=st.data())
    def the_destination_wants_no_more(self, data: st.DataObject) -> None:
        asked = data.draw(st.sampled_from(self.channels(taken=True)))
        assert asked.destination is not None
        asked.requester_done = True
        raw = cancel(asked.taken)
        self.expect(asked.requester, asked.stream, restamped(raw, asked.stream))
        if asked.responder_done:
            self.end(asked)
        asked.destination.send(raw)
        self.run(self.settle())

    # --- which requests ---------------------------------------------------------------------

    def answerable(self, *, half_closed: bool = False) -> list[Request]:
        return [each for each in self.live if half_closed or not each.responder_done]

    def cancellable(self) -> list[Request]:
        return [each for each in [*self.live, *self.waiting] if each.kind != FNF]

    def streaming(self) -> list[Request]:
        return [each for each in self.cancellable() if each.kind in {STREAM, CHANNEL}]

    def channels(self, *, taken: bool = False) -> list[Request]:
        found = self.live if taken else [*self.live, *self.waiting]
        return [each for each in found if each.kind == CHANNEL and not each.requester_done]

    # --- what has to happen -----------------------------------------------------------------

    def expect(self, peer: Peer, stream: int, what: bytes | int) -> None:
        if peer in self.requesters:
            self.expected[peer, stream].append(what)

    def end(self, asked: Request) -> None:
        assert not asked.over, "a request ended twice"
        asked.over = True
        (self.waiting if asked in self.waiting else self.live).remove(asked)

    async def settle(self) -> None:
        """Let everything arrive, and compare it with what has to."""
        await self.world.loop.idle()
        for peer in list(self.requesters):
            for raw in await peer.received():
                self.arrived(peer, raw)
        left = {key: what for key, what in self.expected.items() if what}
        assert not left

    def arrived(self, peer: Peer, raw: bytes) -> None:
        stream, kind = stream_of(raw), kind_of(raw)
        assert stream, raw
        if kind in REQUESTS:
            self.handed_over(peer, raw)
            return
        if kind == REQUEST_N and stream % 2 == 0:
            asked = self.by_destination[peer, stream]
            asked.passed += int.from_bytes(raw[9:13])
            return
        assert self.expected[peer, stream], (peer, raw)
        wanted = self.expected[peer, stream].popleft()
        if isinstance(wanted, int):
            assert (kind, int.from_bytes(raw[9:13])) == (ERROR, wanted)
        else:
            assert raw == wanted
            assert kind in {CANCEL, PAYLOAD, ERROR, REQUEST_N}

    def handed_over(self, peer: Peer, raw: bytes) -> None:
        """A request has arrived: it is the one that has waited longest of its service."""
        service = self.destinations[peer]
        asked = next(
            each
            for each in self.waiting
            if each.service == service and restamped(raw, each.stream)[13:] == each.frames[0][13:]
        )
        self.waiting.remove(asked)
        self.live.append(asked)
        stream = stream_of(raw)
        asked.destination, asked.taken = peer, stream
        first = restamped(asked.frames[0], stream)
        if asked.kind in {STREAM, CHANNEL}:
            asked.passed = int.from_bytes(raw[9:13])
            assert asked.passed == min(asked.granted, WINDOW)
            first = first[:9] + raw[9:13] + first[13:]
        assert raw == first
        self.by_destination[peer, stream] = asked
        for each in asked.frames[1:]:
            self.expect(peer, stream, restamped(each, stream))
        if asked.kind == FNF:
            self.end(asked)

    # --- what always holds ------------------------------------------------------------------

    @invariant()
    def the_table_says_what_the_model_says(self) -> None:
        if not hasattr(self, "world"):
            return
        assert sorted(self.world.services()) == sorted(self.destinations.values())
        statistics = self.world.broker.statistics()
        assert statistics.waiting == len(self.waiting)
        outstanding = sum(row.outstanding for row in self.world.broker.routes())
        assert outstanding == len(self.live)
        assert self.world.listener.statistics().connections == len(self.requesters)

    @invariant()
    def no_stream_is_left_over(self) -> None:
        for peer in self.requesters:
            mine = sum(each.requester is peer for each in self.cancellable())
            theirs = sum(each.destination is peer for each in self.live)
            assert peer.streams == mine + theirs

    @invariant()
    def credit_is_passed_on_and_never_invented(self) -> None:
        for asked in self.live:
            if asked.kind in {STREAM, CHANNEL} and not asked.responder_done:
                assert asked.passed <= asked.granted
                assert asked.answer_credit <= WINDOW
                assert asked.answer_credit > 0 or asked.passed == asked.granted


Model.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestModel = Model.TestCase
