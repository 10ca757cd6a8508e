"""TCP alone: type-1 addresses, reconnecting, closing. Real sockets throughout."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from onward.actors import Node, Worker
from onward.protocol import LinkDown, LinkLost, UnreadableAddress, address, route
from onward.protocol.ockam import PREAMBLE
from onward.transports import Backoff, LinkState
from onward.transports.node._stream_dialled import DialledLink
from tests.support.tcp import FAST, Server, link_of, listening, peer_of, reasons, tcp_of
from tests.support.transports import Echo, Recorder, Stuck, eventually

# --- addresses of type 1 ------------------------------------------------------------------


async def test_an_address_of_type_1_connects_and_the_next_one_reuses(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    first = await a.request(f"1#{peer_of(listener)} => echo", b"1")
    second = await a.request(f"1#{peer_of(listener)} => echo", b"2")
    assert (first.payload, second.payload) == (b"1", b"2")
    assert first.return_route == second.return_route
    link = link_of(a)
    assert first.return_route == (link.address, address("echo"))
    assert (link.sent, link.received, link.connects, link.state) == (2, 2, 1, LinkState.UP)
    assert listener.statistics().accepted == 1


async def test_the_specifications_session_begins_with_an_address_of_type_1(
    a: Node, c: Node
) -> None:
    a1, c1 = await Recorder.on(a, "A1"), await Recorder.on(c, "C1")
    listener = await listening(c, "C1")
    a1.send([f"1#{peer_of(listener)}", "C1"], b"")  # 1: onward [TCP#C, C1], return [A1]
    fourth = await c1.next()
    (link_c,) = listener.statistics().links
    assert fourth.onward_route == route("C1")
    assert fourth.return_route == (link_c.address, address("A1"))
    c1.reply(fourth, b"")
    seventh = await a1.next()
    assert seventh.onward_route == route("A1")
    assert seventh.return_route == (link_of(a).address, address("C1"))


async def test_two_hops_of_type_1_in_one_route(a: Node, b: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    to_c = await listening(c, "echo")
    to_b = await listening(b, f"1#{peer_of(to_c)}")
    answer = await a.request(f"1#{peer_of(to_b)} => 1#{peer_of(to_c)} => echo", b"far")
    assert answer.payload == b"far"
    assert answer.return_route == (link_of(a).address, link_of(b).address, address("echo"))


async def test_a_node_is_no_open_proxy(a: Node, b: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    to_c = await listening(c, "echo")
    to_b = await listening(b, "echo")
    a.send(f"1#{peer_of(to_b)} => 1#{peer_of(to_c)} => echo", b"")
    await eventually(lambda: reasons(b) == {"not exposed": 1})
    assert to_c.statistics().accepted == 0


async def test_messages_sent_while_connecting_all_arrive_in_order(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "c1")
    for number in range(100):
        a.send(f"1#{peer_of(listener)} => c1", str(number).encode())
    await eventually(lambda: len(recorder.messages) == 100)
    assert [int(each.payload) for each in recorder.messages] == list(range(100))
    assert listener.statistics().accepted == 1


async def test_a_refused_connection_ends_the_request_and_leaves_nothing(a: Node, c: Node) -> None:
    listener = await listening(c)
    peer = peer_of(listener)
    await listener.close()
    with pytest.raises(LinkDown, match="link down"):
        await a.request(f"1#{peer} => echo", b"")
    a.send(f"1#{peer} => echo", b"")
    await eventually(lambda: reasons(a) == {"link down": 2})
    await eventually(lambda: not tcp_of(a).statistics())
    # A link is forgotten before its worker has stopped.
    await eventually(lambda: a.statistics().worker_count == 0)


async def test_messages_over_the_queue_are_dead_letters_at_once(a: Node) -> None:
    tcp_of(a).options = tcp_of(a).options.__class__(queue=3, reconnect=False)
    async with Server() as server:
        for _ in range(5):
            a.send(f"1#127.0.0.1:{server.port} => x", b"")
        peer = await server.next()
        await eventually(lambda: link_of(a).queued == 3)
        assert reasons(a) == {"link down": 2}
        await peer.greeted()
        assert [(await peer.receive()).payload for _ in range(3)] == [b"", b"", b""]


@pytest.mark.parametrize("value", ["nonsense", "host:port", ":1", "%ff:1"])
def test_an_address_of_type_1_that_is_no_endpoint(value: str) -> None:
    async def main() -> None:
        async with Node() as node:
            with pytest.raises(UnreadableAddress):
                node.send(f"1#{value} => x", b"")

    asyncio.run(main())


async def test_links_opened_by_addresses_have_a_limit(a: Node, c: Node) -> None:
    first, second = await listening(c), await listening(c)
    tcp_of(a).max_dialled = 1
    a.send(f"1#{peer_of(first)} => x", b"")
    with pytest.raises(LinkDown, match="1 link already"):
        a.send(f"1#{peer_of(second)} => x", b"")
    with pytest.raises(LinkDown):
        await a.connect(second.uri)


async def test_a_connected_link_serves_addresses_of_type_1_too(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    link = await a.connect(listener.uri)
    answer = await a.request(f"1#{peer_of(listener)} => echo", b"")
    assert answer.return_route[0] == link


async def test_messages_of_other_threads_share_one_link(a: Node, c: Node) -> None:
    recorder = await Recorder.on(c, "c1")
    listener = await listening(c, "c1")
    onward = f"1#{peer_of(listener)} => c1"
    await asyncio.gather(*(asyncio.to_thread(a.send, onward, b"") for _ in range(20)))
    await eventually(lambda: len(recorder.messages) == 20)
    assert listener.statistics().accepted == 1


async def test_an_idle_link_is_closed_and_opened_again_when_needed(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo")
    tcp_of(a).options = tcp_of(a).options.__class__(idle_timeout=0.02, reconnect=False)
    first = await a.request(f"1#{peer_of(listener)} => echo", b"")
    await eventually(lambda: not a.has(first.return_route[0]))
    await eventually(lambda: not listener.statistics().links)
    again = await a.request(f"1#{peer_of(listener)} => echo", b"")
    assert again.return_route[0] != first.return_route[0]


async def test_a_link_in_use_is_not_idle(a: Node, c: Node) -> None:
    await c.start(Echo, address="echo")
    listener = await listening(c, "echo", idle_timeout=0.05)
    link = await a.connect(listener.uri, idle_timeout=0.05)
    started = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < started + 0.2:
        await a.request([link, "echo"], b"")
    assert listener.statistics().accepted == 1
    # And one that is not, is: closed by either side, with its reason.
    await eventually(lambda: not listener.statistics().links and not a.has(link))


# --- the life of a connection -------------------------------------------------------------


async def test_a_lost_connection_comes_back_at_the_same_address(a: Node) -> None:
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri, backoff=FAST))
        peer = await (await server.next()).greeted()
        link = await connecting
        await server.close()
        await eventually(lambda: link_of(a).failures > 2)
        assert link_of(a).state in {LinkState.WAITING, LinkState.CONNECTING}
        await server.open()
        peer = await (await server.next()).greeted()
        await eventually(lambda: link_of(a).state is LinkState.UP)
        a.send([link, "x"], b"back again")
        assert (await peer.receive()).payload == b"back again"
        statistics = link_of(a)
        assert (statistics.connects, statistics.failures, statistics.address) == (2, 0, link)


async def test_waits_between_attempts_follow_the_back_off(a: Node) -> None:
    drawn: list[int] = []

    def draw() -> float:
        drawn.append(link_of(a).failures)
        return 0.001

    async with Server() as server:
        backoff = Backoff(first=1.0, longest=2.0, random=draw)
        connecting = asyncio.create_task(a.connect(server.uri, backoff=backoff))
        await (await server.next()).greeted()
        await connecting
        await server.close()
        await eventually(lambda: len(drawn) > 3)
    assert drawn[:4] == [0, 1, 2, 3]


async def test_while_a_link_waits_messages_are_kept_until_an_attempt_fails(a: Node) -> None:
    async with Server() as server:
        long = Backoff(first=60, longest=60, random=lambda: 1.0)
        connecting = asyncio.create_task(a.connect(server.uri, backoff=long))
        await (await server.next()).greeted()
        link = await connecting
        await server.close()
        await eventually(lambda: link_of(a).state is LinkState.WAITING)
        waiting = asyncio.create_task(a.request([link, "x"], b""))
        await eventually(lambda: link_of(a).queued == 1)
        await a.stop_worker(link)
        with pytest.raises(LinkDown):
            await waiting
        assert reasons(a) == {"link down": 1}


async def test_without_reconnect_a_lost_link_ends(a: Node, c: Node) -> None:
    stuck = Stuck()
    await c.start(lambda: stuck, address="stuck")
    listener = await listening(c, "stuck")
    link = await a.connect(listener.uri, reconnect=False)
    asked = asyncio.create_task(a.request([link, "stuck"], b""))
    await eventually(lambda: listener.statistics().links[0].received)
    await c.stop_worker(listener.statistics().links[0].address)
    with pytest.raises(LinkLost, match="the peer closed the connection"):
        await asked
    await eventually(lambda: not a.has(link))
    stuck.go_on.set()


async def test_a_connect_that_is_given_up_leaves_nothing(a: Node) -> None:
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri))
        peer = await server.next()
        connecting.cancel()
        await asyncio.wait([connecting])
        await peer.closed()
        await eventually(lambda: a.statistics().worker_count == 0)


async def test_stopping_a_link_that_is_still_connecting(a: Node) -> None:
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri))
        peer = await server.next()
        await a.stop_worker(link_of(a).address)
        with pytest.raises(LinkDown):
            await connecting
        await peer.closed()


async def test_a_server_that_speaks_something_else(a: Node) -> None:
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri))
        peer = await server.next()
        peer.write(b"220 mail.example.org ESMTP\r\n")
        with pytest.raises(LinkDown, match="starts with 0x32"):
            await connecting


async def test_a_server_that_says_nothing(a: Node) -> None:
    async with Server() as server:
        with pytest.raises(LinkDown, match=r"said nothing for 0\.02 s"):
            await a.connect(server.uri, preamble_timeout=0.02)
        await (await server.next()).closed()


async def test_a_server_that_hangs_up_at_once(a: Node) -> None:
    async with Server() as server:
        connecting = asyncio.create_task(a.connect(server.uri))
        (await server.next()).writer.close()
        with pytest.raises(LinkDown):
            await connecting


async def test_a_host_that_does_not_answer(a: Node, monkeypatch: pytest.MonkeyPatch) -> None:

    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    with pytest.raises(LinkDown, match="no connection in time"):
        await a.connect("tcp://127.0.0.1:1", connect_timeout=0.01)


# --- processes ----------------------------------------------------------------------------


PEER = """
import asyncio
from onward.actors import Node
from tests.support.transports import Echo, Stuck

