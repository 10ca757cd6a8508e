"""Messages in datagrams, in the form before December 2024; and what both forms have in common."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol import MalformedMessage, Message, PayloadTooBig, route
from onward.protocol.ockam import (
    MAX_DATAGRAM,
    MAX_PART,
    Assembler,
    DatagramLimits,
    OffsetPart,
    decode_message,
    encode_message,
    read_part,
    split_message as split,
)
from onward.protocol.ockam._datagram import PART_COST
from tests.support.counts import times

split_message = partial(split, offsets=True)

BODY = bytes(range(256)) * 8  # 2048 bytes: five parts


def offset_part(data: bytes) -> OffsetPart:
    part = read_part(data)
    assert isinstance(part, OffsetPart)
    return part


def test_a_message_that_fits_is_one_part() -> None:
    (datagram,) = split_message(b"hello", 7)
    assert datagram == bytes.fromhex("85 01 07 00 f5 45") + b"hello"
    assert read_part(datagram) == OffsetPart(7, 0, True, b"hello")
    assert Assembler().receive("a", datagram, 0.0) == b"hello"


def test_no_datagram_is_longer_than_gets_through() -> None:
    # The longest: a number of two bytes, an offset of four.
    part = OffsetPart(0xFFFF, 0xFFFF_FFFF, False, bytes(MAX_PART))
    assert len(part.serialize()) == MAX_DATAGRAM - 1
    assert read_part(part.serialize()) == part
    datagrams = split_message(BODY, 65535)
    parts = list(map(offset_part, datagrams))
    assert [each.offset for each in parts] == [0, 493, 986, 1479, 1972]
    assert [each.last for each in parts] == [False, False, False, False, True]


def test_a_message_of_whole_parts_has_no_empty_one() -> None:
    parts = list(map(offset_part, split_message(bytes(2 * MAX_PART), 0)))
    assert [(part.offset, len(part.content), part.last) for part in parts] == [
        (0, MAX_PART, False),
        (MAX_PART, MAX_PART, True),
    ]


def test_a_message_over_the_limit_is_not_sent() -> None:
    with pytest.raises(PayloadTooBig, match="2048 bytes is over the limit of 2047"):
        split_message(BODY, 0, 2047)


def test_it_carries_what_a_frame_does() -> None:
    message = Message(route("a => b"), route("c"), b"payload")
    (datagram,) = split_message(encode_message(message), 1)
    body = Assembler().receive(1, datagram, 0.0)
    assert body is not None
    assert decode_message(body) == message


WRONG = {
    "nothing": b"",
    "no array": b"\x01",
    "another version": bytes.fromhex("85 02 00 00 f5 41 00"),
    "a number that is none": bytes.fromhex("85 01 40 00 f5 41 00"),
    "a number over 65535": bytes.fromhex("85 01 1a00010000 00 f5 41 00"),
    "an offset over 32 bits": bytes.fromhex("85 01 00 1b0000000100000000 f5 41 00"),
    "neither a boolean nor a number": bytes.fromhex("85 01 00 00 40 41 00"),
    "cut before the boolean": bytes.fromhex("85 01 00 00"),
    "text": bytes.fromhex("85 01 00 00 f5 61 41"),
    "no content": bytes.fromhex("84 01 00 00 f5"),
    "empty": bytes.fromhex("85 01 00 00 f5 40"),
    "cut short": bytes.fromhex("85 01 00 00 f5 45 00"),
    "of indefinite length": bytes.fromhex("85 01 00 00 f5 5f 41 00 ff"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_part_is_counted(name: str) -> None:
    with pytest.raises(MalformedMessage):
        read_part(WRONG[name])
    assembler = Assembler()
    assert assembler.receive("a", WRONG[name], 0.0) is None
    assert assembler.dropped == {"malformed": 1}
    assert (assembler.unfinished, assembler.held) == (0, 0)


def test_items_and_bytes_of_later_versions_are_passed_over() -> None:
    assert read_part(bytes.fromhex("86 01 00 00 f4 41 61 82 01 02 ff")) == OffsetPart(
        0, 0, False, b"a"
    )


@given(order=st.permutations(split_message(BODY, 3)), again=st.lists(st.integers(0, 4)))
def test_parts_in_any_order_and_more_than_once_make_the_message(
    order: list[bytes], again: list[int]
) -> None:
    assembler = Assembler()
    whole = [
        assembler.receive("a", each, 0.0)
        for each in (*order[:-1], *(order[index] for index in again if index < 4), order[-1])
    ]
    assert [each for each in whole if each is not None] == [BODY]
    assert whole[-1] == BODY
    assert (assembler.unfinished, assembler.held) == (0, 0)


@given(
    mixed=st.permutations(
        [
            (peer, datagram)
            for peer in "ab"
            for number in (0, 65535)
            for datagram in split_message(peer.encode() * 1200 + bytes([number % 256]), number)
        ]
    )
)
def test_messages_of_several_peers_and_numbers_are_kept_apart(
    mixed: list[tuple[str, bytes]],
) -> None:
    assembler = Assembler()
    whole = [(peer, assembler.receive(peer, datagram, 0.0)) for peer, datagram in mixed]
    assert sorted((peer, body[-1]) for peer, body in whole if body is not None) == [
        ("a", 0),
        ("a", 255),
        ("b", 0),
        ("b", 255),
    ]
    assert assembler.unfinished == 0


def test_a_message_that_does_not_come_whole_in_time_is_given_up() -> None:
    assembler = Assembler(DatagramLimits(max_age=5.0))
    first, *rest = split_message(BODY, 1)
    assert assembler.get_timer() is None
    assembler.receive("a", first, 10.0)
    assert assembler.get_timer() == 15.0
    assembler.receive("b", first, 12.0)
    assembler.expire(14.9)
    assert assembler.unfinished == 2
    for each in rest:
        assert assembler.receive("a", each, 15.0) is None
    assert assembler.dropped == {"not whole in time": 1}
    assembler.expire(100.0)
    assert (assembler.unfinished, assembler.held) == (0, 0)
    assert assembler.dropped == {"not whole in time": 3}


CONTRADICTIONS = {
    "other bytes": (OffsetPart(1, 0, False, b"aaaa"), OffsetPart(1, 0, False, b"bbbb")),
    "the same bytes, and the last": (
        OffsetPart(1, 4, False, b"aaaa"),
        OffsetPart(1, 4, True, b"aaaa"),
    ),
    "over the one before": (OffsetPart(1, 0, False, b"aaaa"), OffsetPart(1, 3, False, b"bbbb")),
    "over the one behind": (OffsetPart(1, 4, False, b"aaaa"), OffsetPart(1, 1, False, b"bbbb")),
    "behind the last": (OffsetPart(1, 4, True, b"aaaa"), OffsetPart(1, 8, False, b"bbbb")),
    "a last before another": (OffsetPart(1, 8, False, b"aaaa"), OffsetPart(1, 2, True, b"bbbb")),
    "two last ones": (OffsetPart(1, 4, True, b"aaaa"), OffsetPart(1, 2, True, b"bb")),
    "a whole message": (OffsetPart(1, 4, True, b"aaaa"), OffsetPart(1, 0, True, b"bb")),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_of_two_parts_that_contradict_each_other_the_newer_counts(name: str) -> None:
    old, new = CONTRADICTIONS[name]
    assembler = Assembler()
    assert assembler.receive("a", old.serialize(), 0.0) is None
    got = assembler.receive("a", new.serialize(), 1.0)
    assert assembler.dropped == {"contradicted": 1}
    if new.last and not new.offset:
        assert (got, assembler.unfinished) == (new.content, 0)
    else:
        assert (got, assembler.unfinished) == (None, 1)
        assert assembler.held == len(new.content) + PART_COST
        assert assembler.get_timer() == 6.0


@pytest.mark.parametrize("step", [7, 1000, 32_767])
def test_a_message_is_given_up_before_its_number_comes_again(step: int) -> None:
    assembler = Assembler()
    first = 65_000
    assembler.receive("p", split_message(b"A" * 600, first)[0], 0.0)
    for ahead in range(step, 65_536, step):
        whole = split_message(b"x", (first + ahead) % 65_536)[0]
        assert assembler.receive("p", whole, 0.0) == b"x"
        assert assembler.unfinished == (ahead < 32_768)
    assert assembler.receive("p", split_message(b"B" * 600, first)[1], 0.0) is None
    assert assembler.dropped == {"overtaken": 1}


def test_messages_of_a_peer_that_overtake_one_another_stay() -> None:
    assembler = Assembler()
    parts = {number: split_message(bytes([number]) * 600, number) for number in (3, 1, 2)}
    for first, _ in parts.values():
        assembler.receive("p", first, 0.0)
    # As after a restart: there is no telling how far that is ahead.
    assert assembler.receive("p", split_message(b"x", 40_000)[0], 0.0) == b"x"
    # Another peer's numbers are its own.
    assert assembler.receive("q", split_message(b"x", 32_770)[0], 0.0) == b"x"
    assert assembler.receive("p", split_message(b"x", 32_769)[0], 0.0) == b"x"
    assert assembler.unfinished == 3
    assert assembler.receive("p", split_message(b"x", 32_771)[0], 0.0) == b"x"
    assert (assembler.unfinished, assembler.held) == (0, 0)


def test_the_same_part_again_is_a_duplicate() -> None:
    assembler = Assembler()
    for part in (
        OffsetPart(1, 4, True, b"aaaa"),
        OffsetPart(1, 4, True, b"aaaa"),
        OffsetPart(1, 8, True, b"a"),
    ):
        assembler.receive("a", part.serialize(), 0.0)
    assert assembler.dropped == {"duplicate": 1, "contradicted": 1}


def test_a_message_that_grows_too_big_is_given_up() -> None:
    assembler = Assembler(DatagramLimits(max_message=1000))
    for each in split_message(bytes(1000), 1)[:2]:
        assembler.receive("a", each, 0.0)
    assert assembler.unfinished == 1
    assert assembler.receive("a", OffsetPart(1, 990, True, bytes(11)).serialize(), 0.0) is None
    assert assembler.dropped == {"too big": 1}
    assert assembler.unfinished == 0


def test_a_peer_has_so_many_messages_that_are_not_whole() -> None:
    assembler = Assembler(DatagramLimits(messages_of_peer=2))
    first, *rest = split_message(bytes(500), 1)
    assembler.receive("a", first, 0.0)
    for number in (2, 3):
        assembler.receive("a", split_message(bytes(500), number)[0], 0.0)
        assembler.receive("b", split_message(bytes(500), number)[0], 0.0)
    assert assembler.dropped == {"too many of the peer": 1}
    assert assembler.unfinished == 4
    assert [assembler.receive("a", each, 0.0) for each in rest] == [None]


def test_there_are_so_many_in_all_and_the_oldest_goes() -> None:
    assembler = Assembler(DatagramLimits(messages=2))
    for peer in "abc":
        assembler.receive(peer, split_message(bytes(500), 1)[0], 0.0)
    assert assembler.dropped == {"too many": 1}
    whole = [assembler.receive(peer, split_message(bytes(500), 1)[1], 0.0) for peer in "cb"]
    assert whole == [bytes(500), bytes(500)]


def test_they_hold_so_many_bytes_in_all() -> None:
    limits = DatagramLimits(max_message=1000, max_bytes=2000, messages_of_peer=5)
    assembler = Assembler(limits)
    for number in range(5):
        assembler.receive("a", split_message(bytes(600), number)[0], 0.0)
    assert assembler.held <= 2000
    assert assembler.dropped == {"too many bytes": 2}


def test_a_message_of_tiny_parts_costs_what_it_takes() -> None:
    assembler = Assembler(DatagramLimits(max_message=1000, max_bytes=2000))
    for offset in range(20):
        assembler.receive("a", OffsetPart(1, offset, False, b"x").serialize(), 0.0)
    assert assembler.dropped == {"too many bytes": 1}
    assert assembler.held <= 2000


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_message": 0},
        {"max_message": 1 << 32, "max_bytes": 1 << 40},
        {"messages_of_peer": 0},
        {"messages": 0},
        {"max_age": 0.0},
        {"max_bytes": 65536},
    ],
)
def test_limits_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        DatagramLimits(**wrong)


PARTS = st.builds(
    OffsetPart,
    st.integers(0, 5),
    st.integers(0, 3000) | st.integers(0, 0xFFFF_FFFF),
    st.booleans(),
    st.binary(min_size=1, max_size=MAX_PART),
).map(OffsetPart.serialize)


@settings(max_examples=times(40, 200))
@given(
    came=st.lists(
        st.tuples(st.integers(0, 9), PARTS | st.binary(max_size=600), st.floats(0, 2)), max_size=60
    )
)
def test_whatever_comes_is_bounded(came: list[tuple[int, bytes, float]]) -> None:
    limits = DatagramLimits(
        max_message=2000, messages_of_peer=2, messages=6, max_bytes=5000, max_age=5.0
    )
    assembler = Assembler(limits)
    now = 0.0
    for peer, data, wait in came:
        now += wait
        body = assembler.receive(peer, data, now)
        assert body is None or len(body) <= 2000
        assert assembler.unfinished <= 6
        assert assembler.held <= 5000
        timer = assembler.get_timer()
        assert (timer is None) == (assembler.unfinished == 0)
        assert timer is None or now < timer <= now + 5.0
    assembler.expire(now + 5.0)
    assert (assembler.unfinished, assembler.held) == (0, 0)
