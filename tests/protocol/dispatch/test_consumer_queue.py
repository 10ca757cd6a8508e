"""Messages that wait for the credit of a consumer."""

from __future__ import annotations

from onward.protocol.dispatch import ConsumerQueue, Waiting


def taken(queue: ConsumerQueue[str]) -> list[str]:
    return [each.message for each in queue.take()]


def test_messages_are_taken_in_order_as_credit_allows() -> None:
    queue = ConsumerQueue[str](2)
    for text in "abc":
        queue.put(text, text.encode())
    assert taken(queue) == []
    queue.credit = 2
    assert taken(queue) == ["a", "b"]
    assert queue.credit == 0
    queue.credit = 5
    assert taken(queue) == ["c"]
    assert queue.drain() == 4
    assert queue.drain() == 0
    assert len(queue) == 0


def test_a_pre_settled_message_too_many_drops_the_oldest_or_the_newest_one() -> None:
    for newest, left in ((False, ["u", "b", "c"]), (True, ["a", "u", "b"])):
        queue = ConsumerQueue[str](2, newest=newest)
        assert queue.put("a") is None
        assert queue.put("u", b"u") is None
        assert queue.put("b") is None
        assert queue.put("c") == ("c" if newest else "a")
        assert queue.dropped == 1
        queue.credit = 10
        assert taken(queue) == left


def test_a_message_is_withdrawn_or_settled_in_its_place() -> None:
    queue = ConsumerQueue[str](2)
    for text in "abc":
        queue.put(text, text.encode())
    queue.withdraw(b"a")
    queue.withdraw(b"a")
    queue.settle(b"b")
    queue.settle(b"b")
    queue.credit = 10
    assert list(queue.take()) == [Waiting("b", None, None), Waiting("c", b"c", None)]


def test_a_message_that_is_too_late_leaves_wherever_it_is() -> None:
    queue = ConsumerQueue[str](5)
    queue.put("a")
    queue.put("b", b"b", 2.0)
    queue.put("c", None, 1.0)
    queue.put("d", b"d", 9.0)
    assert queue.get_timer() == 1.0
    assert queue.expire(0.9) == []
    assert queue.expire(2.0) == [Waiting("c", None, 1.0), Waiting("b", b"b", 2.0)]
    assert queue.expired == 2
    assert queue.get_timer() == 9.0
    queue.credit = 2
    assert taken(queue) == ["a", "d"]
    assert queue.get_timer() is None


def test_all_are_removed_with_the_consumer_and_pre_settled_ones_are_returned() -> None:
    queue = ConsumerQueue[str](5)
    queue.put("a", b"a")
    queue.put("b")
    queue.put("c")
    assert queue.clear() == ["b", "c"]
    assert len(queue) == 0
    assert queue.clear() == []


def test_times_of_messages_that_have_gone_do_not_gather() -> None:
    queue = ConsumerQueue[str](5)
    for _ in range(500):
        queue.put("a", b"a", 9.0)
        queue.withdraw(b"a")
    assert len(queue._times) < 100  # pyright: ignore[reportPrivateUsage]
