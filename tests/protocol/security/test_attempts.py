"""The limits of authentication for one source."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.protocol.security import Attempts
from onward.protocol.security._attempts import PARTS


def attempts(undecided: int = 2, failures: int = 3, sources: int = 10) -> Attempts:
    return Attempts(undecided, failures, 60.0, sources)


def fail(made: Attempts, source: str, now: float) -> None:
    assert made.begin(source, now)
    made.end(source, now, failed=True)


def test_the_attempts_in_progress_are_limited_for_each_source() -> None:
    made = attempts(undecided=2)
    assert made.begin("a", 0.0)
    assert made.begin("a", 0.0)
    assert not made.begin("a", 0.0)
    assert not made.admits("a", 1000.0)
    assert made.begin("b", 0.0)
    made.end("a", 0.0, failed=False)
    assert made.begin("a", 0.0)


def test_failures_ban_a_source_until_the_first_is_old() -> None:
    made = attempts(failures=3)
    for now in (0.0, 10.0, 20.0):
        fail(made, "a", now)
    assert not made.admits("a", 59.9)
    assert made.admits("b", 59.9)
    fail(made, "a", 60.0)
    assert not made.admits("a", 69.9)
    assert made.admits("a", 70.0)


def test_a_success_does_not_undo_failures() -> None:
    made = attempts(failures=3)
    fail(made, "a", 0.0)
    fail(made, "a", 0.0)
    assert made.begin("a", 0.0)
    made.end("a", 0.0, failed=False)
    fail(made, "a", 0.0)
    assert not made.admits("a", 0.0)


def test_ten_unknown_sessions_are_a_failure() -> None:
    made = attempts(failures=3)
    fail(made, "a", 0.0)
    for number in range(2 * PARTS):
        assert made.admits("a", 1.0), number
        made.fail_in_part("a", 1.0)
    assert not made.admits("a", 59.9)
    assert made.admits("a", 60.0)
    assert made.admits("b", 1.0)


def test_a_success_takes_back_an_unknown_session() -> None:
    made = attempts(failures=1)
    for _ in range(100):
        made.fail_in_part("a", 0.0)
        assert made.begin("a", 0.0)
        made.end("a", 0.0, failed=False)
    for _ in range(PARTS - 1):
        made.fail_in_part("a", 0.0)
    assert made.admits("a", 0.0)
    made.fail_in_part("a", 0.0)
    assert not made.admits("a", 0.0)


def test_unknown_sessions_of_long_ago_do_not_count() -> None:
    made = attempts(failures=1)
    for _ in range(PARTS - 1):
        made.fail_in_part("a", 0.0)
    made.fail_in_part("a", 60.0)
    assert made.admits("a", 60.0)
    assert (made.sources, made.forgotten) == (1, 0)


def test_sources_of_unknown_sessions_are_limited_too() -> None:
    made = attempts(sources=3)
    for now, source in enumerate("abcd"):
        made.fail_in_part(source, float(now))
    assert (made.sources, made.forgotten) == (3, 1)


def test_an_attempt_that_began_before_a_ban_ends() -> None:
    made = attempts(undecided=5, failures=2)
    for _ in range(4):
        assert made.begin("a", 0.0)
    for _ in range(4):
        made.end("a", 0.0, failed=True)
    assert not made.admits("a", 59.0)
    assert made.admits("a", 60.0)


def test_sources_without_recent_failures_are_forgotten() -> None:
    made = attempts()
    for number in range(5):
        fail(made, f"{number}", 0.0)
    assert made.sources == 5
    fail(made, "0", 60.0)
    assert (made.sources, made.forgotten) == (1, 0)


def test_of_too_many_sources_the_one_with_the_oldest_failure_is_forgotten() -> None:
    made = attempts(failures=1, sources=3)
    for now, source in enumerate("abc"):
        fail(made, source, float(now))
    assert not made.admits("a", 3.0)
    fail(made, "d", 3.0)
    assert (made.sources, made.forgotten) == (3, 1)
    assert [made.admits(each, 3.0) for each in "abcd"] == [True, False, False, False]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 40), st.booleans())))
def test_no_source_has_more_failures_in_any_window_than_its_limit(
    steps: list[tuple[str, int, bool]],
) -> None:
    made = attempts(failures=3, sources=5)
    failed: dict[str, list[float]] = {}
    now = 0.0
    for source, pause, right in steps:
        now += pause
        recent = [each for each in failed.get(source, ()) if each > now - 60.0]
        assert made.begin(source, now) == (len(recent) < 3)
        if len(recent) < 3:
            made.end(source, now, failed=not right)
            failed[source] = recent + ([] if right else [now])
        assert made.sources <= 5
