from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onward.protocol.sessions import (
    Acceptor,
    Action,
    Actions,
    LivenessOptions,
    Opener,
    SessionState,
)
from tests.support.counts import times

OPTIONS = LivenessOptions(jitter=0.0)
S = SessionState


def opener(**options: float) -> Opener:
    return Opener(LivenessOptions(jitter=0.0, **options), random=lambda: 0.5)  # type: ignore[arg-type]


def up(now: float = 0.0) -> Opener:
    end = opener()
    assert end.start(now) == (Action.ATTEMPT,)
    assert end.opened(now, 1) == (Action.UP,)
    return end


def test_it_is_established_and_pings() -> None:
    end = opener()
    assert (end.state, end.wake_at) == (S.ESTABLISHING, None)
    assert end.tick(5) == ()
    assert end.start(0) == (Action.ATTEMPT,)
    assert (end.epoch, end.wake_at) == (1, 10)
    assert end.opened(3, 1) == (Action.UP,)
    assert (end.state, end.wake_at) == (S.UP, 13)
    assert end.tick(12.9) == ()
    assert end.tick(13) == (Action.PING,)
    assert (end.pings, end.wake_at) == (1, 23)


def test_three_pings_that_go_unanswered_take_it_down() -> None:
    end = up()
    assert [end.tick(now) for now in (10, 20, 30)] == [(Action.PING,)] * 3
    assert end.tick(40) == (Action.DOWN,)
    assert (end.state, end.cause) == (S.DOWN, "3 pings went unanswered")
    assert end.wake_at == 40  # at once: it had held
    assert end.tick(40) == (Action.ATTEMPT,)
    assert (end.state, end.epoch) == (S.REPLACING, 2)
    assert end.opened(41, 2) == (Action.UP,)


def test_an_answer_in_time_keeps_it_up() -> None:
    end = up()
    for now in range(10, 200, 10):
        assert end.tick(now) == (Action.PING,)
        if now % 30 == 0:
            end.heard()
    assert end.state is S.UP


def test_the_first_attempt_that_fails_is_said_the_others_are_not() -> None:
    end = opener()
    end.start(0)
    assert end.failed(1, 1, "refused") == (Action.DOWN,)
    assert (end.cause, end.wake_at) == ("refused", 6)
    waits: list[float] = []
    for _ in range(6):
        assert end.wake_at is not None
        begun = end.wake_at
        assert end.tick(begun) == (Action.ATTEMPT,)
        assert end.tick(begun + 10) == ()  # took too long: down again, without a word
        assert end.state is S.DOWN
        waits.append(end.wake_at - begun - 10)
    assert waits == [10, 20, 40, 60, 60, 60]


def test_a_way_that_is_lost_at_once_each_time_is_tried_more_and_more_seldom() -> None:
    end = up()
    now, waits = 0.0, list[float]()
    for _ in range(4):
        assert end.lost(now, end.epoch, "the link stopped") == (Action.DOWN,)
        assert end.wake_at is not None
        waits.append(end.wake_at - now)
        now = end.wake_at
        end.tick(now)
        end.opened(now, end.epoch)
    assert waits == [5, 10, 20, 40]


def test_what_is_of_an_older_handshake_is_too_late() -> None:
    end = up()
    end.lost(0, 1, "the link stopped")
    end.tick(5)
    assert end.epoch == 2
    assert end.opened(6, 1) == ()
    assert end.failed(6, 1, "no") == ()
    assert end.lost(6, 1, "the link stopped") == ()
    assert end.state is S.REPLACING
    assert end.opened(6, 2) == (Action.UP,)
    assert end.opened(6, 2) == ()  # a duplicate
    assert end.failed(6, 2, "no") == ()


def test_waits_are_random_within_the_jitter() -> None:
    for number, wait in ((0.0, 4), (0.5, 5), (1.0, 6)):
        end = Opener(LivenessOptions(jitter=0.2), random=lambda number=number: number)  # type: ignore[misc]
        end.start(0)
        end.failed(0, 1, "no")
        assert end.wake_at is not None
        assert abs(end.wake_at - wait) < 1e-9
    end = Opener(LivenessOptions(jitter=0.2), random=lambda: 0.75)
    end.start(0)
    end.opened(0, 1)
    end.lost(10, 1, "the link stopped")
    assert end.wake_at == 10.75


def test_closing_tells_the_other_end_until_it_confirms() -> None:
    end = up()
    assert end.close(1, "done") == (Action.TELL,)
    assert end.close(1, "done") == ()
    assert (end.state, end.wake_at) == (S.CLOSING, 2)
    assert end.tick(2) == (Action.TELL,)
    assert end.acked() == (Action.OVER,)
    assert (end.state, end.cause, end.wake_at) == (S.CLOSED, "done", None)
    assert end.acked() == ()
    assert end.told("again") == ()


def test_closing_ends_when_it_was_told_often_enough() -> None:
    end = up()
    told = [end.close(0, "done"), end.tick(1), end.tick(2), end.tick(3)]
    assert told == [(Action.TELL,), (Action.TELL,), (Action.TELL,), (Action.OVER,)]


def test_closing_before_it_was_up_tells_nobody() -> None:
    end = opener()
    end.start(0)
    assert end.close(1, "done") == (Action.OVER,)
    assert end.opened(1, 1) == ()


def test_it_is_over_when_the_other_end_says_so() -> None:
    end = up()
    assert end.told("shut down") == (Action.OVER,)
    assert (end.cause, end.tick(1000)) == ("shut down", ())


def test_the_accepting_end_is_made_by_the_first_handshake() -> None:
    end = Acceptor(OPTIONS)
    assert end.heard(0, 0) is None
    assert end.opened(0, 1) == (Action.UP,)
    assert end.opened(1, 1) == ()
    assert (end.epoch, end.wake_at) == (1, 41)
    assert end.opened(2, 0) is None