async def main():
    async with Node("peer") as node:
        await node.start(Echo, address="echo")
        await node.start(Stuck, address="stuck")
        listener = await node.listen("tcp://127.0.0.1:0", expose=["echo", "stuck"])
        print(listener.uri, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_a_peer_process_that_is_killed(a: Node) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PEER, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        uri = (await process.stdout.readline()).decode().strip()
        link = await a.connect(uri, backoff=FAST)
        assert (await a.request([link, "echo"], b"hi")).payload == b"hi"
        asked = asyncio.create_task(a.request([link, "stuck"], b""))
        await eventually(lambda: link_of(a).sent == 2)
        process.send_signal(signal.SIGKILL)
        with pytest.raises(LinkLost):
            await asked
        await eventually(lambda: link_of(a).failures > 0)
        with pytest.raises(LinkDown):
            await a.request([link, "echo"], b"anybody?")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_transport_that_stops_closes_all_that_is_its_own(a: Node, c: Node) -> None:
    listener = await listening(c)
    links = [await a.connect(listener.uri) for _ in range(2)]
    await a.stop_worker(links[0])
    await tcp_of(a).stop()
    assert not tcp_of(a).statistics()
    assert not any(a.has(link) for link in links)
    await tcp_of(c).stop()
    assert not c.has(listener.address)
    await eventually(lambda: not listener.statistics().links)


@pytest.mark.slow
async def test_a_node_that_stops_leaves_no_socket_to_a_peer_that_does_not_read() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    before = open_files()
    async with Node() as node:
        port = listening.getsockname()[1]
        dialled = asyncio.ensure_future(
            node.connect(f"tcp://127.0.0.1:{port}", drain_timeout=0.1, high_water=64 * 1024 * 1024)
        )
        peer, _ = await asyncio.get_running_loop().run_in_executor(None, listening.accept)
        peer.sendall(PREAMBLE)
        link = await dialled
        for _ in range(4):
            node.send((link, "sink"), bytes(4 * 1024 * 1024))
        await asyncio.sleep(0)
    peer.close()
    assert open_files() <= before
    listening.close()


def open_files() -> int:
    """Return how many files this process has open; 0 where the system does not say."""
    listing = Path("/proc/self/fd")
    return len(list(listing.iterdir())) if listing.exists() else 0


async def test_what_has_gone_can_be_asked_to_end_again() -> None:
    async with Node() as a, Node() as c:
        listener = await c.listen("tcp://127.0.0.1:0")
        address = await a.connect(listener.uri, reconnect=False)
        transport = a.transport("tcp://")
        link = cast("DialledLink", a.ref(address)._actor_weakref())
        wire_socket = link._socket
        assert wire_socket is not None
        await transport.stop()
        assert not a.has(address)
        for _ in range(2):
            wire_socket.close("again")
            wire_socket.abort("again")
            wire_socket.hold()
            wire_socket.release()
            link.hold()
            link.release()
        await wire_socket.closed()


async def test_a_link_has_no_more_attributes_than_python_keeps_in_a_fast_way(
    a: Node, c: Node
) -> None:
    # As for a node: with 30 or more in its dictionary, each call of a method looks there first.
    listener = await listening(c, "echo")
    address = await a.connect(listener.uri)
    await eventually(lambda: listener.statistics().links)
    links: list[Worker | None] = [
        a.parts.table.worker_at(address),
        c.parts.table.worker_at(listener.statistics().links[0].address),
    ]
    assert all(link is not None and len(link.__dict__) < 30 for link in links)
