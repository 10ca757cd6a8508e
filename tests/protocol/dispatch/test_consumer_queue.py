"""Messages that wait for the credit of a consumer."""

from __future__ import annotations

from onward.protocol.dispatch import (
    ConsumerQueue,
    DeliveryLimits,
    DropReason,
    NodeTotals,
    Share,
    Waiting,
)


class Text(str):
    """A message of 10 bytes, of a source with a share or of the program itself."""

    __slots__ = ()
    share: Share | None = None
    size = 10


def taken(queue: ConsumerQueue[Text]) -> list[Text]:
    return [each.message for each in queue.take()]


def text(letter: str, share: Share | None = None) -> Text:
    made = type("Shared", (Text,), {"share": share})
    found = made(letter)
    assert isinstance(found, Text)
    return found


def test_messages_are_taken_in_order_as_credit_allows() -> None:
    queue = ConsumerQueue[Text](2)
    for letter in "abc":
        queue.put(Text(letter), letter.encode())
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
        queue = ConsumerQueue[Text](2, newest=newest)
        assert queue.put(Text("a")) == []
        assert queue.put(Text("u"), b"u") == []
        assert queue.put(Text("b")) == []
        assert queue.put(Text("c")) == [("c" if newest else "a", DropReason.OVERFLOW)]
        assert queue.dropped == 1
        queue.credit = 10
        assert taken(queue) == left


def test_a_message_is_withdrawn_or_settled_in_its_place() -> None:
    queue = ConsumerQueue[Text](2)
    for letter in "abc":
        queue.put(Text(letter), letter.encode())
    queue.withdraw(b"a")
    queue.withdraw(b"a")
    queue.settle(b"b")
    queue.settle(b"b")
    queue.credit = 10
    assert list(queue.take()) == [Waiting(Text("b"), None, None), Waiting(Text("c"), b"c", None)]


def test_a_message_that_is_too_late_leaves_wherever_it_is() -> None:
    queue = ConsumerQueue[Text](5)
    queue.put(Text("a"))
    queue.put(Text("b"), b"b", 2.0)
    queue.put(Text("c"), None, 1.0)
    queue.put(Text("d"), b"d", 9.0)
    assert queue.get_timer() == 1.0
    assert queue.expire(0.9) == []
    assert queue.expire(2.0) == [Waiting(Text("c"), None, 1.0), Waiting(Text("b"), b"b", 2.0)]
    assert queue.expired == 2
    assert queue.get_timer() == 9.0
    queue.credit = 2
    assert taken(queue) == ["a", "d"]
    assert queue.get_timer() is None


def test_all_are_removed_with_the_consumer_and_pre_settled_ones_are_returned() -> None:
    queue = ConsumerQueue[Text](5)
    queue.put(Text("a"), b"a")
    queue.put(Text("b"))
    queue.put(Text("c"))
    assert queue.clear() == ["b", "c"]
    assert len(queue) == 0
    assert queue.clear() == []


def test_times_of_messages_that_have_gone_do_not_gather() -> None:
    queue = ConsumerQueue[Text](5)
    for _ in range(500):
        queue.put(Text("a"), b"a", 9.0)
        queue.withdraw(b"a")
    assert len(queue._times) < 100  # pyright: ignore[reportPrivateUsage]


def test_bytes_of_pre_settled_messages_are_bounded_for_a_node() -> None:
    totals = NodeTotals(DeliveryLimits(max_settled_size=30))
    oldest, newest = ConsumerQueue[Text](5, totals), ConsumerQueue[Text](5, totals, newest=True)
    assert newest.put(Text("n")) == []
    assert [oldest.put(Text(each)) for each in "abc"] == [[], [], [("a", DropReason.SETTLED_SIZE)]]
    assert newest.put(Text("m")) == [("m", DropReason.SETTLED_SIZE)]
    third = ConsumerQueue[Text](5, totals)
    assert third.put(Text("x")) == [("x", DropReason.SETTLED_SIZE)]
    assert third.put(Text("u"), b"u") == []
    assert totals.settled_size == 30
    # What is settled by its producer while it waits has no more room than what comes settled.
    assert third.settle(b"u") == [("u", DropReason.SETTLED_SIZE)]
    assert (len(third), totals.settled_size) == (0, 30)
    oldest.put(Text("d"), b"d")
    assert oldest.settle(b"d") == [("b", DropReason.SETTLED_SIZE)]
    assert oldest.settle(b"d") == []
    assert totals.settled_size == 30
    oldest.credit = 1
    assert taken(oldest) == ["c"]
    for queue in (oldest, newest, third):
        queue.clear()
    assert totals.settled_size == 0


def test_a_source_beyond_its_share_drops_its_own_message() -> None:
    totals = NodeTotals(DeliveryLimits(max_settled_size=100, max_share=20))
    share = totals.share_of("client")
    queue = ConsumerQueue[Text](3, totals)
    queue.put(Text("o"))
    assert [queue.put(text(each, share)) for each in "abc"] == [
        [],
        [],
        [("c", DropReason.SHARE)],
    ]
    assert (share.settled_size, totals.settled_size) == (20, 30)
    queue.clear()
    assert (share.settled_size, totals.settled_size) == (0, 0)


def test_all_that_are_not_authenticated_have_a_share_together() -> None:
    limits = DeliveryLimits(max_settled_size=100, max_share=40, max_anonymous_share=50)
    totals = NodeTotals(limits)
    one, other = (totals.share_of(each, anonymous=True) for each in ("a", "b"))
    assert totals.share_of("b", anonymous=True) is other
    whole = one.whole
    assert whole is not None
    assert whole is other.whole
    totals.count_settled(40, one, 1)
    assert not totals.may_have_settled(10, one)
    assert totals.may_have_settled(10, other)
    assert not totals.may_have_settled(20, other)
    assert totals.may_have_settled(20, totals.share_of("principal"))
    totals.count(7, other, 1)
    assert (whole.settled_size, whole.size, whole.unsettled) == (40, 7, 1)
    totals.count(7, other, -1)
    totals.count_settled(40, one, -1)
    assert whole.is_idle


def test_shares_of_sources_that_have_nothing_are_forgotten() -> None:
    totals = NodeTotals()
    kept = totals.share_of("kept")
    totals.count(10, kept, 1)
    for number in range(1000):
        assert totals.share_of(number).is_idle
    assert len(totals.shares) < 200
    assert totals.share_of("kept") is kept
