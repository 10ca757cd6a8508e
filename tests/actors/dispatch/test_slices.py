"""Many names: what changes for all of them is done in slices, and no name is used before."""

from __future__ import annotations

import asyncio
import json
from asyncio import sleep

import pytest

from onward.actors import Node
from onward.actors.dispatch import Accept, Dispatcher, DispatchOptions, _inspection
from onward.actors.dispatch._name_state import NameState
from onward.actors.services import ManagementService
from onward.protocol.dispatch import ACCEPTED, MODIFIED, Outcome, Semantics
from onward.transports.simulated import SimulatedNetwork
from tests.actors.dispatch.nets import SETTLE, Net, ended, sent
from tests.support.fixtures import Patch

SLICE = 10
MANY = 95


class Turns:
    """The names that a method was called for, by turns of the loop."""

    def __init__(self, node: Node, monkeypatch: Patch, method: str) -> None:
        self.turns: list[int] = []
        self._fresh = True
        self._loop = node.loop
        right = getattr(NameState, method)

        def counted(state: NameState, *given: object, **named: object) -> object:
            if state._core.node is node:
                self._count()
            return right(state, *given, **named)

        monkeypatch.setattr(NameState, method, counted)

    def _count(self) -> None:
        if self._fresh:
            self._fresh = False
            self.turns.append(0)
            self._loop.call_soon(self._next)
        self.turns[-1] += 1

    def _next(self) -> None:
        self._fresh = True


@pytest.fixture
async def net(network: SimulatedNetwork) -> Net:
    """Two nodes, of which the first has many names with a consumer at the second."""
    net = Net(network)
    node = net.nodes["a"] = await network.node("a")
    net.at["a"] = await Dispatcher.attach(node, DispatchOptions(name_slice=SLICE))
    await net.start("b")
    await net.join("a", "b")
    for each in range(MANY):
        await net.at["b"].consume(f"orders/{each}", lambda _: None, accept=Accept.HANDLED)
    await sleep(SETTLE)
    for each in range(MANY):
        await net.at["a"].produce(f"orders/{each}")
    return net


async def test_other_paths_are_given_to_some_names_a_turn(net: Net, monkeypatch: Patch) -> None:
    turns = Turns(net.nodes["a"], monkeypatch, "set_paths")
    await net.cut("a", "b")
    await sleep(SETTLE)
    assert max(turns.turns) <= SLICE
    assert sum(turns.turns) >= MANY
    assert {each.nodes for each in net.at["a"].names()} == {0}
    await net.join("a", "b")
    await sleep(SETTLE)
    assert max(turns.turns) <= SLICE
    assert {each.nodes for each in net.at["a"].names()} == {1}


async def test_a_lost_link_ends_what_was_unsettled_on_it_and_looks_at_no_other_name(
    net: Net, monkeypatch: Patch
) -> None:
    for each in range(25):
        await net.keep("b", f"kept/{each}")
    await sleep(SETTLE)
    sends = list[asyncio.Task[Outcome]]()
    for each in range(25):
        sends += await sent(await net.at["a"].produce(f"kept/{each}"), 1)
    turns = Turns(net.nodes["a"], monkeypatch, "link_lost")
    assert net.at["a"].statistics().unsettled == 25
    await net.cut("a", "b")
    assert await ended(sends) == [MODIFIED] * 25
    assert turns.turns == [SLICE, SLICE, 5]
    assert (net.at["a"]._core.copies.downstream, net.at["a"]._core.copies.upstream) == ({}, {})


async def test_a_link_that_is_back_waits_until_all_has_ended(net: Net, monkeypatch: Patch) -> None:
    kept = [await net.keep("b", f"kept/{each}") for each in range(25)]
    await sleep(SETTLE)
    sends = list[asyncio.Task[Outcome]]()
    for each in range(25):
        sends += await sent(await net.at["a"].produce(f"kept/{each}"), 1)
    core, (link,) = net.at["a"]._core, net.at["a"]._core.topology.links
    joined: list[bool] = []
    turns = Turns(net.nodes["a"], monkeypatch, "link_lost")
    # The connection of the link is lost, and lost again before all of it has ended.
    for _ in range(2):
        core.topology._broken(link)
        joined.append(core.topology.network.is_joined(link))
    assert await ended(sends) == [MODIFIED] * 25
    await sleep(SETTLE)
    assert turns.turns == [SLICE, SLICE, 5]
    assert joined == [False, False]
    assert all(each.deliveries for each in kept)
    producer = await net.at["a"].produce("orders/1")
    assert await producer.send(b"x") == ACCEPTED


async def test_provisions_reach_the_names_that_they_match(net: Net, monkeypatch: Patch) -> None:
    turns = Turns(net.nodes["a"], monkeypatch, "update")
    a = net.at["a"]
    a.provision("orders.7", Semantics(window=7))
    await sleep(1)
    assert turns.turns == [1]
    a.provision("orders/#", Semantics(window=9))
    # It is used before its turn has come.
    assert await (await a.produce_any()).send("orders/90", b"x") == ACCEPTED
    producer = await a.produce("orders/91")
    assert producer.credit == 9
    await sleep(1)
    assert max(turns.turns) <= SLICE + 2
    assert {each.provision for each in a.names()} == {"orders/#", "orders.7"}
    states = a._core.names.states
    assert {text: each.semantics.window for text, each in states.items() if "/7" in text} == {
        f"orders/{each}": 7 if each == 7 else 9 for each in (7, *range(70, 80))
    }


async def test_a_flood_of_provisions_is_gathered(net: Net, monkeypatch: Patch) -> None:
    turns = Turns(net.nodes["a"], monkeypatch, "update")
    b = net.at["b"]
    for each in range(1500):
        b.provision(f"orders.{each}", Semantics(window=each + 1))
    await sleep(SETTLE)
    assert max(turns.turns) <= SLICE
    assert sum(turns.turns) < 4 * MANY
    states = net.at["a"]._core.names.states
    assert {each.semantics.window for each in states.values()} == set(range(1, MANY + 1))
    # The default is for all names that no pattern matches.
    for each in range(1500):
        b.withdraw(f"orders.{each}")
    net.at["a"].load('[default]\nrouting = "balanced"\nwindow = 5')
    await sleep(SETTLE)
    assert {each.semantics.window for each in states.values()} == {5}


async def test_a_fault_of_one_name_does_not_keep_others(
    net: Net, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    core = net.at["a"]._core
    seen: list[int] = []

    def fail_at_three(number: int) -> None:
        seen.append(number)
        if number == 3:
            raise RuntimeError("a fault of one")

    def end() -> None:
        seen.append(-1)
        raise RuntimeError("a fault at the end")

    core.slices.begin(iter(range(3 * SLICE)), fail_at_three, end)
    core.slices.begin(iter([100]), seen.append)
    await sleep(1)
    assert seen == [*range(2 * SLICE), 100, *range(2 * SLICE, 3 * SLICE), -1]
    assert "work on the names of a dispatcher" in caplog.text


async def test_the_names_are_read_in_slices_for_an_operator(net: Net, monkeypatch: Patch) -> None:
    node = net.nodes["a"]
    await node.start(ManagementService, address="management")
    monkeypatch.setattr(_inspection, "_SLICE", SLICE)
    turns = Turns(node, monkeypatch, "statistics")
    answer = json.loads((await node.request("management", b"addresses")).payload)
    assert turns.turns == [SLICE] * 9 + [5]
    assert answer["total"] == MANY
    names = [each.name for each in net.at["a"].names()]
    assert names == sorted(f"orders/{each}" for each in range(MANY))
    assert [each["name"] for each in answer["rows"]] == names
