"""Nodes that a program has joined, and that are dialled by other ways after a loss."""

from __future__ import annotations

import asyncio

import pytest

from onward.actors import Listener, Node, Unresolved
from onward.actors.identity import ROUTER
from onward.protocol.identity import (
    AdvertAddress,
    AdvertEnvelope,
    AdvertSource,
    NodeAdvert,
    SigningKey,
    sign_advert,
)
from onward.transports.identity import Identities
from tests.support.identities import attached, joined, key_of, link_of, node_text
from tests.support.transports import Echo, eventually

MEMORY = ("memory",)


async def both_joined(
    nodes: tuple[Node, Node], *, links: bool = False
) -> tuple[Identities, Identities, Listener]:
    """Join two nodes from both ends.

    Returns:
        The node with the link that is used; the other one; and the listener of that.
    """
    ones = [await attached(each) for each in nodes]
    ones.sort(key=lambda each: each.own)  # the link of the smaller identity stays
    first, other = ones
    theirs = await first.node.listen("memory://first", expose=[ROUTER])
    listener = await other.node.listen("memory://other", expose=[ROUTER])
    await first.join(listener.uri)
    await other.join(await other.node.connect(theirs.uri) if links else theirs.uri)
    assert first._router.peers.sessions[other.own].dialled
    return first, other, listener


@pytest.mark.parametrize("links", [False, True])
async def test_the_other_end_dials_when_the_link_that_is_used_cannot_be_made_again(
    a: Node, c: Node, links: bool
) -> None:
    first, other, listener = await both_joined((a, c), links=links)
    await listener.close()  # with its connections
    for _ in range(1 if links else 3):
        await eventually(lambda: not first.peers() and not other.peers())
        await asyncio.sleep(10)
        assert first.peers() == (other.own,)
        assert other.peers() == (first.own,)
        assert not first._router.peers.sessions[other.own].dialled
        await asyncio.sleep(1000)  # it is no link that was opened for messages
        assert first.peers() == (other.own,)
        link = other._router.peers.link_to(first.own)
        assert link is not None
        link_of(other.node, link).cut()
    await asyncio.sleep(100)
    # A link in memory is not made again; one that its program has opened was the only way.
    assert first.peers() == (() if links else (other.own,))


async def test_a_link_that_is_made_again_is_enough(a: Node, c: Node) -> None:
    first, other, _ = await both_joined((a, c))
    peers = first._router.peers
    for _ in range(3):
        peers._disconnect(peers.sessions[other.own], "a test")
        await asyncio.sleep(100)
        assert peers.sessions[other.own].dialled
    assert other._router.dialling.counts == {}


@pytest.mark.parametrize("how", ["ban", "stop"])
async def test_a_node_that_is_banned_or_left_is_not_dialled(a: Node, c: Node, how: str) -> None:
    first, other, _ = await both_joined((a, c))
    if how == "ban":
        other.ban(first.own)
    else:
        link = first._router.peers.link_to(other.own)
        assert link is not None
        other._router.dialling.joined.forget(first.own)
        await first.node.stop_worker(link)
    await asyncio.sleep(200)
    assert other.peers() == ()
    assert first._router.dialling.counts == other._router.dialling.counts == {}
    assert not first._router.dialling.joined.is_lost(other.own)
    assert not other._router.dialling.joined.is_lost(first.own)


async def test_so_many_joined_nodes_are_remembered(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.links._joined_nodes._MOST_JOINED", 1)
    ours, second, third = await attached(a), await attached(b), await attached(c)
    for node in (b, c):
        await joined((a, ours), node)
    remembered = ours._router.dialling.joined
    assert (second.own in remembered, third.own in remembered) == (False, True)


# --- newer addresses ----------------------------------------------------------------------------


def advert_of(identities: Identities, key: SigningKey, version: int, *uris: str) -> AdvertEnvelope:
    addresses = tuple(AdvertAddress(each, 1) for each in uris)
    now = identities._router.milliseconds()
    return sign_advert(NodeAdvert(key.identity, addresses, bytes(32), version, now), key)


async def test_a_joined_node_that_has_moved_is_dialled_at_its_new_address(
    a: Node, b: Node, c: Node
) -> None:
    ours, between, theirs = await attached(a, dials=MEMORY), await attached(b), await attached(c)
    listener = await c.listen("memory://old place", expose=[ROUTER])
    await ours.join(listener.uri)
    await joined((a, ours), b)
    await joined((c, theirs), b)
    await listener.close()
    await eventually(lambda: theirs.own not in ours.peers())
    moved = await c.listen("memory://new place", expose=[ROUTER])
    theirs.advertise(moved.uri)
    await eventually(lambda: between.directory.peek(theirs.own))
    await asyncio.sleep(10)
    assert theirs.own in ours.peers()
    assert ours._router.dialling.counts["opened"] == 1
    await asyncio.sleep(1000)
    assert theirs.own in ours.peers()


async def test_a_node_that_cannot_be_reached_is_looked_up_for_a_newer_address(
    a: Node, b: Node, c: Node
) -> None:
    ours, between, theirs = await attached(a, dials=MEMORY), await attached(b), await attached(c)
    await c.start(Echo, address="echo")
    await joined((a, ours), b)
    key = key_of("c")
    listener = await c.listen("memory://newer", expose=[ROUTER])
    ours.directory.put(advert_of(ours, key, 1, "memory://older"), AdvertSource.LOCAL)
    between.directory.put(advert_of(ours, key, 2, listener.uri), AdvertSource.LOCAL)
    for _ in range(2):
        with pytest.raises(Unresolved, match="could not be reached: "):
            await a.request(node_text(theirs.own), b"hi")
        await asyncio.sleep(1)
    await eventually(lambda: not ours._router.dialling._failed)
    a.send(node_text(theirs.own), b"hi")
    await eventually(lambda: theirs.own in ours.peers())
    assert ours._router.dialling.counts == {"failed": 2, "opened": 1}


async def test_nodes_that_answer_nothing_are_not_in_the_way_of_another_one(
    a: Node, b: Node, c: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.links._dialling._MOST_DIALS", 1)
    ours, pit, theirs = await attached(a, dials=MEMORY), await attached(b), await attached(c)
    listeners = [await each.listen(f"memory://of {each.name}", expose=[ROUTER]) for each in (b, c)]
    for listener in listeners:
        await ours.join(listener.uri)
    for listener in listeners:
        await listener.close()
    await eventually(lambda: not ours.peers())
    # Both are due at once, and the first one takes the only place for 10 seconds each time.
    await a.listen("memory://tar pit", expose=[])
    await c.listen("memory://found", expose=[ROUTER])
    for key, uri in ((key_of("b"), "memory://tar pit"), (key_of("c"), "memory://found")):
        ours.directory.put(advert_of(ours, key, 2**31, uri), AdvertSource.LOCAL)
    await asyncio.sleep(60)
    assert ours.peers() == (theirs.own,)
    assert ours._router.dialling.is_unreached(pit.own)
