"""The literal tables, held against the text of the specification."""

from __future__ import annotations

import pytest

from onward.protocol.rsocket import (
    CONNECTION,
    CONTROL,
    DIRECTION,
    ENDS_WITH,
    REQUEST_START,
    RESPONDER_START,
    ConnectionInput,
    ConnectionState,
    Direction,
    Effect,
    FrameType,
    PayloadInput,
    Side,
    StreamState,
)

KINDS = (
    FrameType.REQUEST_RESPONSE,
    FrameType.REQUEST_FNF,
    FrameType.REQUEST_STREAM,
    FrameType.REQUEST_CHANNEL,
)


def test_nothing_leads_out_of_closed_and_everything_can_fail() -> None:
    assert not [state for state, _ in CONNECTION if state is ConnectionState.CLOSED]
    for state in ConnectionState:
        if state is not ConnectionState.CLOSED:
            assert CONNECTION[state, ConnectionInput.FAIL] is ConnectionState.CLOSED


def test_setup_is_taken_once() -> None:
    assert [state for state, cause in CONNECTION if cause is ConnectionInput.SETUP] == [
        ConnectionState.AWAIT_SETUP
    ]


def test_nothing_follows_a_direction_that_is_done() -> None:
    assert not [state for state, _ in DIRECTION if state is Direction.DONE]


@pytest.mark.parametrize("state", [Direction.ONE, Direction.PART, Direction.FINAL])
def test_where_an_element_is_due_any_payload_is_taken(state: Direction) -> None:
    assert all((state, cause) in DIRECTION for cause in PayloadInput)


def test_completion_ends_every_direction() -> None:
    for state in Direction:
        if state is not Direction.DONE:
            assert DIRECTION[state, PayloadInput.COMPLETE] is Direction.DONE


def test_a_payload_that_says_nothing_is_not_legal_between_elements() -> None:
    # Section "PAYLOAD Frame": C and N must not both be clear.
    assert (Direction.OPEN, PayloadInput.NEITHER) not in DIRECTION


def test_only_a_channel_has_elements_of_the_requester() -> None:
    for kind in KINDS:
        starts = {at for (of, _, _), at in REQUEST_START.items() if of is kind}
        assert (Direction.OPEN in starts) == (kind is FrameType.REQUEST_CHANNEL)
        assert not starts & {Direction.ONE}
    assert RESPONDER_START.keys() == ENDS_WITH.keys() == set(KINDS)


def test_who_may_send_what() -> None:
    # "At any time, a Requester, as well as a Responder, may send REQUEST_N frames."
    grants = {(kind, side) for (kind, side, _), effect in CONTROL.items() if effect is Effect.GRANT}
    assert grants == {
        (FrameType.REQUEST_STREAM, Side.REQUESTER),
        (FrameType.REQUEST_CHANNEL, Side.REQUESTER),
        (FrameType.REQUEST_CHANNEL, Side.RESPONDER),
    }
    for kind in KINDS:
        # "Upon sending a CANCEL, the stream is terminated on the Requester."
        assert CONTROL[kind, Side.REQUESTER, FrameType.CANCEL] is Effect.END
        # A fire-and-forget has no answer, not even an error.
        answered = (kind, Side.RESPONDER, FrameType.ERROR) in CONTROL
        assert answered == (kind is not FrameType.REQUEST_FNF)
        # "Error from Requester" is listed for channels alone.
        fails = (kind, Side.REQUESTER, FrameType.ERROR) in CONTROL
        assert fails == (kind is FrameType.REQUEST_CHANNEL)


def test_when_a_stream_is_over() -> None:
    done, still = Direction.DONE, Direction.OPEN
    assert StreamState(FrameType.REQUEST_RESPONSE, Direction.FINAL, done).over
    assert not StreamState(FrameType.REQUEST_RESPONSE, done, Direction.ONE).over
    assert StreamState(FrameType.REQUEST_FNF, done, done).over
    assert not StreamState(FrameType.REQUEST_FNF, Direction.FINAL, done).over
    assert StreamState(FrameType.REQUEST_STREAM, done, done).over
    assert not StreamState(FrameType.REQUEST_CHANNEL, done, still).over
    assert not StreamState(FrameType.REQUEST_CHANNEL, still, done).over
    assert StreamState(FrameType.REQUEST_CHANNEL, done, done).over
