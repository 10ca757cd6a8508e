"""The message between two nodes: its bytes, its padding, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    HANDLE_SIZE,
    MAX_CONTENT,
    MAX_RECORD,
    MAX_SEALED,
    BadRecord,
    ControlContent,
    EngineContent,
    P2PContent,
    P2PMessage,
    RecordTooBig,
    RelayContent,
    ReplyContent,
    SigningKey,
    derived_engine,
    pad_to,
    parse_p2p_message,
    serialize_p2p_message,
)
from tests.support.records import check_bits, check_bytes, check_kinds

NODE = SigningKey(bytes(range(32))).identity
OTHER = SigningKey(bytes(range(1, 33))).identity
ENGINE = derived_engine(NODE, b"printer")
HANDLE = bytes(range(16))

N, M, E = NODE.hex(), OTHER.hex(), ENGINE.hex()

VECTORS: list[tuple[P2PContent, int, str]] = [
    (EngineContent(b"signed"), 0, f"84 5821{N} 5821{M} 82 00 467369676e6564 40"),
    (RelayContent(b"signed"), 3, f"84 5821{N} 5821{M} 83 01 467369676e6564 f6 43000000"),
    (
        RelayContent(b"signed", HANDLE),
        0,
        f"84 5821{N} 5821{M} 83 01 467369676e6564 50{HANDLE.hex()} 40",
    ),
    (
        ReplyContent(HANDLE, b"sealed"),
        0,
        f"84 5821{N} 5821{M} 83 02 50{HANDLE.hex()} 467365616c6564 40",
    ),
    (ControlContent(b"\x80"), 23, f"84 5821{N} 5821{M} 82 03 4180 57{'00' * 23}"),
    # A byte string that takes 25 bytes does not exist, so a null takes one.
    (ControlContent(b"\x80"), 24, f"85 5821{N} 5821{M} 82 03 4180 57{'00' * 23} f6"),
    (ControlContent(b"\x80"), 25, f"84 5821{N} 5821{M} 82 03 4180 5818{'00' * 24}"),
]
MESSAGE = P2PMessage(NODE, OTHER, ControlContent(b"\x80"))
BARE = len(serialize_p2p_message(MESSAGE))


@pytest.mark.parametrize(("content", "pad", "written"), VECTORS)
def test_a_message_between_nodes_has_these_bytes(
    content: P2PContent, pad: int, written: str
) -> None:
    message = P2PMessage(NODE, OTHER, content, pad)
    data = bytes.fromhex(written)
    check_bytes(parse_p2p_message, serialize_p2p_message, message, data)
    read, refused = check_bits(parse_p2p_message, serialize_p2p_message, data)
    assert read
    assert refused


@pytest.mark.parametrize("vector", range(len(VECTORS)))
def test_no_item_of_a_message_is_of_another_kind(vector: int) -> None:
    content, pad, _ = VECTORS[vector]
    data = serialize_p2p_message(P2PMessage(NODE, OTHER, content, pad))
    if content != RelayContent(b"signed"):
        nullable = [(2, 2)] if isinstance(content, RelayContent) else []
        assert check_kinds(parse_p2p_message, serialize_p2p_message, data, *nullable) > 90


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (f"83 5821{N} 5821{M} 82 03 4180", "the message has 3 items, not 4 to 6"),
        (f"87 5821{N} 5821{M} 82 03 4180 40 f6 f6 f6", "the message has 7 items, not 4 to 6"),
        (f"84 5821{E} 5821{M} 82 03 4180 40", "the source has no key"),
        (f"84 5821{N} 5821{E} 82 03 4180 40", "the destination has no key"),
        (f"84 5821{N} 5821{M} 82 04 4180 40", "the kind of the content is 4, over 3"),
        (f"84 5821{N} 5821{M} 81 03 40", "the content has 1 items, not 2 to 3"),
        (f"84 5821{N} 5821{M} 83 00 4180 f6 40", "content of kind 0 has 2 items, not 3"),
        (f"84 5821{N} 5821{M} 82 01 4180 40", "content of kind 1 has 3 items, not 2"),
        (f"84 5821{N} 5821{M} 82 02 4180 40", "content of kind 2 has 3 items, not 2"),
        (f"84 5821{N} 5821{M} 83 03 4180 f6 40", "content of kind 3 has 2 items, not 3"),
        (f"84 5821{N} 5821{M} 82 00 40 40", "the envelope has 0 bytes, not 1 to 1048320"),
        (f"84 5821{N} 5821{M} 83 01 40 f6 40", "the envelope has 0 bytes, not 1 to 1048320"),
        (f"84 5821{N} 5821{M} 83 01 4180 4180 40", "the handle has 1 bytes, not 16"),
        (f"84 5821{N} 5821{M} 83 02 4180 4180 40", "the handle has 1 bytes, not 16"),
        (f"84 5821{N} 5821{M} 83 02 50{HANDLE.hex()} 40 40", "the reply has 0 bytes, not 1 to"),
        (f"84 5821{N} 5821{M} 82 03 40 40", "the control record has 0 bytes, not 1 to 1048320"),
        (f"84 5821{N} 5821{M} 82 03 4180 43000001", "the padding is not of zeros"),
        (f"84 5821{N} 5821{M} 82 03 4180 43010000", "the padding is not of zeros"),
        (f"85 5821{N} 5821{M} 82 03 4180 40 f6", "the padding has more nulls than it needs"),
        (
            f"85 5821{N} 5821{M} 82 03 4180 56{'00' * 22} f6",
            "the padding has more nulls than it needs",
        ),
        (
            f"85 5821{N} 5821{M} 82 03 4180 5818{'00' * 24} f6",
            "the padding has more nulls than it needs",
        ),
        (
            f"86 5821{N} 5821{M} 82 03 4180 57{'00' * 23} f6 f6",
            "the padding has more nulls than it needs",
        ),
        (
            f"85 5821{N} 5821{M} 82 03 4180 57{'00' * 23} 00",
            "what is behind the padding is not null",
        ),
    ],
)
def test_bytes_that_are_no_message_between_nodes_are_refused(written: str, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        parse_p2p_message(bytes.fromhex(written))


def test_a_message_between_nodes_has_limits() -> None:
    for size in (0, MAX_CONTENT + 1):
        with pytest.raises(BadRecord, match=f"the envelope has {size} bytes, not 1 to 1048320"):
            EngineContent(bytes(size))
        with pytest.raises(BadRecord, match=f"the envelope has {size} bytes, not 1 to 1048320"):
            RelayContent(bytes(size))
        with pytest.raises(BadRecord, match=f"the control record has {size} bytes"):
            ControlContent(bytes(size))
    for size in (0, HANDLE_SIZE - 1, HANDLE_SIZE + 1):
        with pytest.raises(BadRecord, match=f"the handle has {size} bytes, not 16"):
            RelayContent(b"signed", bytes(size))
        with pytest.raises(BadRecord, match=f"the handle has {size} bytes, not 16"):
            ReplyContent(bytes(size), b"sealed")
    for size in (0, MAX_SEALED + 1):
        with pytest.raises(BadRecord, match=f"the reply has {size} bytes, not 1 to 73728"):
            ReplyContent(HANDLE, bytes(size))
    for pad in (-1, MAX_RECORD + 1):
        with pytest.raises(BadRecord, match=f"the padding is {pad}, not 0 to 1048576"):
            replace(MESSAGE, pad=pad)
    with pytest.raises(BadRecord, match="the source has no key"):
        replace(MESSAGE, src=ENGINE)
    with pytest.raises(BadRecord, match="the destination has no key"):
        replace(MESSAGE, dst=ENGINE)


def test_the_greatest_contents_fit() -> None:
    for content in (
        EngineContent(bytes(MAX_CONTENT)),
        RelayContent(bytes(MAX_CONTENT), HANDLE),
        ReplyContent(HANDLE, bytes(MAX_SEALED)),
        ControlContent(bytes(MAX_CONTENT)),
    ):
        message = pad_to(P2PMessage(NODE, OTHER, content), MAX_RECORD)
        data = serialize_p2p_message(message)
        assert len(data) == MAX_RECORD
        assert parse_p2p_message(data) == message


def test_a_message_is_padded_to_any_size() -> None:
    # One null where the head of the padding grows, and two where it grows by two bytes.
    for size in (*range(BARE, BARE + 300), *range(BARE + 65_530, BARE + 65_550)):
        padded = pad_to(MESSAGE, size)
        data = serialize_p2p_message(padded)
        assert len(data) == size
        assert parse_p2p_message(data) == padded
        assert pad_to(padded, BARE) == MESSAGE
        nulls = {BARE + 24: 1, BARE + 257: 1, BARE + 65_538: 1, BARE + 65_539: 2}.get(size, 0)
        assert data[0] == 0x84 + nulls


def test_a_message_that_is_too_big_is_not_padded() -> None:
    with pytest.raises(RecordTooBig) as raised:
        pad_to(MESSAGE, BARE - 1)
    assert (raised.value.size, raised.value.limit) == (BARE, BARE - 1)
    with pytest.raises(RecordTooBig) as raised:
        pad_to(MESSAGE, MAX_RECORD + 1)
    assert (raised.value.size, raised.value.limit) == (MAX_RECORD + 1, MAX_RECORD)


contents = st.one_of(
    st.builds(EngineContent, st.binary(min_size=1)),
    st.builds(RelayContent, st.binary(min_size=1), st.none() | st.just(HANDLE)),
    st.builds(ReplyContent, st.just(HANDLE), st.binary(min_size=1)),
    st.builds(ControlContent, st.binary(min_size=1)),
)


@given(contents, st.integers(0, 70_000))
def test_any_message_between_nodes_is_read_as_it_was_written(content: P2PContent, pad: int) -> None:
    message = P2PMessage(NODE, OTHER, content, pad)
    data = serialize_p2p_message(message)
    assert parse_p2p_message(data) == message
    assert len(data) == len(serialize_p2p_message(replace(message, pad=0))) + pad


@pytest.mark.parametrize(
    ("record", "number"),
    [
        (b"\x82\x00", 0),
        (b"\x82\x17\x00", 23),
        (b"\x85\x18\x18", 24),
        (b"\x85\x18\xff\x00", 255),
        (b"\x82\x18", -1),
        (b"\x82", -1),
        (b"\x82\x19\x01\x00", -1),
        (b"\x42\x01\x02", -1),
        (b"\x82\x41\x01", -1),
    ],
)
def test_a_control_record_begins_with_its_number(record: bytes, number: int) -> None:
    assert ControlContent(record).number == number
