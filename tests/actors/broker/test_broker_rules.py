"""The rules of a broker: what becomes of registrations when other rules are put in force."""

from __future__ import annotations

import asyncio
from functools import partial
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, BrokerOptions, _broker_rules
from onward.actors.broker.table._leaving import NOT_ALLOWED
from onward.actors.security import Authorization
from onward.protocol.broker import RouteSetup
from onward.protocol.security import Principal, read_rules
from tests.support.compiled import interpreted
from tests.support.workers import Recorder

RULES = "rule = [{roles = ['shop', 'mail'], register = 'service=orders'}]"
LESS = "rule = [{roles = ['mail'], register = 'service=orders'}]"


class Ruled:
    """A broker with rules, and connections of the roles shop and mail in turn.

    Attributes:
        broker: The broker.
        authorization: Its rules.
        evicted: The connections that were closed, by number, in order.
    """

    def __init__(self, broker: Broker, authorization: Authorization) -> None:
        self.broker = broker
        self.authorization = authorization
        self.evicted: list[int] = []

    async def connect(self, count: int) -> None:
        """Let connections register."""
        for number in range(count):
            worker = await self.broker.node.start(Recorder)
            role = ("shop", "mail")[number % 2]
            self.broker.connect(
                RouteSetup(UUID(int=number + 1).bytes, "orders"),
                worker,
                peer="client",
                evict=partial(self._evict, number),
                principal=Principal(f"p{number}", "token", frozenset({role})),
            )

    def _evict(self, number: int, reason: str) -> None:
        assert reason == NOT_ALLOWED
        self.evicted.append(number)

    def suspend(self, number: int) -> None:
        """Suspend the session of a connection."""
        index = self.broker.index
        (entry,) = (
            each for each in index.own_entries() if each.route_id == UUID(int=number + 1).bytes
        )
        assert index.suspend(entry)

    @property
    def left(self) -> set[int]:
        """The connections that are registered, their sessions suspended or not."""
        index = self.broker.index
        ids = {*(entry.route_id for entry in index.own_entries()), *index.suspended}
        return {int.from_bytes(each) - 1 for each in ids}


@pytest.fixture
async def ruled(node: Node) -> Ruled:
    authorization = Authorization(read_rules(RULES))
    options = BrokerOptions(management=False)
    return Ruled(await Broker.attach(node, options, authorization=authorization), authorization)


@interpreted
async def test_registrations_are_checked_by_other_rules_in_slices(
    ruled: Ruled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_broker_rules, "CHECKED", 3)
    await ruled.connect(9)
    ruled.suspend(0)
    ruled.authorization.replace(read_rules(LESS))
    assert ruled.evicted == [2]  # 1, 2 and 3 are looked at at once
    ruled.suspend(6)
    ruled.authorization.replace(read_rules(LESS))  # all of them again
    assert ruled.evicted == [2]
    await asyncio.sleep(1)
    assert ruled.evicted == [2, 4, 8, 0, 6]
    assert ruled.left == {1, 3, 5, 7}


@interpreted
async def test_rules_that_come_while_registrations_are_checked_hold_for_the_rest(
    ruled: Ruled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_broker_rules, "CHECKED", 3)
    await ruled.connect(6)
    ruled.authorization.replace(read_rules(LESS))
    assert ruled.evicted == [0, 2]
    ruled.authorization.replace(read_rules(RULES))
    await asyncio.sleep(1)
    assert ruled.left == {1, 3, 4, 5}
    # Without rules there is nothing to check.
    ruled.authorization.replace(read_rules(LESS))
    ruled.broker.authorization = None
    await asyncio.sleep(1)
    assert ruled.left == {1, 3, 5}
    assert not ruled.broker._to_check


@interpreted
async def test_a_connection_that_cannot_be_closed_does_not_keep_others_from_being_checked(
    ruled: Ruled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_broker_rules, "CHECKED", 3)
    closed = ruled.evicted.append

    def evict(number: int, reason: str) -> None:
        del reason
        if number == 2:
            raise RuntimeError("cannot be closed")
        closed(number)

    monkeypatch.setattr(ruled, "_evict", evict)
    await ruled.connect(9)
    with pytest.raises(RuntimeError, match="cannot be closed"):
        ruled.authorization.replace(read_rules(LESS))
    await asyncio.sleep(1)
    assert ruled.evicted == [0, 4, 6, 8]
    assert ruled.left == {1, 3, 5, 7}
