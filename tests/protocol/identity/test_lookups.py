"""Look-ups under way: one for each destination, and limits for what waits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given, strategies as st

from onward.protocol.identity import (
    DroppedMessage,
    Identity,
    LookupLimits,
    LookupTable,
    ParkedDropReason,
    ParkOutcome,
    SigningKey,
)

NOW = 1_000_000
FIRST, SECOND, THIRD = (SigningKey(bytes((number,)) * 32).identity for number in range(3))


def waiting(table: LookupTable[str]) -> tuple[int, int, int]:
    figures = table.statistics()
    return figures.lookups, figures.messages, figures.size


def test_messages_wait_for_one_look_up_and_leave_in_their_order() -> None:
    table: LookupTable[str] = LookupTable()
    assert table.park(FIRST, "a", 10, None, NOW) is ParkOutcome.STARTED
    assert table.park(FIRST, "b", 20, NOW + 1, NOW) is ParkOutcome.PARKED
    assert table.park(SECOND, "c", 30, None, NOW) is ParkOutcome.STARTED
    assert waiting(table) == (2, 3, 60)
    assert table.release(FIRST) == ["a", "b"]
    # An answer that is late or repeated releases nothing.
    assert table.release(FIRST) == []
    assert table.release(THIRD) == []
    assert waiting(table) == (1, 1, 30)
    assert table.park(FIRST, "d", 0, None, NOW) is ParkOutcome.STARTED
    assert table.statistics().started == 3


def test_a_storm_to_one_destination_is_one_look_up() -> None:
    table: LookupTable[int] = LookupTable()
    outcomes = Counter(table.park(FIRST, turn, 100, None, NOW) for turn in range(10_000))
    assert outcomes == {
        ParkOutcome.STARTED: 1,
        ParkOutcome.PARKED: 63,
        ParkOutcome.MESSAGES: 9_936,
    }
    figures = table.statistics()
    assert (figures.started, figures.messages, figures.size) == (1, 64, 6400)
    assert dict(figures.outcomes)[ParkOutcome.MESSAGES] == 9_936
    assert table.release(FIRST) == list(range(64))


def test_what_waits_has_limits() -> None:
    table: LookupTable[str] = LookupTable(
        LookupLimits(max_messages=9, max_size=100, max_lookups=2, max_total_size=150)
    )
    assert table.park(FIRST, "a", 101, None, NOW) is ParkOutcome.SIZE
    assert table.park(FIRST, "a", 100, None, NOW) is ParkOutcome.STARTED
    assert table.park(FIRST, "b", 1, None, NOW) is ParkOutcome.SIZE
    assert table.park(SECOND, "c", 51, None, NOW) is ParkOutcome.TOTAL_SIZE
    assert table.park(SECOND, "c", 50, None, NOW) is ParkOutcome.STARTED
    assert table.park(THIRD, "d", 0, None, NOW) is ParkOutcome.LOOKUPS
    assert waiting(table) == (2, 2, 150)


def test_an_expired_message_is_dropped_at_its_time() -> None:
    table: LookupTable[str] = LookupTable()
    assert table.get_timer() is None
    assert table.park(FIRST, "late", 1, NOW, NOW) is ParkOutcome.EXPIRED
    assert table.get_timer() is None
    table.park(FIRST, "a", 1, NOW + 20, NOW)
    table.park(FIRST, "b", 2, NOW + 10, NOW)
    assert table.get_timer() == NOW + 10
    assert table.handle_timer(NOW + 9) == []
    assert table.handle_timer(NOW + 10) == [DroppedMessage(FIRST, "b", ParkedDropReason.EXPIRED)]
    # The look-up goes on for the others, and for those that come.
    assert table.get_timer() == NOW + 20
    assert table.handle_timer(NOW + 20) == [DroppedMessage(FIRST, "a", ParkedDropReason.EXPIRED)]
    assert table.park(FIRST, "c", 1, None, NOW + 21) is ParkOutcome.PARKED
    assert table.release(FIRST) == ["c"]
    assert waiting(table) == (0, 0, 0)
    assert dict(table.statistics().dropped) == {
        ParkedDropReason.EXPIRED: 2,
        ParkedDropReason.TIMEOUT: 0,
    }


def test_a_look_up_that_is_not_answered_is_given_up() -> None:
    table: LookupTable[str] = LookupTable(LookupLimits(timeout=100))
    table.park(FIRST, "a", 1, None, NOW)
    table.park(FIRST, "b", 1, NOW + 1000, NOW + 50)
    assert table.get_timer() == NOW + 100
    assert table.handle_timer(NOW + 100) == [
        DroppedMessage(FIRST, "a", ParkedDropReason.TIMEOUT),
        DroppedMessage(FIRST, "b", ParkedDropReason.TIMEOUT),
    ]
    assert waiting(table) == (0, 0, 0)
    assert table.get_timer() is None
    assert table.park(FIRST, "c", 1, None, NOW + 100) is ParkOutcome.STARTED


def test_the_time_of_a_look_up_before_ends_none_that_is_new() -> None:
    table: LookupTable[str] = LookupTable(LookupLimits(timeout=100))
    table.park(FIRST, "a", 1, NOW + 60, NOW)
    table.release(FIRST)
    table.park(FIRST, "b", 1, None, NOW + 50)
    assert table.handle_timer(NOW + 100) == []
    table.release(FIRST)
    assert table.handle_timer(NOW + 150) == []


def test_times_of_what_has_left_do_not_pile_up() -> None:
    table: LookupTable[int] = LookupTable()
    table.park(SECOND, 0, 1, NOW + 1, NOW)
    for turn in range(1000):
        table.park(FIRST, turn, 1, NOW + 1 + turn, NOW)
        table.park(FIRST, turn, 1, NOW + 4000 - turn, NOW)
        table.release(FIRST)
        assert len(table._times) <= 70
    assert table.handle_timer(NOW + 1) == [DroppedMessage(SECOND, 0, ParkedDropReason.EXPIRED)]


@dataclass
class Waiting:
    """A message of the model."""

    destination: Identity
    message: int
    size: int
    expiry: int | None


class Model:
    """A table that looks at all messages each time."""

    def __init__(self, limits: LookupLimits) -> None:
        self.limits = limits
        self.deadlines: dict[Identity, int] = {}
        self.waiting: list[Waiting] = []

    def at(self, destination: Identity) -> list[Waiting]:
        return [each for each in self.waiting if each.destination == destination]

    def park(self, new: Waiting, now: int) -> ParkOutcome:
        there = self.at(new.destination)
        started = new.destination not in self.deadlines
        if new.expiry is not None and new.expiry <= now:
            return ParkOutcome.EXPIRED
        if started and len(self.deadlines) >= self.limits.max_lookups:
            return ParkOutcome.LOOKUPS
        if len(there) >= self.limits.max_messages:
            return ParkOutcome.MESSAGES
        if sum(each.size for each in there) + new.size > self.limits.max_size:
            return ParkOutcome.SIZE
        if sum(each.size for each in self.waiting) + new.size > self.limits.max_total_size:
            return ParkOutcome.TOTAL_SIZE
        if started:
            self.deadlines[new.destination] = now + self.limits.timeout
        self.waiting.append(new)
        return ParkOutcome.STARTED if started else ParkOutcome.PARKED

    def release(self, destination: Identity) -> list[int]:
        self.deadlines.pop(destination, None)
        released = self.at(destination)
        self.waiting = [each for each in self.waiting if each.destination != destination]
        return [each.message for each in released]

    def handle_timer(self, now: int) -> set[tuple[int, ParkedDropReason]]:
        dropped: set[tuple[int, ParkedDropReason]] = set()
        for each in list(self.waiting):
            deadline = self.deadlines[each.destination]
            expiry = deadline if each.expiry is None else min(deadline, each.expiry)
            if expiry <= now:
                reason = ParkedDropReason.TIMEOUT
                if expiry < deadline:
                    reason = ParkedDropReason.EXPIRED
                dropped.add((each.message, reason))
                self.waiting.remove(each)
        for destination, deadline in list(self.deadlines.items()):
            if deadline <= now:
                del self.deadlines[destination]
        return dropped


destinations = st.sampled_from([FIRST, SECOND, THIRD])
steps = st.one_of(
    st.tuples(st.just("park"), destinations, st.integers(0, 5), st.none() | st.integers(-1, 12)),
    st.tuples(st.just("release"), destinations),
    st.tuples(st.just("pass"), st.integers(0, 8)),
)


@given(st.lists(steps, max_size=80))
def test_a_table_is_as_a_naive_one(walk: list[tuple[object, ...]]) -> None:
    limits = LookupLimits(max_messages=3, max_size=10, max_lookups=2, max_total_size=14, timeout=9)
    table: LookupTable[int] = LookupTable(limits)
    model, now = Model(limits), NOW
    for turn, step in enumerate(walk):
        match step:
            case ("park", bytes(to), int(size), ahead):
                destination = Identity(to)
                expiry = now + ahead if isinstance(ahead, int) else None
                outcome = table.park(destination, turn, size, expiry, now)
                assert outcome is model.park(Waiting(destination, turn, size, expiry), now)
            case ("release", bytes(to)):
                assert table.release(Identity(to)) == model.release(Identity(to))
            case (_, int(passed)):
                now += passed
                dropped = table.handle_timer(now)
                assert len(dropped) == len({each.message for each in dropped})
                assert {(each.message, each.reason) for each in dropped} == model.handle_timer(now)
            case _:
                raise AssertionError("there is no other step")
        size = sum(each.size for each in model.waiting)
        figures = table.statistics()
        assert (figures.lookups, figures.messages, figures.size) == (
            len(model.deadlines),
            len(model.waiting),
            size,
        )
        timer = table.get_timer()
        assert timer is not None or not model.deadlines
