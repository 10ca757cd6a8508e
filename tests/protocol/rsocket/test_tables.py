"""The compiled tables say the same as the literal ones, for both ends of a stream."""

from __future__ import annotations

import pytest

from onward.protocol.rsocket import (
    CLOSED,
    COMPLETE,
    CONTROL,
    DIRECTION,
    FOLLOWS,
    IGNORE,
    METADATA,
    NEXT,
    Direction,
    FrameType,
    PayloadInput,
    Side,
    StreamState,
    describe,
    machine,
)
from onward.protocol.rsocket._tables import (
    BARE,
    CHECK,
    CLOSE,
    CREDIT,
    GRANT,
    IDLE,
    KNOWN_BITS,
    RECEIVE,
    SEND,
    START,
    start_states,
)

KINDS = (
    FrameType.REQUEST_RESPONSE,
    FrameType.REQUEST_FNF,
    FrameType.REQUEST_STREAM,
    FrameType.REQUEST_CHANNEL,
)
FLAGS = range(0, 0x400, 0x20)


@pytest.mark.parametrize(("kind", "states"), list(zip(KINDS, (4, 1, 4, 11), strict=True)))
def test_the_reachable_states(kind: FrameType, states: int) -> None:
    found = machine(kind)
    assert len(found) == states
    assert not [state for state in found if state.over]
    reached = {after for moves in found.values() for after in moves.values()} - {None}
    starts = {state for state in start_states(kind) if not state.over}
    assert reached | starts == found.keys()


def test_every_stream_can_end_by_each_side_that_may_end_it() -> None:
    for kind in KINDS:
        for moves in machine(kind).values():
            assert moves[Side.REQUESTER, FrameType.CANCEL] is None
            if kind is not FrameType.REQUEST_FNF:
                assert moves[Side.RESPONDER, FrameType.ERROR] is None


def test_a_responder_that_cancels_a_channel_ends_the_requesters_direction() -> None:
    moves = machine(FrameType.REQUEST_CHANNEL)
    both = StreamState(FrameType.REQUEST_CHANNEL, Direction.OPEN, Direction.OPEN)
    half = both._replace(requester=Direction.DONE)
    assert moves[both][Side.RESPONDER, FrameType.CANCEL] == half
    over = both._replace(responder=Direction.DONE)
    assert moves[over][Side.RESPONDER, FrameType.CANCEL] is None


def test_both_ends_of_a_stream_go_the_same_way() -> None:
    """What one end may send, the other may receive; names say they end in the same state."""
    pairs = [(ours, START[word][0]) for word, ours in _starts()]
    seen: set[tuple[int, int]] = set()
    while pairs:
        requester, responder = pairs.pop()
        if (requester, responder) in seen or requester == CLOSED:
            assert (requester == CLOSED) == (responder == CLOSED)
            continue
        seen.add((requester, responder))
        assert describe(requester) == describe(responder).replace("as responder", "as requester")
        for frame in (FrameType.PAYLOAD, FrameType.REQUEST_N, FrameType.CANCEL, FrameType.ERROR):
            for flags in FLAGS:
                word = frame << 10 | flags
                for sender, receiver in ((requester, responder), (responder, requester)):
                    out, into = SEND.get(sender | word), RECEIVE.get(receiver | word)
                    assert (out is None) == (into is None)
                    if out is None or into is None:
                        continue
                    assert out[1] & ~BARE == into[1] & ~CHECK
                    after = (out[0], into[0])
                    pairs.append(after if sender == requester else (into[0], out[0]))
    assert len(seen) == 20


def _starts() -> list[tuple[int, int]]:
    return [
        (kind << 10 | flags, SEND[IDLE[kind] | kind << 10 | flags][0])
        for kind in KINDS
        for flags in FLAGS
    ]


def test_the_compiled_tables_are_no_larger_than_the_literal_ones_say() -> None:
    moves = sum(len(found) for kind in KINDS for found in machine(kind).values())
    assert len({(key >> 16, nxt) for key, (nxt, _) in RECEIVE.items()}) <= 2 * moves
    assert all(key & 0x1F == 0 for table in (SEND, RECEIVE, START) for key in table)
    assert KNOWN_BITS == 0xFFFF & ~0x1F


