"""Tags by which a destination would get requests that are meant for another."""

from __future__ import annotations

from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, WaitingOptions
from tests.support.rsocket_peer import *

ROUTING = b"message/x.rsocket.routing.v0"
SERVICE, ROUTE_ID = 1, 2
REJECTED_SETUP = 0x003
FORMS = ("%s", "Id{%s}", "id{%s}", "{%s}")
KEYS = (
    ROUTE_ID,
    "io.rsocket.routing.RouteId",
    "io.rsocket.broker.RouteId",
    "IO.RSocket.Routing.routeid",
)


def spellings(route: UUID) -> list[str]:
    """Return texts that name a route."""
    bare = [form % text for form in FORMS for text in (str(route), route.hex)]
    return [*bare, *(each.upper() for each in bare)]


def management_of(w: World) -> UUID:
    (found,) = (row for row in w.broker.routes() if row.service.startswith("onward."))
    return found.route_id


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("mime", [BROKER_FRAME, FORWARDING])
@in_world()
async def test_no_route_id_of_another_is_claimed(w: World, key: int | str, mime: bytes) -> None:
    victim = UUID(int=0xABCDEF)
    await w.destination("victim", route_id=victim)
    for theirs in (victim, management_of(w)):
        for text in spellings(theirs):
            impostor = w.connect()
            wanted = route_setup(w.new_id(), "mine", {key: text, 6: "eu"})
            got = await impostor.ask(setup(composite((mime, wanted))))
            ((stream, code, said),) = errors(got)
            assert (stream, code) == (0, REJECTED_SETUP)
            assert "RouteId tag" in said
            assert impostor.closed
    assert w.services() == ["victim"]


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=0)))
async def test_requests_by_id_go_to_the_one_that_has_it_in_any_spelling(w: World) -> None:
    requester, honest = await w.pair("honest")
    route_id = w.row("honest").route_id
    for number, text in enumerate(spellings(route_id)):
        asked = request(RR, 1 + 2 * number, asked_for({ROUTE_ID: text}), b"?")
        assert await requester.ask(asked) == []
        (got,) = await honest.received()
        assert kind_of(got) == RR
        await honest.ask(payload(2 + 2 * number, b"!", N | C))
        assert elements(await requester.received()) == [b"!"]


@in_world()
async def test_a_destination_may_say_its_own_service_and_route_id(w: World) -> None:
    for number, text in enumerate(spellings(UUID(int=77))):
        service = f"s{number}"
        tags: dict[int | str, str] = {SERVICE: service, ROUTE_ID: text}
        peer = await w.destination(service, tags, route_id=UUID(int=77))
        assert w.row(service).route_id == UUID(int=77)
        peer.eof()
        await w.loop.idle()


@pytest.mark.parametrize("key", [SERVICE, "io.rsocket.routing.ServiceName"])
@in_world()
async def test_no_service_of_another_is_claimed_by_a_tag(w: World, key: int | str) -> None:
    impostor = w.connect()
    wanted = route_setup(w.new_id(), "mine", {key: "theirs"})
    ((_, code, text),) = errors(await impostor.ask(setup(composite((BROKER_FRAME, wanted)))))
    assert code == REJECTED_SETUP
    assert "ServiceName tag" in text
    assert w.services() == []


@in_world(BrokerOptions(waiting=WaitingOptions(no_route_timeout=0)))
async def test_a_late_claim_leaves_the_destination_as_it_was(w: World) -> None:
    requester, peer = await w.pair("mine")
    theirs = management_of(w)
    before = w.row("mine")
    claim = route_setup(before.route_id, "mine", {ROUTE_ID: theirs.hex})
    assert await peer.ask(push(composite((BROKER_FRAME, claim)))) == []
    assert w.row("mine") == before
    asked = asked_for({ROUTE_ID: theirs.hex})
    metadata = asked + composite((ROUTING, b"\x0astatistics"))
    (answer,) = elements(await requester.ask(request(RR, 1, metadata)))
    assert b'"routes":2' in answer
