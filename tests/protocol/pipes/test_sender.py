"""The sending end of a pipe, with a receiver and an adversarial way, and alone."""

from __future__ import annotations

import itertools

import pytest

from onward.protocol import Context, EmptyRoute, Message, PayloadTooBig
from onward.protocol.pipes import (
    NO_EPOCH,
    SENDER,
    Broken,
    Confirm,
    End,
    Ended,
    Missed,
    OpenPipe,
    Ordering,
    Overdue,
    PipeClosed,
    PipeData,
    PipeFull,
    PipeOpened,
    PipeOptions,
    PipeReceiverOptions,
    PipeRefusal,
    PipeRefused,
    ReceiverState,
    Sender,
    SenderClosed,
    SenderInput,
    SenderState,
    Unknown,
    decode_frame,
)
from tests.protocol.pipes.pairs import TO, Pair, Way, message, number_of
from tests.support.counts import times

EPOCH = b"epoch!!!"


def identities() -> itertools.count[int]:
    return itertools.count(1)


def make(**options: object) -> Sender:
    numbers = identities()
    return Sender(PipeOptions(**options), lambda: next(numbers).to_bytes(16))  # type: ignore[arg-type]


def frames(sender: Sender, now: float = 0.0) -> list[object]:
    return [decode_frame(each) for each in sender.frames(now)]


def opened(sender: Sender, now: float = 0.0, window: int = 1000) -> bytes:
    """Have it open a pipe; return the identity."""
    (first,) = frames(sender, now)
    assert isinstance(first, OpenPipe)
    sender.receive(PipeOpened(first.identity, EPOCH, window, 1_000_000, 300_000), now)
    return first.identity


def numbers(found: list[object]) -> list[tuple[int, int]]:
    """First number and count of each DATA frame."""
    return [(each.first, len(each.messages)) for each in found if isinstance(each, PipeData)]


def test_nothing_is_sent_before_there_is_something() -> None:
    sender = make()
    assert frames(sender) == []
    assert sender.timer() is None
    assert sender.state is SenderState.IDLE


def test_a_pipe_is_opened_and_messages_share_frames() -> None:
    sender = make(frame_messages=3)
    for number in range(1, 8):
        sender.send(message(number))
    assert (sender.waiting, sender.accepted) == (7, 7)
    opened(sender)
    assert numbers(frames(sender)) == [(1, 3), (4, 3), (7, 1)]
    assert (sender.unconfirmed, sender.waiting) == (7, 0)


def test_opening_is_asked_again_and_given_up() -> None:
    sender = make(first_timeout=1.0, max_timeout=4.0, give_up=10.0)
    sender.send(message(1))
    assert len(frames(sender)) == 1
    seen: list[float] = []
    while sender.state is SenderState.OPENING:
        at = sender.timer()
        assert at is not None
        sender.handle_timer(at)
        if frames(sender, at):
            seen.append(at)
    assert seen == [1.0, 3.0, 7.0]
    (broken,) = sender.take_events()
    assert isinstance(broken, Broken)
    assert broken.in_doubt == ()
    assert [number_of(each) for each in broken.unsent] == [1]
    assert sender.unsent == 1
    assert sender.state is SenderState.IDLE


def test_the_window_of_messages_is_kept() -> None:
    sender = make(window=10, frame_messages=4)
    for number in range(1, 31):
        sender.send(message(number))
    identity = opened(sender)
    assert numbers(frames(sender)) == [(1, 4), (5, 4), (9, 2)]
    sender.receive(Confirm(identity, EPOCH, 1), 0.1)
    assert frames(sender, 0.1) == []  # a sliver is not worth a frame
    sender.receive(Confirm(identity, EPOCH, 4), 0.1)
    assert numbers(frames(sender, 0.1)) == [(11, 4)]


def test_the_receivers_window_counts_if_it_is_smaller() -> None:
    sender = make(window=100, frame_messages=100)
    for number in range(1, 31):
        sender.send(message(number))
    opened(sender, window=5)
    assert numbers(frames(sender)) == [(1, 5)]


