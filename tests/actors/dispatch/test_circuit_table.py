"""Circuits over one node and over three: what passes, what is refused, what is told of a loss."""

from __future__ import annotations

import asyncio
from asyncio import sleep
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from onward.actors import Node, Refused
from onward.actors.dispatch import DISPATCH, CircuitLink, ConsumerRefused, Dispatcher
from onward.protocol import DELIVERY, Address
from onward.protocol.dispatch import (
    MAX_CIRCUIT_FRAME,
    Access,
    BadSemantics,
    CircuitAttach,
    CircuitDetach,
    CircuitFlow,
    CircuitFrame,
    CircuitFrameError,
    CircuitLimits,
    CircuitMisuse,
    CircuitPool,
    CircuitRefused,
    CircuitTransfer,
    DetachKind,
    Mechanism,
    NodeHello,
    Refusal,
    RoutingPattern,
    Second,
    Semantics,
    circuit_address,
    encode_network_frame,
    node_digest,
    parse_circuit_frame,
    serialize_circuit_frame,
)
from onward.protocol.security import Principal
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.circuit_ends import (
    AGAIN,
    DIRECT,
    LINK,
    RESUME,
    KeptEnd,
    Served,
    opened,
)
from tests.actors.dispatch.nets import SETTLE, Net, linear, make_narrow, triangle
from tests.support.workers import Recorder, start_worker

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
    # The one that detaches does not wait for a container that has not answered.
    assert third.told == [("down", LOST, "route-lost", "", False)]
    assert fourth.told == [("refused", "route-lost", "")]
    assert served.ends[2].told == [("down", LOST, "route-lost", "", False)]
    with pytest.raises(CircuitMisuse):
        asked[0].accept()
    with pytest.raises(CircuitMisuse):
        asked[2].refuse("x")


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


async def test_a_tag_that_is_too_long_and_a_part_that_is_too_large_are_refused(net: Net) -> None:
    served = await row(net)
    end = opened(net.at["a"])
    await sleep(1)
    served.ends[0].link.grant(5)
    await sleep(1)
    with pytest.raises(CircuitFrameError, match="tag of 33 bytes"):
        end.link.send(b"x" * 33, b"")
    with pytest.raises(CircuitFrameError):
        end.link.send(b"x", bytes(MAX_CIRCUIT_FRAME))
    with pytest.raises(CircuitMisuse, match="a part of more than"):
        end.link.send(b"x", bytes(net.nodes["a"].limits.payload + 1))
    assert end.link.credit == 5
    assert end.link.limit == 1024


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [
        (RoutingPattern.BALANCED, [(4, 0, 0), (4, 2, 2), (4, 2, 6)]),
        (RoutingPattern.CLOSEST, [(4, 0, 0), (4, 2, 2), (4, 2, 6)]),
    ],
)
async def test_circuits_are_spread_and_go_further_as_containers_go(
    net: Net, pattern: RoutingPattern, counts: list[tuple[int, ...]]
) -> None:
    await triangle(net)
    net.provision("orders", replace(LINK, pattern=pattern))
    served = {at: [Served().serve(net.at[at]) for _ in range(2)] for at in "abc"}
    await sleep(SETTLE)
    for gone, expected in zip(("a", "b", ""), counts, strict=True):
        for _ in range(4):
            assert opened(net.at["a"]).named("refused") == []
            await sleep(1)
        numbers = tuple(sum(len(each.ends) for each in served[at]) for at in "abc")
        assert numbers == expected
        for each in served.get(gone, ()):
            each.container.close()
        await sleep(SETTLE)


async def test_a_direct_name_has_one_container_in_the_network(net: Net) -> None:
    await linear(net)
    net.provision("orders", replace(DIRECT, second=Second.NEWEST))
    await sleep(SETTLE)
    first = Served().serve(net.at["b"])
    await sleep(SETTLE)
    end = opened(net.at["a"])
    await sleep(1)
    second = Served().serve(net.at["c"])
    await sleep(SETTLE)
    assert first.ended == [Refusal.DISPLACED]
    assert end.last() == ("down", LOST, "route-lost", "", False)
    opened(net.at["a"])
    await sleep(1)
    assert (len(first.ends), len(second.ends)) == (1, 1)
    assert second.container.active
    net.provision("other", DIRECT)
    Served().serve(net.at["b"], "other")
    with pytest.raises(ConsumerRefused, match=Refusal.TAKEN):
        Served().serve(net.at["b"], "other")


