"""Windows of ids: delivered at most once, whatever is forgotten, and none for nothing."""

from __future__ import annotations

from random import Random

from hypothesis import given, strategies as st

from onward.protocol.identity import (
    COUNT_BITS,
    MAX_FLOOR_AHEAD,
    MAX_REPLAY_WINDOWS_OF_PAIR,
    MAX_SKEW,
    MAX_TTL,
    REPLAY_WINDOW,
    Destination,
    DestinationKind,
    FreshnessRefusal as Refusal,
    Identity,
    ReplayWindows,
    SigningKey,
)

NOW = 1_800_000_000_000
LONG_AGO = NOW - 10 * MAX_TTL
"""A start so long ago that it matters no more."""
NODES = [SigningKey(bytes((each,)) * 32).identity for each in range(1, 9)]
SOURCE, PEER, OTHER = NODES[:3]
TO = Destination(DestinationKind.ENGINE, NODES[3])
FIRST = NOW << COUNT_BITS


def to(which: int) -> Destination:
    return Destination(DestinationKind.ENGINE, Identity(bytes((2,)) + which.to_bytes(32)))


def record(
    windows: ReplayWindows,
    number: int,
    expiry: int = NOW + 1000,
    now: int = NOW,
    destination: Destination = TO,
    peer: Identity = PEER,
) -> Refusal | None:
    return windows.record(SOURCE, destination, number, expiry, peer, now)


def test_a_message_is_accepted_once() -> None:
    windows = ReplayWindows(LONG_AGO)
    assert record(windows, FIRST) is None
    assert record(windows, FIRST) is Refusal.REPEATED
    assert record(windows, FIRST + 1) is None
    assert record(windows, FIRST) is Refusal.REPEATED
    assert windows.refused[Refusal.REPEATED] == 2


def test_to_check_uses_up_no_id() -> None:
    windows = ReplayWindows(LONG_AGO)
    for _ in range(3):
        assert windows.check(SOURCE, TO, FIRST + 5000, NOW + 1000, NOW) is None
    assert len(windows) == 0
    assert record(windows, FIRST) is None
    assert windows.check(SOURCE, TO, FIRST, NOW + 1000, NOW) is Refusal.REPEATED
    assert windows.refused[Refusal.REPEATED] == 1


def test_the_same_id_of_another_pair_is_another_message() -> None:
    windows = ReplayWindows(LONG_AGO)
    for destination in (TO, to(1), Destination(DestinationKind.NODE, TO.identity)):
        assert record(windows, FIRST, destination=destination) is None
    assert windows.record(OTHER, TO, FIRST, NOW + 1000, PEER, NOW) is None
    assert len(windows) == 4


def test_ids_may_come_out_of_order_within_the_window() -> None:
    windows = ReplayWindows(LONG_AGO)
    top = FIRST + REPLAY_WINDOW
    assert record(windows, top) is None
    assert record(windows, top - REPLAY_WINDOW) is Refusal.TOO_OLD
    for number in range(top - REPLAY_WINDOW + 1, top):
        assert record(windows, number) is None
        assert record(windows, number) is Refusal.REPEATED


def test_a_repetition_is_refused_after_the_window_has_moved_past() -> None:
    windows = ReplayWindows(LONG_AGO)
    for ahead in (0, REPLAY_WINDOW - 1, REPLAY_WINDOW, 10**6):
        assert record(windows, FIRST + ahead) is None
    for ahead in (0, REPLAY_WINDOW - 1, REPLAY_WINDOW):
        assert record(windows, FIRST + ahead) is Refusal.TOO_OLD
    assert record(windows, FIRST + 10**6) is Refusal.REPEATED
    assert record(windows, FIRST + 10**6 - 1) is None


def counter(begun: int, count: int = 0) -> int:
    """Return an id of a counter that was begun so many milliseconds after `NOW`."""
    return (NOW + begun << COUNT_BITS) + count


