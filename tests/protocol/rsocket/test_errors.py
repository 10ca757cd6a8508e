from __future__ import annotations

import pytest

from onward.protocol import ProtocolError
from onward.protocol.rsocket import (
    CreditExceeded,
    ErrorCode,
    InvalidRequestN,
    InvalidSetup,
    KeepaliveTimeout,
    LocalProtocolError,
    MalformedComposite,
    MalformedFrame,
    PeerError,
    ReassemblyLimit,
    RejectedResume,
    RejectedSetup,
    RSocketError,
    SetupTimeout,
    TooManyStreams,
    UnsupportedSetup,
)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (MalformedFrame("t"), ErrorCode.CONNECTION_ERROR, "CONNECTION_ERROR: t"),
        (InvalidSetup("t"), ErrorCode.INVALID_SETUP, "INVALID_SETUP: t"),
        (UnsupportedSetup("t"), ErrorCode.UNSUPPORTED_SETUP, "UNSUPPORTED_SETUP: t"),
        (RejectedSetup("t"), ErrorCode.REJECTED_SETUP, "REJECTED_SETUP: t"),
        (RejectedResume("t"), ErrorCode.REJECTED_RESUME, "REJECTED_RESUME: t"),
        (SetupTimeout("t"), ErrorCode.INVALID_SETUP, "INVALID_SETUP: t"),
        (KeepaliveTimeout("t"), ErrorCode.CONNECTION_ERROR, "CONNECTION_ERROR: t"),
        (PeerError("t", code=0x301), 0x301, "0x301: t"),
        (CreditExceeded("t", stream_id=3), ErrorCode.INVALID, "INVALID on stream 3: t"),
        (InvalidRequestN("t", stream_id=3), ErrorCode.INVALID, "INVALID on stream 3: t"),
        (MalformedComposite("t"), ErrorCode.INVALID, "INVALID: t"),
        (
            ReassemblyLimit(9, 8, stream_id=1),
            ErrorCode.INVALID,
            "INVALID on stream 1: fragments of 9 bytes are over the limit of 8 bytes",
        ),
        (RSocketError("t", code=ErrorCode.REJECTED), ErrorCode.REJECTED, "REJECTED: t"),
    ],
)
def test_codes_and_texts(error: RSocketError, code: int, text: str) -> None:
    assert isinstance(error, ProtocolError)
    assert error.code == code
    assert str(error) == text


def test_errors_of_our_own_side() -> None:
    error = TooManyStreams(3)
    assert (error.limit, str(error)) == (3, "the connection has 3 live streams already")
    assert isinstance(error, LocalProtocolError)
    assert str(LocalProtocolError("no")) == "no"
    assert not isinstance(error, RSocketError)
