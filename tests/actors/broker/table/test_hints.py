"""What an ADDRESS in the specification dialect asks of the broker beside its tags."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, WaitingOptions
from onward.protocol.broker import (
    NO_ROUTE_KEY,
    AddressFrame,
    Dialect,
    RoutingType,
    WellKnownKey,
    make_tags,
)
from tests.support.rsocket_peer import (
    FNF,
    FORWARDING,
    RR,
    Peer,
    World,
    composite,
    errors,
    in_world,
    request,
)

REJECTED, INVALID = 0x202, 0x204
LB_METHOD = WellKnownKey.LB_METHOD
STICKY = WellKnownKey.STICKY_ROUTE_KEY
SHARD_KEY = WellKnownKey.SHARD_KEY
SHARD_METHOD = WellKnownKey.SHARD_METHOD


def asking(
    routing: RoutingType, hints: tuple[tuple[int | str, str], ...] = (), **tags: str | None
) -> bytes:
    """Return the metadata of a request for service `a`."""
    metadata = tuple((key, text.encode()) for key, text in hints)
    frame = AddressFrame(bytes(16), routing, make_tags({"service": "a", **tags}), metadata=metadata)
    return composite((FORWARDING, frame.serialize(Dialect.SPECIFICATION)))


async def several(w: World, count: int = 3) -> tuple[Peer, list[Peer]]:
    """Return a requester, and destinations with the weights 1, 2, 3 and so on."""
    peers = [
        await w.destination("a", {"weight": str(number)}, route_id=UUID(int=number))
        for number in range(1, count + 1)
    ]
    return await w.requester(), peers


async def places(w: World, requester: Peer, peers: list[Peer], *asked: bytes) -> list[int]:
    """Send requests one by one, and say which destination got each."""
    found = list[int]()
    for metadata in asked:
        stream = 1 + 2 * w.listener.statistics().requests
        requester.send(request(FNF, stream, metadata))
        await w.loop.idle()
        (place,) = [at for at, each in enumerate(peers) if await each.received()]
        found.append(place)
    return found


@pytest.mark.parametrize(
    ("method", "shares"),
    [("Weighted", [2, 4, 6]), ("round_robin", [4, 4, 4]), ("unheard-of", [4, 4, 4])],
)
@in_world()
async def test_the_method_of_a_unicast(w: World, method: str, shares: list[int]) -> None:
    requester, peers = await several(w)
    asked = asking(RoutingType.UNICAST, ((LB_METHOD, method),))
    found = await places(w, requester, peers, *[asked] * 12)
    assert [found.count(place) for place in range(3)] == shares
    assert w.broker.statistics().unknown_methods == (12 if method == "unheard-of" else 0)


@in_world()
async def test_a_sticky_key_stays_and_those_without_take_turns(w: World) -> None:
    requester, peers = await several(w)
    sticky = {user: asking(RoutingType.UNICAST, ((STICKY, "user"),), user=user) for user in "xyz"}
    first = await places(w, requester, peers, *sticky.values())
    assert sorted(first) == [0, 1, 2]
    assert await places(w, requester, peers, sticky["y"], sticky["y"]) == [first[1]] * 2
    found = w.broker.resolve("@sticky=user service=a user=y")
    assert (found.next, found.sticky) == (UUID(int=first[1] + 1), True)
    assert not found.first_use
    found = w.broker.resolve("@sticky=user service=a user=new")
    # Whose turn it is now says nothing: others may take theirs before.
    assert (found.next, found.sticky, found.first_use) == (None, False, True)
    one = w.broker.resolve(f"@sticky=user service=a route={UUID(int=1)} user=new")
    assert (one.next, one.first_use) == (UUID(int=1), False)
    # A key that names no tag is a hint that says nothing.
    loose = asking(RoutingType.UNICAST, ((STICKY, "nobody"),))
    assert sorted(await places(w, requester, peers, loose, loose, loose)) == [0, 1, 2]


@pytest.mark.parametrize("method", ["", "jump", "Bounded_Ring", "modulo"])
@in_world()
async def test_two_keys_of_a_shard_are_one(w: World, method: str) -> None:
    requester, peers = await several(w)
    hints: tuple[tuple[int | str, str], ...] = ((SHARD_KEY, "user"), (SHARD_KEY, "shop"))
    if method:
        hints = (*hints, (SHARD_METHOD, method))
    asked = [
        asking(RoutingType.SHARD, hints, user=user, shop=shop) for user in "1234" for shop in "1234"
    ]
    first = await places(w, requester, peers, *asked)
    assert await places(w, requester, peers, *asked) == first
    # Both count: neither alone says where it goes.
    assert any(len(set(first[at : at + 4])) > 1 for at in range(0, 16, 4))
    assert any(len(set(first[at::4])) > 1 for at in range(4))
    words = f"@method={method} " if method else ""
    text = f"@shard=user @shard=shop {words}service=a user=1 shop=1"
    assert w.broker.resolve(text).next == UUID(int=first[0] + 1)


@pytest.mark.parametrize(
    ("wait", "seconds"), [("reject", 0.0), ("0", 0.0), ("2.5", 2.5), ("wait", 20.0), ("99", 20.0)]
)
@in_world(BrokerOptions(waiting=WaitingOptions(max_wait=20.0)))
async def test_how_long_a_request_waits(w: World, wait: str, seconds: float) -> None:
    requester = await w.requester()
    asked = asking(RoutingType.UNICAST, ((NO_ROUTE_KEY, wait),))
    requester.send(request(RR, 1, asked))
    await w.loop.idle()
    if seconds:
        assert w.broker.statistics().waiting == 1
        await asyncio.sleep(seconds - 0.1)
        assert w.broker.statistics().waiting == 1
        await asyncio.sleep(0.2)
    assert w.broker.statistics().waiting == 0
    ((_, code, _),) = errors(await requester.received())
    assert code == REJECTED


@in_world()
async def test_a_wait_that_cannot_be_read(w: World) -> None:
    requester = await w.requester()
    asked = asking(RoutingType.UNICAST, ((NO_ROUTE_KEY, "soon"),))
    ((_, code, _),) = errors(await requester.ask(request(RR, 1, asked)))
    assert code == INVALID
