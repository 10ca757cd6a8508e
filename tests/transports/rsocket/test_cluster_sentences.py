"""What the specification says of several brokers, as frames between one and a peer broker."""

from __future__ import annotations

import asyncio
from uuid import UUID

from onward.protocol.cluster import MAX_ELEMENT, Element
from tests.support.cluster_frames import *
from tests.support.rsocket_peer import *


async def changes(peer: Peer, seconds: float = 0.1) -> list[bytes]:
    """Return the frames of the route stream that the peer has asked for as number 3."""
    await asyncio.sleep(seconds)
    parts = [each[9:] for each in await peer.received() if kind_of(each) == PAYLOAD]
    return [frame for part in parts for frame in Element.parse(part).frames]


SUBSCRIBED = request(STREAM, 3, routing(ROUTES), NOWHERE, n=100)


@in_world(settles=False)
async def test_each_broker_introduces_itself_to_the_other(w: World) -> None:
    await clustered(w)
    peer, answer = await joined(w)
    # BROKER_INFO: "Broker B would need to send Broker A a BROKER_INFO frame before it can forward
    # requests from A."
    assert answer[:24] == HEADER + b"\x10\x00" + w.broker.broker_id.bytes + answer[22:24]
    assert b"rsocket+tcp://own:1" in answer
    assert peer.link.to_broker


@in_world(settles=False)
async def test_a_broker_is_told_of_another(w: World) -> None:
    dials = await clustered(w, "rsocket+tcp://allowed:*")
    first, _ = await joined(w)
    await joined(w, ANOTHER, "rsocket+tcp://another:1")
    # BROKER_INFO: "may be sent to a third broker".
    (frame,) = [each for each in await first.received() if kind_of(each) == RR]
    assert routing(OTHERS) in frame
    assert broker_info(ANOTHER, "rsocket+tcp://another:1")[:22] in frame
    # And the other way: a broker that is told of another dials it, if that is allowed.
    await first.ask(payload(4, b"", C))
    for number, place in ((3, "allowed"), (5, "forbidden")):
        about = broker_info(UUID(int=0xE0 + number), f"rsocket+tcp://{place}:1")
        assert await first.ask(request(RR, number, routing(OTHERS), about)) == [
            payload(number, b"", N | C)
        ]
    await asyncio.sleep(3)
    assert set(dials.uris) == {"rsocket+tcp://allowed:1"}


@in_world(settles=False)
async def test_a_new_route_is_announced_and_sent_again_to_one_that_asks(w: World) -> None:
    await clustered(w)
    peer, _ = await joined(w)
    await peer.ask(SUBSCRIBED)
    destination = await w.destination("a", {"region": "eu"})
    # Emitting ROUTE_ADD Frames: "Brokers SHOULD send ROUTE_ADD frames to all connected brokers when
    # a new route is established."
    (added,) = await changes(peer)
    assert added[:22] == HEADER + b"\x08\x00" + w.broker.broker_id.bytes
    assert b"\x01a\x06region" in added
    # "They MAY be sent again to a broker that asks for it."
    await peer.ask(cancel(3))
    peer.send(request(STREAM, 5, routing(ROUTES), NOWHERE, n=100))
    assert await changes(peer) == [added]
    # Emitting ROUTE_REMOVE Frames: "MUST be sent when a route is disconnected".
    destination.die()
    (removed,) = await changes(peer)
    assert removed[:38] == HEADER + b"\x0c\x00" + added[6:38]
    assert removed[38:46] > added[38:46]


@in_world(settles=False)
async def test_routes_of_another_broker_are_in_the_table_until_they_are_removed(w: World) -> None:
    await clustered(w)
    peer, _ = await joined(w)
    assert await told(w, peer, element(1, 1, route_add("far"))) == []
    assert w.services() == ["far"]
    # Emitting ROUTE_REMOVE Frames: "Brokers that receive this frame MUST remove the indicated front
    # from their Route table if ROUTE_REMOVE frame's timestamp is newer than the route table's
    # timestamp."
    await told(w, peer, element(2, 2, route_remove(later=-60_000)))
    assert w.services() == ["far"]
    await told(w, peer, element(2, 3, route_remove()))
    assert w.services() == []


@in_world(settles=False)
async def test_brokers_with_one_route_are_told_apart(w: World) -> None:
    await clustered(w)
    first, _ = await joined(w)
    second, _ = await joined(w, ANOTHER)
    await told(w, first, element(1, 1, route_add("older")))
    newer = route_add("newer", home=ANOTHER, later=5)
    await told(w, second, element(1, 1, newer, home=ANOTHER))
    assert w.services() == ["newer"]
    # ROUTE_JOIN: "This is used to distinguish which broker to route to when creating routing
    # tables." A removal is about the route of the broker in it.
    await told(w, first, element(2, 2, route_remove(later=10)))
    assert w.services() == ["newer"]
    await told(w, first, element(2, 3, route_add("older", later=2)))
    removal = route_remove(home=ANOTHER, later=10)
    await told(w, second, element(2, 2, removal, home=ANOTHER))
    assert w.services() == ["older"]


@in_world(settles=False)
async def test_a_newer_connection_at_another_broker_closes_the_one_here(w: World) -> None:
    await clustered(w)
    peer, _ = await joined(w)
    await peer.ask(SUBSCRIBED)
    destination = await w.destination("a", route_id=ROUTE)
    (added,) = await changes(peer)
    assert added[22:38] == ROUTE.bytes
    await told(w, peer, element(1, 1, route_add("a", later=5)))
    # Handling ROUTE_SETUP Frames: "the Broker or Broker cluster MUST close the existing route, and
    # remove it from the table, and replace it with the information from the new ROUTE_SETUP."
    ((stream, _, text),) = errors(await destination.received())
    assert (stream, text) == (0, "replaced by a newer connection")
    assert destination.closed
    (removed,) = await changes(peer)
    assert removed[:38] == HEADER + b"\x0c\x00" + w.broker.broker_id.bytes + ROUTE.bytes
    assert [row.broker for row in w.broker.routes() if row.service == "a"] == [str(THEIRS)]


@in_world(settles=False)
async def test_a_request_goes_to_the_broker_of_the_destination(w: World) -> None:
    await clustered(w)
    peer, _ = await joined(w)
    await told(w, peer, element(1, 1, route_add("far")))
    await peer.received()
    requester = await w.requester()
    assert await requester.ask(request(RR, 1, asked_for("far"), b"data")) == []
    (forwarded,) = await peer.received()
    # Forwarding the Request: to the broker that the destination is connected to, by its RouteId.
    assert kind_of(forwarded) == RR
    assert str(ROUTE).encode() in forwarded
    assert forwarded.endswith(b"data")
    answer = payload(stream_of(forwarded), b"answer", N | C)
    await peer.ask(answer)
    assert await requester.received() == [restamped(answer, 1)]


@in_world(settles=False)
async def test_an_element_that_is_too_long_ends_the_link_unread(w: World) -> None:
    await clustered(w)
    peer, _ = await joined(w)
    await told(w, peer, element(1, 1, route_add("far")))
    ((stream, _, text),) = errors(await peer.ask(payload(2, bytes(MAX_ELEMENT + 1), N)))
    assert (stream, "more than" in text) == (0, True)
    await w.loop.idle()
    assert peer.closed
    assert w.services() == []
