"""The counts of requests by interaction and outcome."""

from __future__ import annotations

from onward.actors.broker._tally import OUTCOMES, SAMPLED, SLOW, RequestTally, ServiceTally
from onward.protocol.eventlog import Outcome
from onward.protocol.rsocket import FrameType

RESPONSE, STREAM = int(FrameType.REQUEST_RESPONSE), int(FrameType.REQUEST_STREAM)
FNF = int(FrameType.REQUEST_FNF)


def counted(tally: RequestTally, kind: int) -> dict[Outcome, int]:
    return {outcome: count for outcome, count in tally.ended(kind).items() if count}


def test_requests_are_counted_by_interaction_and_outcome() -> None:
    tally = RequestTally()
    tally.answered += 5
    tally.sent += 2
    tally.end(RESPONSE, int(Outcome.DELIVER))
    tally.end(RESPONSE, 0x100 + int(Outcome.DELIVER))
    tally.end(RESPONSE, int(Outcome.FAILED))
    tally.end(FNF, int(Outcome.DROP))
    assert counted(tally, RESPONSE) == {Outcome.DELIVER: 7, Outcome.FAILED: 1}
    assert counted(tally, FNF) == {Outcome.DELIVER: 2, Outcome.DROP: 1}
    assert counted(tally, STREAM) == {}


def test_one_answer_in_some_is_a_sample() -> None:
    tally = RequestTally()
    samples = [tally.end(STREAM, int(Outcome.DELIVER)) for _ in range(2 * SAMPLED)]
    assert samples.count(True) == 2
    assert not any(tally.end(STREAM, int(Outcome.FAILED)) for _ in range(SAMPLED))
    assert not any(tally.end(FNF, int(Outcome.DELIVER)) for _ in range(SAMPLED))
    tally.took(STREAM, 0.25)
    assert (sum(tally.durations(STREAM).counts), tally.durations(STREAM).total) == (1, 0.25)
    assert sum(tally.durations(RESPONSE).counts) == 0


def test_the_counts_of_a_service() -> None:
    tally = ServiceTally("orders")
    assert not tally.used
    assert tally.ended() == dict.fromkeys(OUTCOMES, 0)
    tally.answered = 3
    tally.count(int(Outcome.DELIVER))
    tally.count(0x100 + int(Outcome.DELIVER))
    tally.count(int(Outcome.DROP))
    assert tally.used
    assert tally.ended()[Outcome.DELIVER] == 5
    assert tally.ended()[Outcome.DROP] == 1
    tally.took(SLOW)
    assert sum(tally.durations.read().counts) == SAMPLED
    tally.took(SLOW * 1.1)
    assert sum(tally.durations.read().counts) == SAMPLED + 1
    other = ServiceTally("mail")
    other.left = 2
    other.merge(tally)
    assert (other.answered, other.left, other.ended()[Outcome.DROP]) == (3, 2, 1)
    assert sum(other.durations.read().counts) == SAMPLED + 1
