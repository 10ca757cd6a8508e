"""Messages to a peer on a circuit: those that one end settles before they are whole."""

from __future__ import annotations

import pytest

from onward.protocol.dispatch import ACCEPTED, Disposition, encode_disposition
from tests.support.amqp import disposition_frame, needs_proton
from tests.support.amqp_chain import Chain, Program

pytestmark = pytest.mark.peer
proton = needs_proton()


@pytest.mark.parametrize("how", ["transfer", "disposition"])
async def test_a_message_that_its_producer_settles_in_the_middle_is_settled(
    chain: Chain, how: str
) -> None:
    program, edge = Program(chain.dispatcher), chain.edges()
    edge.client.accepts = False
    edge.client.receiver("jobs")
    chain.pump()
    message = edge.client.message("a" * 20)
    # The tag is free again behind the message, as it is settled.
    for _ in range(2):
        program.link.send(b"t", message[:5], more=True)
        if how == "disposition":
            program.link.dispose(b"t", b"", settled=True)
        program.link.send(b"t", message[5:9], more=True, settled=how == "transfer")
        chain.pump()
        # AMQP has it settled by a frame before; the flag of the last one is left unset.
        program.link.send(b"t", message[9:])
        chain.pump()
    program.link.send(b"t", message)
    chain.pump()
    assert [delivery.settled for delivery, _ in edge.client.received] == [True, True, False]
    assert edge.client.bodies == ["a" * 20] * 3
    assert program.link.unsettled == ((b"t", b""),)
    assert (edge.dropped, edge.engine.closed) == ({}, "")


async def test_a_message_that_its_consumer_settles_in_the_middle_is_settled_as_it_is_whole(
    chain: Chain,
) -> None:
    program, edge = Program(chain.dispatcher), chain.edges()
    edge.client.accepts = False
    edge.client.receiver("jobs")
    chain.pump()
    message = edge.client.message("a")
    program.link.send(b"t", message[:5], more=True)
    chain.pump()
    edge.engine.receive(disposition_frame(0, 0, by_receiver=True))
    chain.pump()
    accepted = encode_disposition(Disposition(ACCEPTED))
    assert program.told[-1] == ("disposition", b"t", accepted, False)
    program.link.send(b"t", message[5:])
    chain.pump()
    assert program.told[-1] == ("disposition", b"t", accepted, True)
    assert program.link.unsettled == ()
    program.link.send(b"t", message)
    chain.pump()
    assert edge.client.bodies == ["a", "a"]
    assert (edge.dropped, edge.engine.closed) == ({}, "")
