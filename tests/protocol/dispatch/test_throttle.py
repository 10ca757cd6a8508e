"""A pause that grows while uses follow closely."""

from __future__ import annotations

from onward.protocol.dispatch import Throttle


def test_the_pause_doubles_up_to_the_longest_and_is_short_after_a_rest() -> None:
    throttle = Throttle(1.0, 5.0)
    assert throttle.next(7.0) == 7.0
    now, pauses = 7.0, list[float]()
    for _ in range(16):
        throttle.used(now)
        pauses.append(throttle.next(now) - now)
        now = throttle.next(now)
    assert pauses == [1.0] * 11 + [2.0, 4.0, 5.0, 5.0, 5.0]
    throttle.used(now + 5.0)
    assert throttle.next(now) == now + 6.0


def test_a_longest_pause_below_the_first_is_the_first() -> None:
    throttle = Throttle(2.0, 1.0)
    for use in range(20):
        throttle.used(2.0 * use)
    assert throttle.next(38.0) == 40.0
