"""Circuits over one node and over three: what passes, what is refused, what is told of a loss."""

from __future__ import annotations

from asyncio import sleep

import pytest

from onward.actors.dispatch import CircuitLink
from onward.protocol.dispatch import (
    CircuitMisuse,
    DetachKind,
    Refusal,
    Semantics,
)
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.circuit_ends import AGAIN, LINK, RESUME, Served, opened
from tests.actors.dispatch.nets import SETTLE, Net, linear

LOST, CLOSED, DETACHED = DetachKind.LOST, DetachKind.CLOSED, DetachKind.DETACHED


@pytest.fixture
async def net(network: SimulatedNetwork) -> Net:
    return Net(network)


async def row(net: Net, semantics: Semantics = LINK, served: Served | None = None) -> Served:
    """Join a, b and c in a row, with a container at c."""
    await linear(net)
    net.provision("orders", semantics)
    await sleep(SETTLE)
    made = (served or Served()).serve(net.at["c"])
    await sleep(SETTLE)
    return made


@pytest.mark.parametrize("at", ["a", "b", "c"])
async def test_a_producer_is_attached_and_what_it_sends_passes_verbatim(net: Net, at: str) -> None:
    served = await row(net)
    end = opened(net.at[at], properties=b"client")
    await sleep(1)
    [there] = served.ends
    assert served.attaches[0].properties == b"client"
    assert (there.told, end.told) == ([("attached", b"client")], [("attached", b"own")])
    # "the container sees the first credit, and 7 more, and 7 more"
    for credit in (2, 7, 7):
        there.link.grant(credit)
        await sleep(1)
    assert end.named("flow") == [(2, False), (7, False), (7, False)]
    assert end.link.credit == there.link.credit == 16
    end.link.send(b"tag", b"one", more=True)
    end.link.send(b"tag", b"two")
    end.link.send(b"x" * 32, b"settled", settled=True)
    await sleep(1)
    assert there.named("transfer") == [
        (b"tag", b"one", True, False, False),
        (b"tag", b"two", False, False, False),
        (b"x" * 32, b"settled", False, False, True),
    ]
    there.link.dispose(b"tag", b"any state", settled=False)
    await sleep(1)
    end.link.dispose(b"tag")
    await sleep(1)
    assert end.named("disposition") == [(b"tag", b"any state", False)]
    assert there.named("disposition") == [(b"tag", b"", True)]
    assert end.link.unsettled == there.link.unsettled == ()
    there.link.grant(0, drain=True)
    await sleep(1)
    assert end.last() == ("flow", 0, True)
    end.link.drained()
    await sleep(1)
    assert there.last() == ("drained", 14)
    assert there.link.credit == 0
    with pytest.raises(CircuitMisuse, match="no credit"):
        end.link.send(b"more", b"")


async def test_a_consumer_attaches_and_gives_credit_to_the_container(net: Net) -> None:
    served = await row(net)
    end = opened(net.at["a"], producer=False)
    await sleep(1)
    [there] = served.ends
    assert there.link.producer
    end.link.grant(3)
    await sleep(1)
    assert there.last() == ("flow", 3, False)
    for number in range(3):
        there.link.send(b"%d" % number, b"payload")
    with pytest.raises(CircuitMisuse):
        there.link.send(b"4", b"payload")
    await sleep(1)
    assert [each[0] for each in end.named("transfer")] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("at", ["a", "c"])
@pytest.mark.parametrize("closed", [False, True])
async def test_a_detach_stays_a_detach_and_a_close_a_close(net: Net, at: str, closed: bool) -> None:
    served = await row(net)
    end, other = opened(net.at[at]), opened(net.at[at])
    await sleep(1)
    end.link.detach(closed=closed, condition="shop:closed", description="today")
    await sleep(1)
    how = CLOSED if closed else DETACHED
    assert served.ends[0].last() == ("down", how, "shop:closed", "today", False)
    assert end.last() == ("down", how, "", "", False)
    assert end.link.over
    assert served.ends[0].link.over
    end.link.detach()
    served.ends[1].link.detach(closed=closed)
    await sleep(1)
    assert other.last() == ("down", how, "", "", False)
    assert_empty(net)


