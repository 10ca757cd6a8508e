"""Links of clients that go through to a container, at one node and over several."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cbor2 import dumps

from onward.actors.dispatch import CircuitClosed, CircuitConsumer, CircuitProducer
from onward.protocol.dispatch import (
    MAX_UNSETTLED,
    Access,
    CircuitCondition,
    Disposition,
    Mechanism,
    Reattach,
    Rejected,
    Semantics,
    encode_disposition,
)
from onward.protocol.security import ANONYMOUS, Principal
from onward.transports.amqp import AutoLink, LinkRoute
from onward.transports.amqp._deliveries import Delivery, load_binding
from onward.transports.amqp._routed import CONDITIONS
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.circuit_ends import KeptEnd
from tests.support.amqp import OPTIONS, Edge, needs_proton, refusal
from tests.support.amqp_chain import CIRCUITS, Chain, Program, dispose, over_three, seen, state
from tests.support.virtual import virtual_time

pytestmark = pytest.mark.peer
proton = needs_proton()


def authenticated(chain: Chain, count: int) -> list[Edge]:
    """Return clients that are not anonymous, and so have no share together."""
    return [chain.edges(principal=Principal(f"client {each}", "test")) for each in range(count)]


async def test_credit_of_the_container_is_that_of_the_client(chain: Chain) -> None:
    edge = chain.edges()
    container = chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    assert (state(link), link.credit) == ("active", 0)
    (at_container,) = container.links
    assert at_container.remote_target.address == "jobs"
    at_container.flow(7)
    chain.pump()
    assert link.credit == 7
    for each in range(3):
        edge.client.send(link, edge.client.message(each))
    chain.pump()
    assert len(container.received) == 3
    at_container.flow(7)
    chain.pump()
    assert link.credit == 11


async def test_credit_of_the_client_is_that_of_the_container(chain: Chain) -> None:
    edge = chain.edges()
    container = chain.container(LinkRoute("jobs", "queue"))
    link = edge.client.receiver("jobs", credit=3)
    chain.pump()
    (at_container,) = container.links
    assert at_container.remote_source.address == "queue"
    assert link.remote_source.address == "jobs"
    assert at_container.credit == 3
    link.flow(7)
    chain.pump()
    assert at_container.credit == 10
    for each in range(4):
        at_container.send(proton.Message(each))
    chain.pump()
    assert edge.client.bodies == [0, 1, 2, 3]
    assert (link.credit, at_container.credit) == (6, 6)


STATES = {
    "ACCEPTED": (0x24, None),
    "RELEASED": (0x26, None),
    "REJECTED": (0x25, ("shop:closed", "come back", {"hour": 9})),
    "MODIFIED": (0x27, (True, True, {"x-tries": 3})),
    "RECEIVED": (0x23, (1, 12)),
    "DECLARED": (0x33, [b"tx-1"]),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("sends", ["client", "container"])
async def test_states_pass_as_they_are(chain: Chain, name: str, sends: str) -> None:
    edge, container = chain.edges(), chain.container()
    edge.client.accepts = False
    if sends == "client":
        link = edge.client.sender("jobs")
        chain.pump()
        container.links[0].flow(1)
        chain.pump()
        sent = edge.client.send(link, edge.client.message("a"))
        chain.pump()
        got = container.received[0][0]
    else:
        edge.client.receiver("jobs", credit=1)
        chain.pump()
        sent = container.links[0].send(proton.Message("a"))
        chain.pump()
        got = edge.client.received[0][0]
    assert (got.settled, sent.settled) == (False, False)
    dispose(got, name, settles=False)
    chain.pump()
    code, more = STATES[name]
    assert (sent.remote_state, seen(sent), sent.settled) == (code, more, False)
    got.settle()
    chain.pump()
    assert sent.settled


async def test_a_rejection_with_a_long_text_stays_one(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    edge.client.accepts = False
    link = edge.client.sender("jobs")
    chain.pump()
    container.links[0].flow(1)
    chain.pump()
    sent = edge.client.send(link, edge.client.message("a"))
    chain.pump()
    got = container.received[0][0]
    got.local.condition = proton.Condition("c" * 200, "x" * 2000)
    got.update(proton.Delivery.REJECTED)
    got.settle()
    chain.pump()
    assert sent.remote_state == proton.Delivery.REJECTED
    found = sent.remote.condition
    assert (found.name, found.description) == ("c" * 128, "x" * 256)


async def test_the_one_that_sends_may_settle_last(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    container.links[0].flow(1)
    chain.pump()
    sent = edge.client.send(link, edge.client.message("a"))
    chain.pump()
    got = container.received[0][0]
    dispose(got, "ACCEPTED", settles=False)
    chain.pump()
    assert (sent.remote_state, got.settled) == (0x24, False)
    sent.settle()
    chain.pump()
    assert got.settled


async def test_the_one_that_sends_may_settle_first(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    container.links[0].flow(1)
    chain.pump()
    sent = edge.client.send(link, edge.client.message("a"))
    chain.pump()
    got = container.received[0][0]
    assert not got.settled
    sent.settle()
    chain.pump()
    # It keeps nothing of the delivery, and an outcome that comes later goes nowhere.
    assert got.settled
    dispose(got, "REJECTED")
    chain.pump()
    assert sent.remote_state == 0
    assert (edge.engine.closed, container.engine.closed) == ("", "")


@pytest.mark.parametrize("tag", [b"a", b"\xff\x00\xfe", b"t" * 32])
async def test_tags_pass_as_they_are(chain: Chain, tag: bytes) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    container.links[0].flow(1)
    chain.pump()
    delivery = link.delivery(tag)
    link.stream(edge.client.message("a"))
    link.advance()
    chain.pump()
    assert [Delivery(load_binding(), each._impl).tag for each, _ in container.received] == [tag]
    dispose(container.received[0][0], "ACCEPTED")
    chain.pump()
    assert (delivery.remote_state, delivery.settled) == (0x24, True)


async def test_a_pre_settled_message_stays_so(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    back = edge.client.receiver("jobs")
    chain.pump()
    first, second = container.links
    first.flow(1)
    chain.pump()
    edge.client.send(link, edge.client.message("a"), settled=True)
    chain.pump()
    assert container.received[0][0].settled
    sent = second.send(proton.Message("b"))
    sent.settle()
    chain.pump()
    assert edge.client.received[0][0].settled
    assert back.credit == 9


# --- streaming ----------------------------------------------------------------------------------


async def test_a_message_goes_on_as_it_arrives(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    container.links[0].flow(2)
    chain.pump()
    # It is larger than any message that is gathered: here are but 20,000 bytes allowed.
    message = edge.client.message(b"x" * 300_000)
    edge.client.begin(link, message[:100_000])
    chain.pump()
    assert sum(map(len, container.parts)) == 100_000
    link.stream(message[100_000:])
    link.advance()
    edge.client.send(link, edge.client.message("next"))
    chain.pump()
    assert [data for _, data in container.received] == [message, edge.client.message("next")]
    assert (edge.dropped, container.dropped) == ({}, {})


async def test_a_message_to_a_client_goes_on_as_it_arrives(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    edge.client.receiver("jobs")
    chain.pump()
    (at_container,) = container.links
    at_container.delivery("a")
    message = edge.client.message(b"y" * 200_000)
    for at in range(0, len(message), 20_000):
        at_container.stream(message[at : at + 20_000])
        chain.pump()
    assert edge.client.received == []
    at_container.advance()
    chain.pump()
    assert [data for _, data in edge.client.received] == [message]


async def test_a_client_that_does_not_read_holds_back_no_other_however_much_waits_for_it(
    chain: Chain,
) -> None:
    edge, other, container = chain.edges(), chain.edges(), chain.container()
    edge.client.receiver("jobs")
    other.client.receiver("jobs")
    chain.pump()
    slow, quick = container.links
    # It is more than the sessions of the connection take.
    message = edge.client.message(b"x" * 3_000_000)
    slow.delivery("a")
    slow.stream(message)
    slow.advance()
    for _ in range(10):
        container.pump()
        other.pump()
    for each in range(3):
        quick.send(proton.Message(each))
    for _ in range(10):
        container.pump()
        other.pump()
    assert other.client.bodies == [0, 1, 2]
    sessions: list[Any] = list(container.engine._sessions)
    assert sum(each.incoming_bytes for each in sessions) <= 256 * OPTIONS.max_frame
    for _ in range(20):
        chain.pump()
    assert [data for _, data in edge.client.received] == [message]


async def test_the_session_of_a_link_through_to_a_container_ends_with_it(chain: Chain) -> None:
    edge, container = (
        chain.edges(),
        chain.container(AutoLink("in", "queue", "a"), LinkRoute("jobs")),
    )
    links = [edge.client.sender("jobs") for _ in range(3)]
    chain.pump()
    assert len(container.engine._sessions) == 4
    assert len({each.session for each in container.links}) == 4
    links[0].close()
    # One session is ended by the container: its link is lost, and no other.
    container.links[2].session.close()
    chain.pump()
    assert [state(each) for each in links] == ["closed", "closed", "active"]
    assert refusal(links[1])[0] == "amqp:link:detach-forced"
    assert (len(container.engine._sessions), container.engine.closed) == (2, "")
    assert container.edge.circuits == 1


async def test_a_container_with_few_sessions_has_several_links_in_one(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container(channel_max=1)
    links = [edge.client.sender("jobs") for _ in range(4)]
    chain.pump()
    assert [state(each) for each in links] == ["active"] * 4
    assert len(container.engine._sessions) == 2
    for each in links:
        each.close()
    chain.pump()
    assert (len(container.engine._sessions), container.engine.closed) == (1, "")


@pytest.mark.parametrize("how", ["abort", "vanish", "container"])
async def test_a_message_that_is_cut_short_is_aborted_and_counted(chain: Chain, how: str) -> None:
    edge, other, container = chain.edges(), chain.edges(), chain.container()
    link, good = edge.client.sender("jobs"), other.client.sender("jobs")
    chain.pump()
    for each in container.links:
        each.flow(5)
    chain.pump()
    part = edge.client.begin(link, b"x" * 5000)
    chain.pump()
    if how == "abort":
        part.abort()
    elif how == "vanish":
        edge.cut()
    else:
        container.links[0].close()
    chain.pump()
    assert container.aborted == 1
    expected = {"abort": "aborted", "vanish": "cut short", "container": "cut short"}
    assert container.dropped == {expected[how]: 1}
    assert edge.dropped == {expected[how]: 1}
    # Nothing of it has reached the link of another client.
    other.client.send(good, other.client.message("a"))
    if how == "abort":
        edge.client.send(link, edge.client.message("b"))
    chain.pump()
    assert len(container.received) == (2 if how == "abort" else 1)


async def test_a_client_that_does_not_read_holds_back_the_container(chain: Chain) -> None:
    edge, other, container = chain.edges(), chain.edges(), chain.container()
    edge.client.receiver("jobs")
    other.client.receiver("jobs")
    chain.pump()
    slow, quick = container.links
    message = edge.client.message(b"x" * 200_000)
    slow.delivery("a")
    slow.stream(message)
    slow.advance()
    for each in range(3):
        quick.send(proton.Message(each))
    for _ in range(10):
        container.pump()
        other.pump()
    # At most a window is kept for the client that is not pumped, and another one goes on.
    assert 0 < edge.engine.unsent() <= 12_500 + 8192
    assert other.client.bodies == [0, 1, 2]
    chain.pump()
    assert [data for _, data in edge.client.received] == [message]
    assert (edge.dropped, container.dropped) == ({}, {})


async def test_a_program_that_floods_a_client_loses_the_circuit(chain: Chain) -> None:
    program = Program(chain.dispatcher)
    edge = chain.edges()
    link = edge.client.receiver("jobs")
    chain.pump()
    for _ in range(3):
        program.link.send(b"a", b"x" * 20_000, more=True)
    chain.pump()
    assert refusal(link) == ("amqp:resource-limit-exceeded", "the receiver does not read")
    assert edge.dropped == {"not read": 1, "cut short": 1}
    assert program.told[-1] == ("down", "amqp:resource-limit-exceeded")
    assert edge.engine.closed == ""


async def test_a_program_may_be_the_other_end(chain: Chain) -> None:
    program = Program(chain.dispatcher)
    edge = chain.edges()
    link = edge.client.sender("jobs")
    chain.pump()
    assert program.told == [("attached", True)]
    program.link.grant(2)
    chain.pump()
    assert link.credit == 2
    delivery = link.delivery("a")
    link.stream(edge.client.message("hello"))
    link.advance()
    chain.pump()
    assert program.told[-1] == ("transfer", b"a", 18, False, False, False)
    program.link.dispose(b"a", encode_disposition(Disposition(Rejected("shop:closed", "why"))))
    chain.pump()
    found = delivery.remote.condition
    assert (found.name, found.description) == ("shop:closed", "why")
    # States that are none leave a delivery as it is.
    delivery = link.delivery("b")
    link.stream(edge.client.message("hello"))
    link.advance()
    chain.pump()
    for each in (b"\xff", b"\0", b"\0\xd0", b"\0\x40"):
        program.link.dispose(b"b", each, settled=False)
    chain.pump()
    assert (delivery.remote_state, delivery.settled) == (0, False)
    program.link.detach()
    chain.pump()
    assert state(link) == "closed" or "link_remote_detach" in edge.client.events


def attach_as(**changed: Any) -> bytes:
    """Return the properties of a circuit to a link, of which some values are others."""
    items = {
        "version": 1,
        "window": 1000,
        "sender": 2,
        "receiver": 0,
        "most": 0,
        "source": [1, "jobs", 0, 1, 0, 0, False, b"", b"", b"", b""],
        "target": [2, "jobs", 0, 1, 0, 0, False, b"", b"", b"", b""],
        "properties": b"",
    }
    return dumps(list({**items, **changed}.values()))


def terminus(**changed: Any) -> list[Any]:
    """Return a source, of which some values are others."""
    items = {
        "type": 1,
        "address": "jobs",
        "durability": 0,
        "expiry": 1,
        "timeout": 0,
        "mode": 0,
        "dynamic": False,
        "properties": b"",
        "capabilities": b"",
        "outcomes": b"",
        "filter": b"",
    }
    return list({**items, **changed}.values())


def encoded(value: Any) -> bytes:
    data = proton.Data()
    data.put_object(value)
    return bytes(data.encode())


NO_TEXT = b"\xc1\x07\x02\xa1\x02\xff\xfe\xa1\x00"  # a map with a text that is none

ATTACHES: dict[str, dict[str, Any]] = {
    "no values": {"properties": b"\xff\xff"},
    "several values": {"properties": encoded({"a": 1}) * 2},
    "no text": {"properties": NO_TEXT},
    "no map": {"properties": encoded([1, 2])},
    "a key that cannot be one": {"properties": b"\xc1\x04\x02\x45\xa1\x00"},
    "settles": {"sender": 3},
    "negative": {"receiver": -1},
    "greatest message": {"most": -1},
    "type": {"source": terminus(type=4)},
    "expiry": {"target": terminus(expiry=77)},
    "timeout": {"target": terminus(timeout=1 << 32)},
    "mode": {"source": terminus(mode=-1)},
    "filter": {"source": terminus(filter=b"\xd1\x00\x00")},
}


@pytest.mark.parametrize("wrong", ATTACHES)
@pytest.mark.parametrize("which", ["sender", "receiver"])
async def test_an_attach_that_cannot_be_written_ends_its_link_alone(
    chain: Chain, which: str, wrong: str
) -> None:
    attach = attach_as(**ATTACHES[wrong])
    program = Program(chain.dispatcher, properties=attach)
    edge = chain.edges()
    good, link = edge.client.receiver("orders"), getattr(edge.client, which)("jobs")
    chain.pump()
    assert refusal(link) == ("amqp:decode-error", "the attach of the other end is none")
    assert (link.remote_target if which == "sender" else link.remote_source).type == 0
    link.close()
    chain.pump()
    assert (edge.engine.closed, state(good)) == ("", "active")
    assert program.told[-1] == ("down", "amqp:decode-error")
    assert chain.dispatcher.statistics().circuits == 0


@pytest.mark.parametrize("wrong", ATTACHES)
@pytest.mark.parametrize("producer", [True, False])
async def test_an_attach_that_cannot_be_written_does_not_reach_a_container(
    chain: Chain, producer: bool, wrong: str
) -> None:
    container = chain.container()
    end = KeptEnd()
    attach = attach_as(**ATTACHES[wrong])
    chain.dispatcher.open_circuit("jobs", end, producer=producer, properties=attach)
    chain.pump()
    assert end.last() == ("refused", "amqp:decode-error", "the attach of the other end is none")
    assert (container.engine.closed, container.links, container.edge.circuits) == ("", [], 0)


async def test_what_is_too_large_for_the_frames_of_a_client_ends_its_link_alone(
    chain: Chain,
) -> None:
    large = attach_as(properties=encoded({"x": "y" * 5000}))
    program = Program(chain.dispatcher, properties=large)
    Program(chain.dispatcher, "jobs/small")
    edge = chain.edges(max_frame=512)
    link, good = edge.client.sender("jobs"), edge.client.sender("jobs/small")
    chain.pump()
    assert refusal(link)[0] == "amqp:frame-size-too-small"
    assert program.told[-1] == ("down", "amqp:frame-size-too-small")
    assert (edge.engine.closed, state(good)) == ("", "active")
    # So do a text and the fields of a state: the first is cut, the others are left out.
    program = Program(chain.dispatcher, "jobs/other")
    link = edge.client.sender("jobs/other")
    chain.pump()
    program.link.grant(3)
    chain.pump()
    sent = [edge.client.send(link, edge.client.message(each)) for each in range(3)]
    chain.pump()
    tags = [each[1] for each in program.told if each[0] == "transfer"]
    more = {"x": "y" * 500}
    rejected = [0x25, "shop:closed", "\u20ac" * 60, more]
    for tag, each in zip(
        tags, (rejected, [0x27, True, True, more], [0x33, [b"x" * 500]]), strict=True
    ):
        program.link.dispose(tag, b"\0" + encoded(each))
    chain.pump()
    found = sent[0].remote.condition
    assert (found.name, found.info) == ("shop:closed", None)
    assert found.description == "\u20ac" * 60
    assert (sent[1].remote_state, sent[1].remote.annotations) == (0x27, None)
    assert [each.settled for each in sent] == [True, True, True]
    program.link.detach(closed=True, condition="c" * 128, description="\u20ac" * 170)
    chain.pump()
    name, text = refusal(link)
    assert (name, text) == ("c" * 128, "\u20ac" * ((512 - 128 - 128) // 3))
    assert (edge.engine.closed, state(good)) == ("", "active")


# --- drain --------------------------------------------------------------------------------------


async def test_a_drain_of_a_client_goes_to_the_container(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.receiver("jobs", credit=0)
    chain.pump()
    (at_container,) = container.links
    link.drain(20)
    chain.pump()
    assert (at_container.credit, at_container.drain_mode) == (20, True)
    for each in range(6):
        at_container.send(proton.Message(each))
    chain.pump()
    assert (edge.client.bodies, link.credit) == ([0, 1, 2, 3, 4, 5], 14)
    at_container.drained()
    chain.pump()
    assert (link.credit, link.drained()) == (0, 14)
    # New credit flows afterwards.
    link.drain_mode = False
    link.flow(2)
    chain.pump()
    assert (at_container.credit, at_container.drain_mode) == (2, False)


async def test_a_drain_of_the_container_goes_to_the_client(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    (at_container,) = container.links
    at_container.drain(5)
    chain.pump()
    assert (link.credit, link.drain_mode) == (5, True)
    edge.client.send(link, edge.client.message("a"))
    chain.pump()
    link.drained()
    chain.pump()
    assert (at_container.credit, len(container.received)) == (0, 1)
    at_container.drain_mode = False
    at_container.flow(3)
    chain.pump()
    assert (link.credit, link.drain_mode) == (3, False)


# --- attach and detach --------------------------------------------------------------------------


async def test_an_attach_passes_as_it_is(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.session.receiver("r")
    link.source.address = "jobs"
    link.source.capabilities.put_object(proton.symbol("queue"))
    link.source.filter.put_object({proton.symbol("selector"): "a = 1"})
    link.source.distribution_mode = proton.Terminus.DIST_MODE_COPY
    link.properties = {proton.symbol("x-who"): "me"}
    link.snd_settle_mode = proton.Link.SND_UNSETTLED
    link.rcv_settle_mode = proton.Link.RCV_SECOND
    link.max_message_size = 12345
    link.open()
    chain.pump()
    (at_container,) = container.links
    source = at_container.remote_source
    for data, expected in (
        (source.capabilities, "queue"),
        (source.filter, {"selector": "a = 1"}),
        (link.remote_source.filter, {"selector": "a = 1"}),
    ):
        data.rewind()
        data.next()
        assert data.get_object() == expected
    assert source.distribution_mode == proton.Terminus.DIST_MODE_COPY
    assert at_container.remote_properties == {"x-who": "me"}
    assert at_container.remote_snd_settle_mode == proton.Link.SND_UNSETTLED
    assert at_container.remote_rcv_settle_mode == proton.Link.RCV_SECOND
    assert at_container.remote_max_message_size == 12345


@pytest.mark.parametrize("which", ["sender", "receiver"])
async def test_a_container_refuses_with_its_own_reason(chain: Chain, which: str) -> None:
    edge, container = chain.edges(), chain.container()
    container.refuses = "shop:closed", "come back tomorrow"
    link = getattr(edge.client, which)("jobs")
    good = edge.client.receiver("orders")
    chain.pump()
    assert refusal(link) == ("shop:closed", "come back tomorrow")
    assert (link.remote_target if which == "sender" else link.remote_source).type == 0
    assert state(good) == "active"
    link.close()
    chain.pump()
    assert container.edge.circuits == 0


async def test_without_a_container_there_is_no_link(chain: Chain) -> None:
    edge = chain.edges()
    link = edge.client.sender("jobs")
    chain.pump()
    assert refusal(link) == ("amqp:not-found", "no container has this name")
    container = chain.container()
    again = edge.client.sender("jobs")
    chain.pump()
    assert state(again) == "active"
    assert container.edge.circuits == 1


@pytest.mark.parametrize("how", ["close", "detach"])
@pytest.mark.parametrize("first", ["client", "container"])
async def test_an_end_passes_as_it_is(chain: Chain, how: str, first: str) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.receiver("jobs")
    chain.pump()
    (at_container,) = container.links
    one, other, events = (
        (link, at_container, container.events)
        if first == "client"
        else (at_container, link, edge.client.events)
    )
    one.condition = proton.Condition("shop:closed", "enough")
    one._update_cond()  # which its detach leaves out
    getattr(one, how)()
    chain.pump()
    assert refusal(other) == ("shop:closed", "enough")
    assert f"link_remote_{how}" in events
    if first == "container":
        getattr(other, how)()
        chain.pump()
    # The other end has answered.
    assert f"link_remote_{how}" in (edge.client.events if first == "client" else container.events)
    assert container.edge.circuits == 0
    assert edge.engine.closed == container.engine.closed == ""


async def test_a_client_may_go_before_the_container_has_answered(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    container.answers = False
    link = edge.client.sender("jobs")
    chain.pump()
    assert state(link) == "uninit"
    link.close()
    chain.pump()
    (at_container,) = container.links
    at_container.source.copy(at_container.remote_source)
    at_container.target.copy(at_container.remote_target)
    at_container.open()
    chain.pump()
    assert state(link) == "closed"
    assert state(at_container) == "closed"
    assert container.edge.circuits == 0


async def test_circuits_that_are_over_are_kept_in_no_schedule(chain: Chain) -> None:
    edge = chain.edges()
    chain.container()
    times = chain.dispatcher._core.schedule
    for _ in range(100):
        link = edge.client.sender("jobs")
        chain.pump()
        link.close()
        chain.pump()
    # Some times of no use are kept, and no more the more circuits there were.
    assert len(times) < 80
    assert edge.engine.closed == ""


async def test_a_lost_container_detaches_the_links_of_clients(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    links = [edge.client.sender("jobs"), edge.client.receiver("jobs")]
    chain.pump()
    container.links[0].flow(5)
    chain.pump()
    sent = edge.client.send(links[0], edge.client.message("a"))
    chain.pump()
    container.cut()
    chain.pump()
    assert not sent.remote_state
    for link in links:
        assert refusal(link) == (
            "amqp:link:detach-forced",
            "the way to the other end is lost",
        )
        link.close()
    chain.pump()
    assert edge.engine.closed == ""


@pytest.mark.parametrize("how", ["connection", "session"])
async def test_a_lost_client_ends_its_links_at_the_container(chain: Chain, how: str) -> None:
    edge, container = chain.edges(), chain.container()
    edge.client.sender("jobs")
    edge.client.receiver("jobs")
    chain.pump()
    if how == "connection":
        edge.cut()
    else:
        edge.client.session.close()
    chain.pump()
    assert [refusal(each)[0] for each in container.links] == ["amqp:link:detach-forced"] * 2
    assert container.edge.circuits == 0
    assert container.engine.closed == ""


async def test_a_coordinator_goes_to_its_container(chain: Chain) -> None:
    chain.dispatcher.provision("$coordinator", CIRCUITS)
    edge = chain.edges()
    container = chain.container(LinkRoute("$coordinator", ""))
    link = edge.client.session.sender("tx")
    link.target.type = proton.Terminus.COORDINATOR
    link.open()
    chain.pump()
    (at_container,) = container.links
    assert at_container.remote_target.type == proton.Terminus.COORDINATOR
    assert state(link) == "active"


async def test_more_transfers_than_credit_end_the_link(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    container.links[0].flow(1)
    chain.pump()
    # Proton's own client keeps to its credit: it is given more than the container knows.
    (at_edge,) = [each._link for each in edge.links._links.values()]
    at_edge.flow(1)
    edge.pump()
    for each in range(2):
        edge.client.send(link, edge.client.message(each))
    chain.pump()
    assert len(container.received) == 1
    assert edge.engine.closed == ""


async def test_a_producer_has_no_more_credit_than_both_ends_bear_unsettled(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    container.links[0].flow(MAX_UNSETTLED + 100)
    chain.pump()
    assert link.credit == MAX_UNSETTLED
    for each in range(3):
        edge.client.send(link, edge.client.message(each))
    chain.pump()
    assert link.credit == MAX_UNSETTLED - 3
    for delivery, _ in container.received[:2]:
        dispose(delivery, "ACCEPTED")
    chain.pump()
    assert link.credit == MAX_UNSETTLED - 1
    # What is over is given back with the rest.
    container.links[0].drain(0)
    chain.pump()
    link.drained()
    chain.pump()
    assert (link.credit, container.links[0].credit) == (0, 0)


async def test_a_container_has_so_many_links(chain: Chain) -> None:
    edges = authenticated(chain, 3)
    chain.container(options=replace(OPTIONS, max_links=2))
    links = [each.client.sender("jobs") for each in edges]
    chain.pump()
    assert [state(each) for each in links[:2]] == ["active", "active"]
    assert refusal(links[2]) == ("amqp:resource-limit-exceeded", "too many links")
    assert chain.containers[0].engine.closed == ""
    with pytest.raises(ValueError, match="needs a name"):
        LinkRoute("")


@pytest.mark.parametrize("how", ["close", "detach"])
async def test_links_of_the_node_keep_their_places_among_circuits(chain: Chain, how: str) -> None:
    auto = AutoLink("out", "queue", "orders")
    container = chain.container(LinkRoute("jobs"), auto, options=replace(OPTIONS, max_links=3))
    edges = authenticated(chain, 3)
    first = edges[0].client.sender("jobs")
    chain.pump()
    at_container = next(each for each in container.links if each.is_receiver)
    getattr(at_container, how)()
    chain.pump()
    assert (container.ended, container.edge.attached) == ([auto], 0)
    # While the link is away, links of clients do not take its place.
    others = [each.client.sender("jobs") for each in edges[1:]]
    chain.pump()
    assert state(others[0]) == "active"
    assert refusal(others[1]) == ("amqp:resource-limit-exceeded", "too many links")
    container.edge.begin(auto)
    chain.pump()
    assert (container.engine.closed, container.edge.attached) == ("", 1)
    assert (container.edge.circuits, container.refused) == (2, 1)
    names = [each.name for each in container.links]
    assert len(set(names)) == len(names) == 4
    assert state(first) == "active"


async def test_what_a_container_says_of_an_end_is_one_short_line(chain: Chain) -> None:
    container = chain.container(AutoLink("in", "queue", "orders"))
    for said in ("a\nb", "c" * 300):
        container.links[-1].condition = proton.Condition(said)
        container.links[-1].close()
        chain.pump()
        container.edge.begin(container.ended[-1])
        chain.pump()
    assert container.reasons == ["'a\\nb'", "c" * 100]


async def test_a_container_that_attaches_too_many_links_ends_its_connection(chain: Chain) -> None:
    container = chain.container(
        LinkRoute("jobs"),
        AutoLink("in", "queue", "orders"),
        options=replace(OPTIONS, max_links=3),
    )
    edges = [chain.edges() for _ in range(2)]
    links = [each.client.sender("jobs") for each in edges]
    chain.pump()
    assert [state(each) for each in links] == ["active", "active"]
    container.connection.session_head(0).sender("own").open()
    chain.pump()
    assert container.engine.closed == "amqp:resource-limit-exceeded"


async def test_a_route_that_ends_is_forgotten_and_served_again(chain: Chain) -> None:
    route = LinkRoute("jobs")
    container = chain.container(route)
    for each in range(1, 4):
        chain.dispatcher.update("jobs/#", Semantics())
        assert container.ended == [route] * each
        chain.dispatcher.update("jobs/#", CIRCUITS)
        container.edge.begin(route)
    assert container.edge.routes == 1
    link = chain.edges().client.sender("jobs")
    chain.pump()
    assert state(link) == "active"
    container.cut()
    assert container.edge.routes == 0
    assert chain.dispatcher.names() == []


async def test_a_program_waits_with_what_a_slow_client_has_not_asked_for(chain: Chain) -> None:
    sends: list[asyncio.Task[Any]] = []

    async def serve(circuit: CircuitProducer | CircuitConsumer) -> None:
        assert isinstance(circuit, CircuitProducer)
        sends.extend(asyncio.create_task(circuit.send(b"x" * 1000)) for _ in range(50))
        await asyncio.gather(*sends, return_exceptions=True)

    chain.dispatcher.serve("jobs", serve)
    edge = chain.edges()
    link = edge.client.receiver("jobs", credit=3)
    chain.pump()
    for _ in range(20):
        await sleep(0)
    # Three have gone to the edge, which the client has not read; the others wait for credit.
    assert 3000 <= edge.engine.unsent() <= 4000
    chain.pump()
    for _ in range(20):
        await sleep(0)
    assert len(edge.client.received) == sum(each.done() for each in sends) == 3
    link.flow(2)
    for _ in range(3):
        chain.pump()
        await sleep(0)
    assert len(edge.client.received) == 5
    link.close()
    chain.pump()
    outcomes = await asyncio.gather(*sends, return_exceptions=True)
    assert sum(isinstance(each, CircuitClosed) for each in outcomes) == 45


@pytest.mark.parametrize("who", [ANONYMOUS, Principal("ann", "test")])
async def test_a_client_has_a_share_of_the_links_of_a_container(
    chain: Chain, who: Principal
) -> None:
    routes = LinkRoute("jobs"), LinkRoute("jobs/new")
    container = chain.container(*routes, options=replace(OPTIONS, max_links=8))
    edge, second, other = (chain.edges(principal=each) for each in (who, who, ANONYMOUS))
    # 25 % of 8: of a connection, or of a principal with all its connections.
    links = [edge.client.sender("jobs"), edge.client.receiver("jobs/new")]
    chain.pump()
    last = edge.client.sender("jobs/new")
    alike = second.client.sender("jobs")
    chain.pump()
    assert [state(each) for each in links] == ["active", "active"]
    full = "amqp:resource-limit-exceeded", "a share of the circuits is used up"
    assert refusal(last) == full
    assert (state(alike) == "active") is (who is ANONYMOUS)
    free = other.client.sender("jobs")
    chain.pump()
    assert state(free) == "active"
    counts = chain.dispatcher.statistics().counts
    assert counts["circuits refused: circuit-share-full"] == (1 if who is ANONYMOUS else 2)
    links[0].close()
    chain.pump()
    again = edge.client.sender("jobs")
    chain.pump()
    assert state(again) == "active"
    assert container.edge.circuits == (4 if who is ANONYMOUS else 3)
    assert [each.engine.closed for each in chain.edges.made] == ["", "", ""]


async def test_links_of_roles_and_of_messages(
    chain: Chain, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Access(producers=frozenset({"shop"}))
    chain.dispatcher.provision("jobs/closed", Semantics(mechanism=Mechanism.LINK, access=shop))
    edge = chain.edges()
    closed = edge.client.sender("jobs/closed")
    chain.container(LinkRoute("orders"), AutoLink("in", "queue", "jobs"))
    chain.pump()
    assert refusal(closed)[0] == "amqp:unauthorized-access"
    # A name takes either messages or links: both plans have ended, and are tried again later.
    assert len(chain.containers[0].ended) == 2
    assert not chain.containers[0].over
    told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    why = 'the name is not provisioned here with mechanism = "link", or not yet'
    assert told == [f"links of orders do not go through to a container: {why}"]


def test_each_reason_of_a_node_has_a_condition_on_the_page() -> None:
    assert set(CONDITIONS) == set(CircuitCondition)
    page = (Path(__file__).parents[3] / "docs/reference/transports-amqp.md").read_text()
    assert [each for each in CircuitCondition if f"`{each.value}`" not in page] == []


# --- over several nodes -------------------------------------------------------------------------


@virtual_time
async def test_a_link_over_three_nodes() -> None:
    async with SimulatedNetwork() as network:
        far = await over_three(network, CIRCUITS)
        edge, container = far.near.edges(), far.far.container()
        await far.pump()
        link = edge.client.sender("jobs")
        back = edge.client.receiver("jobs", credit=3)
        await far.pump()
        first, second = container.links
        first.flow(7)
        await far.pump()
        assert (link.credit, second.credit) == (7, 3)
        message = edge.client.message(b"x" * 50_000)
        sent = edge.client.send(link, message)
        second.send(proton.Message("answer"))
        await far.pump(60)
        assert [data for _, data in container.received] == [message]
        assert edge.client.bodies == ["answer"]
        dispose(container.received[0][0], "REJECTED")
        await far.pump()
        assert (seen(sent), sent.settled) == (STATES["REJECTED"][1], True)
        # A link between nodes is lost: both ends are told, and their connections stay.
        await far.net.cut("b", "c")
        await far.pump()
        for each in (link, back, first, second):
            assert refusal(each)[0] == "amqp:link:detach-forced"
        assert edge.engine.closed == container.engine.closed == ""
        far.cut()


@virtual_time
async def test_three_acknowledgements_over_three_nodes() -> None:
    async with SimulatedNetwork() as network:
        far = await over_three(network, CIRCUITS)
        edge, container = far.near.edges(), far.far.container()
        await far.pump()
        link = edge.client.sender("jobs")
        link.rcv_settle_mode = 1  # the receiver settles second
        await far.pump()
        container.links[0].flow(5)
        await far.pump()
        messages = [edge.client.message(f"{each}") for each in range(5)]
        sent = [edge.client.send(link, each) for each in messages]
        await far.pump()
        got = [delivery for delivery, _ in container.received]
        assert [data for _, data in container.received] == messages
        for each in reversed(got):
            dispose(each, "ACCEPTED", settles=False)
        await far.pump()
        # The producer sees what the consumer says, and the consumer waits for it.
        assert [each.remote_state for each in sent] == [proton.Delivery.ACCEPTED] * 5
        assert not any(each.settled for each in (*sent, *got))
        sent[3].settle()
        await far.pump()
        assert [each.settled for each in got] == [False, False, False, True, False]
        got[3].settle()
        for each in (*sent[:3], sent[4]):
            each.settle()
        await far.pump()
        assert all(each.settled for each in got)
        far.cut()


@virtual_time
@pytest.mark.parametrize("reattach", [Reattach.AGAIN, Reattach.RESUME])
async def test_a_lost_circuit_is_attached_again_and_the_link_of_the_client_stays(
    reattach: Reattach,
) -> None:
    async with SimulatedNetwork() as network:
        far = await over_three(network, replace(CIRCUITS, reattach=reattach))
        edge, container = far.near.edges(), far.far.container()
        await far.pump()
        link = edge.client.sender("jobs")
        back = edge.client.receiver("jobs", credit=3)
        await far.pump()
        container.links[0].flow(5)
        await far.pump()
        sent = edge.client.send(link, edge.client.message("a"))
        part = edge.client.begin(link, b"x" * 5000)
        await far.pump()
        await far.net.cut("b", "c")
        await far.pump()
        assert (state(link), state(back)) == ("active", "active")
        # A message that was begun is read to its end, and is in doubt.
        link.stream(b"x" * 100)
        link.advance()
        await far.net.join("b", "c")
        await far.pump(60)
        assert part.remote_state == proton.Delivery.MODIFIED
        resumed = reattach is Reattach.RESUME
        assert (sent.remote_state == proton.Delivery.MODIFIED) is not resumed
        if not resumed:
            # There are new links at the container, with the credit that is left.
            assert len(container.links) == 4
            first, second = container.links[2:]
            assert second.credit == 3
            first.flow(5)
        else:
            dispose(container.received[0][0], "ACCEPTED")
        await far.pump()
        assert sent.settled
        again = edge.client.send(link, edge.client.message("b"))
        await far.pump()
        dispose(container.received[-1][0], "ACCEPTED")
        await far.pump()
        assert again.remote_state == proton.Delivery.ACCEPTED
        far.cut()
