"""What is tried again and again, with a time between that doubles."""

from __future__ import annotations

from onward.actors.identity._reminders import Reminders
from onward.protocol.identity import Identity
from tests.support.identities import key_of

ONE, OTHER = (key_of(name).identity for name in ("one", "other"))


def test_the_time_between_two_tries_doubles_up_to_the_longest() -> None:
    reminders = Reminders(1.0, 5.0)
    assert reminders.get_timer() is None
    assert reminders.add(ONE, 10.0) == 11.0
    assert reminders.add(ONE, 10.5) is None
    assert reminders.take_due(10.9) == []
    tries: list[float] = []
    for _ in range(5):
        now = reminders.get_timer()
        assert now is not None
        assert reminders.take_due(now) == [ONE]
        tries.append(now)
    assert tries == [11.0, 13.0, 17.0, 22.0, 27.0]


def test_each_has_its_own_time_until_it_is_removed() -> None:
    reminders = Reminders(1.0, 60.0)
    reminders.add(ONE, 0.0)
    reminders.add(OTHER, 0.5)
    assert reminders.take_due(2.0) == [ONE, OTHER]
    assert (len(reminders), ONE in reminders) == (2, True)
    reminders.remove(ONE)
    reminders.remove(ONE)
    assert (len(reminders), ONE in reminders) == (1, False)
    assert reminders.take_due(100.0) == [OTHER]
    assert reminders.add(ONE, 100.0) == 101.0


def test_those_come_first_that_were_tried_longest_ago() -> None:
    reminders, nodes = Reminders(4.0, 60.0), [bytes((number,)) for number in range(40)]
    for node in nodes:
        reminders.add(Identity(node), 0.0)
    assert reminders.take_due(4.0, 16) == nodes[:16]
    assert reminders.get_timer() == 4.0
    assert reminders.take_due(5.0, 0) == []
    assert reminders.take_due(14.0, 16) == nodes[16:32]
    assert reminders.take_due(24.0, 16) == [*nodes[32:], *nodes[:8]]
