"""Messages that wait for a route: how many, how long, and whom a join releases."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from hypothesis import given, strategies as st

from onward.actors.broker import ChoiceOptions, WaitingOptions
from onward.actors.broker.table._methods import Methods
from onward.actors.broker.table._selector import Ask, Selectors
from onward.actors.broker.table._waiting import SPARE, Waiter, Waiters, WaitingStatistics
from onward.protocol import Address, Message
from onward.protocol.broker import QueryReader, Tag, TagList, parse_query

ASKS = Selectors(QueryReader(), Methods(ChoiceOptions()), 100)


def ask(text: str) -> Ask:
    return ASKS.named(Address(32, text.encode()))


def tags(text: str) -> TagList:
    return tuple(parse_query(text))


def message(number: int) -> Message:
    return Message((), (), str(number).encode())


def names(waiters: Iterable[Waiter]) -> list[int]:
    return [int(waiter.message.payload) for waiter in waiters]


def room(number: int, size: int) -> Waiters:
    """Return where so many may wait."""
    return Waiters(WaitingOptions(max_messages=number, max_bytes=size))


def released(waiters: Waiters, carried: Iterable[Tag]) -> list[Waiter]:
    """Take out all that a destination with these tags satisfies."""
    return [each for each in waiters.satisfied(carried) if waiters.withdraw(each.number)]


def fill(waiters: Waiters, *texts: str, patience: float = 5.0) -> None:
    for number, text in enumerate(texts):
        assert waiters.add(message(number), ask(text), 10, float(number), patience)


def test_a_join_releases_those_it_satisfies_in_the_order_they_came() -> None:
    waiters = room(100, 1000)
    fill(
        waiters,
        "service=a",
        "service=a region=eu",
        "service=b",
        "region=eu",
        "service=a zone=1",
        "region=eu service=a",
        "service=a",
    )
    assert names(released(waiters, tags("service=a region=eu zone=2"))) == [0, 1, 3, 5, 6]
    assert names(released(waiters, tags("service=a region=eu zone=2"))) == []
    assert names(released(waiters, tags("service=a zone=1 service=b"))) == [2, 4]
    assert waiters.statistics(9.0) == WaitingStatistics(0, 0, 0.0, 7)
    assert not waiters._groups
    assert not waiters._filed


def test_a_join_does_not_look_at_what_it_cannot_satisfy() -> None:
    waiters = room(1000, 10_000)
    fill(waiters, *(f"service=a user=u{number}" for number in range(500)))
    # All ask for one service, and yet they are filed under the other tag, but for the first.
    filed = waiters._filed.get(tags("service=a")[0], {})
    assert len(filed) <= 1
    assert names(released(waiters, tags("service=a user=u77"))) == [77]


def test_how_many_and_how_many_bytes() -> None:
    waiters = room(2, 25)
    fill(waiters, "service=a", "service=a")
    assert waiters.add(message(3), ask("service=a"), 0, 0.0, 1.0) is None
    assert waiters.withdraw(1) is not None
    assert waiters.withdraw(1) is None
    assert waiters.add(message(3), ask("service=a"), 16, 0.0, 1.0) is None
    assert waiters.add(message(3), ask("service=a"), 15, 0.0, 1.0) is not None
    assert waiters.statistics(4.0) == WaitingStatistics(2, 25, 3.0, 3, (1, 1))


def test_bytes_of_one_connection_to_the_last() -> None:
    waiters = Waiters(WaitingOptions(max_bytes_per_peer=100))

    def add(origin: bytes, size: int) -> Waiter | None:
        message = Message((), (Address(0, origin),), b"")
        return waiters.add(message, ask("service=a"), size, 0.0, 1.0)

    assert add(b"one", 101) is None
    whole = add(b"one", 100)
    assert whole is not None
    assert add(b"one", 1) is None
    assert add(b"two", 100) is not None
    waiters.withdraw(whole.number)
    part = add(b"one", 60)
    assert part is not None
    assert not waiters.place(part).grow(41)
    assert waiters.place(part).grow(40)
    assert not waiters.place(part).grow(1)


def test_each_has_its_own_patience() -> None:
    waiters = room(100, 1000)
    for number, patience in enumerate((5.0, 1.0, 300.0, 1.0)):
        assert waiters.add(message(number), ask("service=a"), 1, 0.0, patience)
    assert waiters.deadline() == 1.0
    assert names(waiters.overdue(0.9)) == []
    assert names(waiters.overdue(1.0)) == [1, 3]
    assert waiters.deadline() == 5.0
    waiters.withdraw(1)
    assert waiters.deadline() == 300.0
    assert names(waiters.clear()) == [2]
    assert waiters.deadline() is None
    assert len(waiters) == 0


def test_deadlines_of_those_that_have_gone_do_not_pile_up() -> None:
    waiters = room(100, 1000)
    fill(waiters, "service=a")
    for _ in range(10 * SPARE):
        waiter = waiters.add(message(1), ask("service=b"), 1, 0.0, 300.0)
        assert waiter is not None
        waiters.withdraw(waiter.number)
        assert len(waiters._deadlines) <= 2 * len(waiters) + SPARE + 1
    assert waiters.deadline() == 5.0


WORDS = ["service=a", "service=b", "region=eu", "region=us", "zone=1", "colour"]
QUERIES = st.sets(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@given(st.lists(QUERIES, max_size=30), QUERIES, st.integers(0, 1000))
def test_a_join_releases_what_a_look_at_all_would(asked: list[str], joins: str, seed: int) -> None:
    waiters = room(1000, 10_000)
    fill(waiters, *asked)
    random = Random(seed)
    gone = {number for number in range(len(asked)) if random.random() < 0.3}
    for number in gone:
        assert waiters.withdraw(number + 1)
    carried = frozenset(tags(joins))
    expected = [
        number
        for number, text in enumerate(asked)
        if number not in gone and parse_query(text) <= carried
    ]
    assert names(released(waiters, carried)) == expected
    left = len(asked) - len(gone) - len(expected)
    assert waiters.statistics(0.0).messages == left
    assert sum(len(group.waiters) for group in waiters._groups.values()) == left
    assert len(waiters.overdue(1e9)) == left
    assert not waiters._filed
    assert not waiters._bytes
