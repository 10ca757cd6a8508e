"""Messages of a peer on a circuit: tags that cannot be used, and what goes nowhere."""

from __future__ import annotations

import pytest

from onward.protocol.dispatch import ACCEPTED, MAX_TAG, Disposition, encode_disposition
from tests.support.amqp import needs_proton, refusal, transfer_frame
from tests.support.amqp_chain import Chain, Program, state

pytestmark = pytest.mark.peer
proton = needs_proton()


TAGS = [
    ([b"t" * (MAX_TAG + 1)], "a tag of over 32 bytes"),
    ([b"t", b"t"], "the tag is in use"),
]


@pytest.mark.parametrize(("tags", "told"), TAGS)
async def test_a_tag_that_is_too_long_or_in_use_ends_the_link(
    chain: Chain, tags: list[bytes], told: str
) -> None:
    edge, container = chain.edges(), chain.container()
    link, good = edge.client.sender("jobs"), edge.client.sender("jobs")
    chain.pump()
    for each in container.links:
        each.flow(5)
    chain.pump()
    for tag in tags:
        link.delivery(tag)
        link.stream(edge.client.message("a"))
        link.advance()
    edge.client.send(good, edge.client.message("b"))
    chain.pump()
    assert refusal(link) == ("amqp:invalid-field", told)
    assert refusal(container.links[0])[0] == "amqp:invalid-field"
    assert container.received[-1][1] == edge.client.message("b")
    assert (state(good), edge.engine.closed) == ("active", "")


async def test_a_message_that_a_client_settles_in_the_middle_is_settled(chain: Chain) -> None:
    edge, program = chain.edges(), Program(chain.dispatcher)
    edge.client.sender("jobs")
    chain.pump()
    program.link.grant(5)
    chain.pump()
    flags = (None, True, None)
    for at, settled in enumerate(flags):
        edge.engine.receive(transfer_frame(b"t", b"part", settled=settled, more=at < 2))
        chain.pump()
    assert [each for each in program.told if each[0] == "transfer"] == [
        ("transfer", b"t", 4, True, False, False),
        ("transfer", b"t", 4, True, False, True),
        ("transfer", b"t", 4, False, False, True),
    ]
    assert program.link.unsettled == ()
    assert edge.engine.closed == ""


async def test_a_message_that_its_consumer_settles_in_the_middle_is_settled_as_it_is_whole(
    chain: Chain,
) -> None:
    edge, program = chain.edges(), Program(chain.dispatcher)
    link = edge.client.sender("jobs")
    chain.pump()
    program.link.grant(5)
    chain.pump()
    sent = edge.client.begin(link, b"part")
    chain.pump()
    tag = program.told[-1][1]
    program.link.dispose(tag, encode_disposition(Disposition(ACCEPTED)), settled=True)
    chain.pump()
    assert (sent.remote_state, sent.settled) == (proton.Delivery.ACCEPTED, False)
    link.stream(b"part")
    link.advance()
    chain.pump()
    assert (sent.settled, program.told[-1]) == (True, ("transfer", tag, 4, False, False, False))
    # The next one is a delivery of its own.
    later = edge.client.send(link, b"next")
    chain.pump()
    assert (later.settled, program.told[-1][2]) == (False, 4)
    assert program.link.unsettled == ((program.told[-1][1], b""),)


async def test_what_a_client_sends_after_the_end_of_the_circuit_goes_nowhere(chain: Chain) -> None:
    edge, program = chain.edges(), Program(chain.dispatcher)
    link = edge.client.sender("jobs")
    chain.pump()
    program.link.grant(5)
    chain.pump()
    program.link.detach()
    chain.pump()
    before = list(program.told)
    sent = edge.client.send(link, edge.client.message("a"))
    edge.client.send(link, edge.client.message("a"), settled=True)
    edge.client.begin(link, b"part")
    chain.pump()
    link.stream(b"more")
    link.advance()
    edge.client.begin(link, b"part").abort()
    chain.pump()
    # Without a state, a sender could take the settlement for success.
    assert (sent.settled, sent.remote_state) == (True, proton.Delivery.RELEASED)
    assert (program.told, edge.dropped) == (before, {"link closed": 1})
    link.close()
    chain.pump()
    assert edge.engine.closed == ""


async def test_the_rest_of_a_message_that_was_cut_short_is_read_in_parts(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.sender("jobs")
    chain.pump()
    container.links[0].flow(5)
    chain.pump()
    part = edge.client.begin(link, b"x" * 5000)
    chain.pump()
    container.links[0].close()
    chain.pump()
    for _ in range(3):
        link.stream(b"x" * 5000)
        chain.pump()
        assert not part.settled
    link.advance()
    chain.pump()
    assert (part.remote_state, part.settled) == (proton.Delivery.MODIFIED, True)
    assert (edge.dropped, edge.engine.closed) == ({"cut short": 1}, "")


async def test_a_drain_without_credit_is_answered_at_once(chain: Chain) -> None:
    edge, program = chain.edges(), Program(chain.dispatcher)
    link = edge.client.sender("jobs")
    chain.pump()
    program.link.grant(0, drain=True)
    chain.pump()
    assert program.told[-1] == ("drained", 0)
    assert (link.credit, link.drain_mode) == (0, False)
    program.link.grant(2)
    chain.pump()
    assert link.credit == 2
