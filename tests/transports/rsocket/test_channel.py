"""Which destinations of a channel want the fewest elements and the most."""

from __future__ import annotations

from typing import cast

from onward.transports.rsocket._channel import DemandHeap
from onward.transports.rsocket._leg import Leg


class Taker:
    """As much of a branch as is looked at."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.wanted = 0
        self.input_open = True


def made(count: int) -> tuple[DemandHeap, list[Taker], list[Leg]]:
    wants, takers = DemandHeap(), [Taker(number) for number in range(count)]
    branches = [cast(Leg, taker) for taker in takers]
    for branch in branches:
        wants.note(branch, branches, count)
    return wants, takers, branches


def test_the_fewest_and_the_most() -> None:
    wants, takers, branches = made(3)
    assert (wants.fewest(), wants.most()) == (0, 0)
    for taker, branch, n in zip(takers, branches, (3, 1, 2), strict=True):
        taker.wanted = n
        wants.note(branch, branches, 3)
    assert (wants.fewest(), wants.most()) == (1, 3)
    takers[1].input_open = False
    assert (wants.fewest(), wants.most()) == (2, 3)
    takers[0].input_open = False
    assert (wants.fewest(), wants.most()) == (2, 2)


def test_what_is_no_longer_true_is_not_kept_for_ever() -> None:
    wants, takers, branches = made(10)
    takers[7].input_open = False
    for _ in range(1000):
        takers[3].wanted += 1
        wants.note(branches[3], branches, 9)
        assert len(wants) <= 2 * 9 + 64
    assert (wants.fewest(), wants.most()) == (0, 1000)