def test_a_counter_that_begins_below_another_is_of_new_messages() -> None:
    # As of a sender that is started again, if its clock is behind what it was before.
    windows = ReplayWindows(LONG_AGO)
    for count in range(3):
        assert record(windows, counter(700, count)) is None
    for count in range(3):
        assert record(windows, counter(699, count)) is None
        assert record(windows, counter(699, count)) is Refusal.REPEATED
        assert record(windows, counter(700, count)) is Refusal.REPEATED
    # Messages of both may come one after the other: each window moves by itself.
    assert record(windows, counter(700, 5 * REPLAY_WINDOW)) is None
    assert record(windows, counter(699, 3)) is None
    assert record(windows, counter(700, 3)) is Refusal.TOO_OLD
    assert len(windows) == 2


def test_a_pair_of_two_counters_with_the_same_time_has_one_window() -> None:
    windows = ReplayWindows(LONG_AGO)
    assert [record(windows, counter(0, count)) for count in (0, 1)] == [None] * 2
    assert [record(windows, counter(0, count)) for count in (0, 1, 2)] == [
        Refusal.REPEATED,
        Refusal.REPEATED,
        None,
    ]


def test_ids_may_come_out_of_order_where_a_counter_moves_the_time_on() -> None:
    windows = ReplayWindows(LONG_AGO)
    carry = 1 << COUNT_BITS
    numbers = [counter(0, carry + each) for each in (-2, 1, -1, 0, 700, -700, 699, -REPLAY_WINDOW)]
    assert [record(windows, each) for each in numbers] == [None] * 8
    assert [record(windows, each) for each in numbers] == [Refusal.REPEATED] * 8
    assert record(windows, counter(0, carry - 2 - REPLAY_WINDOW)) is Refusal.TOO_OLD
    # It goes on over as many times as it likes, and none that it has left comes again.
    for time in range(1, 10):
        assert record(windows, counter(0, (time + 1) * carry)) is None
    assert len(windows) == MAX_REPLAY_WINDOWS_OF_PAIR
    assert [record(windows, each) for each in numbers] == [Refusal.TOO_OLD] * 8


def test_a_pair_lets_the_counter_with_the_earliest_time_go() -> None:
    windows = ReplayWindows(LONG_AGO)
    for begun in (5, 3, 7, 9):
        assert record(windows, counter(begun), NOW + 9000) is None
    assert windows.check(SOURCE, TO, counter(2), NOW + 9000, NOW) is Refusal.TOO_OLD
    assert record(windows, counter(2), NOW + 9000) is Refusal.TOO_OLD
    assert record(windows, counter(6), NOW + 1000) is None
    assert (len(windows), windows.let_go, windows.floor) == (4, 1, 0)
    for begun in (1, 2, 3):
        for count in (0, 1):
            assert record(windows, counter(begun, count), NOW + 9000) is Refusal.TOO_OLD
    # The earliest has to go for each that is later.
    assert record(windows, counter(4), NOW + 9000) is Refusal.TOO_OLD
    assert record(windows, counter(8), NOW + 9000) is None
    # What was let go is remembered as long as it could come again.
    windows.forget_expired(NOW + 9000 + MAX_SKEW)
    assert record(windows, counter(3), NOW + 9000, NOW + 9000 + MAX_SKEW) is Refusal.TOO_OLD
    windows.forget_expired(NOW + 9001 + MAX_SKEW)
    assert len(windows) == 0
    assert record(windows, counter(3), NOW + 9000) is Refusal.FORGOTTEN


def test_counters_that_have_expired_leave_room_for_others() -> None:
    windows = ReplayWindows(LONG_AGO)
    for begun in range(3):
        record(windows, counter(begun), NOW + 1000)
    record(windows, counter(1, 1), NOW + 5000)
    record(windows, counter(2, 1), NOW + 90_000)
    windows.forget_expired(NOW + 1001 + MAX_SKEW)
    assert (len(windows), windows.let_go, windows.floor) == (2, 0, NOW + 1000)
    # The clock is set back: what has gone stays so, and what is new by its expiry is taken.
    assert record(windows, counter(0), NOW + 1000) is Refusal.FORGOTTEN
    assert record(windows, counter(0, 1), NOW + 1001) is None
    assert record(windows, counter(0), NOW + 1000) is Refusal.FORGOTTEN
    # One stays as long as the pair is remembered.
    record(windows, counter(0, 2), NOW + 95_000)
    windows.forget_expired(NOW + 90_001 + MAX_SKEW)
    assert len(windows) == 1
    assert record(windows, counter(0, 2), NOW + 95_000) is Refusal.REPEATED
    windows.forget_expired(NOW + 95_001 + MAX_SKEW)
    assert len(windows) == 0