def assert_empty(net: Net) -> None:
    """Check that no node has a circuit, or anything of one."""
    for dispatcher in net.at.values():
        assert dispatcher.statistics().circuits == 0


async def test_a_circuit_without_a_container_is_refused(net: Net) -> None:
    await linear(net)
    net.at["a"].provision("orders", LINK)
    await sleep(SETTLE)
    end = opened(net.at["a"])
    assert end.told == [("refused", "no-route", "")]
    served = Served().serve(net.at["c"])
    await sleep(SETTLE)
    served.container.close()
    end = opened(net.at["a"])
    await sleep(1)
    assert end.told == [("refused", "no-route", "")]
    assert_empty(net)


async def test_a_container_refuses_or_answers_later(net: Net) -> None:
    asked: list[CircuitLink] = []
    served = await row(net, served=Served(asked.append))
    first, second, third, fourth = (opened(net.at["a"]) for _ in range(4))
    await sleep(1)
    asked[0].refuse("shop:closed", "today")
    asked[1].accept(b"late")
    third.link.detach()
    asked[3].detach()
    await sleep(1)
    assert first.told == [("refused", "shop:closed", "today")]
    assert served.ends[0].told == [("refused", "shop:closed", "today")]
    assert second.told == [("attached", b"late")]
    assert third.told == []
    assert fourth.told == [("refused", "route-lost", "")]
    assert served.ends[2].told == [("down", LOST, "route-lost", "", False)]
    with pytest.raises(CircuitMisuse):
        asked[0].accept()
    with pytest.raises(CircuitMisuse):
        asked[2].refuse("x")
    await sleep(20)
    assert third.told == [("down", LOST, "answer-timeout", "", False)]


async def test_an_attach_that_is_not_answered_in_time_is_refused(net: Net) -> None:
    served = await row(net, served=Served(lambda _: None))
    end = opened(net.at["a"])
    await sleep(20)
    assert end.told == [("refused", "answer-timeout", "")]
    assert served.ends[0].told == [("down", LOST, "route-lost", "", False)]
    assert_empty(net)


async def test_a_container_that_is_lost_detaches_its_circuits_with_the_reason(net: Net) -> None:
    served = await row(net)
    end = opened(net.at["a"])
    await sleep(1)
    served.container.close()
    await sleep(1)
    assert end.last() == ("down", LOST, "route-lost", "", False)
    assert served.ends[0].last() == ("down", LOST, "route-lost", "", False)
    assert served.ended == []
    assert served.container.reason is Refusal.CLOSED
    assert_empty(net)


@pytest.mark.parametrize("cut", [("a", "b"), ("b", "c")])
async def test_a_lost_link_is_told_to_both_ends(net: Net, cut: tuple[str, str]) -> None:
    served = await row(net)
    end = opened(net.at["a"])
    await sleep(1)
    await net.cut(*cut)
    await sleep(1)
    down = ("down", LOST, "route-lost", "", False)
    assert (end.last(), served.ends[0].last()) == (down, down)
    assert_empty(net)


async def test_a_node_that_dies_is_seen_at_both_ends(net: Net) -> None:
    served = await row(net)
    end = opened(net.at["a"])
    await sleep(1)
    await net.network.crash("b")
    del net.at["b"]
    await sleep(30)
    down = ("down", LOST, "route-lost", "", False)
    assert (end.last(), served.ends[0].last()) == (down, down)
    assert_empty(net)


@pytest.mark.parametrize("at", ["a", "b", "c"])
async def test_a_dispatcher_that_stops_ends_its_circuits(net: Net, at: str) -> None:
    served = await row(net)
    end = opened(net.at["a"])
    await sleep(1)
    await net.nodes[at].stop_worker("dispatch")
    del net.at[at]
    await sleep(1)
    down = ("down", LOST, "route-lost", "", False)
    assert (end.last(), served.ends[0].last()) == (down, down)
    assert_empty(net)