async def test_the_best_pattern_says_whether_a_name_takes_circuits(net: Net) -> None:
    await net.start("a")
    net.provision("orders.#", LINK)
    net.provision("orders.eu", Semantics())
    at = net.at["a"]
    assert [at.is_circuit(each) for each in ("orders.us", "orders.eu", "other")] == [
        True,
        False,
        False,
    ]
    with pytest.raises(ConsumerRefused, match=Refusal.MESSAGES):
        opened(at, "orders.eu")
    with pytest.raises(BadSemantics):
        Semantics(mechanism=Mechanism.LINK, pattern=RoutingPattern.MULTICAST)
    # What is sent to it as a message is refused with the reason.
    served = Served().serve(at, "orders.us")
    with pytest.raises(Refused, match="amqp:not-allowed"):
        await net.nodes["a"].request("34#orders.us", b"x")
    net.nodes["a"].send("34#orders.us", b"x")
    assert at.statistics().counts["sent to a name of circuits"] == 2
    # A provision that says otherwise ends the container.
    at.update("orders.#", Semantics())
    assert served.ended == [Refusal.MESSAGES]


async def test_roles_are_those_of_the_name(net: Net) -> None:
    await net.start("a")
    roles = Access(producers=frozenset({"shop"}), consumers=frozenset({"store"}))
    net.provision("orders", replace(LINK, access=roles))
    at = net.at["a"]
    shop, store = (
        Principal("s", "token", roles=frozenset({"shop"})),
        Principal("t", "token", roles=frozenset({"store"})),
    )
    for principal, producer in ((store, True), (shop, False)):
        with pytest.raises(ConsumerRefused, match=Refusal.ROLES):
            opened(at, producer=producer, principal=principal)
    with pytest.raises(ConsumerRefused, match=Refusal.ROLES):
        Served().serve(at, principal=shop)
    served = Served().serve(at, principal=store)
    end = opened(at, principal=shop)
    assert end.told == [("attached", b"own")]
    at.update("orders", replace(LINK, access=replace(roles, producers=frozenset({"other"}))))
    assert served.ends[0].last()[:3] == ("down", DETACHED, "unauthorized")
    at.update("orders", replace(LINK, access=Access(consumers=frozenset({"other"}))))
    assert served.ended == [Refusal.ROLES]


async def test_rules_that_change_are_checked_in_slices(net: Net) -> None:
    await net.start("a", name_slice=3, circuits=CircuitLimits(max_share=100))
    net.provision("orders", LINK)
    at = net.at["a"]
    served = Served().serve(at)
    shop = Principal("shop", "test", roles=frozenset({"shop"}))
    gone = opened(at, principal=shop)
    ends = [opened(at, principal=shop) for _ in range(20)]
    other = Access(producers=frozenset({"other"}))

    def left() -> int:
        return sum(each.last() == ("attached", b"own") for each in ends)

    at.update("orders", replace(LINK, access=other))
    # What is changed meanwhile counts for those that are left; one that has gone is none of them.
    gone.link.detach()
    at.update("orders", replace(LINK, access=replace(other, producers=frozenset({"third"}))))
    turns = [len(ends), left()]
    while turns[-1]:
        await sleep(0)
        turns.append(left())
    assert max(before - after for before, after in pairwise(turns)) <= 3
    told = Counter(each.last()[:3] for each in served.ends)
    assert told == {("down", DETACHED, "unauthorized"): 20, ("down", DETACHED, ""): 1}
    assert gone.last()[:3] == ("down", DETACHED, "")


async def test_an_end_that_cannot_attach_is_forgotten(net: Net) -> None:
    await net.start("a")
    net.provision("orders", LINK)
    at = net.at["a"]
    Served().serve(at)
    with pytest.raises(CircuitFrameError, match="the properties of 20000 bytes"):
        opened(at, properties=bytes(20_000))
    table = at._core.circuits
    assert (len(table._links), table.open_circuits) == (0, 0)
    assert opened(at).last() == ("attached", b"own")


