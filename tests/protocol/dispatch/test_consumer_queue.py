"""Messages that wait for the credit of a consumer."""

from __future__ import annotations

from onward.protocol.dispatch import ConsumerQueue, Waiting


def taken(queue: ConsumerQueue[str], now: float = 0.0) -> list[str]:
    return [each.message for each in queue.take(now)]


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
        queue.put("a")
        queue.put("u", b"u")
        queue.put("b")
        queue.put("c")
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
    assert list(queue.take(0.0)) == [Waiting("b", None, None), Waiting("c", b"c", None)]


def test_a_message_that_is_too_late_takes_no_credit() -> None:
    queue = ConsumerQueue[str](5)
    queue.put("a", None, 1.0)
    queue.put("b", b"b", 1.0)
    queue.put("c", b"c", 9.0)
    assert list(queue.take(1.0)) == [Waiting("b", b"b", 1.0)]
    assert queue.expired == 2
    queue.credit = 1
    assert taken(queue, 2.0) == ["c"]
