"""UDP: links without connections, peers nobody knows, parts that never come. Real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Any, cast

import pytest

from onward.actors import MailboxOptions, Node, NodeLimits
from onward.protocol import (
    LinkDown,
    LinkLost,
    Message,
    NodeStopped,
    PayloadTooBig,
    RequestTimeout,
    UnreadableAddress,
    address,
    route,
)
from onward.protocol.ockam import (
    DatagramLimits,
    decode_message,
    encode_message,
    read_part,
    split_message,
)
from onward.transports import (
    LinkState,
    LinkStatistics,
    UdpListener,
    UdpOptions,
    UdpTransport,
    parse_uri,
)
from onward.transports.node._udp import _nobody
from onward.transports.node._udp_socket import UdpSocket
from tests.support.loops import on_both_loops
from tests.support.transports import Echo, Recorder, Stuck, eventually
from tests.support.virtual import virtual_time

ANY = "udp://127.0.0.1:0"


async def listening(node: Node, *expose: str, **options: Any) -> UdpListener:
    return cast(UdpListener, await node.listen(ANY, expose=expose, **options))


def udp_of(node: Node) -> UdpTransport:
    return cast(UdpTransport, node.transport("udp://"))


def link_of(node: Node) -> LinkStatistics:
    (link,) = udp_of(node).statistics()
    return link


def reasons(node: Node) -> dict[str, int]:
    return dict(node.dead_letters.by_reason)


class Peer:
    """A foreign peer: one socket, driven by the test."""

    def __init__(self, listener: UdpListener) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)
        self.where = parse_uri(listener.uri, "udp")
        self.number = 0

    def raw(self, data: bytes) -> None:
        self.socket.sendto(data, self.where)

    def send(self, onward: str, back: str = "x", payload: bytes = b"") -> None:
        body = encode_message(Message(route(onward), route(back), payload))
        for each in split_message(body, self.number):
            self.raw(each)
        self.number += 1

    async def receive(self) -> Message:
        async with asyncio.timeout(5):
            loop = asyncio.get_running_loop()
            data, where = await loop.sock_recvfrom(self.socket, 2048)
        assert where == self.where  # from the port that was sent to
        return decode_message(read_part(data).content)


@contextlib.contextmanager
def peers(listener: UdpListener, count: int) -> Generator[list[Peer]]:
    made = [Peer(listener) for _ in range(count)]
    try:
        yield made
    finally:
        for each in made:
            each.socket.close()


@on_both_loops
async def test_requests_of_any_size_on_each_loop() -> None:
    async with Node("a") as a, Node("c") as c:
        await c.start(Echo, address="echo")
        listener = await listening(c, "echo")
        link = await a.connect(listener.uri)
        for size in (0, 1, 400, 10_000, 30_000):
            answer = await a.request([link, "echo"], bytes(size))
            assert answer.payload == bytes(size)
            assert answer.return_route == (link, address("echo"))
        (accepted,) = listener.statistics().links
        assert (accepted.sent, accepted.received, accepted.state) == (5, 5, LinkState.UP)
        assert accepted.bytes_in == link_of(a).bytes_out
        assert accepted.bytes_out == link_of(a).bytes_in
        assert listener.statistics().accepted == 1


async def test_over_ipv6(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    four = await listening(c, "echo")
    six = await c.listen("udp://[::1]:0", expose=["echo"])
    for listener in (four, six):
        where = listener.uri.removeprefix("udp://")
        assert (await a.request(f"2#{where} => echo", b"x")).payload == b"x"


async def test_an_address_of_type_2_makes_a_link_and_the_next_one_reuses(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    where = listener.uri.removeprefix("udp://")
    first, again = [await a.request(f"2#{where} => echo", b"") for _ in range(2)]
    assert first.return_route == again.return_route
    await asyncio.gather(*(asyncio.to_thread(a.send, f"2#{where} => echo", b"") for _ in range(9)))
    assert listener.statistics().accepted == 1


@pytest.mark.parametrize("value", ["nonsense", "host:port", ":1", "%ff:1"])
async def test_an_address_of_type_2_that_is_no_endpoint(a: Node, value: str) -> None:
    with pytest.raises(UnreadableAddress):
        a.send(f"2#{value} => x", b"")


async def test_two_links_to_one_peer_are_kept_apart(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    links = [await a.connect(listener.uri) for _ in range(2)]
    for link in links:
        answer = await a.request([link, "echo"], b"")
        assert answer.return_route[0] == link
    assert listener.statistics().accepted == 2
    for link in links:
        await a.stop_worker(link)
    assert udp_of(a).statistics() == ()


async def test_a_foreign_peer_is_answered_from_the_port_it_sent_to(c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    with peers(listener, 1) as (peer,):
        peer.send("echo", "app", b"hello")
        answer = await peer.receive()
        assert answer == Message(route("app"), route("echo"), b"hello")
        (link,) = listener.statistics().links
        assert link.peer == "{}:{}".format(*peer.socket.getsockname())


async def test_nobody_there(a: Node, c: Node) -> None:
    listener = await listening(c)
    await listener.close()
    link = await a.connect(listener.uri)  # there is no way to know
    with pytest.raises(RequestTimeout):
        await a.request([link, "echo"], b"", timeout=0.02)
    assert link_of(a).state is LinkState.UP


# --- what is wrong, too much, or never comes -----------------------------------------------


async def test_garbage_makes_no_link_and_is_counted(c: Node) -> None:
    listener = await listening(c)
    with peers(listener, 1) as (peer,):
        peer.raw(b"")
        peer.raw(b"garbage")
        await eventually(lambda: listener.statistics().dropped.get("malformed") == 2)
        assert (listener.statistics().links, c.statistics().worker_count) == ((), 1)
        # A part that is right, of a message that is none.
        peer.raw(split_message(b"\xff", 1)[0])
        await eventually(lambda: listener.statistics().dropped.get("malformed") == 3)


async def test_heartbeats_are_swallowed(c: Node) -> None:
    listener = await listening(c)
    with peers(listener, 1) as (peer,):
        peer.raw(split_message(encode_message(Message((), (), b"")), 1)[0])
        await eventually(lambda: [each.heartbeats for each in listener.statistics().links] == [1])
        assert reasons(c) == {}


async def test_a_message_that_never_comes_whole_is_given_up(c: Node) -> None:
    limits = DatagramLimits(max_age=0.02)
    listener = await listening(c, datagrams=limits)
    with peers(listener, 1) as (peer,):
        for number in range(3):
            peer.raw(split_message(bytes(1000), number)[0])
        await eventually(lambda: listener.statistics().dropped.get("not whole in time") == 3)
        assert listener.statistics().unfinished == 0
        assert listener.statistics().links == ()


async def test_a_closed_listener_waits_for_no_part(c: Node) -> None:
    listener = await listening(c)
    with peers(listener, 1) as (peer,):
        peer.raw(split_message(bytes(1000), 1)[0])
        await eventually(lambda: listener.statistics().unfinished == 1)
        await listener.close()
        await listener.close()
        assert not c.has(listener.address)


async def test_a_message_that_is_too_big_is_the_senders_error(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    small = DatagramLimits(max_message=1000)
    link = await a.connect(listener.uri, datagrams=small)
    with pytest.raises(PayloadTooBig):
        await a.request([link, "echo"], bytes(1000))
    assert (await a.request([link, "echo"], bytes(800))).payload == bytes(800)
    udp_of(a).options = UdpOptions(datagrams=small)
    with pytest.raises(PayloadTooBig):
        a.send(f"2#{listener.uri[6:]} => echo", bytes(1001))


async def test_peers_that_claim_to_be_many_take_the_places_of_one_another(c: Node) -> None:
    recorder, private = await Recorder.on(c, "c1"), await Recorder.on(c, "private")
    listener = await listening(c, "c1", max_peers=3)
    with peers(listener, 6) as made:
        first, second, third, *others = made
        # The first answers what we send to it: it is who it says.
        first.send("c1", "back")
        private.send((await recorder.next()).return_route, b"are you there?")
        asked = await first.receive()
        first.send(str(asked.return_route[0]), "x", b"I am")
        assert (await private.next()).payload == b"I am"
        for each in (second, third, second, *others):
            each.send("c1")
            await recorder.next()
        peer_names = [f"127.0.0.1:{each.socket.getsockname()[1]}" for each in made]
        figures = listener.statistics()
        assert [link.peer for link in figures.links] == [peer_names[0], *peer_names[4:]]
        assert (figures.accepted, figures.evicted, figures.turned_away) == (6, 3, 0)
        # Those silent for longest went first.
        assert figures.closed == {"another peer needed the place": 3}


async def test_what_a_peer_sent_that_gives_up_its_place_is_counted(c: Node) -> None:
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(1))
    listener = await listening(c, "stuck", max_peers=1)
    with peers(listener, 2) as (first, second):
        for _ in range(10):
            first.send("stuck")
        await eventually(lambda: [each.received for each in listener.statistics().links] == [10])
        held = listener.statistics().links[0].held
        second.send("nobody")
        await eventually(lambda: c.dead_letters.by_reason.get("mailbox full") == held)
        assert listener.statistics().evicted == 1
        stuck.go_on.set()
        await eventually(lambda: len(stuck.messages) == 10 - held)


@virtual_time
async def test_a_link_is_not_idle_while_what_came_over_it_waits() -> None:
    async with Node("c") as c:
        stuck = Stuck()
        await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(1))
        listener = await listening(c, "stuck", idle_timeout=10.0, stall_timeout=100.0)
        with peers(listener, 1) as (peer,):
            for _ in range(10):
                peer.send("stuck")
            await asyncio.sleep(1)
            await asyncio.sleep(90)
            stuck.go_on.set()
            await asyncio.sleep(30)
            assert len(stuck.messages) == 10
            assert listener.statistics().closed == {"no message for 10 s": 1}


async def test_what_is_sent_over_a_socket_that_was_lost_is_a_dead_letter(a: Node) -> None:
    link = await a.connect("udp://127.0.0.1:9")
    (udp_socket,) = udp_of(a)._sockets.values()
    udp_socket.close()
    a.send([link, "x"], b"")
    await eventually(lambda: a.dead_letters.total)
    assert dict(a.dead_letters.by_reason) == {"link down": 1}
    assert link_of(a).sent == 0


async def test_peers_that_have_answered_stay(c: Node) -> None:
    recorder, private = await Recorder.on(c, "c1"), await Recorder.on(c, "private")
    listener = await listening(c, "c1", max_peers=1)
    with peers(listener, 2) as (first, second):
        first.send("c1", "back")
        private.send((await recorder.next()).return_route, b"")
        first.send(str((await first.receive()).return_route[0]), "x")
        await private.next()
        second.send("c1")
        await eventually(lambda: listener.statistics().turned_away == 1)
        # It goes on, and is no longer asked who it is.
        first.send("c1", "x", b"still here")
        assert (await recorder.next()).payload == b"still here"
        assert listener.statistics().accepted == 1


async def test_a_node_with_no_room_for_a_link_turns_a_peer_away() -> None:
    async with Node("full", limits=NodeLimits(addresses=1)) as full:
        listener = await listening(full)
        with peers(listener, 1) as (peer,):
            peer.send("x")
            await eventually(lambda: listener.statistics().turned_away == 1)


async def test_a_full_mailbox_costs_its_own_messages_only(c: Node) -> None:
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=1))
    listener = await listening(c, "stuck", arrivals=2)
    with peers(listener, 1) as (peer,):
        for _ in range(8):
            peer.send("stuck")
        await eventually(lambda: reasons(c).get("mailbox full"))
        assert listener.statistics().links[0].held <= 3
        stuck.go_on.set()


async def test_what_comes_to_the_socket_of_ours_from_strangers_is_dropped(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    link = await a.connect(listener.uri)
    await a.request([link, "echo"], b"")
    (accepted,) = listener.statistics().links
    host, _, port = accepted.peer.partition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        body = encode_message(Message(route("echo"), route("x"), b""))
        stranger.sendto(split_message(body, 1)[0], (host, int(port)))
        await eventually(lambda: udp_of(a).dropped == {"no link": 1})


# --- the life of a link -------------------------------------------------------------------


async def test_a_host_that_is_not_there(a: Node, monkeypatch: pytest.MonkeyPatch) -> None:

    async def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "no such host")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
    with pytest.raises(LinkDown, match="no such host"):
        await a.connect("udp://somewhere:1")
    with pytest.raises(LinkDown, match="no such host"):
        await a.request("2#somewhere:1 => x", b"")
    await eventually(lambda: a.statistics().worker_count == 0)


async def test_messages_are_kept_while_a_host_is_looked_up(
    a: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "c1")
    loop = asyncio.get_running_loop()
    found, look_up = asyncio.Event(), loop.getaddrinfo

    async def slow(*where: object, **more: object) -> object:
        await found.wait()
        return await look_up("127.0.0.1", *where[1:], **more)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "getaddrinfo", slow)
    udp_of(a).options = UdpOptions(queue=2, heartbeat=None)
    port = parse_uri(listener.uri, "udp")[1]
    for number in range(3):
        a.send(f"2#localhost:{port} => c1", bytes([number]))
    await eventually(lambda: reasons(a) == {"link down": 1})
    assert (link_of(a).queued, link_of(a).state) == (2, LinkState.CONNECTING)
    found.set()
    assert {(await recorder.next()).payload for _ in range(2)} == {b"\0", b"\1"}


async def test_a_look_up_that_takes_too_long_or_is_given_up(
    a: Node, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", never)
    with pytest.raises(LinkDown, match="not found in time"):
        await a.connect("udp://somewhere:1", resolve_timeout=0.01)
    connecting = asyncio.create_task(a.connect("udp://somewhere:1"))
    await eventually(lambda: udp_of(a).statistics())
    connecting.cancel()
    await asyncio.wait([connecting])
    await eventually(lambda: a.statistics().worker_count == 0)
    asked = asyncio.create_task(a.request("2#somewhere:1 => x", b""))
    await eventually(lambda: udp_of(a).statistics() and link_of(a).queued)
    await a.stop_worker(link_of(a).address)
    with pytest.raises(LinkDown):
        await asked


async def test_links_have_a_limit(a: Node) -> None:
    udp_of(a).max_dialled = 1
    await a.connect("udp://127.0.0.1:1")
    with pytest.raises(LinkDown, match="1 link already"):
        a.send("2#127.0.0.1:2 => x", b"")


async def test_a_link_that_ends_ends_what_waits_for_it(a: Node, c: Node) -> None:
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck")
    listener = await listening(c, "stuck")
    link = await a.connect(listener.uri)
    asked = asyncio.create_task(a.request([link, "stuck"], b""))
    await eventually(lambda: listener.statistics().links)
    await a.stop_worker(link)
    with pytest.raises(LinkLost):
        await asked
    stuck.go_on.set()


@virtual_time
async def test_idle_links_are_closed_and_heartbeats_keep_them() -> None:
    async with Node("a") as a, Node("c") as c:
        await c.start(Echo, address="echo")
        listener = await listening(c, "echo")
        link = await a.connect(listener.uri)
        by_address = await a.request(f"2#{listener.uri[6:]} => echo", b"")
        assert by_address.return_route[0] == link
        await asyncio.sleep(1000)
        (accepted,) = listener.statistics().links
        assert 16 <= accepted.heartbeats <= 34
        other = await a.connect(listener.uri, heartbeat=None)
        await a.request([other, "echo"], b"")
        await asyncio.sleep(601)
        assert not a.has(other)
        assert a.has(link)
        assert listener.statistics().closed == {"no message for 300 s": 1}
        for_ever = await a.connect(listener.uri, heartbeat=None, idle_timeout=None)
        await asyncio.sleep(10_000)
        assert a.has(for_ever)


async def test_a_node_that_stops_while_it_begins_to_listen() -> None:
    for ticks in range(8):
        node = Node("brief")
        await node.__aenter__()
        begun = asyncio.create_task(node.listen(ANY))
        for _ in range(ticks):
            await asyncio.sleep(0)
        await node.stop()
        with contextlib.suppress(NodeStopped):
            assert not node.has((await begun).address)


@pytest.mark.parametrize("uri", ["udp://", "udp://h:1/path", "udp://h"])
async def test_what_is_no_uri(a: Node, uri: str) -> None:
    with pytest.raises(ValueError, match="not"):
        await a.listen(uri)
    with pytest.raises(TypeError):
        await a.connect("udp://127.0.0.1:1", no_such_option=1)


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="max_peers must be a whole number of at least 1, not 0"):
        UdpOptions(max_peers=0)


# --- the socket ---------------------------------------------------------------------------


class Slow(asyncio.DatagramTransport):
    """A socket that takes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.socket if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        assert high == 256 * 1024

    def get_write_buffer_size(self) -> int:
        return self.sent

    def is_closing(self) -> bool:
        return False

    def sendto(self, data: object, addr: object = None) -> None:
        self.sent += len(cast(bytes, data))


