from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import (
    ERROR_SOURCE,
    MAX_ERROR_REASON,
    Address,
    ErrorReply,
    Message,
    encode_error_reply,
    parse_route,
    read_error_reply,
)

REPLY = ErrorReply("mailbox full", Address(0, b"orders"), certain=True)
PAYLOAD = b"\x01\x0cmailbox full\x00\x06orders\x01"


def reply_of(payload: bytes, back: str = "0#onward.error") -> ErrorReply | None:
    return read_error_reply(Message(parse_route("asker"), parse_route(back), payload))


def test_the_bytes() -> None:
    assert encode_error_reply(REPLY) == PAYLOAD
    assert reply_of(PAYLOAD) == REPLY


@given(
    st.text(st.characters(exclude_categories=("C", "Z")), max_size=MAX_ERROR_REASON),
    st.builds(Address, st.integers(0, 255), st.binary(min_size=1, max_size=1024)),
    st.booleans(),
)
def test_there_and_back(reason: str, address: Address, certain: bool) -> None:
    reply = ErrorReply(reason, address, certain)
    assert reply_of(encode_error_reply(reply)) == reply


def test_workers_that_pass_it_on_are_on_the_return_route() -> None:
    assert reply_of(PAYLOAD, "link => relay => onward.error") == REPLY


@pytest.mark.parametrize("back", ["", "echo", "1#onward.error", "onward.error => echo"])
def test_what_comes_from_elsewhere_is_an_answer(back: str) -> None:
    assert reply_of(PAYLOAD, back) is None


def test_a_reason_is_one_short_line() -> None:
    long = reply_of(encode_error_reply(ErrorReply("x" * 1000, ERROR_SOURCE, certain=False)))
    assert long == ErrorReply("x" * MAX_ERROR_REASON, ERROR_SOURCE, certain=False)
    lines = reply_of(encode_error_reply(ErrorReply("a\nb\ud800", ERROR_SOURCE, certain=False)))
    assert lines == ErrorReply(r"'a\nb\ud800'", ERROR_SOURCE, certain=False)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x02\x00\x00\x01a\x01",  # version
        b"\x01\x01\n\x00\x01a\x01",  # a reason that is not a line
        b"\x01\x51" + b"x" * 81 + b"\x00\x01a\x01",
        b"\x01\x01\xff\x00\x01a\x01",  # not UTF-8
        b"\x01\x00\x80\x02\x01a\x01",  # type 256
        b"\x01\x00\x00\x00\x01",  # an empty value
        b"\x01\x00\x00\x81\x08" + b"a" * 1025 + b"\x01",
        b"\x01\x00\x00\x01a\x02",  # certain is neither
        PAYLOAD + b"\x00",
        PAYLOAD + b"\x00" * 2000,
    ],
)
def test_what_is_not_well_formed_is_none(payload: bytes) -> None:
    assert reply_of(payload) is None


@pytest.mark.parametrize("cut", range(len(PAYLOAD)))
def test_cut_short(cut: int) -> None:
    assert reply_of(PAYLOAD[:cut]) is None


@given(st.binary(max_size=100))
def test_any_bytes_are_a_reply_or_none(payload: bytes) -> None:
    reply = reply_of(payload)
    assert reply is None or reply_of(encode_error_reply(reply)) == reply
