"""Reassembly of payloads, with a bound for all payloads of a connection."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import PayloadTooBig
from onward.protocol.rsocket import Frame, payload_frames
from onward.transports.rsocket._reassembly import Budget, Reassembly, TooMuchKept
from onward.transports.rsocket._request import FRAME_COST

MTU = 64


def fragments(data: bytes) -> list[Frame]:
    """Return the frames of a payload, each at the end of a buffer of its own."""
    raws = [bytes(raw) for raw in payload_frames(1, data, complete=True, mtu=MTU)]
    return [Frame.of(raw, 3, len(raw), 1, int.from_bytes(raw[7:9])) for raw in raws]


def size_of(frames: list[Frame]) -> int:
    return sum(frame.end - frame.start + FRAME_COST for frame in frames)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5))
def test_payloads_are_joined_and_nothing_is_kept_of_them(payloads: list[bytes]) -> None:
    budget = Budget(1_000_000)
    streams = [(Reassembly(budget, 300), fragments(data), data) for data in payloads]
    left = streams
    while left:
        for reassembly, frames, data in left:
            whole = reassembly.add(frames.pop(0))
            assert (whole is not None) == (not frames)
            assert whole is None or (whole.data, whole.ends) == (data, True)
        assert budget.held == sum(reassembly.kept for reassembly, _, _ in streams)
        left = [each for each in left if each[1]]
    assert budget.held == 0


def test_a_payload_over_its_limit_is_dropped() -> None:
    budget = Budget(1_000_000)
    reassembly = Reassembly(budget, 100)
    first, *_, last = fragments(bytes(101))
    assert reassembly.add(first) is None
    assert budget.held == reassembly.kept == size_of([first])
    with pytest.raises(PayloadTooBig) as caught:
        reassembly.add(last)
    assert (type(caught.value), caught.value.size, caught.value.limit) == (PayloadTooBig, 101, 100)
    assert budget.held == reassembly.kept == 0


@pytest.mark.parametrize("beyond", [0, 1])
def test_all_payloads_have_one_limit(beyond: int) -> None:
    one, two = fragments(bytes(100)), fragments(bytes(100))
    budget = Budget(size_of([one[0], two[0]]) - beyond)
    first, second = Reassembly(budget, 1000), Reassembly(budget, 1000)
    assert first.add(one[0]) is None
    if beyond:
        with pytest.raises(TooMuchKept) as caught:
            second.add(two[0])
        assert caught.value.limit == budget.limit
    else:
        assert second.add(two[0]) is None
    second.drop()
    second.drop()
    assert budget.held == size_of([one[0]])
    assert first.add(one[1]) is not None
    assert budget.held == 0