def test_a_peer_gets_no_more_windows_by_ever_new_times_of_ids() -> None:
    windows = ReplayWindows(LONG_AGO, limit=10, share=6)
    for begun in range(50):
        for which in range(3):
            assert record(windows, counter(begun), NOW + 9000, destination=to(which)) is None
    assert len(windows) == 6
    assert record(windows, counter(0), NOW + 9000, destination=to(3)) is Refusal.SHARE_FULL
    assert record(windows, counter(0), NOW + 9000, destination=to(3), peer=OTHER) is None
    # A pair beyond the share gets a further window in the place of its own, if it is later.
    full = ReplayWindows(LONG_AGO, limit=10, share=1)
    assert record(full, counter(5)) is None
    assert record(full, counter(4)) is Refusal.SHARE_FULL
    assert record(full, counter(6)) is None
    assert record(full, counter(5, 1)) is Refusal.TOO_OLD
    assert len(full) == 1


def test_a_window_in_the_place_of_another_is_counted_for_the_same_peer() -> None:
    windows = ReplayWindows(LONG_AGO, limit=4, share=2)
    record(windows, counter(0), peer=PEER)
    record(windows, counter(0), destination=to(1), peer=OTHER)
    record(windows, counter(0), destination=to(2), peer=OTHER)
    # The source is at the other peer now, which has used its share.
    assert record(windows, counter(1), NOW + 2000, peer=OTHER) is None
    assert record(windows, counter(0), destination=to(3), peer=PEER) is None
    assert record(windows, counter(0), destination=to(4), peer=PEER) is Refusal.SHARE_FULL
    assert len(windows) == 4


def test_a_pair_that_expires_is_let_go_with_all_its_windows() -> None:
    windows = ReplayWindows(LONG_AGO, limit=3)
    for begun in range(3):
        record(windows, counter(begun), NOW + 1000 + begun)
    assert record(windows, counter(0), NOW + 2000, destination=to(1)) is None
    assert (len(windows), windows.let_go, windows.floor) == (1, 3, NOW + 1002)
    for begun in range(3):
        assert record(windows, counter(begun), NOW + 1000 + begun) is Refusal.FORGOTTEN


def test_expiries_are_accepted_up_to_both_edges() -> None:
    windows = ReplayWindows(LONG_AGO)
    assert record(windows, FIRST, NOW - MAX_SKEW) is None
    assert record(windows, FIRST + 1, NOW - MAX_SKEW - 1) is Refusal.EXPIRED
    assert record(windows, FIRST + 1, NOW + MAX_TTL + MAX_SKEW + 1) is Refusal.TOO_LONG
    assert record(windows, FIRST + 1, NOW + MAX_TTL + MAX_SKEW) is None
    assert windows.check(SOURCE, TO, FIRST + 2, None, NOW) is Refusal.NO_EXPIRY
    assert windows.until == NOW + MAX_TTL + MAX_SKEW


def test_an_id_of_a_time_to_come_is_refused() -> None:
    windows = ReplayWindows(LONG_AGO)
    assert record(windows, (NOW + MAX_SKEW + 1) << COUNT_BITS) is Refusal.AHEAD
    assert record(windows, ((NOW + MAX_SKEW + 1) << COUNT_BITS) - 1) is None


def test_a_window_is_forgotten_once_all_it_has_seen_is_expired() -> None:
    windows = ReplayWindows(LONG_AGO)
    record(windows, FIRST, NOW + 1000)
    record(windows, FIRST + 1, NOW + 5000)
    windows.forget_expired(NOW + 5000 + MAX_SKEW)
    assert len(windows) == 1
    windows.forget_expired(NOW + 5001 + MAX_SKEW)
    assert (len(windows), windows.let_go) == (0, 0)
    # The clock is set back, and what has expired seems to be fresh again.
    for number in (FIRST, FIRST + 1):
        assert record(windows, number, NOW + 5000) is Refusal.FORGOTTEN
    assert record(windows, FIRST + 2, NOW + 5001) is None