async def test_a_client_has_no_more_circuits_than_its_share(net: Net) -> None:
    shares = {"max_share": 100, "max_anonymous_share": 100}
    await net.start("a", circuits=CircuitLimits(max_circuits=3, max_peer_circuits=2, **shares))
    net.provision("#", LINK)
    at = net.at["a"]
    for name in ("one", "two"):
        Served().serve(at, name)
    ends = [opened(at, name, client="shop") for name in ("one", "one", "one", "two")]
    assert [each.last()[1] for each in ends] == [b"own", b"own", *["peer-circuits-full"] * 2]
    assert opened(at, "one").last() == ("refused", "peer-circuits-full", "")
    assert opened(at, "two", client="other").last() == ("attached", b"own")
    assert opened(at, "two").last() == ("refused", "circuits-full", "")
    counts = at.statistics().counts
    assert counts["circuits refused: peer-circuits-full"] == 3
    assert counts["circuits refused: circuits-full"] == 1


async def test_a_client_and_a_principal_have_a_share_at_each_node(net: Net) -> None:
    await linear(net)
    net.provision("orders", LINK)
    await sleep(SETTLE)
    pool = CircuitPool("of a test", 8)
    accepts: list[CircuitLink] = []

    def accept(_attach: CircuitAttach, link: CircuitLink) -> KeptEnd:
        accepts.append(link)
        link.accept()
        return KeptEnd()

    at, far = net.at["a"], net.at["c"]
    far.serve_circuits("orders", accept, pool=pool)
    await sleep(SETTLE)
    ann = Principal("ann", "test")
    # Each of them has 25 % of 8: a connection, a principal with all its connections.
    asks = [("x", None), ("x", None), ("x", None), ("y", ann), ("z", ann), ("y", ann)]
    ends = [opened(at, client=client, principal=who) for client, who in asks]
    await sleep(SETTLE)
    attached, full = ("attached", b""), ("refused", "circuit-share-full", "")
    assert [each.last() for each in ends] == [attached, attached, full, attached, attached, full]
    assert far.statistics().counts["circuits refused: circuit-share-full"] == 2
    # The neighbour that all of them come from has 75 % of 8; what is here has no share.
    programs = [opened(at) for _ in range(3)]
    await sleep(SETTLE)
    assert [each.last() for each in programs] == [attached, attached, full]
    near = [opened(far, client="x") for _ in range(3)]
    assert [each.last() for each in near] == [attached, attached, full]
    assert len(accepts) == 8
    ends[0].link.detach()
    await sleep(SETTLE)
    again = opened(at, client="x")
    await sleep(SETTLE)
    assert again.last() == attached


async def test_many_anonymous_connections_leave_circuits_to_others(net: Net) -> None:
    await linear(net)
    net.provision("orders", LINK)
    await sleep(SETTLE)
    at, far = net.at["a"], net.at["c"]
    served = Served().serve(far, pool=CircuitPool("of a test", 20))
    await sleep(SETTLE)
    # What comes from a neighbour has 15 of 20, and of those that are not authenticated 11.
    ends = [opened(at, client=f"client {number}") for number in range(12)]
    await sleep(SETTLE)
    attached, full = ("attached", b"own"), ("refused", "circuit-share-full", "")
    assert [each.last() for each in ends] == [*[attached] * 11, full]
    ann = opened(at, client="x", principal=Principal("ann", "test"))
    await sleep(SETTLE)
    assert ann.last() == attached
    # At the node itself they have 75 % of 20, and a program is no such connection.
    near = [opened(far, client=f"client {number}") for number in range(8)]
    await sleep(SETTLE)
    assert [each.last() for each in near] == [attached] * 8
    assert opened(far).last() == attached
    assert [each.anonymous for each in served.attaches] == [True] * 11 + [False] + [True] * 8 + [
        False
    ]


