"""The address table, the rules and the router without a node."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from onward.actors import LimitReached, NodeLimits, Rule, Unresolved
from onward.actors.routing._router import Passage, Router
from onward.actors.routing._rules import Rules
from onward.actors.routing._table import AddressTable, RandomAddresses
from onward.actors.routing._undeliverable import Undeliverable
from onward.actors.runtime._mailbox import Target
from onward.actors.runtime._run_queue import RunQueue
from onward.protocol import (
    Address,
    AddressInUse,
    Message,
    NodeStopped,
    UnknownAddress,
    UnknownAddressType,
)
from tests.support.compiled import interpreted

A, B = Address(0, b"a"), Address(0, b"b")
TYPE = 200


class Bin(Target):
    """A target that keeps what it handles. It needs interpreted classes, as it is a subclass."""

    def __init__(self) -> None:
        self.queue = deque()
        self.limit = self.heavy = 10
        self.scheduled = False
        self.handled: list[bytes] = []

    def turn(self) -> int:
        queue = self.queue or deque()
        taken = len(queue)
        while queue:
            self.handled.append(queue.popleft().payload)
        self.scheduled = False
        return taken + 1


def router_with(targets: dict[Address, Target], limits: NodeLimits | None = None) -> Router:
    """Return an open router on the running loop."""
    run_queue = RunQueue("alone", limits or NodeLimits())
    table = AddressTable(run_queue.limits)
    table.targets.update(targets)
    router = Router(run_queue, table, Undeliverable(run_queue, table), Passage())
    run_queue.open()
    return router


def test_random_addresses_differ() -> None:
    made = RandomAddresses()
    assert len({made.take() for _ in range(1000)}) == 1000


@interpreted
def test_an_address_is_given_once_and_the_table_is_bounded() -> None:
    table = AddressTable(NodeLimits(addresses=2))
    table.targets[A] = Bin()
    table.check_free((B,))
    with pytest.raises(AddressInUse):
        table.check_free((A,))
    with pytest.raises(LimitReached):
        table.check_free((B, Address(0, b"c")))


@interpreted
def test_a_target_that_is_no_worker_has_no_cell() -> None:
    table = AddressTable(NodeLimits())
    table.targets[A] = Bin()
    assert (table.cell_at(A), table.worker_at(A), table.idle(A), table.cells()) == (
        None,
        None,
        None,
        [],
    )
    assert not table.is_request(A)
    assert not table.is_inside(A)
    assert table.link_on((A, B)) is None
    with pytest.raises(UnknownAddress):
        table.cell("a")


def test_the_oldest_request_given_up_is_forgotten_first() -> None:
    table = AddressTable(NodeLimits(late_answers=1))
    table.give_up(A)
    table.give_up(B)
    assert (table.is_late(A), table.is_late(B)) == (False, True)


def test_a_rule_is_loaded_when_it_is_first_needed() -> None:
    rules = Rules()
    loaded: list[int] = []

    def rule(message: Message) -> Message:
        return message

    def load(address_type: int) -> None:
        loaded.append(address_type)
        rules.add(address_type, rule)

    assert rules.find(TYPE) is None
    rules.load = load
    assert rules.find(TYPE) is rule
    assert rules.find(TYPE) is rule
    assert loaded == [TYPE]
    assert rules.find(0) is None
    assert rules.remove(TYPE)
    assert not rules.remove(TYPE)


@interpreted
async def test_a_router_alone_dispatches_by_table_and_rules() -> None:
    here = Bin()
    router = router_with({A: here})
    router.dispatch(Message((A,), (), b"1"))
    router.rules.add(TYPE, lambda message: message.redirect(A))
    router.dispatch(Message((Address(TYPE, b"x"),), (), b"2"))
    router.dispatch_now(Message((A,), (), b"3"))
    await asyncio.sleep(0.1)
    router.dispatch_now(Message((A,), (), b"4"))
    assert here.handled == [b"1", b"2", b"3", b"4"]
    with pytest.raises(UnknownAddress):
        router.dispatch(Message((B,), (), b""))
    with pytest.raises(UnknownAddressType):
        router.dispatch(Message((Address(TYPE + 1, b"x"),), (), b""))
    assert not router.dispatch_or_lose(Message((B,), (), b""))
    assert router.undeliverable.dead_letters.by_reason == {"no such worker": 1}


@interpreted
async def test_a_rule_of_several_receivers_needs_one() -> None:
    here = Bin()
    router = router_with({A: here})
    rule: Rule = lambda message: [message.redirect(each) for each in (A, B)]  # noqa: E731
    router.rules.add(TYPE, rule)
    router.dispatch(Message((Address(TYPE, b"x"),), (), b"1"))
    await asyncio.sleep(0.1)
    assert here.handled == [b"1"]
    router.rules.add(TYPE + 1, lambda message: [])
    with pytest.raises(Unresolved):
        router.dispatch(Message((Address(TYPE + 1, b"x"),), (), b"1"))


@interpreted
async def test_a_run_queue_alone_gives_turns_and_ends_with_its_loop() -> None:
    run_queue = RunQueue("alone", NodeLimits())
    here = Bin()
    with pytest.raises(NodeStopped):
        run_queue.call_on_loop(lambda: None)
    run_queue.open()
    here.queue = deque([Message((A,), (), b"1")])
    here.scheduled = True
    run_queue.schedule(here)
    assert run_queue.awake
    await asyncio.sleep(0.1)
    assert here.handled == [b"1"]
    assert not run_queue.awake
    ended: list[str] = []
    run_queue.on_loop_closed = lambda: ended.append("closed")
    assert isinstance(run_queue.loop_gone(), NodeStopped)
    run_queue.loop_gone()
    assert ended == ["closed"]