@pytest.mark.parametrize("flags", FLAGS)
def test_an_element_costs_credit_once(flags: int) -> None:
    word = FrameType.PAYLOAD << 10 | flags
    by_name = {describe(key & ~0xFFFF): key & ~0xFFFF for key in RECEIVE}
    opened = by_name["REQUEST_STREAM as requester: requester done, responder open"]
    under_way = by_name["REQUEST_STREAM as requester: requester done, responder in fragments"]
    step = RECEIVE.get(opened | word)
    if not flags & (NEXT | COMPLETE | FOLLOWS):
        assert step is None
    else:
        assert step is not None
        element = flags & NEXT or (flags & FOLLOWS and not flags & COMPLETE)
        assert bool(step[1] & CREDIT) == bool(element)
        assert bool(step[1] & CLOSE) == bool(flags & COMPLETE)
    assert not RECEIVE[under_way | word][1] & CREDIT
    answer = by_name["REQUEST_RESPONSE as requester: requester done, responder one due"]
    assert not RECEIVE[answer | word][1] & CREDIT


def test_request_n_grants_and_is_checked() -> None:
    words = [FrameType.REQUEST_N << 10 | flags for flags in FLAGS]
    actions = {RECEIVE[key][1] for key in RECEIVE if key & 0xFFFF in words}
    assert actions == {GRANT | CHECK}
    assert {START[FrameType.REQUEST_CHANNEL << 10 | flags][1] for flags in FLAGS} == {GRANT}


_MEANT = {
    FrameType.REQUEST_RESPONSE: METADATA | FOLLOWS,
    FrameType.REQUEST_FNF: METADATA | FOLLOWS,
    FrameType.REQUEST_STREAM: METADATA | FOLLOWS,
    FrameType.REQUEST_CHANNEL: METADATA | FOLLOWS | COMPLETE,
    FrameType.REQUEST_N: 0,
    FrameType.CANCEL: 0,
    FrameType.ERROR: 0,
    FrameType.PAYLOAD: METADATA | FOLLOWS | COMPLETE | NEXT,
}


def test_what_is_sent_has_flags_that_a_strict_peer_accepts() -> None:
    for key, (_, actions, word) in SEND.items():
        kind, flags = FrameType(word >> 10), word & 0x3FF
        assert kind == (key & 0xFFFF) >> 10
        assert not flags & ~(_MEANT[kind] | IGNORE)
        assert bool(actions & BARE) == (kind in {FrameType.REQUEST_N, FrameType.CANCEL})
        if kind is FrameType.PAYLOAD:
            assert flags & (NEXT | COMPLETE)
            assert not (flags & COMPLETE and flags & FOLLOWS)


def test_what_is_right_already_is_sent_as_it_is() -> None:
    """Inside a fragmented payload each part has N; otherwise what the text allows is right."""
    for key, (_, _, word) in SEND.items():
        given, name = key & 0xFFFF, describe(key & ~0xFFFF)
        kind, flags = FrameType(given >> 10), given & 0x3FF
        right = not flags & ~(_MEANT[kind] | IGNORE)
        if kind is FrameType.PAYLOAD:
            right = bool(flags & (NEXT | COMPLETE)) and flags & (COMPLETE | FOLLOWS) != (
                COMPLETE | FOLLOWS
            )
            if "in fragments" in name:
                right = right and bool(flags & NEXT) and "last in fragments" not in name
        assert word == given or not right, (name, hex(flags))


def test_moves_are_only_what_the_literal_tables_list() -> None:
    for kind in KINDS:
        for state, moves in machine(kind).items():
            for side, move in moves:
                if isinstance(move, PayloadInput):
                    at = state.requester if side is Side.REQUESTER else state.responder
                    assert (at, move) in DIRECTION
                else:
                    assert (kind, side, move) in CONTROL


def test_states_have_words() -> None:
    assert describe(CLOSED) == "closed"
    assert describe(IDLE[FrameType.REQUEST_FNF]) == "REQUEST_FNF as requester: not sent"
