"""Links through to a container whose circuit is lost, and what both ends say meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.protocol.dispatch import Reattach
from onward.transports.simulated import SimulatedNetwork
from tests.support.amqp import needs_proton, refusal
from tests.support.amqp_chain import CIRCUITS, Chain, dispose, over_three, state
from tests.support.virtual import virtual_time

pytestmark = pytest.mark.peer
proton = needs_proton()


@virtual_time
@pytest.mark.parametrize("receives", ["client", "container"])
async def test_what_is_said_of_a_delivery_while_its_circuit_is_lost_is_told_after(
    receives: str,
) -> None:
    async with SimulatedNetwork() as network:
        far = await over_three(network, replace(CIRCUITS, reattach=Reattach.RESUME))
        edge, container = far.near.edges(), far.far.container()
        edge.client.accepts = False
        await far.pump()
        if receives == "client":
            edge.client.receiver("jobs", credit=3)
            await far.pump()
            sent = container.links[0].send(proton.Message("a"))
            await far.pump()
            got = edge.client.received[0][0]
        else:
            link = edge.client.sender("jobs")
            await far.pump()
            container.links[0].flow(3)
            await far.pump()
            sent = edge.client.send(link, edge.client.message("a"))
            await far.pump()
            got = container.received[0][0]
        await far.net.cut("b", "c")
        await far.pump()
        dispose(got, "ACCEPTED")
        await far.pump()
        assert (sent.remote_state, sent.settled) == (0, False)
        await far.net.join("b", "c")
        await far.pump(60)
        assert (sent.remote_state, sent.settled) == (proton.Delivery.ACCEPTED, True)
        far.cut()


@virtual_time
async def test_a_message_to_a_client_is_settled_without_an_outcome_where_it_cannot_resume() -> None:
    async with SimulatedNetwork() as network:
        far = await over_three(network, replace(CIRCUITS, reattach=Reattach.AGAIN))
        edge, container = far.near.edges(), far.far.container()
        edge.client.accepts = False
        await far.pump()
        link = edge.client.receiver("jobs", credit=3)
        await far.pump()
        container.links[0].send(proton.Message("a"))
        await far.pump()
        got = edge.client.received[0][0]
        await far.net.cut("b", "c")
        await far.pump()
        assert (state(link), got.settled, got.remote_state) == ("active", True, 0)
        # What the client says of it now is of no interest to any end.
        dispose(got, "ACCEPTED")
        await far.net.join("b", "c")
        await far.pump(60)
        container.links[-1].send(proton.Message("b"))
        await far.pump()
        assert edge.client.bodies == ["a", "b"]
        far.cut()


@virtual_time
async def test_a_message_that_comes_while_its_circuit_is_lost_waits_for_the_next_one() -> None:
    async with SimulatedNetwork() as network:
        far = await over_three(network, replace(CIRCUITS, reattach=Reattach.AGAIN))
        edge, container = far.near.edges(), far.far.container()
        await far.pump()
        link = edge.client.sender("jobs")
        await far.pump()
        container.links[0].flow(3)
        await far.pump()
        await far.net.cut("b", "c")
        await far.pump()
        # The client has credit of the circuit that was lost.
        sent = edge.client.send(link, edge.client.message("a"))
        await far.pump()
        assert (sent.remote_state, sent.settled) == (0, False)
        await far.net.join("b", "c")
        await far.pump(60)
        assert container.received == []
        container.links[-1].flow(1)
        await far.pump()
        assert [data for _, data in container.received] == [edge.client.message("a")]
        far.cut()


async def test_a_container_that_is_lost_before_its_answer_refuses_the_link(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    container.answers = False
    link = edge.client.sender("jobs")
    chain.pump()
    assert state(link) == "uninit"
    container.cut()
    chain.pump()
    assert refusal(link)[0] == "amqp:link:detach-forced"
    assert link.remote_target.type == 0


@pytest.mark.parametrize("receives", ["client", "container"])
async def test_a_session_that_ends_before_the_answer_refuses_the_link(
    chain: Chain, receives: str
) -> None:
    edge, container = chain.edges(), chain.container()
    container.answers = False
    make = edge.client.receiver if receives == "client" else edge.client.sender
    link = make("jobs")
    chain.pump()
    assert (state(link), container.edge.circuits) == ("uninit", 1)
    container.links[0].session.close()
    chain.pump()
    assert refusal(link)[0] == "amqp:link:detach-forced"
    # It does not take the place of another one.
    assert container.edge.circuits == 0
    container.answers = True
    again = make("jobs")
    chain.pump()
    assert state(again) == "active"
    assert container.engine.closed == ""


async def test_a_client_that_is_lost_after_its_detach_has_detached(chain: Chain) -> None:
    edge, container = chain.edges(), chain.container()
    link = edge.client.receiver("jobs")
    chain.pump()
    link.close()
    edge.pump()
    edge.cut()
    chain.pump()
    (at_container,) = container.links
    assert (state(at_container), at_container.remote_condition) == ("closed", None)
    assert container.edge.circuits == 0