def test_few_windows_are_forgotten_at_once() -> None:
    windows = ReplayWindows(LONG_AGO)
    for which in range(300):
        record(windows, FIRST, destination=to(which))
    windows.forget_expired(NOW + MAX_TTL)
    assert len(windows) == 44
    windows.forget_expired(NOW + MAX_TTL)
    assert len(windows) == 0


def test_a_pair_that_was_let_go_accepts_nothing_again() -> None:
    windows = ReplayWindows(LONG_AGO, limit=2)
    record(windows, FIRST, NOW + 1000, destination=to(1))
    record(windows, FIRST, NOW + 2000, destination=to(2))
    assert record(windows, FIRST, NOW + 3000, destination=to(3)) is None
    assert (len(windows), windows.let_go, windows.floor) == (2, 1, NOW + 1000)
    assert record(windows, FIRST, NOW + 1000, destination=to(1)) is Refusal.FORGOTTEN
    # It has a window again, for what expires later: what it had seen stays refused.
    assert record(windows, FIRST + 1, NOW + 2500, destination=to(1)) is None
    assert record(windows, FIRST, NOW + 1000, destination=to(1)) is Refusal.FORGOTTEN
    assert record(windows, FIRST + 1, NOW + 2500, destination=to(1)) is Refusal.REPEATED
    # Pairs that have kept their windows are not touched by the floor.
    assert windows.floor == NOW + 2000
    assert record(windows, FIRST + 1, NOW + 1500, destination=to(3)) is None


def test_a_window_is_let_go_by_the_latest_expiry_it_has_seen() -> None:
    windows = ReplayWindows(LONG_AGO, limit=2)
    record(windows, FIRST, NOW + 1000, destination=to(1))
    record(windows, FIRST, NOW + 2000, destination=to(2))
    record(windows, FIRST + 1, NOW + 9000, destination=to(1))
    assert record(windows, FIRST, NOW + 9500, destination=to(3)) is None
    assert windows.floor == NOW + 2000
    assert record(windows, FIRST, NOW + 1000, destination=to(1)) is Refusal.REPEATED


def test_a_window_that_expires_late_is_not_let_go() -> None:
    windows = ReplayWindows(LONG_AGO, limit=1)
    record(windows, FIRST, NOW + MAX_FLOOR_AHEAD + 1, destination=to(1))
    assert record(windows, FIRST, NOW + MAX_TTL, destination=to(2)) is Refusal.FULL
    assert windows.floor == 0
    assert record(windows, FIRST, NOW + MAX_TTL, NOW + 1, destination=to(2)) is None


def test_a_window_is_not_let_go_for_a_message_that_expires_before_it() -> None:
    windows = ReplayWindows(LONG_AGO, limit=1)
    record(windows, FIRST, NOW + 2000, destination=to(1))
    assert record(windows, FIRST, NOW + 2000, destination=to(2)) is Refusal.FULL
    assert (len(windows), windows.let_go, windows.floor) == (1, 0, 0)


def test_few_entries_are_looked_at_for_one_message() -> None:
    windows = ReplayWindows(LONG_AGO, limit=300)
    for which in range(300):
        record(windows, FIRST, NOW + 1000, destination=to(which))
        record(windows, FIRST + 1, NOW + MAX_TTL, destination=to(which))
    record(windows, FIRST + 2, NOW + MAX_TTL, destination=to(0))
    assert record(windows, FIRST, NOW + MAX_TTL, destination=to(999)) is Refusal.FULL
    assert len(windows) == 300


def test_a_flood_of_keys_by_one_peer_takes_no_window_of_others() -> None:
    windows = ReplayWindows(LONG_AGO, limit=10, share=4)
    record(windows, FIRST, NOW + 500)
    flood = [record(windows, FIRST, NOW + MAX_TTL, NOW, to(each), OTHER) for each in range(50)]
    assert flood == [None] * 4 + [Refusal.SHARE_FULL] * 46
    assert windows.floor == 0
    assert record(windows, FIRST) is Refusal.REPEATED
    assert record(windows, FIRST, destination=to(99)) is None
    # The share is free again once the windows are expired.
    later = NOW + MAX_TTL + MAX_SKEW + 1
    assert record(windows, FIRST, later + 1000, later, to(5), OTHER) is None


