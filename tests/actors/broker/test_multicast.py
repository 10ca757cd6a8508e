"""The multicast forwarder, with what changes between the rule and its turn."""

from __future__ import annotations

from onward.actors.broker import BrokerOptions
from onward.protocol import Address
from tests.support.rsocket_peer import (
    MULTICAST,
    RR,
    C,
    N,
    World,
    asked_for,
    cancel,
    elements,
    in_world,
    payload,
    request,
)

ASKED = asked_for("a", MULTICAST)


@in_world(BrokerOptions(express_path=False))
async def test_destinations_leave_while_a_message_is_with_the_forwarder(w: World) -> None:
    requester, first, second = await w.requester(), await w.destination(), await w.destination()
    requester.send(request(RR, 1, ASKED))
    first.link.session.leave()
    assert len(await second.received()) == 1  # the only one there is
    await second.ask(payload(2, b"x", N | C))
    assert elements(await requester.received()) == [b"x"]
    await w.destination()
    requester.send(request(RR, 3, ASKED))
    for peer in w.peers[2:]:
        peer.link.session.leave()
    await w.loop.idle()
    assert w.broker.statistics().waiting == 1
    late = w.register()
    assert len(await late.received()) == 1
    await late.ask(payload(2, b"y", N | C))
    assert elements(await requester.received()) == [b"y"]


@in_world(BrokerOptions(express_path=False))
async def test_a_request_that_is_cancelled_while_it_is_with_the_forwarder(w: World) -> None:
    requester, first, second = await w.requester(), await w.destination(), await w.destination()
    requester.send(request(RR, 1, ASKED))
    requester.send(cancel(1))
    assert await first.received() == await second.received() == []


@in_world()
async def test_what_follows_the_query_on_the_route_stays(w: World) -> None:
    first, second = await w.destination(), await w.destination()
    w.node.send([Address(32, b"@multicast service=a"), "further"], b"x")
    await w.loop.idle()
    assert await first.received() == await second.received() == []
    assert w.node.dead_letters.total == 2