def test_the_accepting_end_notices_silence_and_forgets() -> None:
    end = Acceptor(OPTIONS)
    end.opened(0, 1)
    assert end.heard(30, 1) == ()
    assert end.heard(30, 0) is None
    assert end.tick(69) == ()
    assert end.tick(70) == (Action.DOWN,)
    assert (end.cause, end.wake_at) == ("no ping came", 150)
    assert not end.forgotten
    assert end.tick(150) == (Action.OVER,)
    assert end.state is S.CLOSED
    assert end.forgotten
    assert end.opened(151, 2) is None


def test_the_accepting_end_is_brought_back_by_a_ping_or_a_handshake() -> None:
    end = Acceptor(OPTIONS)
    end.opened(0, 1)
    assert end.lost(1, "the link stopped") == (Action.DOWN,)
    assert end.lost(1, "the link stopped") == ()
    assert end.heard(2, 1) == (Action.UP,)
    end.lost(1, "the link stopped")
    assert end.opened(3, 2) == (Action.UP,)
    assert end.lost(1, "the older link stopped") == ()


def test_the_accepting_end_closes_too() -> None:
    end = Acceptor(OPTIONS)
    end.opened(0, 1)
    assert end.close(1, "shut down") == (Action.TELL,)
    assert end.opened(1, 2) is None
    assert end.heard(1, 1) is None
    assert end.tick(2) == (Action.TELL,)
    assert end.acked() == (Action.OVER,)


class Pair(RuleBasedStateMachine):
    """Two ends and frames that are lost, late, doubled and out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.opener = Opener(LivenessOptions(), random=lambda: 0.5)
        self.acceptor = Acceptor(LivenessOptions())
        self.there: list[tuple[str, int]] = []
        self.back: list[tuple[str, int]] = []
        self.log: dict[str, list[Action]] = {"opener": [], "acceptor": []}
        self.act(self.opener.start(self.now), "opener")

    def act(self, actions: Actions | None, who: str) -> None:
        end = self.opener if who == "opener" else self.acceptor
        out = self.there if who == "opener" else self.back
        self.log[who] += actions or ()
        for action in actions or ():
            if action is Action.ATTEMPT:
                out.append(("open", end.epoch))
            elif action is Action.PING:
                out.append(("ping", end.epoch))
            elif action is Action.TELL:
                out.append(("close", end.epoch))

    @rule(seconds=st.floats(0.0, 50.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.act(self.opener.tick(self.now), "opener")
        self.act(self.acceptor.tick(self.now), "acceptor")

    @rule(index=st.integers(0, 20), keep=st.booleans())
    def arrive_there(self, index: int, keep: bool) -> None:
        if not self.there:
            return
        index %= len(self.there)
        kind, epoch = self.there[index] if keep else self.there.pop(index)
        end = self.acceptor
        if kind == "close":
            self.act(end.told("told"), "acceptor")
            self.back.append(("closed", epoch))
            return
        taken = end.opened(self.now, epoch) if kind == "open" else end.heard(self.now, epoch)
        if taken is not None:
            self.act(taken, "acceptor")
            self.back.append((kind, epoch))

    @rule(index=st.integers(0, 20), keep=st.booleans())
    def arrive_back(self, index: int, keep: bool) -> None:
        if not self.back:
            return
        index %= len(self.back)
        kind, epoch = self.back[index] if keep else self.back.pop(index)
        if kind == "open":
            self.act(self.opener.opened(self.now, epoch), "opener")
        elif kind == "ping":
            self.opener.heard()
        elif kind == "close":
            self.act(self.opener.told("told"), "opener")
            self.there.append(("closed", epoch))
        else:
            self.act(self.opener.acked(), "opener")

    @rule()
    def lose_the_link(self) -> None:
        self.act(self.opener.lost(self.now, self.opener.epoch, "lost"), "opener")
        self.act(self.acceptor.lost(self.acceptor.epoch, "lost"), "acceptor")

    @rule()
    def close_one(self) -> None:
        self.act(self.opener.close(self.now, "done"), "opener")

    @rule()
    def close_other(self) -> None:
        if self.acceptor.state is not SessionState.ESTABLISHING:
            self.act(self.acceptor.close(self.now, "done"), "acceptor")

    @invariant()
    def ups_and_downs_alternate_and_nothing_follows_the_end(self) -> None:
        for actions in self.log.values():
            told = [each for each in actions if each in (Action.UP, Action.DOWN, Action.OVER)]
            for one, other in pairwise(told):
                assert one is not other
            assert Action.OVER not in told[:-1]

    @invariant()
    def an_end_that_is_not_over_wants_to_be_woken(self) -> None:
        for end in (self.opener, self.acceptor):
            over = end.state is SessionState.CLOSED
            unborn = end is self.acceptor and end.state is SessionState.ESTABLISHING
            assert (end.wake_at is None) == (over or unborn)

    @invariant()
    def the_accepting_end_is_never_ahead(self) -> None:
        assert self.acceptor.epoch <= self.opener.epoch


TestPair = Pair.TestCase
TestPair.settings = settings(max_examples=times(15, 60), stateful_step_count=40, deadline=None)


@given(st.lists(st.floats(0, 100), max_size=50))
def test_however_it_is_woken_it_pings_no_more_often_than_it_may(waits: list[float]) -> None:
    end, now, pings = up(), 0.0, list[float]()
    for wait in waits:
        now += wait
        end.heard()
        pings += [now] * end.tick(now).count(Action.PING)
    assert all(b - a >= 10 - 1e-9 for a, b in pairwise(pings))