def test_a_repetition_by_another_peer_is_refused() -> None:
    windows = ReplayWindows(LONG_AGO, limit=1)
    record(windows, FIRST)
    assert record(windows, FIRST, peer=OTHER) is Refusal.REPEATED
    record(windows, FIRST, NOW + 2000, destination=to(1))
    assert record(windows, FIRST, peer=OTHER) is Refusal.FORGOTTEN


def test_a_node_that_was_started_again_accepts_nothing_that_it_may_have_received() -> None:
    before = ReplayWindows(LONG_AGO)
    record(before, FIRST, NOW + MAX_TTL + MAX_SKEW)
    record(before, FIRST + 1, NOW + 1000)
    started = NOW + 1
    after = ReplayWindows(started)
    assert record(after, FIRST, NOW + MAX_TTL + MAX_SKEW, started) is Refusal.BEFORE_START
    assert record(after, FIRST + 1, NOW + 1000, started) is Refusal.BEFORE_START
    # A counter that was begun after the start, with some skew, is of new messages.
    edge = (started + MAX_SKEW + 1) << COUNT_BITS
    assert record(after, edge - 1, NOW + 2000, started + 1) is Refusal.BEFORE_START
    assert record(after, edge, NOW + 2000, started + 1) is None
    assert record(after, edge - 1, NOW + 2000, started + 1) is Refusal.BEFORE_START
    # So is an expiry that would have been refused before the start.
    late = started + MAX_TTL + MAX_SKEW + 1
    assert record(after, FIRST + 2, late - 1, started + 5, to(1)) is Refusal.BEFORE_START
    assert record(after, FIRST + 2, late, started + 5, to(1)) is None


def test_a_floor_that_was_kept_stands_for_the_time_of_the_start() -> None:
    before = ReplayWindows(LONG_AGO)
    record(before, FIRST, NOW + 2000)
    after = ReplayWindows(NOW + 1, floor=before.until)
    assert after.until == before.until
    assert record(after, FIRST, NOW + 2000, NOW + 1) is Refusal.BEFORE_START
    assert record(after, FIRST + 1, NOW + 2001, NOW + 1) is None


MESSAGES = st.lists(
    st.tuples(
        st.integers(0, 4),  # destination
        st.integers(0, 5),  # which counter
        st.one_of(  # count
            st.integers(0, 6),
            st.integers(0, 3 * REPLAY_WINDOW),
            st.integers((1 << COUNT_BITS) - 3, (1 << COUNT_BITS) + 3),
        ),
        st.sampled_from([1, 1000, 30_000, 90_000, MAX_TTL]),  # time to live
        st.sampled_from([0, 0, 1, 500, 40_000]),  # time that passes
        st.integers(0, 1),  # peer
    ),
    max_size=80,
)
Message = tuple[int, int, int, int, int, int]


@given(MESSAGES)
def test_without_a_limit_that_is_met_a_window_is_a_set(messages: list[Message]) -> None:
    windows, now = ReplayWindows(LONG_AGO), NOW
    expiries: dict[tuple[Destination, int], int] = {}
    accepted: dict[tuple[Destination, int], int] = {}
    for which, begun, count, ttl, passed, _ in messages:
        now += passed
        windows.forget_expired(now)
        # Counters that are not next to each other, so that with the carry there are at most four.
        destination, number = to(which), counter(begun % 2 * 10, count)
        # A message has one expiry: an id that comes again has that of the first time.
        expiry = expiries.setdefault((destination, number), now + ttl)
        ids = [
            each
            for pair, each in accepted
            if pair == destination and each >> COUNT_BITS == number >> COUNT_BITS
        ]
        expired = expiry < now - MAX_SKEW
        below = bool(ids) and number <= max(ids) - REPLAY_WINDOW
        refusal = windows.check(SOURCE, destination, number, expiry, now)
        assert record(windows, number, expiry, now, destination) is refusal
        if expired or number in ids:
            assert refusal is not None
        elif below:
            # What has expired is forgotten, and then the window begins anew.
            assert refusal in {None, Refusal.TOO_OLD}
        else:
            assert refusal is None
        if refusal is None:
            accepted[destination, number] = expiry


