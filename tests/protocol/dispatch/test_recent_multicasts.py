"""The multicasts that have come lately: which are known, and which are forgotten."""

from __future__ import annotations

from onward.protocol.dispatch import Identity, RecentMulticasts


def identity(number: int, ingress: str = "x", instance: bytes = b"instance") -> Identity:
    return ingress, instance, number.to_bytes(8)


def test_a_second_copy_is_known_by_its_identity() -> None:
    recent = RecentMulticasts(10, 10)
    assert recent.arrived(identity(1))
    assert not recent.arrived(identity(1))
    assert recent.arrived(identity(2))
    assert recent.arrived(identity(1, "y"))
    assert recent.arrived(identity(1, instance=b"restart."))
    assert len(recent) == 4


def test_what_was_released_may_come_again() -> None:
    recent = RecentMulticasts(10, 10)
    recent.released(identity(1))
    assert recent.arrived(identity(1))
    recent.released(identity(1))
    recent.released(identity(2))
    assert recent.arrived(identity(1))


def test_the_oldest_of_an_ingress_are_forgotten() -> None:
    recent = RecentMulticasts(3, 10)
    recent.arrived(identity(0, "y"))
    for number in range(5):
        recent.arrived(identity(number))
    assert not recent.arrived(identity(4))
    assert not recent.arrived(identity(0, "y"))  # a flood of one ingress forgets none of another
    assert recent.arrived(identity(1))
    assert len(recent) == 4


def test_the_ingress_that_has_sent_none_for_the_longest_time_is_forgotten() -> None:
    recent = RecentMulticasts(3, 2)
    for ingress in "xyxz":
        recent.arrived(identity(1, ingress))
    assert not recent.arrived(identity(1, "x"))
    assert recent.arrived(identity(1, "y"))
