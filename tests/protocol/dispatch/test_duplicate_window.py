"""Duplicates of deliveries: known by their identity, with the outcome of the first."""

from __future__ import annotations

from onward.protocol.dispatch import ACCEPTED, MODIFIED, RELEASED, DuplicateWindow, Rejected


def test_a_duplicate_has_the_outcome_of_the_first() -> None:
    window = DuplicateWindow(10.0, 100)
    first, other = ("a", b"instance", b"1"), ("b", b"instance", b"1")
    assert window.arrived(first, 0.0) is None
    assert window.arrived(other, 0.0) is None
    assert window.arrived(first, 1.0) == MODIFIED  # it has none yet
    window.decided(first, ACCEPTED)
    assert window.arrived(first, 2.0) == ACCEPTED
    window.decided(other, Rejected("no"))
    assert window.arrived(other, 9.9) == Rejected("no")
    assert window.duplicates == 3
    assert window.arrived(first, 10.0) is None  # its time is over


def test_a_released_delivery_may_come_again() -> None:
    window = DuplicateWindow(10.0, 100)
    assert window.arrived(("a", b"instance", b"1"), 0.0) is None
    window.decided(("a", b"instance", b"1"), RELEASED)
    window.decided(("a", b"instance", b"1"), RELEASED)
    assert window.arrived(("a", b"instance", b"1"), 1.0) is None


def test_the_window_is_bounded() -> None:
    window = DuplicateWindow(10.0, 3)
    for number in range(5):
        assert window.arrived(("a", b"instance", bytes([number])), 0.0) is None
    assert len(window) == 3
    assert window.forgotten == 2
    assert window.arrived(("a", b"instance", b"\x04"), 1.0) == MODIFIED
