"""The second consumer of a direct name: refused, newest, on standby."""

from __future__ import annotations

from onward.protocol.dispatch import DirectAdmission, DirectConsumers, Second

YES, NO = DirectAdmission(admitted=True), DirectAdmission(admitted=False)


def test_a_second_consumer_is_refused() -> None:
    consumers = DirectConsumers(Second.REFUSE, 10)
    assert consumers.add(1) == YES
    assert consumers.add(2) == NO
    assert consumers.remove(2) is None
    assert consumers.active == 1
    assert consumers.remove(1) is None
    assert consumers.add(2) == YES


def test_the_newest_takes_the_place() -> None:
    consumers = DirectConsumers(Second.NEWEST, 10)
    assert consumers.add(1) == YES
    assert consumers.add(2) == DirectAdmission(admitted=True, displaced=1)
    assert consumers.remove(1) is None
    assert consumers.active == 2


def test_a_standby_waits_until_the_place_is_free() -> None:
    consumers = DirectConsumers(Second.STANDBY, 2)
    assert [consumers.add(number) for number in (1, 2, 3, 4)] == [YES, YES, YES, NO]
    assert consumers.standby == (2, 3)
    assert consumers.remove(2) is None
    assert consumers.remove(1) == 3
    assert consumers.active == 3
    assert consumers.remove(3) is None
    assert consumers.active is None


def test_a_consumer_at_another_node_counts() -> None:
    refusing = DirectConsumers(Second.REFUSE, 10)
    assert refusing.taken_elsewhere(newer=False) is None
    assert refusing.add(1) == NO
    assert refusing.gone_elsewhere() is None
    assert refusing.add(1) == YES
    assert refusing.taken_elsewhere(newer=True) is None
    assert refusing.active == 1
    assert refusing.gone_elsewhere() is None
    assert refusing.taken_elsewhere(newer=False) == 1
    newest = DirectConsumers(Second.NEWEST, 10)
    newest.taken_elsewhere(newer=True)
    assert newest.add(1) == YES
    assert newest.taken_elsewhere(newer=False) is None
    assert newest.taken_elsewhere(newer=True) == 1
    waiting = DirectConsumers(Second.STANDBY, 10)
    waiting.taken_elsewhere(newer=False)
    assert waiting.add(1) == YES
    assert waiting.active is None
    assert waiting.gone_elsewhere() == 1
