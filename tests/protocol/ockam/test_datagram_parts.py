"""Messages in datagrams, in the form that Ockam's nodes write: parts with a number and a count."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import MalformedMessage, PayloadTooBig
from onward.protocol.ockam import (
    MAX_DATAGRAM,
    MAX_PART,
    MAX_PARTS,
    Assembler,
    DatagramLimits,
    DatagramPart,
    read_part,
    split_message,
)

BODY = bytes(range(256)) * 8  # 2048 bytes: five parts


def test_a_message_that_fits_is_one_part() -> None:
    (datagram,) = split_message(b"hello", 7)
    assert datagram == bytes.fromhex("85 01 07 00 01 45") + b"hello"
    assert read_part(datagram) == DatagramPart(7, 0, 1, b"hello")
    assert Assembler().receive("a", datagram, 0.0) == b"hello"


def test_no_datagram_is_longer_than_gets_through() -> None:
    part = DatagramPart(0xFFFF, 0xFFFE, 0xFFFF, bytes(MAX_PART))
    assert len(part.serialize()) <= MAX_DATAGRAM
    assert read_part(part.serialize()) == part
    parts = [read_part(each) for each in split_message(BODY, 65535)]
    assert parts == [
        DatagramPart(65535, index, 5, BODY[index * MAX_PART : (index + 1) * MAX_PART])
        for index in range(5)
    ]


def test_a_message_over_a_limit_is_not_sent() -> None:
    with pytest.raises(PayloadTooBig, match="2048 bytes is over the limit of 2047"):
        split_message(BODY, 0, 2047)
    with pytest.raises(PayloadTooBig):
        split_message(bytes(MAX_PARTS * MAX_PART + 1), 0)


def test_the_last_part_may_be_empty() -> None:
    # A Rust node sends one where the message fills the parts before it.
    assembler = Assembler()
    full = bytes(MAX_PART)
    assert assembler.receive("a", DatagramPart(1, 0, 2, full).serialize(), 0.0) is None
    assert assembler.receive("a", DatagramPart(1, 1, 2, b"").serialize(), 0.0) == full
    for wrong in (DatagramPart(1, 0, 1, b""), DatagramPart(1, 0, 2, b"")):
        with pytest.raises(MalformedMessage, match="missing or empty"):
            read_part(wrong.serialize())


@pytest.mark.parametrize(("index", "total"), [(0, 0), (1, 1), (65535, 65535)])
def test_a_part_is_one_of_those_there_are(index: int, total: int) -> None:
    with pytest.raises(MalformedMessage):
        read_part(DatagramPart(1, index, total, b"x").serialize())


@given(order=st.permutations(split_message(BODY, 3)), again=st.lists(st.integers(0, 3)))
def test_parts_in_any_order_and_more_than_once_make_the_message(
    order: list[bytes], again: list[int]
) -> None:
    assembler = Assembler()
    came = [
        assembler.receive("a", each, 0.0)
        for each in (*order[:-1], *(order[index] for index in again), order[-1])
    ]
    assert [each for each in came if each is not None] == [BODY]
    assert came[-1] == BODY
    assert assembler.dropped == ({"duplicate": len(again)} if again else {})
    assert (assembler.unfinished, assembler.held) == (0, 0)


@pytest.mark.parametrize(
    "other",
    [
        DatagramPart(1, 1, 3, b"bb"),  # another count
        DatagramPart(1, 1, 4, b"b"),  # another length, and it is not the last
        DatagramPart(1, 0, 4, b"bb"),  # another content
    ],
)
def test_a_part_that_cannot_be_of_the_same_message_is_of_a_newer_one(other: DatagramPart) -> None:
    assembler = Assembler()
    assembler.receive("a", DatagramPart(1, 0, 4, b"aa").serialize(), 0.0)
    assert assembler.receive("a", other.serialize(), 0.0) is None
    assert assembler.dropped == {"contradicted": 1}
    assert assembler.unfinished == 1


def test_the_two_forms_do_not_mix() -> None:
    assembler = Assembler()
    assembler.receive("a", split_message(BODY, 1)[0], 0.0)
    for each in split_message(BODY, 1, offsets=True)[1:]:
        assert assembler.receive("a", each, 0.0) is None
    assert assembler.dropped == {"contradicted": 1}
    assembler = Assembler()
    assembler.receive("a", split_message(BODY, 1, offsets=True)[0], 0.0)
    came = [assembler.receive("a", each, 0.0) for each in split_message(BODY, 1)]
    assert came[-1] == BODY
    assert assembler.dropped == {"contradicted": 1}


def test_a_message_that_is_or_will_be_too_long_is_given_up() -> None:
    limits = DatagramLimits(max_message=1000)
    for parts, dropped in (
        # So many parts of that length are too much, before the others are here.
        ([DatagramPart(1, 0, 12, bytes(100))], {"too big": 1}),
        # The parts do not say how long they are; the sum does.
        ([DatagramPart(1, 1, 2, bytes(600)), DatagramPart(1, 0, 2, bytes(600))], {"too big": 1}),
        ([DatagramPart(1, 0, 1, bytes(1001))], {"too big": 1}),
    ):
        assembler = Assembler(limits)
        assert [assembler.receive("a", each.serialize(), 0.0) for each in parts] == [None] * len(
            parts
        )
        assert (assembler.dropped, assembler.held) == (dropped, 0)