async def test_what_a_neighbour_forges_or_floods_is_its_own_trouble(net: Net) -> None:
    await net.start("a", circuits=CircuitLimits(max_peer_circuits=5, max_neighbour_share=100))
    net.provision("orders", LINK)
    at = net.at["a"]
    served = Served().serve(at)
    good = opened(at)
    other = await net.network.node("b")
    answers = await start_worker(other, Recorder(), "dispatch")
    link = await other.connect("sim://a", expose=[DISPATCH])

    def give(label: bytes, frame: CircuitFrame | bytes) -> None:
        data = frame if isinstance(frame, bytes) else serialize_circuit_frame(frame)
        other.send([link, DISPATCH, Address(DELIVERY, circuit_address(label))], data)

    attach = CircuitAttach("orders", True, bytes(16))
    give(b"stranger", attach)
    await sleep(1)
    assert at.statistics().counts["messages of no neighbour"] == 1
    other.send([link, DISPATCH], encode_network_frame(NodeHello("b", 1, 0, ("a",))))
    await sleep(1)
    path = node_digest("a")
    give(b"looplabl", replace(attach, path=path))
    give(b"nocircui", CircuitFlow(1))
    give(b"nonsense", b"\x00")
    give(b"noname..", replace(attach, name="nobody"))
    for number in range(20):
        give(b"flood%3d" % number, attach)
    await sleep(1)
    give(b"flood  0", CircuitTransfer(b"t", b"beyond credit"))
    give(b"flood  1", CircuitFlow(1))
    give(b"flood  2", attach)
    give(b"flood  3", b"garbage")
    give(b"short", attach)
    await sleep(1)
    counts = at.statistics().counts
    assert {name: count for name, count in counts.items() if "circuit" in name} == {
        "circuits refused: route-loop": 1,
        "circuits refused: no-route": 1,
        "circuits refused: peer-circuits-full": 16,
        "circuits lost: credit-exceeded": 1,
        "circuits lost: bad-frame": 3,
        "frames of circuits that are over": 1,
        "frames of circuits that cannot be read": 1,
    }
    assert counts["addresses that cannot be read"] == 1
    assert len(served.ends) == 5
    assert good.told == [("attached", b"own")]
    conditions = Counter[str]()
    for message in answers.messages:
        if message.payload and message.onward_route[1:]:  # not word that it takes bundles
            frame = parse_circuit_frame(message.payload)
            if isinstance(frame, CircuitRefused | CircuitDetach):
                conditions[frame.condition] += 1
    assert conditions["route-loop"] == 1
    assert conditions["peer-circuits-full"] == 16
    assert conditions["credit-exceeded"] == 1
    await other.stop_worker(link)
    await sleep(1)
    assert at.statistics().circuits == 1


