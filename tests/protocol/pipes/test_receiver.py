"""The receiving end of a pipe, with an adversarial way and alone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol import Address, Message
from onward.protocol.pipes import (
    NO_EPOCH,
    RECEIVER,
    Abort,
    Confirm,
    End,
    Ended,
    Gap,
    Mode,
    OpenPipe,
    Ordering,
    PipeData,
    PipeOpened,
    PipeOptions,
    PipeReceiverOptions,
    Receiver,
    ReceiverInput,
    ReceiverState,
    Unknown,
    WindowOverflow,
    decode_frame,
)
from tests.protocol.pipes.pairs import Pair, Way, message, number_of
from tests.support.counts import times

ID = bytes(16)
EPOCH = b"epoch!!!"


class Made(Receiver):
    """A receiver with short ways to feed it and to look at it."""

    def data(self, *numbers: int, base: int = 1, now: float = 0.0, size: int = 0) -> None:
        frame_messages = tuple(message(number, size) for number in numbers)
        first = numbers[0] if numbers else 1_000_000
        self.receive(PipeData(ID, self.epoch, self.mode, base, first, frame_messages), now)

    def took(self, count: int | None = None) -> list[int]:
        """Hand on what is ready, or so many of it."""
        count = len(self.ready) if count is None else count
        found = [number_of(self.ready[at]) for at in range(count)]
        self.handed_on(count)
        return found

    @property
    def ending(self) -> bool:
        return self.state is ReceiverState.FINISHING

    def said(self, now: float = 0.0) -> list[object]:
        return [decode_frame(each) for each in self.answers(now)]


def make(ordering: Ordering = Ordering.STRICT, confirm: bool = True, **options: float) -> Made:
    made = PipeReceiverOptions(**options)  # type: ignore[arg-type]
    return Made(made, ID, EPOCH, Mode(ordering, confirm), 0.0)


def confirm(done: int, received: object = (), missed: object = ()) -> Confirm:
    return Confirm(ID, EPOCH, done, received, missed)  # type: ignore[arg-type]


def test_opening_is_answered_each_time() -> None:
    receiver = make(window=7, window_bytes=9)
    for _ in range(2):
        receiver.receive(OpenPipe(ID, receiver.mode), 0.0)
        assert receiver.said() == [PipeOpened(ID, EPOCH, 7, 9, 300_000)]


def test_in_order_messages_are_ready_at_once_and_confirmed_a_little_later() -> None:
    receiver = make(confirm_delay=0.5)
    receiver.data(1, 2, 3)
    assert receiver.took() == [1, 2, 3]
    assert receiver.said(0.4) == []
    assert receiver.timer() == 0.5
    assert receiver.said(0.5) == [confirm(3)]
    assert receiver.handed == 3


def test_many_messages_are_confirmed_at_once() -> None:
    receiver = make(confirm_messages=3)
    receiver.data(1, 2)
    receiver.data(3)
    receiver.took()
    assert receiver.said() == [confirm(3)]


def test_only_what_is_handed_on_is_confirmed() -> None:
    receiver = make()
    receiver.data(1, 2, 3)
    assert receiver.took(1) == [1]
    receiver.data()
    assert receiver.said() == [confirm(1, ((2, 3),))]
    assert receiver.held == 2
    assert receiver.took() == [2, 3]
    receiver.confirm_soon(0.0)
    assert receiver.said() == [confirm(3)]


def test_what_comes_early_is_held_back_and_told_at_once() -> None:
    receiver = make()
    receiver.data(3, 4)
    receiver.data(6)
    assert receiver.took() == []
    assert receiver.said() == [confirm(0, ((3, 4), (6, 6)))]
    receiver.data(1, 2)
    assert receiver.took() == [1, 2, 3, 4]
    receiver.data(5)
    assert receiver.took() == [5, 6]
    assert receiver.said() == [confirm(6)]


def test_what_comes_again_is_dropped_and_answered() -> None:
    receiver = make()
    receiver.data(1, 2)
    receiver.data(4)
    receiver.took()
    receiver.said()
    receiver.data(1, 2)
    receiver.data(4)
    assert receiver.took() == []
    assert receiver.duplicates == 3
    assert receiver.said() == [confirm(2, ((4, 4),))]


def test_a_gap_is_passed_in_time_and_told_until_it_was_heard() -> None:
    receiver = make(gap_timeout=10.0)
    receiver.data(1, 2)
    receiver.took()
    receiver.data(5, now=1.0)
    receiver.data(8, now=2.0)
    assert receiver.said(2.0)
    assert receiver.timer() == 11.0
    receiver.handle_timer(11.0)
    assert receiver.take_events() == [Gap(3, 4)]
    assert receiver.took() == [5]
    assert receiver.said(11.0) == [confirm(5, ((8, 8),), ((3, 4),))]
    receiver.handle_timer(21.0)
    assert receiver.take_events() == [Gap(6, 7)]
    assert receiver.took() == [8]
    assert receiver.said(21.0) == [confirm(8, (), ((3, 4), (6, 7)))]
    receiver.data(9, base=6, now=22.0)
    receiver.took()
    assert receiver.said(23.0) == [confirm(9, (), ((6, 7),))]
    receiver.data(3, 4, now=24.0)
    assert receiver.took() == []
    assert (receiver.missed, receiver.duplicates) == (4, 2)


def test_a_gap_that_moved_on_has_its_own_time() -> None:
    receiver = make(gap_timeout=10.0)
    receiver.data(2, now=0.0)
    receiver.data(4, now=1.0)
    receiver.data(1, now=5.0)
    receiver.handle_timer(10.0)
    assert receiver.take_events() == []
    receiver.handle_timer(20.0)
    assert receiver.take_events() == [Gap(3, 3)]
    receiver.took()
    receiver.handle_timer(25.0)
    assert receiver.take_events() == []


def test_what_no_worker_takes_is_missed() -> None:
    receiver = make()
    receiver.data(1, 2, 3, 4)
    receiver.took(1)
    receiver.refuse()
    receiver.took(1)
    receiver.refuse()
    receiver.data()
    assert receiver.said() == [confirm(4, (), ((2, 2), (4, 4)))]
    assert (receiver.handed, receiver.missed) == (2, 2)


def test_missed_numbers_join_in_any_order() -> None:
    receiver = make(Ordering.NONE)
    receiver.data(4, 5)
    receiver.refuse()  # 4
    receiver.refuse()  # 5
    receiver.data(1, 2, 3)
    receiver.refuse()  # 1
    receiver.refuse()  # 2
    receiver.refuse()  # 3
    assert receiver.said() == [confirm(5, (), ((1, 5),))]


def test_what_is_beyond_the_window_is_not_taken() -> None:
    receiver = make(window=4, window_bytes=150)
    receiver.data(3, 4, 5)
    assert receiver.beyond == 1
    receiver.data(2, size=200)
    assert receiver.beyond == 2
    receiver.data(1, size=500)  # the next one always fits
    assert len(receiver.took()) == 1
    receiver.data(2, 3, 4, 5, 6, base=1)
    assert receiver.took() == [2, 3, 4, 5]
    receiver.data(5, 6, 7, 8, 9, 10, base=5)
    assert receiver.took() == [6, 7, 8, 9]
    receiver.data(10, 11, base=10, size=40)
    receiver.data(12, 13, base=10, size=40)
    assert receiver.took() == [10, 11]


def test_the_routes_count_as_bytes() -> None:
    far = (Address(0, b"x" * 1000),) * 30
    receiver = make(window_bytes=100_000)
    for number in range(2, 50):
        receiver.receive(
            PipeData(ID, EPOCH, receiver.mode, 1, number, (Message(far, far, b""),)), 0.0
        )
    assert receiver.held == 1
    assert 60_000 < receiver.held_bytes < 61_000
    receiver.data(1)
    receiver.took(1)
    assert receiver.held_bytes > 60_000
    receiver.handed_on(1)
    assert receiver.held_bytes == 0


def test_what_is_a_window_beyond_the_base_is_not_taken() -> None:
    """So what was missed is bounded, and so is what a confirmation says of it."""
    receiver = make(Ordering.MONOTONIC, window=1000)
    for number in range(1, 20_001):
        receiver.data(2 * number)
        receiver.handed_on(len(receiver.ready))
        receiver.take_events()
    assert len(receiver._missed) <= 500
    assert receiver.beyond == 20_000 - 500
    confirms = receiver.said(1.0)
    assert isinstance(confirms[-1], Confirm)
    assert len(confirms[-1].missed) == 256
    assert confirms[-1].done == 512  # what is missed beyond is told when these have been heard of
    receiver.data(base=513, now=2.0)
    assert receiver.said(2.0) == [
        confirm(1000, (), tuple((number, number) for number in range(513, 1000, 2)))
    ]


def test_many_gaps_are_passed_in_one_look() -> None:
    receiver = make(window=65_536)
    for number in range(2, 65_536, 2):
        receiver.data(number)
    receiver.close()
    assert receiver.held == 32_767


def test_a_frame_that_is_partly_beyond_the_window_is_taken_in_part() -> None:
    receiver = make(window=4)
    receiver.data(1, 2)
    receiver.data(3, 4, 5)
    assert receiver.beyond == 1
    assert receiver.took() == [1, 2, 3, 4]


def test_monotonic_takes_only_what_is_newer() -> None:
    receiver = make(Ordering.MONOTONIC)
    receiver.data(1, 2)
    receiver.data(5, 6)
    receiver.data(3, 4)
    receiver.data(6, 7)
    assert receiver.took() == [1, 2, 5, 6, 7]
    assert receiver.take_events() == [Gap(3, 4)]
    assert receiver.said() == [confirm(7, (), ((3, 4),))]
    assert receiver.duplicates == 3


def test_monotonic_keeps_the_window() -> None:
    receiver = make(Ordering.MONOTONIC, window=3)
    receiver.data(2, 3, 4, 5)
    assert receiver.beyond == 2
    assert receiver.took() == [2, 3]


def test_without_an_order_each_is_ready_once() -> None:
    receiver = make(Ordering.NONE, gap_timeout=10.0, window=8)
    receiver.data(3, 4)
    assert receiver.took() == [3, 4]
    assert receiver.said() == [confirm(0, ((3, 4),))]
    receiver.data(3, 4)
    receiver.data(9)
    receiver.data(1)
    assert receiver.took() == [1]
    assert (receiver.duplicates, receiver.beyond) == (2, 1)
    receiver.handle_timer(10.0)
    receiver.handle_timer(20.0)
    assert receiver.take_events() == [Gap(2, 2)]
    assert receiver.said(20.0) == [confirm(4, (), ((2, 2),))]
    receiver.data(2)
    assert receiver.took() == []


def test_unconfirmed_without_an_order_all_goes_on() -> None:
    receiver = make(Ordering.NONE, confirm=False, window=3)
    assert receiver.epoch == NO_EPOCH
    receiver.data(5, 6)
    receiver.data(5)
    assert receiver.took() == [5, 6, 5]
    receiver.data(1, 2, 3)
    receiver.data(4, 5)
    assert [type(each) for each in receiver.take_events()] == [WindowOverflow]
    assert receiver.took() == [1, 2, 3]
    receiver.data()
    assert receiver.said(100.0) == []
    receiver.confirm_soon(100.0)
    assert receiver.said(100.0) == []


def test_unconfirmed_and_strict_moves_on_when_the_window_is_full() -> None:
    receiver = make(confirm=False, window=4, window_bytes=110)
    receiver.data(3, 4)
    receiver.data(5)
    assert receiver.took() == [3, 4, 5]
    assert receiver.take_events() == [Gap(1, 2, began=True)]
    receiver.data(50)
    assert receiver.take_events() == [Gap(6, 46)]
    receiver.data(48, size=99)  # too many bytes to wait with
    assert receiver.take_events() == [Gap(47, 49)]
    assert receiver.took() == [50]
    assert receiver.beyond == 1
    receiver.data(51)
    assert receiver.took() == [51]


def test_the_end_comes_when_all_is_dealt_with() -> None:
    receiver = make()
    receiver.data(1, 2)
    receiver.receive(End(ID, EPOCH, receiver.mode, 2), 0.0)
    assert receiver.ending
    receiver.took(1)
    assert receiver.said(0.0) == []
    receiver.took(1)
    assert receiver.state is ReceiverState.CLOSED
    assert receiver.said(0.0) == [Ended(ID, EPOCH)]
    receiver.receive(End(ID, EPOCH, receiver.mode, 2), 0.0)
    assert receiver.said(0.0) == [Unknown(ID, EPOCH)]
    receiver.confirm_soon(1.0)
    assert receiver.said(1.0) == []


def test_the_end_of_what_is_not_confirmed_waits_for_the_gap_before_it() -> None:
    receiver = make(confirm=False, gap_timeout=5.0)
    receiver.data(1)
    receiver.took()
    receiver.receive(End(ID, NO_EPOCH, receiver.mode, 3), 0.0)
    assert receiver.ending
    receiver.handle_timer(5.0)
    assert receiver.take_events() == [Gap(2, 3)]
    assert receiver.state is ReceiverState.CLOSED
    receiver.data(9)
    assert receiver.said() == [Ended(ID, NO_EPOCH)]
    receiver.receive(End(ID, NO_EPOCH, receiver.mode, 3), 6.0)
    assert receiver.said(6.0) == [Ended(ID, NO_EPOCH)]
    receiver.receive(Abort(ID, NO_EPOCH), 6.0)
    assert receiver.said(6.0) == []
    at_once = make(Ordering.MONOTONIC, confirm=False)
    at_once.receive(End(ID, NO_EPOCH, at_once.mode, 3), 0.0)
    assert at_once.state is ReceiverState.CLOSED


def test_an_end_while_something_is_missing_keeps_the_time_of_the_gap() -> None:
    receiver = make(gap_timeout=5.0)
    receiver.data(2)
    receiver.receive(End(ID, EPOCH, receiver.mode, 2), 1.0)
    receiver.handle_timer(5.0)
    assert receiver.took() == [2]
    assert receiver.state is ReceiverState.CLOSED


@pytest.mark.parametrize("ordering", Ordering)
def test_an_end_beyond_the_window_is_not_believed(ordering: Ordering) -> None:
    """A sender sends nothing beyond it: what is missing up to there is not, and costs nothing."""
    receiver = make(ordering, window=8, gap_timeout=5.0)
    receiver.data(1)
    assert receiver.took() == [1]
    receiver.receive(End(ID, EPOCH, receiver.mode, (1 << 64) - 1), 1.0)
    receiver.handle_timer(6.0)
    assert receiver.take_events() == [Gap(2, 9)]
    assert (receiver.state, receiver.missed) == (ReceiverState.CLOSED, 8)


def test_what_is_not_confirmed_and_was_going_on_before_waits_only_a_little() -> None:
    """Nothing says whether the receiver is new, or the first frames of a new pipe are late."""
    receiver = make(confirm=False, begin_timeout=1.0)
    receiver.data(1001)
    assert receiver.timer() == 1.0
    receiver.data(1000, now=0.5)
    assert receiver.took() == []
    receiver.handle_timer(1.0)
    assert receiver.took() == [1000, 1001]
    assert receiver.take_events() == [Gap(1, 999, began=True)]
    assert receiver.missed == 0
    monotonic = make(Ordering.MONOTONIC, confirm=False)
    monotonic.data(7)
    assert monotonic.take_events() == [Gap(1, 6, began=True)]
    far = make(confirm=False, window=4)
    far.data(100)
    assert far.take_events() == [Gap(1, 96, began=True)]


def test_a_receiver_can_go_on_where_another_one_was() -> None:
    options = PipeReceiverOptions()
    receiver = Made(options, ID, EPOCH, Mode(Ordering.STRICT, False), 0.0, begin=6)
    receiver.data(5, 6, 7)
    assert receiver.took() == [6, 7]
    assert (receiver.take_events(), receiver.next_number) == ([], 8)
    receiver.data(9)
    receiver.handle_timer(60.0)
    assert receiver.take_events() == [Gap(8, 8)]


def test_what_is_refused_is_a_gap_too() -> None:
    receiver = make()
    receiver.data(1, 2, 3, 4)
    receiver.refuse()
    receiver.refuse()
    receiver.took(1)
    receiver.refuse()
    assert receiver.take_events() == [Gap(1, 2), Gap(4, 4)]


def test_a_frame_that_is_refused_is_lost_if_it_does_not_come_again() -> None:
    for mode, events in ((Mode(), 0), (Mode(confirm=False), 1)):
        receiver = Made(PipeReceiverOptions(), ID, EPOCH, mode, 0.0)
        receiver.refuse_frame(PipeData(ID, EPOCH, mode, 1, 1, (message(1),)))
        assert receiver.beyond == 1
        assert len(receiver.take_events()) == events


def test_frames_of_another_epoch_are_unknown() -> None:
    receiver = make()
    receiver.receive(PipeData(ID, b"another!", receiver.mode, 1, 1, (message(1),)), 0.0)
    assert receiver.took() == []
    assert receiver.said() == [Unknown(ID, b"another!")]


def test_a_broken_pipe_keeps_what_is_held_back_from_going_on() -> None:
    receiver = make()
    receiver.data(1)
    receiver.data(3)
    receiver.receive(Abort(ID, EPOCH), 0.0)
    assert receiver.state is ReceiverState.CLOSED
    assert [number_of(each) for each in receiver.take_all()] == [1, 3]
    assert receiver.held == 0


def test_a_sender_that_is_gone_leaves_what_it_sent() -> None:
    receiver = make(idle_timeout=10.0, gap_timeout=100.0)
    receiver.data(2)
    receiver.data(5)
    assert receiver.said()
    assert receiver.timer() == 10.0
    receiver.handle_timer(10.0)
    assert receiver.state is ReceiverState.CLOSED
    assert receiver.took() == [2, 5]
    assert receiver.take_events() == [Gap(1, 1), Gap(3, 4)]
    unordered = make(Ordering.NONE)
    unordered.data(2)
    unordered.close()
    assert unordered.take_events() == [Gap(1, 1)]


def test_every_step_of_the_table_leads_somewhere() -> None:
    assert {ReceiverState.OPEN} | set(RECEIVER.values()) == set(ReceiverState)
    assert {given_input for _, given_input in RECEIVER} == set(ReceiverInput)
    assert not any(state is ReceiverState.CLOSED for state, _ in RECEIVER)


bursts = st.lists(st.tuples(st.integers(1, 12), st.floats(0, 0.5)), min_size=1, max_size=8)


@settings(max_examples=times(30, 150), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    bursts=bursts,
    way=st.builds(
        Way,
        st.floats(0, 0.4),
        st.floats(0, 0.4),
        st.sampled_from([(0.01, 0.01), (0.001, 0.3), (0.0, 0.02)]),
    ),
    mode=st.builds(Mode, st.sampled_from(Ordering), st.booleans()),
    window=st.sampled_from([1, 2, 7, 64]),
    receiver_window=st.sampled_from([2, 5, 64]),
    per_frame=st.sampled_from([1, 2, 9]),
    cut=st.none() | st.integers(0, 7),
    stalls=st.booleans(),
)
def test_whatever_the_way_does_the_promise_is_kept(
    seed: int,
    bursts: list[tuple[int, float]],
    way: Way,
    mode: Mode,
    window: int,
    receiver_window: int,
    per_frame: int,
    cut: int | None,
    stalls: bool,
) -> None:
    pair = Pair(
        way,
        seed,
        PipeOptions(
            mode.ordering,
            mode.confirm,
            window=window,
            frame_messages=per_frame,
            give_up=1000.0,
            max_timeout=1.0,
        ),
        PipeReceiverOptions(
            window=receiver_window, gap_timeout=2000.0 if mode.confirm else 1.0, idle_timeout=1e9
        ),
    )
    sent = 0
    for number, (count, seconds) in enumerate(bursts):
        if number == cut:
            pair.way.cut = True
        if stalls and mode.confirm:
            pair.room = 3
        pair.send(*range(sent + 1, sent + count + 1))
        sent += count
        pair.run(seconds)
    pair.way.cut = False
    pair.make_room(1_000_000)
    pair.run(900)
    handed, everything = pair.handed, list(range(1, sent + 1))
    gaps = [number for first, last in pair.gaps for number in range(first, last + 1)]
    assert pair.most_kept <= 2 * receiver_window + per_frame
    assert not pair.in_doubt
    if mode.confirm and mode.ordering is Ordering.STRICT:
        assert handed == everything
    elif mode.confirm and mode.ordering is Ordering.NONE:
        assert sorted(handed) == everything
    elif mode.confirm:
        assert handed == sorted(handed)
        assert sorted(handed + pair.missed) == everything
        assert sorted(gaps) == sorted(pair.missed)
    elif mode.ordering is Ordering.STRICT:
        assert handed == sorted(set(handed))
        assert sorted(handed + gaps) == everything[: max([*handed, *gaps], default=0)]
    elif mode.ordering is Ordering.MONOTONIC:
        assert handed == sorted(set(handed))
    else:
        assert set(handed) <= set(everything)
