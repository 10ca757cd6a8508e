"""States of deliveries on a circuit: those of a program, those of a peer, and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from onward.protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RECEIVED,
    RELEASED,
    DeliveryState,
    Disposition,
    Modified,
    Rejected,
    decode_disposition,
    encode_disposition,
)
from tests.support.amqp import Edge, needs_proton
from tests.support.amqp_chain import Chain, Program

pytestmark = pytest.mark.peer
proton = needs_proton()


def told(chain: Chain) -> tuple[Program, Edge, Any]:
    """Return a program, the edge of a client, and what it has sent to the program."""
    program, edge = Program(chain.dispatcher), chain.edges()
    link = edge.client.sender("jobs")
    chain.pump()
    program.link.grant(1)
    chain.pump()
    delivery = link.delivery("a")
    link.stream(edge.client.message("hello"))
    link.advance()
    chain.pump()
    assert program.told[-1][:2] == ("transfer", b"a")
    return program, edge, delivery


@pytest.mark.parametrize(
    ("state", "name"),
    [
        (ACCEPTED, "ACCEPTED"),
        (RELEASED, "RELEASED"),
        (Rejected(), "REJECTED"),
        (MODIFIED, "MODIFIED"),
        (Modified(failed=False, undeliverable_here=True), "MODIFIED"),
        (RECEIVED, "RECEIVED"),
    ],
)
async def test_a_client_sees_each_state_of_a_program(
    chain: Chain, state: DeliveryState, name: str
) -> None:
    program, _, delivery = told(chain)
    settles = state != RECEIVED
    program.link.dispose(b"a", encode_disposition(Disposition(state)), settled=settles)
    chain.pump()
    assert delivery.remote_state == getattr(proton.Delivery, name)
    assert delivery.settled is settles
    assert delivery.remote.condition is None
    if isinstance(state, Modified):
        remote = delivery.remote
        assert (remote.failed, remote.undeliverable) == (state.failed, state.undeliverable_here)


@pytest.mark.parametrize(
    "items", [[0x25, "a:b"], [0x27, True], [0x23, 1, -1], [0x24, ["x"]], [0x30, "x"], ["x", 1], []]
)
async def test_a_list_that_is_no_state_leaves_a_delivery_as_it_is(
    chain: Chain, items: list[Any]
) -> None:
    program, _, delivery = told(chain)
    data = proton.Data()
    data.put_object(items)
    program.link.dispose(b"a", b"\0" + bytes(data.encode()), settled=False)
    chain.pump()
    assert (delivery.remote_state, delivery.settled) == (0, False)


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("REJECTED", Rejected()),
        ("MODIFIED", Modified(failed=False, undeliverable_here=False)),
        ("RECEIVED", RECEIVED),
    ],
)
async def test_a_program_reads_the_state_of_a_client_that_says_no_more(
    chain: Chain, name: str, state: DeliveryState
) -> None:
    program, edge = Program(chain.dispatcher), chain.edges()
    edge.client.accepts = False
    edge.client.receiver("jobs", credit=1)
    chain.pump()
    program.link.send(b"a", edge.client.message("hello"))
    chain.pump()
    edge.client.received[0][0].update(getattr(proton.Delivery, name))
    chain.pump()
    kind, tag, written, settled = program.told[-1]
    assert (kind, tag, settled) == ("disposition", b"a", False)
    assert decode_disposition(written).state == state
