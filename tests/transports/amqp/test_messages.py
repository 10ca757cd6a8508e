"""Messages of AMQP as bytes: their sections, the name they are for, and their annotations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.transports.amqp._messages import (
    BadMessage,
    MessageHead,
    message_of,
    read_head,
    without_annotations,
)
from tests.support.amqp import needs_proton

HEADER = bytes.fromhex("005370 c00b 05 41 5004 700000ea60 42 43")
"""Durable, priority 4, 60 seconds to live."""
ANNOTATIONS = bytes.fromhex("005371 c107 02 a3017a a10179") + bytes.fromhex(
    "005372 d1 00000004 00000000"
)
PROPERTIES = bytes.fromhex("005373 c00d 03 a10169 40 a1066f7264657273")
APPLICATION = bytes.fromhex("005374 c10100")
DATA = bytes.fromhex("005375 a003 616263")
SEQUENCE = bytes.fromhex("005376 45")
VALUE = bytes.fromhex("005377 a10168")
FOOTER = bytes.fromhex("005378 c10100")
WHOLE = HEADER + ANNOTATIONS + PROPERTIES + APPLICATION + DATA + DATA + FOOTER


def test_the_head_of_a_message_is_read() -> None:
    assert read_head(WHOLE) == MessageHead("orders", 60.0)
    assert read_head(VALUE) == MessageHead()
    assert read_head(b"") == MessageHead()


@pytest.mark.parametrize(
    ("section", "head"),
    [
        ("005370 45", MessageHead()),
        ("005370 c002 01 41", MessageHead()),
        ("005370 c004 03 41 40 40", MessageHead()),
        ("005370 c004 03 41 40 43", MessageHead(ttl=0.0)),
        ("005370 c005 03 41 40 5264", MessageHead(ttl=0.1)),
        ("005370 d0 00000007 00000003 40 40 43", MessageHead(ttl=0.0)),
        ("005373 d0 0000000e 00000003 40 40 b1 00000003 6f7264", MessageHead("ord")),
        ("005373 c004 03 404040", MessageHead()),
        ("0080 0000000000000073 c006 03 4040 a10178", MessageHead("x")),
        ("00a314" + b"amqp:properties:list".hex() + "c006 03 4040 a10178", MessageHead("x")),
    ],
)
def test_each_way_to_write_a_field_is_read(section: str, head: MessageHead) -> None:
    assert read_head(bytes.fromhex(section)) == head


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("01", "no section"),
        ("0041", "no section"),
        ("005369 40", "an unknown section"),
        ("00a30178 40", "an unknown section"),
        ("0053", "an unknown section"),
        ("005377", "cut short"),
        ("005377 a105", "cut short"),
        ("005377 b0 0000", "cut short"),
        ("005377 b0 ffffffff", "cut short"),
        ("005377 10", "an unknown type"),
        ("005377 00", "an unknown type"),
        ("005377" + "0040" * 17 + "40", "too many descriptors"),
        ("005375", "a section of another type"),
        ("005375 40", "a section of another type"),
        ("005370 c10100", "a section of another type"),
        ("005377 40 005377 40", "sections in another order"),
        ("005377 40 005375 a000", "sections in another order"),
        ("005375 a000 005376 45", "sections in another order"),
        ("005373 45 005370 45", "sections in another order"),
        ("005373 c000", "a list without a count"),
        ("005373 c001 03", "cut short"),
        ("005373 c004 03 4040 41", "a name that is no text"),
        ("005373 c006 03 4040 a101ff", "a name that is no text"),
        ("005370 c004 03 4040 41", "a time to live that is no number"),
    ],
)
def test_what_is_no_message_is_refused(data: str, reason: str) -> None:
    with pytest.raises(BadMessage, match=f"^{reason}$"):
        read_head(bytes.fromhex(data))


def test_annotations_are_cut_out_and_the_rest_stays_as_it_is() -> None:
    rest = HEADER + PROPERTIES + APPLICATION + DATA + DATA + FOOTER
    assert without_annotations(WHOLE) == rest
    assert without_annotations(rest) == rest
    assert without_annotations(SEQUENCE + SEQUENCE) == SEQUENCE + SEQUENCE
    with pytest.raises(BadMessage):
        without_annotations(b"x")


def test_another_payload_becomes_the_data_of_a_message() -> None:
    assert message_of(WHOLE) is WHOLE
    assert message_of(b"abc") == DATA
    assert message_of(b"") == bytes.fromhex("005375 a000")
    assert message_of(bytes(256)) == bytes.fromhex("005375 b0 00000100") + bytes(256)


def test_a_message_that_is_cut_short_is_another_one_or_none() -> None:
    whole = {0, *(len(WHOLE) - len(rest) for rest in _ends())}
    for at in range(len(WHOLE)):
        if at in whole:
            read_head(WHOLE[:at])
        else:
            with pytest.raises(BadMessage):
                read_head(WHOLE[:at])


def _ends() -> list[bytes]:
    parts = [HEADER, ANNOTATIONS[:12], ANNOTATIONS[12:], PROPERTIES, APPLICATION, DATA, DATA]
    assert WHOLE.startswith(b"".join(parts))
    return [WHOLE[len(b"".join(parts[: at + 1])) :] for at in range(len(parts))]


@given(st.binary(max_size=60))
def test_all_bytes_are_read_or_refused_and_can_be_sent(data: bytes) -> None:
    try:
        read_head(data)
    except BadMessage:
        assert message_of(data).endswith(data)
    read_head(message_of(data))


@pytest.mark.peer
def test_messages_of_proton_are_read() -> None:
    proton: Any = needs_proton()
    message = proton.Message({"a": [1, 2.5, None]}, address="orders", ttl=1.5, id="x")
    message.annotations = {"x-opt-a": 1}
    message.instructions = {"x-opt-b": 1}
    data = bytes(message.encode())
    assert read_head(data) == MessageHead("orders", 1.5)
    found = proton.Message()
    found.decode(without_annotations(data))
    assert (found.annotations, found.instructions) == (None, None)
    assert (found.body, found.address) == ({"a": [1, 2.5, None]}, "orders")
    found.decode(message_of(b"plain"))
    assert found.body == b"plain"