@given(MESSAGES, st.lists(st.integers(0, 79), max_size=3))
def test_no_message_is_accepted_twice_whatever_is_let_go(
    messages: list[Message], restarts: list[int]
) -> None:
    limit, share = 5, 3
    windows, now = ReplayWindows(LONG_AGO, limit=limit, share=share), NOW
    sent: dict[tuple[Destination, int], int] = {}
    accepted: set[tuple[Destination, int]] = set()
    for turn, (which, begun, count, ttl, passed, peer) in enumerate(messages):
        now += passed
        if turn in restarts:
            now += 1
            windows = ReplayWindows(now, limit=limit, share=share)
        # A message has one expiry: an id that comes again has that of the first time.
        sent.setdefault((to(which % 3), counter(begun, count)), now + ttl)
        # The message, and a repetition of each one before, by either peer.
        for again in (PEER, OTHER) if peer else (OTHER, PEER):
            for (destination, number), expiry in reversed(sent.items()):
                if record(windows, number, expiry, now, destination, again) is None:
                    assert (destination, number) not in accepted
                    accepted.add((destination, number))
        assert len(windows) <= limit
        held = [windows.of_pair(SOURCE, to(each)) for each in range(3)]
        assert max(held) <= MAX_REPLAY_WINDOWS_OF_PAIR
        assert sum(held) == len(windows)


HOUR = 3_600_000


def test_a_node_with_a_clock_that_is_set_back_takes_what_begins_then() -> None:
    windows = ReplayWindows(LONG_AGO)
    for which in range(2 * MAX_REPLAY_WINDOWS_OF_PAIR):  # some are let go
        assert record(windows, NOW + which << COUNT_BITS) is None
    assert record(windows, FIRST, NOW + 40_000, NOW + 35_000, to(0)) is None  # and some forgotten
    back = NOW - HOUR
    assert record(windows, back << COUNT_BITS, back + 1000, back) is Refusal.FORGOTTEN
    windows.begin_anew(back)
    assert len(windows) == 0
    begins = back + MAX_SKEW
    assert record(windows, begins << COUNT_BITS, back + 1000, back) is Refusal.BEFORE_START
    for which in range(1, 2 * MAX_REPLAY_WINDOWS_OF_PAIR):
        number = begins + which << COUNT_BITS
        assert record(windows, number, back + 1000, back + which) is None
        assert record(windows, number, back + 1000, back + which) is Refusal.REPEATED


def test_what_was_accepted_before_a_start_is_refused_once_its_clock_is_set_forward() -> None:
    windows = ReplayWindows(started := 60_000)  # 1970, by a clock that is not set yet
    begun = started + MAX_SKEW + 1 << COUNT_BITS
    assert record(windows, begun, started + MAX_TTL, started + 1000) is None
    windows.start_again(NOW)
    last = NOW + MAX_SKEW
    assert record(windows, last << COUNT_BITS, NOW + MAX_TTL) is Refusal.BEFORE_START
    assert record(windows, last + 1 << COUNT_BITS, NOW + MAX_TTL, NOW + 1) is None
    assert record(windows, last + 1 << COUNT_BITS, NOW + MAX_TTL, NOW + 1) is Refusal.REPEATED
    windows.start_again(NOW + 60_000)
    assert record(windows, last + 1 << COUNT_BITS, NOW + MAX_TTL, NOW + 60_000) is not None


def test_what_was_seen_before_a_clock_was_set_back_is_not_accepted_once_it_gets_there() -> None:
    windows = ReplayWindows(LONG_AGO)
    assert record(windows, FIRST + REPLAY_WINDOW) is None
    for times in range(1, 20):
        back = NOW - times * HOUR
        windows.begin_anew(back)
        # Those of the first time go for those of two later ones, and a gap stays, whatever comes.
        seen, below = record(windows, FIRST + REPLAY_WINDOW), record(windows, FIRST)
        assert seen is below is (Refusal.REPEATED if times < 3 else Refusal.FORGOTTEN)
        assert record(windows, back + MAX_SKEW + 1 << COUNT_BITS, back, back + 1) is None
    # What was begun or expires outside of that is accepted.
    latest, number = NOW + 1000, FIRST + (MAX_SKEW + 1 << COUNT_BITS)
    assert record(windows, number, latest, NOW + 1) is None
    assert record(windows, FIRST, latest, NOW) is Refusal.FORGOTTEN
    assert record(windows, FIRST, latest + 1, NOW) is None


