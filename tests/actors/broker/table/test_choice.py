"""Choosing by more than turns: methods, shards, sticky keys, and methods that fail."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

import pytest

from onward.actors.broker import AnyRoute, Ask, BrokerRoute, ChoiceOptions, Destination
from onward.actors.broker.table._choice import Candidates, Choice
from onward.actors.broker.table._methods import Methods
from onward.actors.broker.table._remote import own_route
from onward.actors.broker.table._selector import Selectors
from onward.protocol import Address, address
from onward.protocol.broker import (
    Balancer,
    Candidate,
    Entry,
    Placement,
    QueryReader,
    Rendezvous,
    RouteKind,
    Sharding,
    TargetEntry,
)


class Broken(Balancer):
    """Fails in one of several ways."""

    result: int | None = None

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        if self.result is None:
            raise ZeroDivisionError("what a plug-in does wrong")
        return self.result


class Outside(Broken):
    result = 99


class Before(Broken):
    result = -1


class Last(Balancer):
    """The last of a slice, looked at in every way there is."""

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        assert [each.route_id for each in candidates[1:]] == [
            each.route_id for each in list(candidates)[1:]
        ]
        return len(candidates) - 1


class BrokenShard(Sharding):
    def prepare(self, members: Sequence[bytes]) -> Placement:
        raise ZeroDivisionError("what a plug-in does wrong")


class Counting(Sharding):
    """Counts what it prepares."""

    prepared = 0

    def prepare(self, members: Sequence[bytes]) -> Placement:
        type(self).prepared += 1
        return Rendezvous().prepare(members)


OPTIONS = ChoiceOptions(
    balancers={"broken": Broken, "outside": Outside, "before": Before, "last": Last},
    shard_methods={"broken": BrokenShard, "counting": Counting},
)


def entry(number: int) -> Entry[AnyRoute]:
    identity = UUID(int=number)
    destination = Destination(identity, "a", (), address("to"), link=True, peer="p")
    route: AnyRoute = BrokerRoute(destination, 0.0)
    return TargetEntry(identity.bytes, RouteKind(bytes(16), "a", ()), 1, route)


def some(count: int) -> Candidates:
    return tuple(entry(number) for number in range(1, count + 1))


class World:
    def __init__(self, max_sticky: int = 100, max_placed: int = 100) -> None:
        self.ways = Selectors(QueryReader(), Methods(OPTIONS), 100)
        self.now = 1000.0
        self.choice = Choice(max_sticky, max_placed, lambda: self.now)
        self.choice.random = Random(5).random

    def ask(self, text: str) -> Ask:
        return self.ways.named(Address(32, text.encode()))

    def pick(self, text: str, candidates: Candidates) -> int:
        picked = self.choice.pick(self.ask(text), candidates)
        assert picked is not None
        return picked

    def preview(self, text: str, candidates: Candidates) -> int | None:
        return self.choice.preview(self.ask(text), candidates)


# --- unicast --------------------------------------------------------------------------------
def test_methods_see_what_the_broker_counts() -> None:
    world, candidates = World(), some(2)
    candidates[0].target.outstanding = 3
    picked = {world.pick("@method=least-outstanding service=a", candidates) for _ in range(50)}
    assert picked == {1}
    slow, fast = map(own_route, candidates)
    slow.outstanding = fast.outstanding = 1
    slow.ended(5.0)
    fast.ended(0.1)
    picked = {world.pick("@method=peak-ewma service=a", candidates) for _ in range(50)}
    assert picked == {1}
    slow.weight, fast.weight = 3.0, 1.0
    counts = Counter(world.pick("@method=weighted service=a", candidates) for _ in range(400))
    assert counts == {0: 300, 1: 100}


def test_a_method_may_look_at_candidates_in_any_way() -> None:
    assert World().pick("@method=last service=a", some(5)) == 4


def test_chance_is_the_broker_s() -> None:
    world = World()
    world.choice.random = lambda: 0.999
    assert world.pick("@method=random service=a", some(5)) == 4


def test_an_unknown_method_takes_turns_and_is_counted() -> None:
    world, candidates = World(), some(3)
    assert [world.pick("@method=best service=a", candidates) for _ in range(4)] == [0, 1, 2, 0]
    assert world.choice.unknown == 4


@pytest.mark.parametrize("method", ["broken", "outside", "before"])
def test_a_failing_method_is_counted_and_logged(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    world, candidates = World(), some(4)
    with caplog.at_level(logging.ERROR, "onward.actors.broker"):
        picked = {world.pick(f"@method={method} service=a", candidates) for _ in range(100)}
    assert picked == {0, 1, 2, 3}
    assert world.choice.failed == 100
    assert len(caplog.records) == 7  # the first, and then 2, 4, 8, ... 64


def test_all_are_to_have_a_multicast_or_the_only_one() -> None:
    world = World()
    assert world.choice.pick(world.ask("@multicast service=a"), some(2)) is None
    assert world.pick("@multicast service=a", some(1)) == 0


# --- sticky ---------------------------------------------------------------------------------
def sticky(user: int, service: str = "a", method: str = "") -> str:
    return f"@sticky=user {method}service={service} user={user}"


def test_a_sticky_key_stays_while_its_destination_does() -> None:
    world, candidates = World(), some(4)
    first = [world.pick(sticky(user), candidates) for user in range(8)]
    assert first == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [world.pick(sticky(user), candidates) for user in range(8)] == first
    joined = (*candidates, entry(9))
    assert [world.pick(sticky(user), joined) for user in range(8)] == first
    left = candidates[1:]
    then = [left[world.pick(sticky(user), left)] for user in range(8)]
    assert [each for each in then if each in candidates[1:]] == then
    assert [then[user] for user in (1, 2, 3)] == list(candidates[1:])
    assert [left[world.pick(sticky(user), left)] for user in range(8)] == then


def test_a_sticky_key_with_a_method_that_fails() -> None:
    world = World()
    world.pick(sticky(1, method="@method=broken "), some(2))
    assert world.choice.failed == 1
    assert world.choice.forgotten == 0


def test_keys_are_forgotten_at_the_limit() -> None:
    world, candidates = World(max_sticky=10), some(3)
    for user in range(25):
        world.pick(sticky(user), candidates)
    assert world.choice.forgotten == 15
    for user in range(8):
        world.pick(sticky(user, "b"), candidates)
    # Those of the service that was not asked for longest, all together.
    assert world.choice.forgotten == 25
    assert len(world.choice._sticky) == 1
    assert world.choice._keys == 8


def test_the_places_of_candidates_are_limited_as_well() -> None:
    world = World(max_placed=10)
    world.pick(sticky(1), some(6))
    world.pick(sticky(1, "b"), some(3))
    assert (len(world.choice._sticky), world.choice._noted) == (2, 9)
    world.pick(sticky(1, "b"), some(5))
    assert (len(world.choice._sticky), world.choice._noted) == (1, 5)
    assert world.choice.forgotten == 1


def test_what_is_not_remembered_is_not_sticky() -> None:
    world = World()
    words = " ".join(f"key{number}={'v' * 100}" for number in range(12))
    world.pick(f"@sticky=user {words} user=1", some(2))
    assert not world.choice._sticky
    assert world.choice._keys == world.choice._noted == 0
    assert world.choice.forgotten == 1


# --- shard ----------------------------------------------------------------------------------
def shard(user: int, method: str = "", service: str = "a") -> str:
    return f"@shard=user {method}service={service} user={user}"


@pytest.mark.parametrize(
    "method", ["", "@method=jump ", "@method=modulo ", "@method=bounded-ring "]
)
def test_a_key_belongs_to_one_destination_whatever_their_order(method: str) -> None:
    world, candidates = World(), some(5)
    first = [candidates[world.pick(shard(user, method), candidates)] for user in range(100)]
    assert set(first) == set(candidates)
    turned = candidates[::-1]
    assert [turned[world.pick(shard(user, method), turned)] for user in range(100)] == first


def test_a_ring_looks_at_load() -> None:
    world, candidates = World(), some(3)
    method = "@method=bounded-ring "
    home = world.pick(shard(1, method), candidates)
    candidates[home].target.outstanding = 10
    assert world.pick(shard(1, method), candidates) != home


def test_a_shard_is_prepared_once_for_the_same_candidates() -> None:
    world, candidates = World(), some(5)
    before = Counting.prepared
    for user in range(10):
        world.pick(shard(user, "@method=counting "), candidates)
    assert Counting.prepared - before == 1
    world.pick(shard(1, "@method=counting "), some(6))
    assert Counting.prepared - before == 2
    assert world.choice._members == 6


def test_what_is_prepared_is_limited() -> None:
    world = World(max_placed=10)
    a, b, big = some(6), some(4), some(11)
    for candidates, service in ((a, "a"), (b, "b"), (a, "a"), (some(3), "c")):
        world.pick(shard(1, service=service), candidates)
    assert [selector.query for selector in world.choice._placed] == [
        world.ask(f"service={name}").query for name in "ac"
    ]
    world.pick(shard(1, service="d"), big)
    words = " ".join(f"key{number}={'v' * 100}" for number in range(12))
    world.pick(f"@shard=user {words} user=1", b)
    assert len(world.choice._placed) == 2
    assert world.choice._members == 9


def test_a_shard_method_that_fails_sends_a_key_always_to_the_same() -> None:
    world, candidates = World(), some(4)
    text = "@method=broken "
    picked = [world.pick(shard(user, text), candidates) for user in range(20)]
    assert set(picked) == {0, 1, 2, 3}
    assert [world.pick(shard(user, text), candidates) for user in range(20)] == picked
    assert world.choice.failed == 40


# --- looking ahead --------------------------------------------------------------------------
def test_who_is_next_and_nobodys_turn_is_used_up() -> None:
    world, candidates = World(), some(3)
    for expected in (0, 1, 2, 0):
        assert world.preview("service=a", candidates) == expected
        assert world.preview("service=a", candidates) == expected
        assert world.pick("service=a", candidates) == expected
    own_route(candidates[2]).weight = 5.0
    for _ in range(5):
        ahead = world.preview("@method=weighted service=a", candidates)
        assert world.pick("@method=weighted service=a", candidates) == ahead
    assert world.preview(shard(7), candidates) == world.pick(shard(7), candidates)


def test_nobody_is_next_if_chance_decides_or_all_are() -> None:
    world, candidates = World(), some(3)
    for text in ("@method=random service=a", "@method=broken service=a", "@multicast service=a"):
        assert world.preview(text, candidates) is None
        assert world.preview(text, some(1)) == 0
    assert world.choice.failed == 0


def test_who_is_next_for_a_sticky_key() -> None:
    world, candidates = World(), some(3)
    assert world.preview(sticky(1), candidates) == 0
    assert world.pick(sticky(1), candidates) == 0
    assert [world.preview(sticky(user), candidates) for user in (1, 2, 1)] == [0, 1, 0]
    assert world.choice.stuck(world.ask(sticky(1)), candidates) == 0
    assert world.choice.stuck(world.ask(sticky(2)), candidates) is None
    # Where it stayed has left: the method would choose anew.
    assert world.choice.stuck(world.ask(sticky(1)), candidates[1:]) is None
    assert world.preview(sticky(1), candidates[1:]) == 1
    assert world.preview(sticky(1), candidates) == 0
    assert world.preview("service=a", candidates) == 1
