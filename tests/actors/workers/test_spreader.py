from __future__ import annotations

import asyncio

import pytest

from onward.actors import MailboxOptions, Node
from onward.actors.testing import Probe
from onward.actors.workers import Echo, Spread, Spreader, SpreaderOptions
from onward.protocol import Message, UnknownAddress, route
from onward.protocol.payloads import PayloadError
from tests.support.workers import Gate, start_worker

ROUTES = ["a", "b", "c"]
INNER = ["spreader", "inner-a", "inner-b", "inner-c"]


async def probes(node: Node) -> list[Probe]:
    return [await Probe.on(node, name) for name in ROUTES]


async def spread(node: Node, spreader: Spreader) -> None:
    await node.start(lambda: spreader, address=INNER)


def counts(ends: list[Probe]) -> list[int]:
    return [len(each.messages) for each in ends]


async def test_each_route_in_turn_with_an_inner_address_of_its_own(node: Node) -> None:
    ends = await probes(node)
    await spread(node, Spreader(ROUTES))
    for number in range(4):
        node.send("spreader => rest", b"%d" % number, return_route="client")
    first, again = await ends[0].count(2)
    assert (first.payload, again.payload) == (b"0", b"3")
    assert first.onward_route == route("a => rest")
    assert first.return_route == route("inner-a => client")
    assert (await ends[2].next()).return_route == route("inner-c => client")


async def test_who_answers_an_answer_stays_with_the_one_who_gave_it(node: Node) -> None:
    for name in ROUTES:
        await node.start(Echo, address=name)
    spreader = Spreader(ROUTES)
    await spread(node, spreader)
    client = await Probe.on(node, "client")
    client.send("spreader", b"1")
    client.send("spreader", b"2")
    answers = await client.count(2)
    assert [each.return_route for each in answers] == [route("inner-a => a"), route("inner-b => b")]
    client.send(answers[1].return_route, b"3")
    answer = await client.next()
    assert (answer.payload, answer.return_route) == (b"3", route("inner-b => b"))
    assert spreader.outstanding() == (0, 0, 0)


async def test_the_one_that_owes_least(node: Node) -> None:
    ends = await probes(node)
    spreader = Spreader(ROUTES, Spread.LEAST_OUTSTANDING)
    await spread(node, spreader)
    for _ in range(5):
        node.send("spreader", b"", return_route="client")
    await Probe.on(node, "client")
    await ends[2].next()
    await asyncio.sleep(1)
    assert counts(ends) == [2, 2, 1]
    for message in list(ends[0].messages):
        ends[0].reply(message, b"")
    await asyncio.sleep(1)
    assert spreader.outstanding() == (0, 2, 1)
    for _ in range(2):
        node.send("spreader", b"", return_route="client")
    await asyncio.sleep(1)
    assert spreader.outstanding() in ((1, 2, 2), (2, 2, 1))


async def test_who_never_answers_is_forgiven_in_time(node: Node) -> None:
    await probes(node)
    options = SpreaderOptions(max_outstanding=2, patience=30)
    spreader = Spreader(["a", "b"], Spread.LEAST_OUTSTANDING, options=options)
    await node.start(lambda: spreader, address="spreader")
    for _ in range(3):
        node.send("spreader", b"")
    await asyncio.sleep(20)
    node.send("spreader", b"")
    await asyncio.sleep(5)
    assert spreader.outstanding() == (2, 2)
    await asyncio.sleep(10)
    assert sorted(spreader.outstanding()) == [0, 1]


async def test_the_same_key_goes_the_same_way(node: Node) -> None:
    ends = await probes(node)
    await spread(node, Spreader(ROUTES, key=lambda message: message.payload[:1]))
    for payload in (b"a1", b"c1", b"d1", b"f1", b"a2", b"c2", b"d2", b"f2"):
        node.send("spreader", payload)
    await asyncio.sleep(1)
    by_end = [sorted(payload[:1] for payload in end.payloads) for end in ends]
    # In any process: they must go where they have always gone.
    assert by_end == [[b"c", b"c", b"f", b"f"], [], [b"a", b"a", b"d", b"d"]]


async def test_a_key_that_cannot_be_read_loses_the_message(node: Node) -> None:
    def key(message: Message) -> bytes:
        raise PayloadError("no key")

    await spread(node, Spreader(ROUTES, key=key))
    with pytest.raises(PayloadError):
        await node.request("spreader", b"")
    assert node.statistics().failed == 0


async def test_a_route_that_takes_nothing_is_passed_over(node: Node) -> None:
    gate = await start_worker(node, Gate(), "b", mailbox=MailboxOptions(1))
    end = await Probe.on(node, "c")
    await spread(node, Spreader(ROUTES))
    for _ in range(6):
        node.send("spreader", b"")
    await end.count(4)
    assert node.dead_letters.total == 0
    gate.opened.set()


async def test_what_no_route_takes_is_no_failure(node: Node) -> None:
    await spread(node, Spreader(ROUTES))
    with pytest.raises(UnknownAddress):
        await node.request("spreader", b"")
    # An answer with nowhere to go.
    node.send("inner-a", b"")
    await asyncio.sleep(1)
    assert node.dead_letters.by_reason == {"no such worker": 1, "empty route": 1}
    assert node.statistics().failed == 0


@pytest.mark.parametrize("routes", [[], ["a", ""]])
def test_a_spreader_needs_routes(routes: list[str]) -> None:
    with pytest.raises(ValueError, match="needs routes"):
        Spreader(routes)