def test_what_was_let_go_before_a_clock_was_set_back_is_not_accepted_once_it_gets_there() -> None:
    windows = ReplayWindows(LONG_AGO, limit=4)
    assert record(windows, FIRST, destination=to(0)) is None
    for begun in range(3):
        assert record(windows, counter(begun), NOW + 2000) is None
    # In the place of another pair, and of another counter.
    assert record(windows, FIRST, NOW + 2000, destination=to(1)) is None
    assert record(windows, counter(3), NOW + 3000) is None
    assert windows.let_go == 2
    windows.begin_anew(NOW - HOUR)
    assert record(windows, FIRST, destination=to(0)) is Refusal.FORGOTTEN
    assert record(windows, FIRST, NOW + 2000) is Refusal.FORGOTTEN
    assert record(windows, FIRST, NOW + 2000, destination=to(1)) is Refusal.REPEATED
    # It may have been in a window of this time that was let go with its pair.
    assert record(windows, counter(3, 1)) is Refusal.FORGOTTEN
    # What was not let go is accepted.
    assert record(windows, counter(3, 1), NOW + 1001) is None
    assert record(windows, counter(4), NOW + 2000) is None
    assert record(windows, FIRST, NOW + 1001, destination=to(0)) is None
    assert record(windows, FIRST, NOW + 3001) is None
    # The clock passes that time again.
    later = NOW + 3000 + MAX_SKEW + 1
    windows.forget_expired(later)
    assert record(windows, FIRST, later, later, to(0)) is None


@given(st.integers(0, 2**32))
def test_no_message_is_accepted_twice_however_the_clock_is_set(seed: int) -> None:
    random = Random(seed)
    windows, now = ReplayWindows(LONG_AGO, limit=random.choice([4, 6, 99]), share=99), NOW
    sent: dict[tuple[Destination, int], int] = {}
    accepted: dict[tuple[Destination, int], int] = {}
    latest = now
    for _ in range(60):
        if random.random() < 0.1:
            now += random.choice([-200_000, -60_000, -35_000, -6000, 6000, 45_000, 200_000])
            if now >= latest:
                windows.start_again(now)
            else:
                windows.begin_anew(now)
                # What had expired is forgotten, and may be accepted once more.
                accepted = {
                    each: expiry for each, expiry in accepted.items() if expiry >= latest - MAX_SKEW
                }
                latest = now
        now += random.choice([1, 1, 500, 10_000, 40_000])
        latest = max(latest, now)
        number = now + MAX_SKEW - random.choice([0, 0, 1, 500, 5000]) << COUNT_BITS
        ttl = random.choice([1, 30_000, 90_000, MAX_TTL])
        sent.setdefault((to(random.randrange(3)), number), now + ttl)
        peer = random.choice([PEER, OTHER])
        for (destination, each), expiry in reversed(sent.items()):
            if record(windows, each, expiry, now, destination, peer) is None:
                assert (destination, each) not in accepted
                accepted[destination, each] = expiry


def test_what_was_begun_before_a_clock_was_set_back_is_refused_until_it_expires() -> None:
    windows = ReplayWindows(LONG_AGO)
    begun = NOW - HOUR << COUNT_BITS
    assert record(windows, begun, NOW + MAX_TTL) is None
    back = NOW - HOUR
    windows.begin_anew(back)
    assert record(windows, begun + 1, NOW + MAX_TTL) is Refusal.BEFORE_START
    assert record(windows, begun + 1, NOW + MAX_TTL + 1) is None


def test_windows_of_before_go_once_all_is_expired() -> None:
    windows = ReplayWindows(LONG_AGO)
    assert record(windows, FIRST) is None
    windows.begin_anew(NOW - 60_000)
    later = NOW + 1000 + MAX_SKEW
    assert record(windows, later << COUNT_BITS, later, later) is None
    assert record(windows, FIRST, later, later) is Refusal.REPEATED
    later += 1
    assert record(windows, later << COUNT_BITS, later, later) is None
    assert record(windows, FIRST, later + MAX_TTL, later) is None
