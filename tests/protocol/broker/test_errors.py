from __future__ import annotations

import pickle

import pytest

from onward.protocol import OnwardError, ProtocolError
from onward.protocol.broker import (
    BadRoutingFlags,
    BadText,
    BrokerFrameError,
    FieldTooLong,
    FrameTruncated,
    NullNotLast,
    TooManyTags,
    TrailingBytes,
    UnexpectedFrameType,
    UnsupportedVersion,
)

TEXTS = [
    (BrokerFrameError("tags", "none"), "tags", "tags: none"),
    (FrameTruncated("tag key", 4, 1), "tag key", "tag key: 4 bytes needed, 1 left"),
    (TrailingBytes("ADDRESS", 3), "ADDRESS", "ADDRESS: 3 bytes after its end"),
    (BadText("service name"), "service name", "service name: not UTF-8"),
    (
        FieldTooLong("tag value", 128, 127),
        "tag value",
        "tag value: 128 bytes are over the limit of 127 bytes",
    ),
    (TooManyTags("tag list", 256), "tag list", "tag list: more than 256 entries"),
    (NullNotLast("tag value"), "tag value", "tag value: null, and more bytes follow"),
    (UnsupportedVersion(9, 1), "version", "version: 9.1 is not supported, 0.1 is"),
    (UnexpectedFrameType(9), "frame type", "frame type: 0x09 is unknown"),
    (UnexpectedFrameType(1, 5), "frame type", "frame type: 0x01 is not 0x05"),
    (BadRoutingFlags(0), "flags", "flags: exactly one of U, M and S must be set"),
]


@pytest.mark.parametrize(("error", "field", "text"), TEXTS)
def test_says_the_field_and_the_reason(error: BrokerFrameError, field: str, text: str) -> None:
    assert error.field == field
    assert str(error) == text
    assert str(error) == f"{error.field}: {error.reason}"
    assert isinstance(error, ProtocolError)
    assert isinstance(error, OnwardError)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("error", [error for error, _, _ in TEXTS])
def test_survives_a_process_boundary(error: BrokerFrameError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