def test_the_window_of_bytes_is_kept_and_a_bigger_message_goes_alone() -> None:
    sender = make(window_bytes=1000, frame_bytes=300)
    for number, size in enumerate((900, 200, 50, 2000, 20), 1):
        sender.send(message(number, size))
    identity = opened(sender)
    assert numbers(frames(sender)) == [(1, 1)]
    sender.receive(Confirm(identity, EPOCH, 1), 0.1)
    assert numbers(frames(sender, 0.1)) == [(2, 2)]
    sender.receive(Confirm(identity, EPOCH, 3), 0.1)
    assert numbers(frames(sender, 0.1)) == [(4, 1)]
    sender.receive(Confirm(identity, EPOCH, 4), 0.1)
    assert numbers(frames(sender, 0.1)) == [(5, 1)]


def test_what_cannot_be_taken_is_refused() -> None:
    sender = make(queue=2, max_message=100)
    with pytest.raises(EmptyRoute):
        sender.send(Message(TO, (), b""), 1)
    with pytest.raises(PayloadTooBig):
        sender.send(message(1, 200))
    sender.send(message(1))
    sender.send(message(2))
    assert sender.room == 0
    with pytest.raises(PipeFull, match="2 messages waiting"):
        sender.send(message(3))
    with pytest.raises(PipeFull):
        sender.send(Message((), (), b""))
    sender.end(0.0)
    opened(sender)
    frames(sender)
    with pytest.raises(PipeClosed):
        sender.send(message(4))
    with pytest.raises(PipeClosed):
        sender.send(Message((), (), b""))


def test_what_three_later_frames_overtook_is_sent_again_soon() -> None:
    sender = make(frame_messages=1)
    for number in range(1, 7):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 1, received=((3, 4),)), 0.01)
    assert numbers(frames(sender, 0.01)) == []
    sender.receive(Confirm(identity, EPOCH, 1, received=((3, 5),)), 0.011)
    assert numbers(frames(sender, 0.011)) == [(2, 1)]
    assert sender.resent == 1
    sender.receive(Confirm(identity, EPOCH, 6), 0.02)
    assert sender.confirmed == 6
    assert sender.unconfirmed == 0


def test_what_is_overtaken_and_a_round_trip_old_is_sent_again() -> None:
    sender = make(frame_messages=1, min_timeout=0.001)
    for number in (1, 2):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 0, received=((2, 2),)), 0.1)
    at = sender.timer()
    assert at is not None
    assert at == pytest.approx(0.1 * 9 / 8)
    sender.handle_timer(at)
    assert numbers(frames(sender, at)) == [(1, 1)]


def test_silence_is_broken_by_the_oldest_frame_alone() -> None:
    sender = make(frame_messages=1, first_timeout=1.0)
    for number in (1, 2, 3):
        sender.send(message(number))
    opened(sender)
    frames(sender, 0.0)
    seen: list[tuple[float, list[tuple[int, int]]]] = []
    for _ in range(4):
        at = sender.timer()
        assert at is not None
        sender.handle_timer(at)
        seen.append((at, numbers(frames(sender, at))))
    assert seen == [(1.0, [(1, 1)]), (3.0, [(2, 1)]), (5.0, [(3, 1)]), (7.0, [(1, 1)])]


def test_a_receiver_that_has_all_and_hands_on_nothing_is_asked() -> None:
    sender = make(first_timeout=1.0)
    sender.send(message(1))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 0, received=((1, 1),)), 0.5)
    at = sender.timer()
    assert at is not None
    sender.handle_timer(at)
    assert numbers(frames(sender, at)) == [(2, 0)]


def test_an_idle_receiver_is_asked_whether_it_is_there() -> None:
    sender = make(keep_alive=60.0, give_up=10.0)
    sender.send(message(1))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 1), 0.0)
    assert sender.timer() == 60.0
    sender.handle_timer(60.0)
    assert numbers(frames(sender, 60.0)) == [(2, 0)]
    sender.receive(Confirm(identity, EPOCH, 1), 60.1)
    assert sender.timer() == pytest.approx(120.1)
    sender.handle_timer(120.1)
    while sender.state is SenderState.OPEN:
        at = sender.timer()
        assert at is not None
        sender.handle_timer(at)
    assert sender.take_events() == [Broken("nothing was heard for 10 s", (), ())]


