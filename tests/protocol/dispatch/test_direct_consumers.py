"""The second consumer of a direct name, at one node and in a network: all nodes agree."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import MAX_NUMBER, DirectAdmission, DirectConsumers, Second

YES, NO = DirectAdmission(admitted=True), DirectAdmission(admitted=False)


def test_a_second_consumer_is_refused() -> None:
    consumers = DirectConsumers("a", Second.REFUSE, 10)
    assert [consumers.claim, consumers.winner] == [None, None]
    assert consumers.add(9, 0) == YES
    assert consumers.claim == 1  # 0 is no claim
    consumers.remove(9)
    assert consumers.add(1, 100) == YES
    assert consumers.add(2, 200) == NO
    consumers.remove(2)
    assert (consumers.active, consumers.claim) == (1, 100)
    consumers.remove(1)
    assert consumers.active is None
    assert consumers.add(2, 50) == YES


def test_a_claim_is_at_most_the_largest_number() -> None:
    consumers = DirectConsumers("a", Second.STANDBY, 10)
    consumers.set_others({"b": MAX_NUMBER})
    assert consumers.add(1, 100) == YES
    assert (consumers.claim, consumers.winner) == (MAX_NUMBER, "a")


def test_the_newest_takes_the_place() -> None:
    consumers = DirectConsumers("a", Second.NEWEST, 10)
    assert consumers.add(1, 100) == YES
    assert consumers.add(2, 100) == DirectAdmission(admitted=True, displaced=1)
    consumers.remove(1)
    assert (consumers.active, consumers.claim) == (2, 101)


def test_a_standby_waits_until_the_place_is_free() -> None:
    consumers = DirectConsumers("a", Second.STANDBY, 2)
    assert [consumers.add(number, 7) for number in (1, 2, 3, 4)] == [YES, YES, YES, NO]
    assert list(consumers.standby) == [2, 3]
    consumers.remove(2)
    assert [consumers.active] == [1]
    consumers.remove(1)
    assert (consumers.active, consumers.standby, consumers.claim) == (3, (), 9)


def test_a_consumer_at_another_node_is_the_first_one() -> None:
    refusing = DirectConsumers("b", Second.REFUSE, 10)
    assert refusing.set_others({"a": 100}) == ()
    assert refusing.winner == "a"
    assert refusing.add(1, 200) == NO
    assert refusing.set_others({}) == ()
    assert refusing.add(1, 200) == YES
    assert refusing.set_others({"a": 201}) == ()
    assert refusing.active == 1
    assert refusing.set_others({"c": 200}) == ()  # the first one by name
    assert refusing.set_others({"a": 200}) == (1,)
    assert refusing.winner == "a"


def test_the_newest_of_the_network_has_the_name_whatever_the_clocks_are() -> None:
    newest = DirectConsumers("b", Second.NEWEST, 10)
    newest.set_others({"a": 500})
    assert newest.add(1, 100) == YES
    assert (newest.active, newest.claim) == (1, 501)
    assert newest.set_others({"a": 501}) == ()
    assert newest.set_others({"c": 501}) == (1,)


def test_a_standby_of_the_network_has_the_name_when_the_others_are_gone() -> None:
    waiting = DirectConsumers("b", Second.STANDBY, 10)
    waiting.set_others({"a": 100, "c": 200})
    assert waiting.add(1, 50) == YES
    assert (waiting.active, waiting.standby, waiting.claim) == (None, (1,), 201)
    waiting.set_others({"c": 200})
    assert waiting.active is None
    waiting.set_others({})
    assert waiting.active == 1
    waiting.set_others({"a": 100})
    assert (waiting.active, waiting.standby) == (None, (1,))


@pytest.mark.parametrize("second", Second)
@given(random=st.randoms(use_true_random=False))
def test_one_node_has_the_name_when_all_know_all_claims(second: Second, random: Random) -> None:
    nodes = {name: DirectConsumers(name, second, 3) for name in "abc"}

    def tell(name: str) -> None:
        claims = {other: each.claim for other, each in nodes.items() if other != name}
        nodes[name].set_others({other: claim for other, claim in claims.items() if claim})

    for number in range(1, 20):
        name = random.choice("abc")
        if random.random() < 0.3:
            tell(name)
        elif random.random() < 0.3:
            nodes[name].remove(random.randrange(1, 20))
        else:
            nodes[name].add(number, random.randrange(1, 50))
    for _ in range(3):
        for name in nodes:
            tell(name)
    winners = {each.winner for each in nodes.values()}
    active = [name for name, each in nodes.items() if each.active is not None]
    assert len(winners) == 1
    assert winners == set(active) or (winners == {None} and not active)