async def test_who_sends_waits_while_the_system_takes_nothing() -> None:
    loop = asyncio.get_running_loop()
    udp_socket = UdpSocket(UdpOptions(), loop, _nobody)
    with pytest.raises(LinkDown, match="the socket is closed"):
        udp_socket.send([b"lost"], ("127.0.0.1", 9))
    assert udp_socket.pending == 0
    udp_socket.close()
    udp_socket.resume_writing()
    slow = Slow()
    with slow.socket:
        udp_socket.connection_made(slow)
    assert udp_socket.send([b"one"], ()) is None
    udp_socket.pause_writing()
    room = udp_socket.send([b"two"], ())
    assert room is not None
    assert udp_socket.pending == 6
    waiting = asyncio.ensure_future(room)
    await asyncio.sleep(0)
    assert not waiting.done()
    udp_socket.resume_writing()
    await waiting
    udp_socket.error_received(OSError("unreachable"))
    assert udp_socket.dropped == {"refused by the system": 1}


async def test_a_transport_that_stops_closes_all_that_is_its_own(a: Node, c: Node) -> None:
    listener = await listening(c)
    links = [await a.connect(listener.uri) for _ in range(2)]
    await udp_of(a).stop()
    assert not udp_of(a).statistics()
    assert not any(a.has(link) for link in links)
    await udp_of(c).stop()
    assert not c.has(listener.address)


async def test_what_closes_later_than_its_socket_and_again(a: Node) -> None:
    udp_socket = UdpSocket(UdpOptions(), a.loop, _nobody)
    for _ in range(2):
        udp_socket.close()
        await udp_socket.closed()
    udp_socket.connection_lost(None)
