from __future__ import annotations

from onward.actors import DeadLetter, DeadLetters
from onward.actors.routing._dead_letters import KEPT_PAYLOAD
from onward.protocol import Address, Context, Message
from tests.support.fixtures import Caplog

MESSAGES = [Message((Address(0, b"w%d" % number),), (), b"") for number in range(5)]


def made(keep: int = 3, reasons: int = 4) -> DeadLetters:
    times = iter(range(100))
    return DeadLetters(keep=keep, reasons=reasons, clock=lambda: float(next(times)))


def test_counts_all_and_keeps_the_newest() -> None:
    letters = made()
    for message in MESSAGES:
        letters.add(message, "a" if message is MESSAGES[0] else "b")

    assert letters.total == 5
    assert letters.by_reason == {"a": 1, "b": 4}
    assert letters.recent == tuple(
        DeadLetter(message, "b", float(at), len(message.payload))
        for at, message in enumerate(MESSAGES)
        if at > 1
    )


def test_what_is_kept_is_bounded_in_bytes_while_subscribers_see_the_whole() -> None:
    letters = made()
    seen: list[DeadLetter] = []
    letters.subscribe(seen.append)
    whole = MESSAGES[0]._replace(payload=bytes(1_000_000), context=Context(meta="anything"))
    letters.add(whole, "a")

    assert [letter.message for letter in seen] == [whole]
    (kept,) = letters.recent
    assert kept.size == 1_000_000
    assert kept.message == whole._replace(payload=bytes(KEPT_PAYLOAD), context=None)


def test_by_reason_is_a_snapshot() -> None:
    letters = made()
    before = letters.by_reason
    letters.add(MESSAGES[0], "a")

    assert before == {}


def test_further_reasons_count_as_other() -> None:
    letters = made(reasons=2)
    for reason in "abcdb":
        letters.add(MESSAGES[0], reason)

    assert letters.by_reason == {"a": 1, "b": 2, "other": 2}
    assert [letter.reason for letter in letters.recent] == ["c", "d", "b"]


def test_subscribers_see_each_until_they_leave(caplog: Caplog) -> None:
    letters = made()
    seen: list[str] = []

    def broken(letter: DeadLetter) -> None:
        raise ValueError(letter.reason)

    leave = letters.subscribe(lambda letter: seen.append(letter.reason))
    leave_broken = letters.subscribe(broken)
    letters.add(MESSAGES[0], "a")
    leave_broken()
    letters.add(MESSAGES[0], "b")
    leave()
    leave()
    letters.add(MESSAGES[0], "c")

    assert seen == ["a", "b"]
    assert [record.getMessage() for record in caplog.records] == [
        "a subscriber to dead letters failed"
    ]
