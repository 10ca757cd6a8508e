"""Requests that one broker forwards to another, frame by frame, on both paths."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, WaitingOptions
from onward.actors.broker.table._remote import PeerRoutes
from onward.actors.security import Authorization
from onward.actors.workers import Echo
from onward.protocol import NotDelivered
from onward.protocol.broker import Dialect, RouteAdd, RouteRemove, RouteSetup, WellKnownKey
from onward.protocol.security import Principal, read_rules
from onward.transports.rsocket import LinkOptions
from tests.support.peer_brokers import Joint, joint
from tests.support.rsocket_peer import *

REJECTED, CANCELED, INVALID = 0x202, 0x203, 0x204
ROUTE_ID = 2
AT_ONCE = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0))
FORMS = [(mime, alone) for mime in (BROKER_FRAME, FORWARDING) for alone in (False, True)]
FIRST = UUID(int=0xFA00)


def pin(route_id: UUID) -> bytes:
    """Return the tag RouteId, and that more tags follow."""
    text = str(route_id).encode()
    return b"\x82" + bytes((0x80 | len(text),)) + text


def pinned(
    j: Joint, mime: bytes = BROKER_FRAME, route_id: UUID = FIRST, service: str = "a"
) -> bytes:
    """Return the ADDRESS for a service, as it arrives at the route that it is pinned to."""
    frame = address("a", mime=mime)
    if mime != FORWARDING:
        return frame[:22] + pin(route_id) + frame[22:]
    via = b"\x0aonward.via\x10" + j.near.broker.broker_id.bytes
    return frame[:22] + via + pin(route_id) + frame[24:]


def asked(mime: bytes, alone: bool) -> bytes:
    frame = address("a", mime=mime)
    return frame if alone else composite((mime, frame))


@in_world()
async def test_a_request_is_pinned_and_its_answer_relayed(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        assert await requester.ask(request(RR, 1, asked_for("a"), b"data")) == []
        wanted = composite((BROKER_FRAME, pinned(j)))
        assert await destination.received() == [request(RR, 2, wanted, b"data")]
        assert j.there.taken() == [request(RR, 3, wanted, b"data")]
        answer = payload(2, b"answer", N | C, b"metadata")
        assert await destination.ask(answer) == []
        assert await requester.received() == [restamped(answer, 1)]
        # Each broker counts it once, and only one as a request of a client.
        assert w.row().requests == 1
        assert j.far.row().requests == 1
        assert w.broker.tally.answered == 1
        assert j.far.broker.tally.answered == 0
        assert j.far.broker.forwarded.answered == 1


@pytest.mark.parametrize(("mime", "alone"), FORMS)
@pytest.mark.parametrize(("their_mime", "their_alone"), FORMS)
@in_world()
async def test_each_form_to_each(
    w: World, mime: bytes, alone: bool, their_mime: bytes, their_alone: bool
) -> None:
    async with joint(w) as j:
        to, requester = j.far.connect(), w.connect()
        wanted = route_setup(FIRST, "a")
        metadata = wanted if their_alone else composite((their_mime, wanted))
        await to.ask(setup(metadata, mime=their_mime if their_alone else COMPOSITE))
        j.tell("a", FIRST)
        await requester.ask(setup(mime=mime if alone else COMPOSITE))
        await requester.ask(request(RR, 1, asked(mime, alone), b"data", flags=I))
        frame = pinned(j, their_mime)
        if mime != their_mime and their_mime == FORWARDING:
            # The reference dialect has no place for the brokers that it has passed.
            frame = address("a", mime=FORWARDING)
            frame = frame[:24] + pin(FIRST) + frame[24:]
        arrived = frame if their_alone else composite((their_mime, frame))
        assert await to.received() == [request(RR, 2, arrived, b"data", flags=I)]
        await to.ask(payload(2, b"", C))
        assert await requester.received() == [payload(1, b"", C)]


@in_world()
async def test_all_else_in_the_metadata_stays(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        before = b"\x85\x00\x00\x01x" + composite((b"text/plain", b"t"))
        after = composite((b"x/y", b""), (b"a/b", bytes(300)))
        metadata = before + asked_for("a") + after
        await requester.ask(request(FNF, 1, metadata, b"data"))
        wanted = before + composite((BROKER_FRAME, pinned(j))) + after
        assert await destination.received() == [request(FNF, 2, wanted, b"data")]
        await requester.ask(push(metadata))
        assert await destination.received() == [push(wanted)]


@in_world()
async def test_a_stream_with_credit(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        await requester.ask(request(STREAM, 1, asked_for("a"), n=3))
        wanted = composite((BROKER_FRAME, pinned(j)))
        assert await destination.received() == [request(STREAM, 2, wanted, n=3)]
        await destination.ask(*(payload(2, b"%d" % n) for n in range(3)))
        assert elements(await requester.received()) == [b"0", b"1", b"2"]
        await requester.ask(request_n(1, 5))
        assert await destination.received() == [request_n(2, 5)]
        await destination.ask(payload(2, b"x" * 40, F | N), payload(2, b"y" * 40, C))
        assert await requester.received() == [
            payload(1, b"x" * 40, F | N),
            payload(1, b"y" * 40, N | C),  # as between two clients
        ]


@in_world()
async def test_a_stream_that_its_requester_cancels(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        for begun in (False, True):
            stream = 3 if begun else 1
            await requester.ask(request(STREAM, stream, asked_for("a"), n=3))
            (arrived,) = await destination.received()
            if begun:
                await destination.ask(payload(stream_of(arrived), b"1"))
            await requester.ask(cancel(stream))
            assert await destination.received() == [cancel(stream_of(arrived))]


@in_world()
async def test_a_channel_in_both_directions(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        await requester.ask(request(CHANNEL, 1, asked_for("a"), b"0", n=9))
        wanted = composite((BROKER_FRAME, pinned(j)))
        assert await destination.received() == [request(CHANNEL, 2, wanted, b"0", n=9)]
        await destination.ask(request_n(2, 2))
        assert await requester.received() == [request_n(1, 2)]
        await requester.ask(payload(1, b"1"), payload(1, b"2", N | C))
        assert await destination.received() == [payload(2, b"1"), payload(2, b"2", N | C)]
        await destination.ask(payload(2, b"a"), payload(2, b"b", N | C))
        assert await requester.received() == [payload(1, b"a"), payload(1, b"b", N | C)]


@in_world()
async def test_errors_are_relayed_as_they_are(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        for kind, stream, code in ((RR, 1, 0x201), (STREAM, 3, 0x301), (CHANNEL, 5, CANCELED)):
            n = None if kind == RR else 1
            await requester.ask(request(kind, stream, asked_for("a"), n=n))
            (arrived,) = await destination.received()
            await destination.ask(error(stream_of(arrived), code, b"why"))
            assert errors(await requester.received()) == [(stream, code, "why")]


@in_world()
async def test_a_request_in_fragments(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        metadata = composite((b"a/b", bytes(200))) + asked_for("a")
        parts = [
            frame(1, RR, M | F, len(metadata[:100]).to_bytes(3) + metadata[:100]),
            payload(1, b"", F, metadata[100:220]),
            payload(1, b"d" * 90, F, metadata[220:]),
            payload(1, b"e" * 90, F),
            payload(1, b"f" * 10, 0),
        ]
        for part in parts:
            assert await requester.ask(part) == []
        got = await destination.received()
        assert {stream_of(each) for each in got} == {2}
        wanted = composite((b"a/b", bytes(200)), (BROKER_FRAME, pinned(j)))
        assert whole(got) == (wanted, b"d" * 90 + b"e" * 90 + b"f" * 10)
        await destination.ask(payload(2, b"x" * 70, F | N), payload(2, b"y", C))
        assert len(await requester.received()) == 2


def whole(frames: list[bytes]) -> tuple[bytes, bytes]:
    """Return metadata and data of a request in fragments."""
    metadata, data = b"", b""
    for each in frames:
        flags = int.from_bytes(each[7:9]) & 0x3FF
        at = 9
        if flags & M:
            size = int.from_bytes(each[9:12])
            metadata += each[12 : 12 + size]
            at = 12 + size
        data += each[at:]
    return metadata, data


@in_world()
async def test_a_request_that_names_its_query_as_a_route(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        named = composite((b"message/x.onward.route.v0", b"32#service=a"))
        await requester.ask(request(RR, 1, named, b"data"))
        (arrived,) = await destination.received()
        metadata, data = whole([arrived])
        assert data == b"data"
        assert metadata.startswith(named)
        assert str(FIRST).encode() in metadata
        await destination.ask(payload(2, b"", C))
        assert await requester.received() == [payload(1, b"", C)]


@pytest.mark.parametrize("which", ["link", "accepted"])
@in_world()
async def test_the_loss_of_the_link_cancels_what_is_under_way(w: World, which: str) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        await requester.ask(request(RR, 1, asked_for("a")), request(STREAM, 3, asked_for("a"), n=9))
        assert len(await destination.received()) == 2
        await destination.ask(payload(4, b"one"))
        assert len(await requester.received()) == 1
        (j.link if which == "link" else j.accepted).abort()
        got = errors(await requester.received())
        assert [(stream, code) for stream, code, _ in got] == [(1, CANCELED), (3, CANCELED)]
        assert await destination.received() == [cancel(2), cancel(4)]


@in_world()
async def test_the_loss_of_the_requester_cancels_at_the_other_broker(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        await requester.ask(request(RR, 1, asked_for("a")), request(STREAM, 3, asked_for("a"), n=9))
        await destination.received()
        requester.die()
        assert await destination.received() == [cancel(2), cancel(4)]


# --- pinned to one route, whatever it has written for its id ----------------------------------
SPELLINGS = [f"Id{{{FIRST}}}", str(FIRST).upper(), FIRST.hex, f"{{{FIRST}}}", ""]
SECOND = UUID(int=0xFA01)


def announced(j: Joint) -> None:
    """Tell the near broker of all routes of the far one, as that announces them."""
    index, broker_id = j.near.broker.index, j.far.broker.broker_id.bytes
    peer = PeerRoutes(broker_id, "far")
    index.peer_joined(peer)
    peer.connected(j.link.worker.address, "far", lambda: j.link.busy)

    def told(change: RouteAdd | RouteRemove) -> None:
        if isinstance(change, RouteRemove):
            assert index.remove_remote(peer, change)
            return
        # By the wire, as the stream of routes has it.
        again = RouteAdd.parse(change.serialize(Dialect.SPECIFICATION), Dialect.SPECIFICATION)
        assert not index.add_remote(peer, again)

    j.far.broker.index.own_changes(told)


@pytest.mark.parametrize("spelling", SPELLINGS)
@in_world()
async def test_a_route_is_found_however_it_has_written_its_id(w: World, spelling: str) -> None:
    """The tag RouteId of a route is its id in any spelling, or without a value."""
    async with joint(w) as j:
        one = await j.far.destination("a", {ROUTE_ID: spelling}, route_id=FIRST)
        two = await j.far.destination("a", {ROUTE_ID: str(SECOND)}, route_id=SECOND)
        announced(j)
        requester = await w.requester()
        for stream in range(1, 9, 2):
            await requester.ask(request(RR, stream, asked_for("a")))
        for to, route_id in ((one, FIRST), (two, SECOND)):
            got = await to.received()
            wanted = composite((BROKER_FRAME, pinned(j, route_id=route_id)))
            assert got == [request(RR, each, wanted) for each in (2, 4)]
            await to.ask(*(payload(each, b"x", N | C) for each in (2, 4)))
        assert len(await requester.received()) == 4
        # Requests for the id itself, in any spelling, find that one and no other.
        for number, text in enumerate(each for each in SPELLINGS if each and spelling):
            await requester.ask(request(FNF, 9 + 2 * number, asked_for({ROUTE_ID: text})))
            (arrived,) = await one.received()
            assert text.encode() in arrived
        assert await two.received() == []


# --- refused by the other broker ------------------------------------------------------------
GONE = UUID(int=0xDEAD)


@in_world(AT_ONCE)
async def test_a_route_that_is_gone_is_rejected_at_once(w: World) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        j.tell("a", GONE)
        for kind, stream in ((RR, 1), (STREAM, 3), (CHANNEL, 5)):
            n = None if kind == RR else 1
            asking = request(kind, stream, asked_for("a"), n=n)
            ((number, code, text),) = errors(await requester.ask(asking))
            assert (number, code) == (stream, REJECTED)
            assert text.startswith("no route: service=a")
        assert w.row().outstanding == 0
        # Nothing waits at either broker.
        assert j.far.broker.statistics().waiting == 0


@in_world()
async def test_a_request_that_all_destinations_have_rejected_waits_for_another(w: World) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        for number in (0, 1):
            j.tell("a", UUID(int=0xDEAD00 + number))
        asking = [
            request(RR, 1, asked_for("a"), b"one"),
            request(STREAM, 3, asked_for("a"), b"two", n=2),
            request(CHANNEL, 5, asked_for("a"), b"three", n=3, flags=C),
        ]
        assert await requester.ask(*asking) == []
        statistics = w.broker.statistics()
        assert (statistics.waiting, statistics.waiting_bytes > 0) == (3, True)
        assert [row.outstanding for row in w.broker.routes() if row.service == "a"] == [0, 0]
        assert j.far.broker.statistics().waiting == 0
        assert j.link.retry_room == j.link.gathering.max_forwarded
        # Others wait as before, and credit that comes meanwhile is not lost.
        assert await requester.ask(request_n(3, 5)) == []
        # As the requester has sent them, without a pin.
        destination = w.register(route_id=UUID(int=1))
        got = [await destination.received()]
        while len(got[0]) < 3:
            got[0] += await destination.received()
        wanted = [request(RR, 2, asked_for("a"), b"one"), *asking[1:]]
        assert {each[9:] for each in got[0]} >= {each[9:] for each in (wanted[0], asking[2])}
        (stream,) = [each for each in got[0] if kind_of(each) == STREAM]
        assert int.from_bytes(stream[9:13]) == 7
        await destination.ask(*(payload(stream_of(each), b"x", N | C) for each in got[0]))
        assert {stream_of(each) for each in await requester.received()} == {1, 3, 5}
        assert w.broker.statistics().waiting == 0


@in_world()
async def test_it_waits_for_one_of_a_peer_broker_as_well(w: World) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        j.tell("a", GONE)
        assert await requester.ask(request(RR, 1, asked_for("a"), b"data")) == []
        assert w.broker.statistics().waiting == 1
        destination = j.far.register("a", route_id=FIRST)
        j.tell("a", FIRST)
        got: list[bytes] = []
        while not got:
            got = await destination.received()
        assert got == [request(RR, 2, composite((BROKER_FRAME, pinned(j))), b"data")]
        await destination.ask(payload(2, b"x", N | C))
        assert await requester.received() == [payload(1, b"x", N | C)]


@in_world()
async def test_a_route_that_has_moved_meanwhile_is_another_one(w: World) -> None:
    """Its ROUTE_ADD is here before the answer of the broker that it has left."""
    async with joint(w) as j:
        requester = await w.requester()
        j.tell("a", GONE)
        requester.send(request(RR, 1, asked_for("a"), b"data"))
        destination = w.register(route_id=GONE)
        assert await destination.received() == [request(RR, 2, asked_for("a"), b"data")]
        assert w.broker.statistics().waiting == 0
        await destination.ask(payload(2, b"x", N | C))
        assert await requester.received() == [payload(1, b"x", N | C)]


@in_world()
async def test_it_waits_as_long_as_any_other_from_when_it_was_read(w: World) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        # One waits for a route twice: at first there is none.
        for each in (1, 3):
            assert await requester.ask(request(RR, each, asked_for("a"))) == []
            j.tell("a", GONE)
            await asyncio.sleep(2)
        assert w.broker.statistics().waiting == 2
        refused = w.broker.statistics().rejected
        await asyncio.sleep(0.9)
        assert await requester.received() == []
        await asyncio.sleep(0.2)
        ((number, code, text),) = errors(await requester.received())
        assert (number, code, text[:19]) == (1, REJECTED, "no route: service=a")
        await asyncio.sleep(2)
        assert [each[:2] for each in errors(await requester.received())] == [(3, REJECTED)]
        assert w.broker.statistics().rejected == refused + 2
        # A requester may ask for another time.
        hint = b"32#@no-route=0 service=a"
        named = composite((b"message/x.onward.route.v0", hint))
        got = await requester.ask(request(RR, 5, named))
        assert [each[:2] for each in errors(got)] == [(5, REJECTED)]


@in_world()
async def test_one_that_waits_may_be_cancelled_and_drained(w: World) -> None:
    async with joint(w) as j:
        requester, other = await w.requester(), await w.requester()
        j.tell("a", GONE)
        await requester.ask(request(RR, 1, asked_for("a")), request(RR, 3, asked_for("a")))
        await other.ask(request(RR, 1, asked_for("a")))
        await requester.ask(cancel(1))
        assert w.broker.statistics().waiting == 2
        other.die()
        await w.loop.idle()
        assert w.broker.statistics().waiting == 1
        w.broker.index.refuse_waiting()
        got = errors(await requester.received())
        assert [each[:2] for each in got] == [(3, REJECTED)]
        # A broker that drains lets none wait.
        w.broker.index.closing = True
        got = errors(await requester.ask(request(RR, 5, asked_for("a"))))
        assert [each[:2] for each in got] == [(5, REJECTED)]
        w.broker.index.closing = False


@in_world(BrokerOptions(waiting=WaitingOptions(max_messages=2)))
async def test_those_that_wait_are_bounded(w: World) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        j.tell("a", GONE)
        got = await requester.ask(*(request(RR, 2 * n + 1, asked_for("a")) for n in range(3)))
        assert [each[:2] for each in errors(got)] == [(5, REJECTED)]
        assert w.broker.statistics().waiting == 2
        requester.die()


@in_world()
async def test_what_a_destination_itself_rejects_does_not_wait(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        await requester.ask(request(RR, 1, asked_for("a")))
        (arrived,) = await destination.received()
        await destination.ask(error(stream_of(arrived), REJECTED, b"not now"))
        assert errors(await requester.received()) == [(1, REJECTED, "not now")]


@pytest.mark.parametrize("hints", ["@shard=user service=a user=1", "@sticky=user service=a user=1"])
@in_world()
async def test_one_that_is_the_only_one_and_gone_is_waited_for(w: World, hints: str) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        j.tell("a", GONE, {"user": "1"})
        named = composite((b"message/x.onward.route.v0", b"32#" + hints.encode()))
        assert await requester.ask(request(RR, 1, named)) == []
        assert w.broker.statistics().waiting == 1
        index = w.broker.index
        (peer,) = index.peers.known.values()
        assert index.remove_remote(peer, RouteRemove(peer.broker_id, GONE.bytes, 2**60))
        destination = w.register(tags={"user": "1"})
        (arrived,) = await destination.received()
        await destination.ask(payload(stream_of(arrived), b"x", N | C))
        assert await requester.received() == [payload(1, b"x", N | C)]


@in_world()
async def test_a_multicast_does_not_wait(w: World) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        j.tell("a", GONE)
        got = await requester.ask(request(RR, 1, asked_for("a", MULTICAST)))
        assert [each[:2] for each in errors(got)] == [(1, REJECTED)]
        assert w.broker.statistics().waiting == 0


@in_world()
async def test_a_rejected_request_goes_to_another_destination(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        j.tell("a", GONE)
        tries = 0
        for number, kind in enumerate((RR, RR, STREAM, STREAM, CHANNEL, CHANNEL)):
            stream = 2 * number + 1
            n = None if kind == RR else 7
            flags = C if kind == CHANNEL else 0
            asking = request(kind, stream, asked_for("a"), b"data", n=n, flags=flags)
            assert await requester.ask(asking) == []
            (arrived,) = await destination.received()
            metadata = composite((BROKER_FRAME, pinned(j)))
            wanted = request(kind, stream_of(arrived), metadata, b"data", n=n, flags=flags)
            assert arrived == wanted
            await destination.ask(payload(stream_of(arrived), b"x", N | C))
            assert await requester.received() == [payload(stream, b"x", N | C)]
            tries += len([each for each in j.there.taken() if kind_of(each) == kind])
        assert tries > 6
        assert [row.outstanding for row in w.broker.routes() if row.service == "a"] == [0, 0]


@in_world()
async def test_a_rejected_request_comes_back_to_a_destination_of_the_first_broker(
    w: World,
) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        j.tell("a", GONE)
        asking = request(RR, 1, asked_for("a"), b"data")
        requester.send(asking)
        # It joins while the other broker is asked.
        destination = w.register(route_id=UUID(int=1))
        # As the requester has sent it, without a pin.
        assert await destination.received() == [restamped(asking, 2)]
        await destination.ask(payload(2, b"x", N | C))
        assert await requester.received() == [payload(1, b"x", N | C)]


@in_world()
async def test_a_request_is_sent_to_two_others_at_most(w: World) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        for number in range(6):
            j.tell("a", UUID(int=0xDEAD00 + number))
        ((_, code, _),) = errors(await requester.ask(request(RR, 1, asked_for("a"))))
        assert code == REJECTED
        tries = [each for each in j.there.taken() if kind_of(each) == RR]
        assert len(tries) == len(set(tries)) == 3
        assert [row.outstanding for row in w.broker.routes() if row.service == "a"] == [0] * 6


@pytest.mark.parametrize("hints", ["@shard=user service=a user=1", "@sticky=user service=a user=1"])
@in_world()
async def test_one_that_is_responsible_is_the_only_one(w: World, hints: str) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        for number in range(4):
            j.tell("a", UUID(int=0xDEAD00 + number), {"user": "1"})
        named = composite((b"message/x.onward.route.v0", b"32#" + hints.encode()))
        ((_, code, _),) = errors(await requester.ask(request(RR, 1, named)))
        assert code == REJECTED
        assert len(j.there.taken()) == 1


@in_world()
async def test_what_cannot_be_sent_again(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        for number in range(3):
            j.tell("a", UUID(int=0xDEAD00 + number))
        # Not if an element has come.
        stream = 1
        while not (arrived := await destination.received()):
            await requester.ask(request(STREAM, stream, asked_for("a"), n=2))
            stream += 2
        del arrived
        await requester.received()
        before = len(j.there.taken())
        assert before
        (number,) = [each.id for each in destination.link.core.streams.values()]
        await destination.ask(payload(number, b"1"), error(number, REJECTED, b"late"))
        got = await requester.received()
        assert [code for _, code, _ in errors(got)] == [REJECTED]
        assert j.there.taken() == []


@in_world()
async def test_a_request_in_fragments_is_not_kept(w: World) -> None:
    async with joint(w) as j:
        requester = await w.requester()
        for number in range(3):
            j.tell("a", UUID(int=0xDEAD00 + number))
        got = await requester.ask(request(RR, 1, asked_for("a"), b"d" * 80, flags=F))
        assert [code for _, code, _ in errors(got)] == [REJECTED]
        assert len([each for each in j.there.taken() if kind_of(each) == RR]) == 1


@in_world()
async def test_what_is_kept_is_bounded(w: World) -> None:
    async with joint(w) as j:
        _, requester = await j.destination(), await w.requester()
        most = j.link.gathering.max_forwarded
        assert j.link.retry_room == most
        sent = 0
        while j.link.retry_room > 500_000:
            await requester.ask(request(RR, 2 * sent + 1, asked_for("a"), bytes(499_000)))
            sent += 1
        room = j.link.retry_room
        await requester.ask(request(RR, 2 * sent + 1, asked_for("a"), bytes(900_000)))
        assert j.link.retry_room == room
        # One that is larger than the limit of one is not kept either.
        requester.die()
        await w.loop.idle()
        # Those that were cancelled make room for others.
        again = await w.requester()
        await again.ask(request(RR, 1, asked_for("a"), bytes(900_000)))
        assert 900_000 < most - j.link.retry_room < 1_000_000
        again.die()


@in_world()
async def test_a_request_of_a_peer_broker_is_never_forwarded_again(w: World) -> None:
    """The other broker knows the route as one of a third one, here of the first one."""
    async with joint(w) as j:
        destination, requester = await w.destination("b"), await w.requester()
        j.tell("a", FIRST)
        setup_frame = RouteSetup(FIRST.bytes, "a")
        j.far.broker.connect(setup_frame, j.accepted.worker.address, peer="near", evict=print)
        ((_, code, _),) = errors(await requester.ask(request(RR, 1, asked_for("a"))))
        assert code == REJECTED
        assert await destination.received() == []
        assert [kind_of(each) for each in j.back.taken()] == [ERROR]
        # Once on the express path, and once by a message.
        assert j.accepted.core.counters["forwarded_again"] >= 1


@in_world()
async def test_a_request_that_comes_back_is_refused(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        via = b"\x0aonward.via\x10" + j.far.broker.broker_id.bytes
        frame = address("a", mime=FORWARDING)
        frame = frame[:22] + via + frame[24:]
        asking = request(RR, 1, composite((FORWARDING, frame)))
        ((_, code, text),) = errors(await requester.ask(asking))
        assert (code, "been at this broker before" in text) == (REJECTED, True)
        assert await destination.received() == []
        assert j.accepted.core.counters["looped"] == 1


@in_world(AT_ONCE)
async def test_a_route_with_other_tags_by_now_is_not_the_one(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        j.tell("a", FIRST, {"region": "eu"})
        asking = asked_for({SERVICE_NAME: "a", "region": "eu"})
        assert [code for _, code, _ in errors(await requester.ask(request(RR, 1, asking)))] == [
            REJECTED
        ]
        assert await destination.received() == []


@in_world(AT_ONCE)
async def test_the_remembered_destination_of_metadata_is_looked_at_again(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        for stream in (1, 3):
            await requester.ask(request(FNF, stream, asked_for("a")))
            assert len(await destination.received()) == 1
        destination.die()
        ((_, code, _),) = errors(await requester.ask(request(RR, 5, asked_for("a"))))
        assert code == REJECTED
        again = await j.far.destination("a", route_id=FIRST)
        await requester.ask(request(FNF, 7, asked_for("a")))
        assert len(await again.received()) == 1


@in_world()
async def test_a_destination_that_does_not_keep_up_rejects_at_once(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        destination.stop_reading()
        high = LinkOptions().flow.high_water
        sent = 0
        got: list[bytes] = []
        while not got and sent < 10:
            got = await requester.ask(request(RR, 2 * sent + 1, asked_for("a"), bytes(high)))
            sent += 1
        assert [code for _, code, _ in errors(got)] == [REJECTED]
        # The link itself is read: another destination is reached.
        other = await j.far.destination("b", route_id=UUID(int=0xB))
        j.tell("b", UUID(int=0xB))
        await requester.ask(request(FNF, 101, asked_for("b")))
        assert len(await other.received()) == 1
        destination.die()
        await requester.received()


@in_world()
async def test_a_channel_to_a_destination_that_does_not_read_stops_alone(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        other = await j.far.destination("b", route_id=UUID(int=0xB))
        j.tell("b", UUID(int=0xB))
        destination.stop_reading()
        part = payload(1, bytes(1_000_000), F)
        await requester.ask(request(RR, 1, asked_for("a"), flags=F))
        got: list[bytes] = []
        sent = 0
        while not got and sent < 40:
            got = await requester.ask(part)
            sent += 1
        assert [code for _, code, _ in errors(got)] == [CANCELED]
        await requester.ask(request(FNF, 3, asked_for("b")))
        assert len(await other.received()) == 1
        assert j.back.reading
        destination.die()


@in_world()
async def test_remembered_metadata_go_to_each_destination_with_its_own_id(w: World) -> None:
    async with joint(w) as j:
        made = [await j.destination(), await j.destination()]
        requester, got = await w.requester(), list[bytes]()
        for number in range(6):
            data = b"%d" % number
            assert await requester.ask(request(RR, 2 * number + 1, asked_for("a"), data)) == []
            for at, each in enumerate(made):
                for arrived in await each.received():
                    got.append(data)
                    wanted = pinned(j, route_id=UUID(int=FIRST.int + at))
                    number_of = stream_of(arrived)
                    assert arrived == request(
                        RR, number_of, composite((BROKER_FRAME, wanted)), data
                    )
                    await each.ask(payload(number_of, b"", C))
            assert len(await requester.received()) == 1
        assert got == [b"%d" % number for number in range(6)]


@in_world()
async def test_a_route_that_its_requester_names_is_not_taken_for_the_pin(w: World) -> None:
    async with joint(w) as j:
        one, two = await j.destination(), await j.destination()
        requester = await w.requester()
        for number in range(3):
            for at, each in enumerate((one, two)):
                asking = asked_for(
                    {SERVICE_NAME: "a", WellKnownKey.ROUTE_ID: str(UUID(int=FIRST.int + at))}
                )
                stream = 4 * number + 2 * at + 1
                assert await requester.ask(request(RR, stream, asking)) == []
                (arrived,) = await each.received()
                await each.ask(payload(stream_of(arrived), b"", C))
                assert len(await requester.received()) == 1


@in_world()
async def test_what_is_kept_is_let_go_however_a_request_ends(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        most = j.link.gathering.max_forwarded
        for number, kind in enumerate((RR, STREAM, RR, FNF)):
            stream = 2 * number + 1
            credit = 3 if kind == STREAM else None
            await requester.ask(request(kind, stream, asked_for("a"), b"data", n=credit))
            (arrived,) = await destination.received()
            if kind != FNF:
                assert j.link.retry_room < most
            if number < 2:
                await requester.ask(cancel(stream))
                assert [kind_of(each) for each in await destination.received()] == [CANCEL]
            elif kind == RR:
                await destination.ask(error(stream_of(arrived), INVALID, b"no"))
                assert len(await requester.received()) == 1
            assert j.link.retry_room == most


@in_world()
async def test_what_is_kept_is_let_go_with_the_first_frame_of_an_answer(w: World) -> None:
    async with joint(w) as j:
        destination, requester = await j.destination(), await w.requester()
        most = j.link.gathering.max_forwarded
        await requester.ask(request(RR, 1, asked_for("a"), b"data"))
        (arrived,) = await destination.received()
        assert j.link.retry_room < most
        await destination.ask(payload(stream_of(arrived), b"x" * 40, F | N))
        assert j.link.retry_room == most
        await destination.ask(payload(stream_of(arrived), b"y" * 40, C))
        assert len(await requester.received()) == 2
        assert j.link.retry_room == most
        await requester.ask(request(RR, 3, asked_for("a"), b"data"))
        (arrived,) = await destination.received()
        await destination.ask(payload(stream_of(arrived), b"z", C))
        assert len(await requester.received()) == 1
        assert j.link.retry_room == most


# --- with rules -----------------------------------------------------------------------------


@in_world()
async def test_tags_that_the_rules_add_go_with_the_request(w: World) -> None:
    async with joint(w) as j:
        one = await j.destination("a", {"tenant": "a"})
        requester = await w.requester()
        w.broker.authorization = Authorization(read_rules(RULES))
        session = requester.link.session
        session._ruled = True
        forced = frozenset({("tenant", "a")})
        session.principal = Principal("shop", "test", frozenset({"shop"}), forced)
        await requester.ask(request(RR, 1, asked_for("a")))
        (arrived,) = await one.received()
        assert b"\x06tenant\x81a" in arrived
        await one.ask(payload(2, b"", C))
        w.broker.authorization = None


RULES = "rule = [{roles = ['shop'], request = '*'}]"


# --- to several -----------------------------------------------------------------------------


def several(kind: int, stream: int, n: int | None = None, data: bytes = b"") -> bytes:
    return request(kind, stream, asked_for("a", MULTICAST), data, n=n)


@in_world()
async def test_each_destination_gets_a_multicast_once(w: World) -> None:
    async with joint(w) as j:
        near = [await w.destination(), await w.destination()]
        far = [await j.destination(), await j.destination(), await j.destination()]
        other, requester = await j.far.destination("b", route_id=UUID(int=5)), await w.requester()
        for kind, stream in ((FNF, 1), (RR, 3), (STREAM, 5)):
            await requester.ask(several(kind, stream, 9 if kind == STREAM else None))
            # One copy for the other broker, without a pin.
            (copy,) = [each for each in j.there.taken() if kind_of(each) == kind]
            assert copy[9:] == several(kind, stream, 3 if kind == STREAM else None)[9:]
            for each in (*near, *far):
                (arrived,) = await each.received()
                assert kind_of(arrived) == kind
            assert await other.received() == []
        requester.die()
        for each in (*near, *far):
            assert sorted(map(kind_of, await each.received())) == [CANCEL, CANCEL]
        # A push as well.
        again = await w.requester()
        await again.ask(push(asked_for("a", MULTICAST)))
        for each in (*near, *far):
            assert [kind_of(arrived) for arrived in await each.received()] == [PUSH]


@in_world()
async def test_the_first_answer_to_a_multicast_wins(w: World) -> None:
    async with joint(w) as j:
        near, far, requester = await w.destination(), await j.destination(), await w.requester()
        for stream, first, late in ((1, far, near), (3, near, far)):
            await requester.ask(several(RR, stream))
            ((to,), (other,)) = await first.received(), await late.received()
            await first.ask(payload(stream_of(to), b"first", N | C))
            assert await requester.received() == [payload(stream, b"first", N | C)]
            assert await late.received() == [cancel(stream_of(other))]


@in_world()
async def test_the_elements_of_a_multicast_are_merged_within_the_credit(w: World) -> None:
    async with joint(w) as j:
        far = [await j.destination() for _ in range(3)]
        near, requester = await w.destination(), await w.requester()
        await requester.ask(several(STREAM, 1, 4))
        streams = {each: stream_of((await each.received())[0]) for each in (near, *far)}
        for each, stream in streams.items():
            await each.ask(payload(stream, b"1"))
        assert elements(await requester.received()) == [b"1"] * 4
        # No more than was requested, whatever they send.
        for each, stream in streams.items():
            await each.ask(payload(stream, b"2"))
        assert await requester.received() == []
        got = elements(await requester.ask(request_n(1, 100)))
        for each, stream in streams.items():
            await each.ask(payload(stream, b"3", N | C))
        got += elements(await requester.received())
        assert sorted(got) == [b""] + [b"2"] * 4 + [b"3"] * 4


@in_world()
async def test_a_multicast_whose_destinations_have_left_the_other_broker(w: World) -> None:
    async with joint(w) as j:
        near, requester = await w.destination(), await w.requester()
        j.tell("a", GONE)
        await requester.ask(several(RR, 1))
        ((to),) = await near.received()
        assert await requester.received() == []
        await near.ask(payload(stream_of(to), b"only", N | C))
        assert await requester.received() == [payload(1, b"only", N | C)]


@in_world()
async def test_a_multicast_goes_on_without_a_lost_link(w: World) -> None:
    async with joint(w) as j:
        near, far, requester = await w.destination(), await j.destination(), await w.requester()
        await requester.ask(several(STREAM, 1, 9))
        ((to,), (there,)) = await near.received(), await far.received()
        await far.ask(payload(stream_of(there), b"1"))
        j.link.abort()
        assert await far.received() == [cancel(stream_of(there))]
        await near.ask(payload(stream_of(to), b"2", N | C))
        assert elements(await requester.received()) == [b"1", b"2", b""]


@in_world()
async def test_a_multicast_in_a_channel(w: World) -> None:
    async with joint(w) as j:
        far = [await j.destination(), await j.destination()]
        near, requester = await w.destination(), await w.requester()
        await requester.ask(several(CHANNEL, 1, 9, b"0"))
        streams = {each: stream_of((await each.received())[0]) for each in (near, *far)}
        for each, stream in streams.items():
            await each.ask(request_n(stream, 3))
        assert [kind_of(each) for each in await requester.received()] == [REQUEST_N]
        await requester.ask(payload(1, b"1"), payload(1, b"2", N | C))
        for each, stream in streams.items():
            assert elements(await each.received()) == [b"1", b"2"]
            await each.ask(payload(stream, b"", C))
        got = await requester.received()
        assert kind_of(got[-1]) == PAYLOAD


@in_world()
async def test_a_multicast_with_tags_of_the_rules_stays_in_its_tenant(w: World) -> None:
    async with joint(w) as j:
        ours = [await j.destination("a", {"tenant": "a"}) for _ in range(2)]
        theirs, requester = await j.destination("a", {"tenant": "b"}), await w.requester()
        w.broker.authorization = Authorization(read_rules(RULES))
        session = requester.link.session
        session._ruled = True
        forced = frozenset({("tenant", "a")})
        session.principal = Principal("shop", "test", frozenset({"shop"}), forced)
        await requester.ask(several(FNF, 1))
        assert [len(await each.received()) for each in ours] == [1, 1]
        assert await theirs.received() == []
        w.broker.authorization = None


# --- messages of workers --------------------------------------------------------------------


@in_world()
async def test_a_worker_asks_a_destination_of_another_broker(w: World) -> None:
    async with joint(w) as j:
        destination = await j.destination()
        asking = asyncio.ensure_future(w.node.request("32#service=a", b"hi"))
        await w.loop.idle()
        (arrived,) = await destination.received()
        assert whole([arrived])[1] == b"hi"
        await destination.ask(payload(stream_of(arrived), b"answer", N | C))
        assert (await asking).payload == b"answer"
        w.node.send("32#service=a", b"no answer")
        await w.loop.idle()
        (arrived,) = await destination.received()
        assert (kind_of(arrived), whole([arrived])[1]) == (FNF, b"no answer")
        two = await j.destination()
        w.node.send("32#@multicast service=a", b"to all")
        await w.loop.idle()
        for each in (destination, two):
            (arrived,) = await each.received()
            assert (kind_of(arrived), whole([arrived])[1]) == (FNF, b"to all")
        with pytest.raises(NotDelivered, match="no route leads on"):
            await w.node.request("32#service=a => more", b"")


@in_world()
async def test_a_worker_of_the_other_broker_is_a_destination(w: World) -> None:
    async with joint(w) as j:
        j.far.node.spawn(Echo, address="echo")
        registration = j.far.broker.register("echo", service="a")
        j.tell("a", registration.route_id)
        requester = await w.requester()
        got = await requester.ask(request(RR, 1, asked_for("a"), b"data"))
        assert got == [payload(1, b"data", N | C)]