def test_giving_up_says_exactly_what_is_in_doubt() -> None:
    sender = make(frame_messages=2, give_up=5.0, window=4)
    for number in range(1, 8):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 1), 0.1)
    sender.handle_timer(5.1)
    (broken,) = sender.take_events()
    assert isinstance(broken, Broken)
    assert [number_of(each) for each in broken.in_doubt] == [2, 3, 4]
    assert [number_of(each) for each in broken.unsent] == [5, 6, 7]
    assert (sender.confirmed, sender.in_doubt, sender.unsent) == (1, 3, 3)
    sender.send(message(8))
    assert opened(sender, 6.0) != identity


def test_a_restarted_receiver_has_the_sender_report_and_begin_anew() -> None:
    sender = make(frame_messages=1, window=2)
    for number in (1, 2, 3):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 1), 0.1)
    frames(sender, 0.1)
    sender.receive(Unknown(identity, b"another!"), 0.2)
    assert sender.stale == 1
    sender.send(message(4))
    sender.receive(Unknown(identity, EPOCH), 0.2)
    (broken,) = sender.take_events()
    assert isinstance(broken, Broken)
    assert [number_of(each) for each in broken.in_doubt] == [2, 3]
    assert broken.unsent == ()
    assert opened(sender, 0.3) != identity
    assert numbers(frames(sender, 0.3)) == [(1, 1)]


def test_what_was_missed_is_reported_once() -> None:
    sender = make(frame_messages=3)
    for number in range(1, 7):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 4, missed=((2, 2), (4, 4))), 0.1)
    sender.receive(Confirm(identity, EPOCH, 6, missed=((2, 2), (4, 4))), 0.2)
    (missed,) = sender.take_events()
    assert isinstance(missed, Missed)
    assert [number_of(each) for each in missed.messages] == [2, 4]
    assert (sender.confirmed, sender.missed) == (4, 2)


def test_frames_that_are_not_for_it_change_nothing() -> None:
    sender = make(frame_messages=1)
    sender.receive(Ended(bytes(16), EPOCH), 0.0)
    for number in (1, 2, 3):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 2), 0.1)
    for stale in (
        PipeOpened(identity, b"another!", 1, 1, 1),
        Confirm(identity, EPOCH, 1),
        Confirm(identity, EPOCH, 9),
        Confirm(identity, b"another!", 3),
        Confirm(bytes(16), EPOCH, 3),
    ):
        sender.receive(stale, 0.2)
    assert sender.stale == 6
    assert sender.unconfirmed == 1
    sender.receive(Confirm(identity, EPOCH, 2, received=((5, 6),)), 0.2)
    assert sender.unconfirmed == 1


def test_a_repetition_that_came_too_soon_says_nothing_of_later_frames() -> None:
    sender = make(frame_messages=1, first_timeout=0.5, min_timeout=0.4)
    for number in (1, 2, 3, 4, 5):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 1), 0.4)  # a round trip of 0.4 s
    at = sender.timer()
    assert at is not None
    sender.handle_timer(at)
    assert numbers(frames(sender, at)) == [(2, 1)]
    sender.receive(Confirm(identity, EPOCH, 2), at + 0.001)  # the first of the two
    assert numbers(frames(sender, at + 0.001)) == []


def test_the_end_is_told_and_told_again() -> None:
    sender = make(first_timeout=1.0)
    sender.send(message(1))
    sender.end(0.0)
    identity = opened(sender)
    assert sender.state.name == "DRAINING"
    assert numbers(frames(sender, 0.0)) == [(1, 1)]
    sender.receive(Confirm(identity, EPOCH, 1), 0.1)
    assert frames(sender, 0.1) == [End(identity, EPOCH, PipeOptions().mode, 1)]
    sender.receive(Confirm(identity, EPOCH, 1), 0.2)
    at = sender.timer()
    assert at is not None
    sender.handle_timer(at)
    assert frames(sender, at) == [End(identity, EPOCH, PipeOptions().mode, 1)]
    sender.end(at)
    sender.receive(Ended(identity, EPOCH), at)
    assert sender.take_events() == [SenderClosed()]
    assert sender.state is SenderState.CLOSED
    assert sender.timer() is None
    sender.abort()
    assert sender.take_events() == []


