"""Peers that leave before they are admitted: nothing that they have sent before is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from onward.protocol.security import BearerToken, Credentials, Principal
from onward.transports.rsocket import FlowOptions, LinkOptions, RSocketListener
from onward.transports.rsocket._connection import TURN
from tests.support.rsocket_peer import *
from tests.support.rsocket_sessions import begun, resumable, resume, resume_ok, row, size_of
from tests.support.security import Gate, gated
from tests.support.websocket_peer import CLOSE, PING, WebSocketPeer, messages, ws_frame

BOT = Principal("bot", "test")
ACCEPTED: dict[Credentials | None, Principal] = {BearerToken(b"tok"): BOT}
ENTRY = bytes.fromhex("fc 000004 81746f6b")
WRONG = bytes.fromhex("fc 000004 81746f78")
ECHO = frame(0, KEEPALIVE, 0x80, bytes(8) + b"?")
BYE = ws_frame(CLOSE, (1000).to_bytes(2))
WIRES = ("tcp", "tls", "ws")
Left = Peer | WebSocketPeer


class Scene:
    """A destination, and listeners for TCP and WebSockets that wait for a decision.

    Attributes:
        w: The world.
        gate: The decision.
        listener: The listener for WebSockets.
        destination: A destination of the service `a`, which is admitted.
    """

    def __init__(self, w: World, gate: Gate, listener: RSocketListener, destination: Peer) -> None:
        self.w = w
        self.gate = gate
        self.listener = listener
        self.destination = destination

    def at(self, wire: str) -> RSocketListener:
        return self.listener if wire == "ws" else self.w.listener

    async def connect(self, wire: str, host: str = "10.0.0.9") -> Left:
        if wire != "ws":
            return self.w.connect(host)
        peer = WebSocketPeer(self.listener, (host, 7))
        await peer.open()
        return peer

    async def came(self) -> list[bytes]:
        """Return what has come to the destination, in the order and with the ids of there."""
        return await self.destination.received()

    def nothing_left(self, wire: str) -> bool:
        """Whether the one peer of a listener has gone, with all that was kept of it."""
        figures, shared = self.at(wire).statistics(), self.at(wire)._shared
        others = 0 if wire == "ws" else 1
        places = self.at(wire)._acceptor.places.taken
        return (
            figures.connections == places == others
            and figures.authentication is not None
            and figures.authentication.undecided == 0
            and shared.unfinished.total == 0
            and not shared.unfinished._kept
            and self.w.services() == ["a"]
        )


@asynccontextmanager
async def scene(
    options: LinkOptions | None = None, timeout: float = 60.0, **more: Any
) -> AsyncGenerator[Scene]:
    gate, authentication = gated(ACCEPTED, timeout, **more)
    async with world(options=options, authentication=authentication) as w:
        listener = await w.node.listen(
            "rsocket+ws://127.0.0.1:0",
            broker=w.broker,
            options=options,
            authentication=authentication,
        )
        assert isinstance(listener, RSocketListener)
        destination = w.connect()
        wanted = composite((BROKER_FRAME, route_setup(w.new_id(), "a")))
        assert await destination.ask(setup(ENTRY + wanted)) == []
        gate.open.clear()
        yield Scene(w, gate, listener, destination)


def first(metadata: bytes = ENTRY) -> bytes:
    return setup(metadata)


def fnf(stream_id: int, data: bytes = b"x", service: str = "a") -> bytes:
    return request(FNF, stream_id, asked_for(service), data)


def lose(peer: Left) -> None:
    """Reset the connection."""
    peer.transport.unread.clear()
    peer.transport.lose(ConnectionResetError("connection reset by peer"))


def end(peer: Left, wire: str) -> None:
    """Report the end of the data, though the peer is not read.

    That is what a connection does that is handed over with what has come, and TLS with a
    close-notify in the same read. With TLS the loss follows by itself, and here by `lose`.
    """
    protocol: Any = peer.transport._protocol
    assert not protocol.eof_received()
    if wire == "tcp":
        peer.transport.close()
    else:
        peer.transport._closing = True


def send(peer: Left, wire: str, *frames: bytes) -> None:
    """Send frames that come in one read."""
    peer.send(messages(*frames) if wire == "ws" else b"".join(frames))


# --- the orders of the decision and the end ---------------------------------------------------

Step = Callable[[Scene, Left, str], None]


def _decide(s: Scene, peer: Left, wire: str) -> None:
    s.gate.open.set()


def _end(s: Scene, peer: Left, wire: str) -> None:
    end(peer, wire)


def _lose(s: Scene, peer: Left, wire: str) -> None:
    lose(peer)


ORDERS: list[tuple[Step, ...]] = [
    (_decide, _end, _lose),
    (_end, _decide, _lose),
    (_end, _lose, _decide),
    (_decide, _lose),
    (_lose, _decide),
]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("order", ORDERS)
@in_memory
async def test_what_a_peer_has_sent_is_handled_in_each_order(
    order: tuple[Step, ...], idle: bool, wire: str
) -> None:
    async with scene() as s:
        peer = await s.connect(wire)
        pushed = push(asked_for("a"))
        send(peer, wire, first(), fnf(1, b"1"), ECHO, pushed, fnf(3, b"2"))
        await s.w.loop.idle()
        for step in order:
            step(s, peer, wire)
            if idle:
                await s.w.loop.idle()
        assert await s.came() == [restamped(fnf(1, b"1"), 2), pushed, restamped(fnf(1, b"2"), 4)]
        assert s.nothing_left(wire)
        figures = s.at(wire).statistics()
        assert figures.closed == {"by the peer": 1}
        assert (figures.requests, figures.refused) == (3, 0)
        (closed,) = s.at(wire).closed_connections()
        assert (closed["reason"], closed["principal"]) == ("by the peer", "bot")
        assert (closed["requests"], closed["route"]) == (3, None)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("idle", [True, False])
@pytest.mark.parametrize("order", ORDERS)
@in_memory
async def test_nothing_of_a_peer_that_is_refused_is_handled_in_any_order(
    order: tuple[Step, ...], idle: bool, wire: str
) -> None:
    async with scene() as s:
        peer = await s.connect(wire)
        send(peer, wire, first(WRONG), fnf(1), push(asked_for("a")))
        await s.w.loop.idle()
        for step in order:
            step(s, peer, wire)
            if idle:
                await s.w.loop.idle()
        assert await s.came() == []
        assert s.nothing_left(wire)
        figures = s.at(wire).statistics()
        # A loss may be noticed before the decision that was made before it.
        assert figures.closed == {"not authenticated": 1}
        assert figures.requests == figures.refused == 0
        assert figures.authentication is not None
        assert figures.authentication.refused == {"unknown": 1}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("how", [(_lose,), (_end, _lose), (_end,)])
@pytest.mark.parametrize("why", ["timeout", "stop", "operator", "drain", "unused"])
@in_memory
async def test_what_ends_a_connection_that_is_undecided(
    why: str, how: tuple[Step, ...], wire: str
) -> None:
    options = LinkOptions(unused_timeout=1, max_connections_per_source=1)
    async with scene(options, timeout=3.0) as s:
        peer, listener = await s.connect(wire), s.at(wire)
        send(peer, wire, first(), fnf(1))
        await s.w.loop.idle()
        for step in how:
            step(s, peer, wire)
        await asyncio.sleep(2)
        undecided = listener.statistics()
        assert undecided.closed == {}
        assert undecided.connections == (1 if wire == "ws" else 2)
        (found,) = (each for each in listener.connections() if each["source"] == "10.0.0.9")
        assert (found["requests"], found["principal"]) == (0, None)
        if why == "timeout":
            await asyncio.sleep(2)
        elif why == "stop":
            await listener.close()
        elif why == "operator":
            assert listener.close_connection(found["id"], "go")
        elif why == "drain":
            listener.begin_to_drain(lambda: 0.0)
            listener.drain_to(0.4)
        else:
            await s.connect(wire)
        if how == (_end,) and wire != "tcp":
            lose(peer)
        await s.w.loop.idle()
        reasons = {
            "timeout": "not authenticated",
            "stop": "stopped",
            "operator": "by an operator",
            "drain": "drained",
            "unused": "unused",
        }
        assert {**listener.statistics().closed, "stopped": 1} == {reasons[why]: 1, "stopped": 1}
        s.gate.open.set()
        await s.w.loop.idle()
        assert [raw for raw in await s.came() if kind_of(raw) == FNF] == []
        figures = listener.statistics().authentication
        assert figures is not None
        assert figures.undecided == 0
        assert listener._shared.unfinished.total == 0


# --- more of it -------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("wire", WIRES)
@in_memory
async def test_all_turns_of_a_large_read_are_handled_before_the_end(wire: str, lost: bool) -> None:
    async with scene() as s:
        peer = await s.connect(wire)
        many = [fnf(1 + 2 * at, b"%06d" % at + bytes(50)) for at in range(1500)]
        assert len(b"".join(many)) > 4 * TURN
        send(peer, wire, first(), *many)
        await s.w.loop.idle()
        if lost:
            lose(peer)
        else:
            end(peer, wire)
        await s.w.loop.idle()
        s.gate.open.set()
        if not lost and wire != "tcp":
            lose(peer)
        came = await s.came()
        assert [raw[-56:-50] for raw in came] == [b"%06d" % at for at in range(1500)]
        assert s.nothing_left(wire)
        assert s.at(wire).statistics().closed == {"by the peer": 1}


@in_memory
async def test_a_loss_between_the_turns_after_the_decision() -> None:
    async with scene() as s:
        peer = s.w.connect("10.0.0.9")
        many = [fnf(1 + 2 * at, bytes(50)) for at in range(1500)]
        send(peer, "tcp", first(), *many)
        end(peer, "tls")
        s.gate.open.set()
        for _ in range(4):
            await asyncio.sleep(0)
        assert 0 < s.w.listener.statistics().requests < 1500
        lose(peer)
        assert len(await s.came()) == 1500
        assert s.nothing_left("tcp")


@pytest.mark.parametrize("lost", [True, False])
@in_memory
async def test_others_have_their_turn_while_the_rest_of_one_that_left_is_handled(
    lost: bool,
) -> None:
    async with scene() as s:
        peer = s.w.connect("10.0.0.9")
        send(peer, "tcp", first(), *(fnf(1 + 2 * at, bytes(50)) for at in range(1500)))
        if lost:
            lose(peer)
        else:
            end(peer, "tls")
        await s.w.loop.idle()
        s.gate.open.set()
        counts: list[int] = []
        while s.w.listener.statistics().connections > 1:
            await asyncio.sleep(0)
            counts.append(s.w.listener.statistics().requests)
            if counts[-1] == 1500:
                lose(peer)
        steps = {after - before for before, after in pairwise(counts)}
        assert 0 < max(steps) < 400


def in_fragments() -> list[bytes]:
    """Return a fire-and-forget of 200 kB in fragments."""
    parts = [payload(1, b"%06d" % at + bytes(994), F | N) for at in range(200)]
    return [request(FNF, 1, asked_for("a"), flags=F), *parts, payload(1, b"end")]


@pytest.mark.parametrize("closed", [True, False])
@in_memory
async def test_one_that_left_while_its_destination_takes_nothing(closed: bool) -> None:
    async with scene(LinkOptions(flow=FlowOptions(high_water=20_000))) as s:
        peer = s.w.connect("10.0.0.9")
        send(peer, "tcp", first(), *in_fragments())
        lose(peer)
        await s.w.loop.idle()
        s.destination.stop_reading()
        s.gate.open.set()
        await s.w.loop.idle()
        figures = s.w.listener.statistics()
        assert (figures.connections, figures.requests, figures.closed) == (2, 1, {})
        if closed:
            (number,) = (each["id"] for each in s.w.listener.connections() if each["requests"])
            assert s.w.listener.close_connection(number, "go")
            await s.w.loop.idle()
            assert s.w.listener.statistics().closed == {"by an operator": 1}
        s.destination.read_on()
        came = await s.came()
        if closed:
            assert kind_of(came[-1]) == CANCEL
        else:
            assert [raw[9:15] for raw in came[1:-1]] == [b"%06d" % at for at in range(200)]
            assert came[-1][9:] == b"end"
            assert s.w.listener.statistics().closed == {"by the peer": 1}
        assert s.nothing_left("tcp")


@in_memory
async def test_messages_and_a_ping_after_the_loss_of_the_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with scene() as s:
        peer = await s.connect("ws")
        many = [messages(fnf(1 + 2 * at, bytes(50))) + ws_frame(PING, b"?") for at in range(600)]
        peer.send(messages(first()), *many, BYE, messages(fnf(5001)))
        lose(peer)
        await s.w.loop.idle()
        written: list[bytes] = []
        monkeypatch.setattr(peer.transport, "write", written.append)
        s.gate.open.set()
        assert len(await s.came()) == 600
        assert written == []
        assert s.nothing_left("ws")


@in_memory
async def test_a_message_that_is_not_whole_is_not_kept_after_the_loss() -> None:
    async with scene() as s:
        peer = await s.connect("ws")
        many = [messages(fnf(1 + 2 * at, bytes(50))) for at in range(600)]
        peer.send(messages(first()), *many, messages(fnf(5001, bytes(9000)))[:8000])
        lose(peer)
        s.gate.open.set()
        assert len(await s.came()) == 600
        assert s.nothing_left("ws")


@in_memory
async def test_a_setup_longer_than_a_turn() -> None:
    async with scene() as s:
        long = composite((b"text/plain", bytes(TURN - 100))) + ENTRY
        whole = first(long) + fnf(1)
        assert len(first(long)) > TURN
        for wire in WIRES:
            peer = await s.connect(wire)
            if wire == "ws":
                peer.send(messages(first(long), fnf(1)))
            else:
                peer.send(whole[:2])
                peer.send(whole[2:])
            end(peer, wire)
            lose(peer)
            await s.w.loop.idle()
            s.gate.open.set()
            assert [raw[9:] for raw in await s.came()] == [fnf(1)[9:]]
            assert s.nothing_left(wire)
            s.gate.open.clear()


@in_memory
async def test_requests_with_an_answer_end_as_for_any_peer_that_leaves() -> None:
    async with scene() as s:
        asked = request(RR, 1, asked_for("a"), b"x")
        stream = request(STREAM, 3, asked_for("a"), n=5)
        unknown = request(RR, 5, asked_for("nowhere"))
        peer = s.w.connect("10.0.0.9")
        send(peer, "tcp", first(), asked, stream, unknown)
        lose(peer)
        await s.w.loop.idle()
        s.gate.open.set()
        undecided = await s.came()
        after = s.w.listener.statistics()
        # The same peer, decided before.
        known = s.w.connect("10.0.0.9")
        assert await known.ask(first()) == []
        send(known, "tcp", asked, stream, unknown)
        lose(known)
        decided = await s.came()
        assert [kind_of(raw) for raw in undecided] == [RR, STREAM, CANCEL, CANCEL]
        assert undecided == [restamped(raw, stream_of(raw) - 4) for raw in decided]
        figures = s.w.listener.statistics()
        assert figures.requests == 2 * after.requests
        assert figures.refused == 2 * after.refused
        assert figures.closed == {"by the peer": 2}
        await s.w.settled()


@pytest.mark.parametrize("late", [True, False])
@in_memory
async def test_a_destination_that_has_left_takes_the_place_of_none(late: bool) -> None:
    async with scene() as s:
        mine = s.w.new_id()
        wanted = composite((BROKER_FRAME, route_setup(mine, "b")))
        gone, back = s.w.connect("10.0.0.9"), s.w.connect("10.0.0.9")
        if late:
            send(gone, "tcp", first(), push(wanted), fnf(1))
        else:
            send(gone, "tcp", first(ENTRY + wanted), fnf(1))
        lose(gone)
        await s.w.loop.idle()
        s.gate.open.set()
        assert await back.ask(first(ENTRY + wanted)) == []
        assert s.w.services() == ["a", "b"]
        assert not back.closed
        assert len(await s.came()) == 1
        assert s.w.listener.statistics().closed == {"by the peer": 1}


@in_memory
async def test_a_broken_route_setup_of_a_peer_that_has_left() -> None:
    async with scene() as s:
        peer = s.w.connect("10.0.0.9")
        broken = composite((BROKER_FRAME, route_setup(s.w.new_id(), "b")[:9]))
        send(peer, "tcp", first(ENTRY + broken), fnf(1))
        lose(peer)
        s.gate.open.set()
        assert await s.came() == []
        assert s.nothing_left("tcp")
        assert s.w.listener.statistics().closed == {"setup refused": 1}


@in_memory
async def test_a_frame_that_breaks_the_protocol_is_the_reason_of_the_end() -> None:
    async with scene() as s:
        for wire in WIRES:
            peer = await s.connect(wire)
            many = [fnf(5 + 2 * at, bytes(50)) for at in range(600)]
            send(peer, wire, first(), fnf(1), frame(0, 0x3F), fnf(3), *many)
            lose(peer)
            await s.w.loop.idle()
            s.gate.open.set()
            assert len(await s.came()) == 1
            assert s.nothing_left(wire)
            s.gate.open.clear()
        assert s.w.listener.statistics().closed == {"broken frame": 2}
        assert s.listener.statistics().closed == {"broken frame": 1}


@in_memory
async def test_those_that_left_count_for_their_source_until_they_are_decided() -> None:
    options = LinkOptions(max_connections_per_source=3)
    async with scene(options, max_undecided=3) as s:
        for _ in range(3):
            peer = s.w.connect("10.0.0.9")
            send(peer, "tcp", first(), fnf(1))
            lose(peer)
        await s.w.loop.idle()
        late = s.w.connect("10.0.0.9")
        assert late.closed
        s.w.peers.remove(late)
        figures = s.w.listener.statistics()
        assert (figures.connections, figures.turned_away) == (4, 1)
        s.gate.open.set()
        assert len(await s.came()) == 3
        assert await s.w.connect("10.0.0.9").ask(first(), ECHO) != []


@in_memory
async def test_guesses_of_peers_that_do_not_wait_count_as_failures() -> None:
    async with scene(max_failures=3) as s:
        for _ in range(3):
            peer = s.w.connect("10.0.0.9")
            send(peer, "tcp", first(WRONG))
            lose(peer)
        s.gate.open.set()
        await s.w.loop.idle()
        banned = s.w.connect("10.0.0.9")
        assert banned.closed
        s.w.peers.remove(banned)


# --- peers that were admitted before ----------------------------------------------------------


def many_fnf() -> list[bytes]:
    return [fnf(1 + 2 * at, b"%06d" % at + bytes(50)) for at in range(1500)]


@pytest.mark.parametrize("wire", ["tls", "ws"])
@pytest.mark.parametrize("idle", [True, False])
@in_memory
async def test_all_turns_of_an_admitted_peer_are_handled_before_the_end(
    wire: str, idle: bool
) -> None:
    async with scene() as s:
        s.gate.open.set()
        peer = await s.connect(wire)
        send(peer, wire, first())
        await s.w.loop.idle()
        send(peer, wire, *many_fnf())
        end(peer, wire)
        if idle:
            await s.w.loop.idle()
        lose(peer)
        came = await s.came()
        assert [raw[-56:-50] for raw in came] == [b"%06d" % at for at in range(1500)]
        assert s.nothing_left(wire)
        assert s.at(wire).statistics().closed == {"by the peer": 1}


@in_memory
async def test_a_reset_ends_an_admitted_peer_before_its_later_turns() -> None:
    async with scene() as s:
        s.gate.open.set()
        peer = s.w.connect("10.0.0.9")
        assert await peer.ask(first()) == []
        send(peer, "tls", *many_fnf())
        lose(peer)
        assert 0 < len(await s.came()) < 1500
        assert s.nothing_left("tcp")


@pytest.mark.parametrize("how", ["stop", "operator"])
@in_memory
async def test_the_later_turns_of_an_admitted_peer_are_lost_by_a_close_of_this_side(
    how: str,
) -> None:
    async with scene() as s:
        s.gate.open.set()
        peer = s.w.connect("10.0.0.9")
        assert await peer.ask(first()) == []
        send(peer, "tls", *many_fnf())
        end(peer, "tls")
        lose(peer)
        await asyncio.sleep(0)
        assert 0 < s.w.listener.statistics().requests < 1500
        if how == "stop":
            await s.w.listener.close()
        else:
            found = (each for each in s.w.listener.connections() if each["source"] == "10.0.0.9")
            assert s.w.listener.close_connection(next(found)["id"], "go")
        await s.w.loop.idle()
        assert len(await s.came()) < 1500
        figures = s.w.listener.statistics()
        assert figures.connections == (0 if how == "stop" else 1)
        reason = "stopped" if how == "stop" else "by an operator"
        assert figures.closed[reason] == (2 if how == "stop" else 1)


@in_memory
async def test_one_that_left_and_had_not_read_its_answers() -> None:
    async with scene(LinkOptions(flow=FlowOptions(high_water=20_000))) as s:
        s.gate.open.set()
        peer = s.w.connect("10.0.0.9")
        assert await peer.ask(first()) == []
        peer.stop_reading()
        asked = frame(0, KEEPALIVE, 0x80, bytes(8) + bytes(1000))
        send(peer, "tls", *([asked] * 100), fnf(1))
        end(peer, "tls")
        await s.w.loop.idle()
        assert s.w.listener.statistics().connections == 2
        assert await s.came() == []
        lose(peer)
        assert len(await s.came()) == 1
        assert s.nothing_left("tcp")
        assert s.w.listener.statistics().closed == {"by the peer": 1}


@pytest.mark.parametrize("back", [True, False])
@in_memory
async def test_a_session_of_an_admitted_peer_is_suspended_after_all_turns(back: bool) -> None:
    async with scene(resumable()) as s:
        s.gate.open.set()
        peer = s.w.connect("10.0.0.9")
        assert await peer.ask(begun(ENTRY)) == []
        many = many_fnf()
        send(peer, "tls", *many)
        end(peer, "tls")
        await asyncio.sleep(0)
        assert 0 < s.w.listener.statistics().requests < 1500
        if back:
            again = s.w.connect("10.0.0.9")
            (answer,) = await again.ask(resume())
            came = await s.came()
            assert int.from_bytes(answer[9:17]) == size_of(*many[: len(came)])
            again.send(*many[len(came) :])
            assert len(came) + len(await s.came()) == 1500
            lose(again)
            s.w.peers.remove(peer)  # its socket is given up
        else:
            lose(peer)
        await s.w.loop.idle()
        if not back:
            assert len(await s.came()) == 1500
        figures = s.w.listener.statistics()
        closed = {"resumed another": 1} if back else {}
        assert (figures.suspended, figures.closed) == (1, closed)


# --- each cut ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@in_memory
async def test_each_cut_of_a_setup_a_request_and_a_close(wire: str) -> None:
    async with scene() as s:
        frames = first(), fnf(1)
        whole = messages(*frames) + BYE if wire == "ws" else b"".join(frames)
        for cut in range(len(whole) + 1):
            peer = await s.connect(wire)
            if cut:
                peer.send(whole[:cut])
            if cut < len(whole):
                peer.send(whole[cut:])
            if wire == "tcp":
                peer.transport.unread.append(None)
                peer.transport.feed()
            elif wire == "tls" and not peer.transport.unread:
                end(peer, wire)
            await s.w.loop.idle()
            s.gate.open.set()
            await s.w.loop.idle()
            if wire == "tls":
                lose(peer)
            assert [raw[9:] for raw in await s.came()] == [fnf(1)[9:]], cut
            assert s.nothing_left(wire), cut
            s.gate.open.clear()
        assert s.at(wire).statistics().closed == {"by the peer": len(whole) + 1}


@pytest.mark.parametrize("wire", WIRES)
@in_memory
async def test_a_loss_at_each_byte_loses_what_had_not_come(wire: str) -> None:
    async with scene() as s:
        frames = first(), fnf(1)
        whole = messages(*frames) + BYE if wire == "ws" else b"".join(frames)
        size = len(messages(*frames)) if wire == "ws" else len(whole)
        for cut in range(1, len(whole) + 1):
            peer = await s.connect(wire)
            peer.send(whole[:cut])
            lose(peer)
            await s.w.loop.idle()
            s.gate.open.set()
            assert len(await s.came()) == (1 if cut >= size else 0), cut
            assert s.nothing_left(wire), cut
            s.gate.open.clear()
        assert s.at(wire).statistics().closed == {"by the peer": len(whole)}


# --- sessions that can be resumed, and checks of requests -------------------------------------


@pytest.mark.parametrize("how", [(_lose,), (_end, _lose)])
@in_memory
async def test_a_session_of_a_peer_that_has_left_is_resumed(how: tuple[Step, ...]) -> None:
    async with scene(resumable()) as s:
        peer = s.w.connect("10.0.0.9")
        wanted = composite((BROKER_FRAME, route_setup(s.w.new_id(), "b")))
        send(peer, "tcp", begun(ENTRY + wanted), fnf(1), fnf(3))
        for step in how:
            step(s, peer, "tls")
        await s.w.loop.idle()
        assert s.w.listener.statistics().sessions == 0
        s.gate.open.set()
        assert len(await s.came()) == 2
        figures = s.w.listener.statistics()
        assert (figures.sessions, figures.suspended, figures.closed) == (1, 1, {})
        assert s.w.services() == ["a"]  # the route of a suspended one is hidden
        again = s.w.connect("10.0.0.9")
        position = size_of(fnf(1), fnf(3))
        assert await again.ask(resume(first_available=position), ECHO) == [
            resume_ok(position),
            frame(0, KEEPALIVE, 0, position.to_bytes(8) + b"?"),
        ]
        assert await again.ask(fnf(5)) == []
        assert len(await s.came()) == 1
        assert s.w.services() == ["a", "b"]
        lose(again)


@in_memory
async def test_a_session_is_suspended_after_all_turns_of_its_input() -> None:
    async with scene(resumable()) as s:
        peer = s.w.connect("10.0.0.9")
        many = [fnf(1 + 2 * at, bytes(50)) for at in range(1500)]
        send(peer, "tcp", begun(ENTRY), *many)
        end(peer, "tls")
        s.gate.open.set()
        for _ in range(4):
            await asyncio.sleep(0)
        assert 0 < s.w.listener.statistics().requests < 1500
        lose(peer)
        assert len(await s.came()) == 1500
        assert s.w.listener.statistics().suspended == 1
        again = s.w.connect("10.0.0.9")
        assert await again.ask(resume(0, size_of(*many))) == [resume_ok(size_of(*many))]
        lose(again)


@in_memory
async def test_a_session_is_resumed_before_all_turns_of_its_input() -> None:
    async with scene(resumable()) as s:
        peer = s.w.connect("10.0.0.9")
        many = [fnf(1 + 2 * at, bytes(50)) for at in range(1500)]
        send(peer, "tcp", begun(ENTRY), *many)
        lose(peer)
        await s.w.loop.idle()
        s.gate.open.set()
        for _ in range(4):
            await asyncio.sleep(0)
        assert s.w.listener.statistics().sessions == 1
        again = s.w.connect("10.0.0.9")
        (answer,) = await again.ask(resume())
        position = int.from_bytes(answer[9:17])
        came = await s.came()
        assert position == size_of(*many[: len(came)])
        assert 0 < len(came) < 1500
        # A client sends again what was not received.
        again.send(*many[len(came) :])
        await s.w.loop.idle()
        assert len(came) + len(await s.came()) == 1500
        assert row(s.w, 1)["suspended"] is None
        lose(again)


@in_memory
async def test_a_session_of_a_peer_that_is_refused_does_not_begin() -> None:
    async with scene(resumable()) as s:
        peer = s.w.connect("10.0.0.9")
        send(peer, "tcp", begun(WRONG), fnf(1))
        lose(peer)
        s.gate.open.set()
        assert await s.came() == []
        assert s.nothing_left("tcp")
        assert s.w.listener.statistics().sessions == 0


@pytest.mark.parametrize("known", [True, False])
@in_memory
async def test_a_request_under_check_ends_with_its_peer(known: bool) -> None:
    """It is the same for a peer that was admitted before it sent the request."""
    async with scene(per_request="check") as s:
        s.gate.accepted[BearerToken(b"two")] = BOT
        shown = request(FNF, 3, ENTRY[:-3] + b"two" + asked_for("a"))
        peer = s.w.connect("10.0.0.9")
        send(peer, "tcp", first(), *(() if known else (fnf(1), shown)))
        await s.w.loop.idle()
        if not known:
            lose(peer)
            await s.w.loop.idle()
        s.gate.open.set()  # for SETUP alone
        s.gate.open.clear()
        await s.w.loop.idle()
        if known:
            send(peer, "tcp", fnf(1), shown)
            await s.w.loop.idle()
            lose(peer)
        assert len(await s.came()) == 1
        assert s.nothing_left("tcp")
        assert s.w.listener.statistics().closed == {"by the peer": 1}


@in_memory
async def test_requests_with_checked_credentials_of_a_peer_that_has_left() -> None:
    async with scene(per_request="check") as s:
        shown = request(FNF, 1, ENTRY + asked_for("a"), b"1")
        # The first is checked, and the principal is remembered.
        known = s.w.connect("10.0.0.9")
        s.gate.open.set()
        await known.ask(first(), shown)
        assert len(await s.came()) == 1
        s.gate.open.clear()
        peer = s.w.connect("10.0.0.9")
        send(peer, "tcp", first(), shown, fnf(3))
        lose(peer)
        await s.w.loop.idle()
        s.gate.open.set()
        came = await s.came()
        assert len(came) == 2
        assert all(b"tok" not in raw for raw in came)
        lose(known)
        await s.w.loop.idle()
        assert s.nothing_left("tcp")