async def in_time(condition: Callable[[], object]) -> None:
    """Wait until something is true, for as long as a loaded machine may take."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - conditions have no event
            await sleep(0.01)


@pytest.mark.real_time
async def test_three_nodes_over_tcp() -> None:
    async with Node("a") as a, Node("b") as b, Node("c") as c:
        at = [await Dispatcher.attach(each) for each in (a, b, c)]
        to_b = await b.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        to_c = await c.listen("tcp://127.0.0.1:0", expose=[DISPATCH])
        await at[0].neighbour(to_b.uri)
        link = await at[1].neighbour(to_c.uri)
        for each in at:
            each.provision("orders", RESUME)
        served = Served().serve(at[2])
        ends: list[KeptEnd] = []

        def is_attached() -> bool:
            """Attach again and again, until the nodes have heard of the container."""
            if not ends or ends[-1].named("refused"):
                ends.append(opened(at[0]))
            return ends[-1].link.attached

        await in_time(is_attached)
        end = ends[-1]
        served.ends[0].link.grant(1000)
        await in_time(lambda: end.link.credit == 1000)
        # More than the connections between take at once.
        for number in range(30):
            end.link.send(b"%d" % number, bytes(100_000), settled=True)
        await in_time(lambda: len(served.ends[0].named("transfer")) == 30)
        end.link.send(b"kept", b"x")
        await in_time(lambda: bool(served.ends[0].link.unsettled))
        await b.stop_worker(link)
        await in_time(lambda: end.last()[0] == "down")
        await at[1].neighbour(to_c.uri)
        await in_time(lambda: end.link.attached)
        served.ends[0].link.dispose(b"kept", b"state")
        await in_time(lambda: end.last() == ("disposition", b"kept", b"state", True))


# --- slow links -------------------------------------------------------------------------------


async def narrow(
    net: Net, at: str, circuits: CircuitLimits | None = None
) -> tuple[KeptEnd, KeptEnd]:
    """Return the ends of a circuit over a link that is narrow in both directions, with credit."""
    await net.start("a", "b", "c", circuits=circuits)
    await net.join("a", "b")
    await net.join("b", "c")
    net.provision("orders", LINK)
    served = Served().serve(net.at["c"])
    await sleep(SETTLE)
    end = opened(net.at["a"])
    await sleep(1)
    served.ends[0].link.grant(100)
    await sleep(1)
    make_narrow(net, at, net.links[at, "b" if at == "a" else "c"])
    return end, served.ends[0]


@pytest.mark.parametrize("at", ["a", "b"])
async def test_frames_wait_for_a_slow_link_in_their_order(net: Net, at: str) -> None:
    end, there = await narrow(net, at)
    for number in range(50):
        end.link.send(b"%d" % number, b"payload")
    assert bool(end.link.waiting) is (at == "a")
    await sleep(5)
    assert end.link.waiting == 0
    assert [each[0] for each in there.named("transfer")] == [b"%d" % each for each in range(50)]
    assert end.named("ready") == ([()] if at == "a" else [])
    end.link.detach()
    await sleep(5)
    assert there.last()[:2] == ("down", DETACHED)


async def test_an_end_that_sends_more_than_a_slow_link_takes_loses_its_circuit(net: Net) -> None:
    end, there = await narrow(net, "a", circuits=CircuitLimits(max_waiting=1000))
    for number in range(20):
        if end.link.attached:
            end.link.send(b"%d" % number, bytes(200))
    await sleep(5)
    assert end.last() == ("down", LOST, "too-slow", "", False)
    assert there.last() == ("down", LOST, "too-slow", "", False)
    assert end.link.waiting == 0


async def test_what_waits_for_a_link_that_is_lost_is_forgotten(net: Net) -> None:
    end, there = await narrow(net, "a")
    other = opened(net.at["a"])
    for number in range(20):
        end.link.send(b"%d" % number, b"payload")
    assert end.link.waiting
    await net.cut("a", "b")
    await sleep(5)
    assert end.last() == ("down", LOST, "route-lost", "", False)
    assert there.last()[:2] == ("down", LOST)
    assert (end.link.waiting, other.last()[1]) == (0, "route-lost")
    assert_empty(net)


async def test_ends_that_answer_each_other_leave_turns_to_others(net: Net) -> None:
    await net.start("a")
    net.provision("orders", LINK)
    others = 0

    def send(end: KeptEnd, name: str) -> None:
        if name == "flow":
            end.link.send(b"%d" % len(end.told), b"", settled=True)

    def ask(end: KeptEnd, name: str) -> None:
        if name == "transfer" and len(end.told) < 1000:
            end.link.grant(1)

    class Asking(Served):
        def __call__(self, attach: CircuitAttach, link: CircuitLink) -> KeptEnd:
            end = KeptEnd(ask)
            end.link = link
            self.ends.append(end)
            link.accept()
            return end

    served = Asking().serve(net.at["a"])
    opened(net.at["a"], react=send)
    served.ends[0].link.grant(1)
    while len(served.ends[0].told) < 1000:
        others += 1
        await sleep(0)
    assert others > 3


async def test_no_more_ends_wait_to_be_resumed_than_there_may(net: Net) -> None:
    await net.start("a", "b", circuits=CircuitLimits(max_suspended=1))
    await net.join("a", "b")
    net.provision("orders", RESUME)
    served = Served().serve(net.at["b"])
    await sleep(SETTLE)
    ends = [opened(net.at["a"]) for _ in range(2)]
    await sleep(1)
    await net.cut("a", "b")
    await sleep(1)
    assert [each.last() for each in served.ends] == [
        ("down", CLOSED, "route-lost", "", False),
        ("down", LOST, "route-lost", "", True),
    ]
    await net.join("a", "b")
    await sleep(SETTLE)
    # The other one has a new circuit, as its other end is over.
    assert [each.last() for each in ends] == [("attached", b"own")] * 2
    assert len(served.ends) == 3
    assert net.at["b"].statistics().counts["circuits over max_suspended"] == 1
