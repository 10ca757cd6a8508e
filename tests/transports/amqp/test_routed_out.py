"""Messages to a peer on a circuit: a producer that uses a tag twice."""

from __future__ import annotations

import pytest

from tests.support.amqp import needs_proton, refusal
from tests.support.amqp_chain import Chain, Program, state

pytestmark = pytest.mark.peer
proton = needs_proton()


async def test_a_tag_that_is_in_use_at_the_peer_ends_the_link_alone(chain: Chain) -> None:
    program, edge = Program(chain.dispatcher), chain.edges()
    edge.client.accepts = False
    link = edge.client.receiver("jobs")
    chain.pump()
    # A producer may settle a message in the middle of it, and has its tag free again behind it.
    message = edge.client.message("a")
    program.link.send(b"t", message[:5], more=True)
    program.link.dispose(b"t", b"", settled=True)
    program.link.send(b"t", message[5:])
    chain.pump()
    assert len(edge.client.received) == 1
    program.link.send(b"t", message)
    chain.pump()
    for delivery, _ in reversed(edge.client.received):
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
        chain.pump()
    assert edge.engine.closed == ""
    assert refusal(link) == ("amqp:invalid-field", "the tag of a delivery")
    assert program.told[-1] == ("down", "amqp:invalid-field")
    assert (len(edge.client.received), edge.dropped) == (1, {"tag in use": 1})
    again = edge.client.receiver("jobs")
    chain.pump()
    assert (state(again), edge.engine.closed) == ("active", "")