async def test_an_end_of_which_the_program_fails_is_detached(net: Net) -> None:
    served = await row(net)

    def fail(_end: object, name: str) -> None:
        if name == "flow":
            raise RuntimeError("broken")

    end = opened(net.at["a"], react=fail)
    await sleep(1)
    served.ends[0].link.grant(1)
    await sleep(1)
    assert served.ends[0].last() == ("down", DETACHED, "end-failed", "", False)
    assert end.link.over
    served._accept = lambda _: 1 / 0
    refused = opened(net.at["a"])
    await sleep(1)
    assert refused.told == [("refused", "end-failed", "")]


@pytest.mark.parametrize("producer", [True, False])
async def test_a_lost_circuit_is_attached_again(net: Net, producer: bool) -> None:
    served = await row(net, AGAIN)
    end = opened(net.at["a"], producer=producer)
    await sleep(1)
    await net.cut("b", "c")
    await sleep(1)
    assert end.last() == ("down", LOST, "route-lost", "", True)
    assert served.ends[0].last() == ("down", LOST, "route-lost", "", False)
    await net.join("b", "c")
    await sleep(SETTLE)
    assert end.last() == ("attached", b"own")
    assert served.ends[1].told == [("attached", b"")]
    assert served.ends[0].link.key != served.ends[1].link.key
    served.container.close()
    await sleep(100)
    assert end.last() == ("refused", "no-route", "")
    assert end.link.over
    assert_empty(net)


async def test_a_lost_circuit_is_resumed_with_what_is_unsettled(net: Net) -> None:
    served = await row(net, RESUME)
    end = opened(net.at["a"])
    await sleep(1)
    [there] = served.ends
    there.link.grant(10)
    await sleep(1)
    for tag in (b"settled", b"stated", b"known"):
        end.link.send(tag, tag)
    await sleep(1)
    there.link.dispose(b"settled", b"done")
    there.link.dispose(b"stated", b"half", settled=False)
    await sleep(1)
    await net.cut("b", "c")
    # What is settled, stated and sent while the link is down does not arrive.
    await sleep(0.01)
    assert end.last() == ("down", LOST, "route-lost", "", True)
    assert there.last() == ("down", LOST, "route-lost", "", True)
    assert end.link.unsettled == ((b"stated", b"half"), (b"known", b""))
    with pytest.raises(CircuitMisuse):
        end.link.send(b"more", b"")
    end.told.clear()
    await net.join("b", "c")
    await sleep(SETTLE)
    assert end.told == [("attached", b"own")]
    assert there.told[-1] == ("attached", b"")
    assert len(served.ends) == 1
    assert there.link.unsettled == end.link.unsettled
    assert (end.link.credit, there.link.credit) == (0, 0)
    there.link.grant(1)
    await sleep(1)
    end.link.send(b"again", b"")
    there.link.dispose(b"known", b"late")
    await sleep(1)
    assert there.last() == ("transfer", b"again", b"", False, False, False)
    assert end.last() == ("disposition", b"known", b"late", True)


async def test_a_container_that_starts_anew_knows_nothing_of_what_is_resumed(net: Net) -> None:
    served = await row(net, RESUME)
    end = opened(net.at["a"])
    await sleep(1)
    served.ends[0].link.grant(10)
    await sleep(1)
    end.link.send(b"tag", b"")
    await sleep(1)
    served.container.close()
    assert served.ends[0].last() == ("down", LOST, "route-lost", "", False)
    served.serve(net.at["c"])
    await sleep(SETTLE)
    assert end.told[-2:] == [("attached", b"own"), ("unresolved", b"tag")]
    assert end.link.unsettled == ()
    assert len(served.ends) == 2


async def test_what_is_not_resumed_in_time_is_over(net: Net) -> None:
    served = await row(net, RESUME)
    end, left = opened(net.at["a"]), opened(net.at["a"])
    await sleep(1)
    await net.cut("b", "c")
    await sleep(1)
    left.link.detach()
    assert left.last() == ("down", CLOSED, "", "", False)
    await sleep(100)
    assert end.last() == ("refused", "no-route", "")
    assert served.ends[0].last() == (
        "down",
        LOST,
        "route-lost",
        "it was not resumed in time",
        False,
    )
    assert [each.link.over for each in (end, left, *served.ends)] == [True] * 4
    assert_empty(net)