@pytest.mark.parametrize("heard", [True, False])
def test_an_end_that_nobody_confirms_is_an_end_too(heard: bool) -> None:
    sender = make()
    sender.send(message(1))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.receive(Confirm(identity, EPOCH, 1), 0.1)
    sender.end(0.1)
    if heard:
        sender.receive(Unknown(identity, EPOCH), 0.2)
    else:
        sender.handle_timer(1000.0)
    assert sender.take_events() == [SenderClosed()]


def test_the_end_of_a_pipe_that_was_never_used() -> None:
    sender = make()
    sender.end(0.0)
    assert sender.take_events() == [SenderClosed()]
    assert frames(sender) == []


def test_the_end_while_the_receiver_restarts() -> None:
    sender = make(frame_messages=1, window=1)
    for number in (1, 2):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.end(0.0)
    sender.receive(Unknown(identity, EPOCH), 0.1)
    again = opened(sender, 0.1)
    assert numbers(frames(sender, 0.1)) == [(1, 1)]
    sender.receive(Unknown(again, EPOCH), 0.2)
    assert isinstance(sender.take_events()[-1], SenderClosed)
    assert sender.in_doubt == 2


def test_the_end_is_given_up_with_what_is_in_doubt() -> None:
    sender = make(give_up=5.0)
    sender.send(message(1))
    opened(sender)
    frames(sender, 0.0)
    sender.end(0.0)
    sender.handle_timer(5.0)
    broken, closed = sender.take_events()
    assert isinstance(broken, Broken)
    assert len(broken.in_doubt) == 1
    assert closed == SenderClosed()


def test_breaking_a_pipe_reports_what_was_in_it() -> None:
    sender = make(frame_messages=1, window=1)
    for number in (1, 2):
        sender.send(message(number))
    identity = opened(sender)
    frames(sender, 0.0)
    sender.abort()
    broken, closed = sender.take_events()
    assert isinstance(broken, Broken)
    assert (len(broken.in_doubt), len(broken.unsent)) == (1, 1)
    assert closed == SenderClosed()
    (abort,) = frames(sender, 0.0)
    assert getattr(abort, "identity", b"") == identity
    unused = make()
    unused.abort()
    assert unused.take_events() == [SenderClosed()]
    assert frames(unused) == []


def test_a_pipe_that_is_not_confirmed_just_numbers() -> None:
    sender = make(confirm=False, ordering=Ordering.STRICT, frame_messages=2)
    assert (sender.confirmed_mode, make().confirmed_mode) == (False, True)
    for number in (1, 2, 3):
        sender.send(message(number))
    assert numbers(frames(sender)) == [(1, 2), (3, 1)]
    assert sender.unconfirmed == 0
    assert sender.timer() is None
    sender.end(0.0)
    (end,) = frames(sender)
    assert isinstance(end, End)
    assert sender.take_events() == []
    sender.receive(Confirm(end.identity, NO_EPOCH, 3), 0.0)  # not what it asks for
    sender.receive(Ended(end.identity, NO_EPOCH), 0.0)
    assert sender.take_events() == [SenderClosed()]
    assert (sender.stale, sender.confirmed) == (1, 0)
    unsent = make(confirm=False)
    unsent.send(message(1))
    unsent.end(0.0)
    found = frames(unsent)
    assert [type(each) for each in found] == [PipeData, End]


def test_the_end_of_what_is_not_confirmed_is_told_a_few_times() -> None:
    sender = make(confirm=False, first_timeout=1.0, max_timeout=4.0)
    sender.send(message(1))
    sender.end(0.0)
    found = frames(sender)
    while (at := sender.timer()) is not None:
        sender.handle_timer(at)
        found += frames(sender, at)
    assert [type(each) for each in found] == [PipeData, End, End, End, End]
    assert sender.take_events() == [SenderClosed()]


