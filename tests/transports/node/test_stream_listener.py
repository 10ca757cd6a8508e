"""The places for connections of a listener for nodes, shared among those they come from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onward.actors import MailboxOptions, Node
from onward.actors.security import Authentication, UnixAuthenticator
from onward.protocol import Message, route
from onward.protocol.ockam import PREAMBLE, encode_message
from onward.transports import StreamListener
from tests.support.rsocket_peer import MemoryLoop, Peer, in_memory
from tests.support.transports import Stuck, eventually
from tests.support.websocket_peer import handshake

HOG, OTHER = "10.0.0.66", "10.0.0.7"


def connected(node: Node, number: int, host: str) -> list[Peer]:
    """Connect peers that say nothing, and return those that were taken."""
    loop = node.loop
    assert isinstance(loop, MemoryLoop)
    (serves,) = loop.servers.values()
    made = [Peer(serves, (host, port)) for port in range(number)]
    return [peer for peer in made if not peer.closed]


async def gone(node: Node, peers: list[Peer]) -> None:
    """Lose connections, and let that be noticed."""
    for peer in peers:
        peer.die()
    assert isinstance(node.loop, MemoryLoop)
    await node.loop.idle()


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
@in_memory
async def test_one_source_leaves_half_of_the_places_to_others(scheme: str) -> None:
    async with Node("c") as node:
        listener = await node.listen(f"{scheme}://127.0.0.1:0", max_connections=10)
        assert isinstance(listener, StreamListener)
        hogs = connected(node, 20, HOG)
        others = connected(node, 20, OTHER)
        assert (len(hogs), len(others)) == (6, 3)
        # A link has the place that its handshake had.
        for peer in (*hogs, *others):
            peer.send(handshake() if scheme == "ws" else PREAMBLE)
        statistics = listener.statistics()
        assert (len(statistics.links), statistics.handshakes) == (9, 0)
        assert statistics.turned_away == 31
        assert connected(node, 1, HOG) == []
        others += connected(node, 5, "10.0.0.8")
        assert len(others) == 4
        # And gives it up when it ends.
        await gone(node, hogs)
        others += connected(node, 20, OTHER)
        assert len(others) == 6
        await gone(node, others)
        places = listener._worker.acceptor.places
        assert (places.taken, places._by_source) == (0, {})


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
@in_memory
async def test_peers_behind_a_proxy_do_not_share_what_one_source_may_have(scheme: str) -> None:
    async with Node("c") as node:
        uri = f"{scheme}://127.0.0.1:0"
        listener = await node.listen(uri, max_connections=10, proxies=("10.0.0.64/28",))
        assert isinstance(listener, StreamListener)
        others = connected(node, 20, OTHER)
        assert len(others) == 6
        hogs = connected(node, 20, HOG)
        assert len(hogs) == 4
        for peer in (*hogs, *others):
            peer.send(handshake() if scheme == "ws" else PREAMBLE)
        assert len(listener.statistics().links) == 10
        await gone(node, [*hogs, *others])
        places = listener._worker.acceptor.places
        assert (places.taken, places._by_source) == (0, {})


@in_memory
async def test_what_is_accepted_as_the_listener_closes_is_closed() -> None:
    async with Node("c") as node:
        listener = await node.listen("tcp://127.0.0.1:0")
        loop = node.loop
        assert isinstance(loop, MemoryLoop)
        (serves,) = loop.servers.values()
        await listener.close()
        assert Peer(serves, (HOG, 1)).closed


@in_memory
async def test_what_a_held_link_had_read_when_it_was_stopped_is_counted() -> None:
    async with Node("c") as node:
        stuck = Stuck()
        await node.start(lambda: stuck, address="stuck", mailbox=MailboxOptions(limit=10))
        listener = await node.listen("tcp://127.0.0.1:0", expose=["stuck"])
        assert isinstance(listener, StreamListener)
        (peer,) = connected(node, 1, OTHER)
        body = encode_message(Message(route("stuck"), route("back"), b""))
        peer.send(PREAMBLE + (len(body).to_bytes(4) + body) * 5000)
        (link,) = listener.statistics().links
        assert link.held
        assert link.received < 5000
        await node.stop_worker(link.address)
        lost = node.statistics().dead_letters
        assert node.dead_letters.by_reason == {"mailbox full": lost}
        stuck.go_on.set()
        await eventually(lambda: len(stuck.messages) + lost == 5000)


@pytest.mark.parametrize(
    "after", ["disabled = true", 'roles = ["other"]', "expires = 2100-01-01T00:00:00Z"]
)
async def test_a_link_ends_when_a_reload_no_longer_admits_its_peer(
    tmp_path: Path, after: str
) -> None:
    file = tmp_path / "principals.toml"
    entry = f'[[unix]]\nname = "near"\nuid = {os.getuid()}\n'
    file.write_text(entry)
    authentication = Authentication([UnixAuthenticator(file)])
    async with Node("near") as near, Node("far") as far:
        listener = await far.listen(f"uds://{tmp_path}/far", authentication=authentication)
        assert isinstance(listener, StreamListener)
        await near.connect(listener.uri)
        await eventually(lambda: len(listener.statistics().links) == 1)
        (await authentication.prepare_reload())()
        assert len(listener.statistics().links) == 1
        assert listener.statistics().closed == {}
        # Access controls look at the principal of a link, so it has one as long as it lives.
        file.write_text(entry + after + "\n")
        (await authentication.prepare_reload())()
        await eventually(lambda: listener.statistics().closed)
        assert listener.statistics().closed == {"no longer admitted": 1}
    assert authentication._watchers == []
