"""A window of numbers against a set."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.protocol.identity import NumberWindow


@given(st.integers(1, 70), st.lists(st.integers(0, 200), max_size=80))
def test_a_window_is_a_set_of_the_numbers_that_it_covers(width: int, numbers: list[int]) -> None:
    window, seen = NumberWindow(width), set[int]()
    for number in numbers:
        assert window.highest == max(seen, default=-1)
        below = bool(seen) and number <= max(seen) - width
        assert window.is_below(number) is below
        if not below:
            assert window.has_seen(number) is (number in seen)
            window.add(number)
            assert window.has_seen(number)
            seen.add(number)