@pytest.mark.parametrize("confirm", [True, False])
def test_the_end_of_an_unused_pipe_is_told_if_it_has_to_be(confirm: bool) -> None:
    pair = Pair(options=PipeOptions(confirm=confirm))
    pair.sender.end(0.0, tell=True)
    pair.after_sender()
    pair.run(1.0)
    assert pair.closed == 1
    assert pair.receiver is not None
    assert pair.receiver.state is ReceiverState.CLOSED
    assert pair.receiver.over


@pytest.mark.parametrize("reason", PipeRefusal)
def test_a_pipe_that_is_refused_is_over_at_once(reason: PipeRefusal) -> None:
    sender = make()
    sender.send(message(1))
    (first,) = frames(sender)
    assert isinstance(first, OpenPipe)
    sender.receive(PipeRefused(first.identity, reason), 0.0)
    (broken,) = sender.take_events()
    assert isinstance(broken, Broken)
    assert broken.why.startswith("the receiver has as many pipes")
    assert (sender.state, len(broken.unsent)) == (SenderState.IDLE, 1)
    sender.send(message(2))
    identity = opened(sender)
    sender.receive(PipeRefused(identity, reason), 0.0)  # it has been opened: nobody says so
    assert (sender.state, sender.stale) == (SenderState.OPEN, 1)
    ending = make(confirm=False)
    ending.send(message(1))
    ending.end(0.0)
    _, end = frames(ending)
    assert isinstance(end, End)
    ending.receive(PipeRefused(end.identity, reason), 0.0)
    assert ending.take_events() == [SenderClosed()]


def test_what_nobody_waits_for_any_more_is_not_sent() -> None:
    sender = make()
    for number, deadline in enumerate((1.0, 5.0, None, 1.5), 1):
        sender.send(Message(TO, (), number.to_bytes(4), None, Context(deadline)))
    identity = opened(sender, 2.0)
    (sent,) = frames(sender, 2.0)
    assert isinstance(sent, PipeData)
    assert [number_of(each) for each in sent.messages] == [2, 3]
    (late,) = sender.take_events()
    assert isinstance(late, Overdue)
    assert [number_of(each) for each in late.messages] == [1, 4]
    assert (sender.overdue, sender.unconfirmed) == (2, 2)
    sender.send(Message(TO, (), b"0005", None, Context(2.0)))
    sender.end(2.0)
    sender.receive(Confirm(identity, EPOCH, 2), 2.0)
    assert [type(each) for each in frames(sender, 2.0)] == [End]


def test_the_receiver_says_how_often_it_is_to_be_asked() -> None:
    for idle, asked in ((20_000, 10.0), (300_000, 60.0), (0, 2.0)):
        sender = make()
        sender.send(message(1))
        (first,) = frames(sender)
        assert isinstance(first, OpenPipe)
        sender.receive(PipeOpened(first.identity, EPOCH, 10, 1000, idle), 0.0)
        frames(sender)
        sender.receive(Confirm(first.identity, EPOCH, 1), 0.0)
        assert sender.timer() == asked


def test_every_step_of_the_table_leads_somewhere() -> None:
    reached = {SenderState.IDLE} | set(SENDER.values())
    assert reached == set(SenderState)
    assert {given for _, given in SENDER} == set(SenderInput)
    assert not any(state is SenderState.CLOSED for state, _ in SENDER)


def test_restarts_of_the_receiver_never_double_anything() -> None:
    for seed in range(times(8, 30)):
        pair = Pair(
            Way(loss=0.2, duplicate=0.2, delay=(0.001, 0.1)),
            seed,
            PipeOptions(frame_messages=2, give_up=100.0),
            PipeReceiverOptions(gap_timeout=200.0),
        )
        sent = 0
        for _ in range(6):
            pair.send(*range(sent + 1, sent + 11))
            sent += 10
            pair.run(pair.random.random() / 2)
            if pair.random.random() < 0.5:
                pair.restart_receiver()
        pair.run(600)
        assert len(pair.handed) == len(set(pair.handed))
        assert set(range(1, sent + 1)) == {*pair.handed, *pair.in_doubt}
