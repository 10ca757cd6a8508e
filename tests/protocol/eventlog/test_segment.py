"""Sealed segments: what was written is read, and damage is never taken for a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from zlib import crc32

import pytest
from cbor2 import dumps, loads
from hypothesis import HealthCheck, given, settings

from onward.protocol.eventlog import (
    MAX_BLOCK,
    MAX_NAMES,
    EventLogError,
    RecordBlock,
    SegmentCorrupt,
    SegmentFooter,
    SegmentHeader,
    SegmentNewer,
    SegmentUnfinished,
    block,
    block_header,
    events_block,
    flows_block,
    hops_block,
    names_block,
    read_header,
    read_segment,
    routes_block,
)
from tests.protocol.eventlog.logs import (
    EVENT_1,
    FLOW_1,
    FOOTER,
    HEADER,
    HOP_1,
    HOP_2,
    PARTS,
    SEGMENT,
    TAGS,
    Written,
    segments,
)
from tests.support.counts import times

SLOW = settings(
    max_examples=times(15, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def with_blocks(*blocks: bytes, footer: SegmentFooter | None = FOOTER) -> bytes:
    """A segment with these blocks behind what gives the numbers."""
    return b"".join([*PARTS[:4], *blocks, footer.serialize() if footer else b""])


def everything(data: bytes | memoryview) -> object:
    """All that is read of a segment."""
    segment = read_segment(data)
    segment.check()
    return (
        segment.header,
        segment.names,
        segment.routes,
        segment.tagsets,
        list(segment.hops()),
        list(segment.flows()),
        segment.events,
        segment.footer,
    )


def test_a_segment_is_what_the_page_says_byte_by_byte() -> None:
    segment = read_segment(SEGMENT)
    assert SEGMENT[:4] == b"ONWL"
    size = int.from_bytes(SEGMENT[4:8], "little")
    header = SEGMENT[12 : 12 + size]
    assert int.from_bytes(SEGMENT[8:12], "little") == crc32(header)
    assert loads(header)["fields"][:3] == ["seq", "ts_us", "trace_id"]
    names = PARTS[1]
    assert names[:1] == b"N"
    assert int.from_bytes(names[1:5], "little") == len(names) - 9
    assert int.from_bytes(names[5:9], "little") == crc32(names[:5] + names[9:])
    assert loads(names[9:]) == ["shop", "orders"]
    assert loads(PARTS[3][9:]) == [[[[1, "orders"], ["zone", "b"], [0x7C0001, None]], 0x20, "jump"]]
    assert bytes(segment.hop_bodies[0]) == PARTS[4][9:]
    assert len(segment.hop_bodies[0]) == 2 * 64
    assert bytes(segment.flow_bodies[0]) == PARTS[5][9:]
    assert len(segment.flow_bodies[0]) == 56


def test_what_was_written_is_read() -> None:
    segment = read_segment(memoryview(SEGMENT))
    segment.check()
    assert segment.header == HEADER
    assert segment.footer == FOOTER
    assert segment.names == ("shop", "orders")
    assert segment.routes == (bytes(16),)
    assert segment.tagsets[0].tags == TAGS
    assert list(segment.hops()) == [HOP_1, HOP_2]
    assert list(segment.flows()) == [FLOW_1]
    assert segment.events == (EVENT_1,)
    assert segment.missing == 0


def test_a_segment_can_be_without_records_and_tell_that_some_are_missing() -> None:
    empty = SegmentFooter(0, 0, 0, HEADER.first_seq - 1, 5)
    assert read_segment(PARTS[0] + empty.serialize()).missing == 0
    gap = replace(empty, last_seq=HEADER.first_seq + 9)
    assert read_segment(PARTS[0] + gap.serialize()).missing == 10


@SLOW
@given(segments())
def test_what_any_writer_writes_is_read(written: Written) -> None:
    assert everything(written.data) == (
        written.header,
        written.names,
        written.routes,
        written.tagsets,
        list(written.hops),
        list(written.flows),
        written.events,
        written.footer,
    )


def test_a_segment_that_ends_early_is_unfinished_wherever_it_ends() -> None:
    for size in range(len(SEGMENT)):
        with pytest.raises(SegmentUnfinished):
            read_segment(SEGMENT[:size])


def test_bytes_behind_the_footer_are_damage() -> None:
    for more in (b"\0", b"Z", PARTS[1], PARTS[-1], SEGMENT):
        with pytest.raises(SegmentCorrupt, match="bytes behind the footer") as caught:
            read_segment(SEGMENT + more)
        assert caught.value.offset == len(SEGMENT)


def test_every_bit_that_flips_is_seen() -> None:
    for place in range(len(SEGMENT)):
        for bit in range(8):
            flipped = bytearray(SEGMENT)
            flipped[place] ^= 1 << bit
            with pytest.raises((SegmentCorrupt, SegmentUnfinished)):
                read_segment(bytes(flipped))


@SLOW
@given(segments(most=6))
def test_every_byte_that_changes_is_seen(written: Written) -> None:
    data = written.data
    for place in range(0, len(data), 7):
        changed = data[:place] + bytes([data[place] ^ 0x5A]) + data[place + 1 :]
        with pytest.raises((SegmentCorrupt, SegmentUnfinished)):
            read_segment(changed)


def test_a_part_left_out_or_there_twice_is_seen() -> None:
    for place in range(len(PARTS)):
        for parts in (PARTS[:place] + PARTS[place + 1 :], [*PARTS[: place + 1], *PARTS[place:]]):
            if place in {1, 2, 3} and len(parts) > len(PARTS):
                continue  # names may be given twice
            with pytest.raises(EventLogError):
                read_segment(b"".join(parts)).check()


def test_a_block_that_lies_about_its_size_makes_no_room_for_it() -> None:
    for kind in b"NPTRFEZ":
        lie = bytes([kind]) + MAX_BLOCK.to_bytes(4, "little") + bytes(4)
        with pytest.raises(SegmentUnfinished):
            read_segment(with_blocks(lie, footer=None))
        lie = bytes([kind]) + (MAX_BLOCK + 1).to_bytes(4, "little") + bytes(4)
        with pytest.raises(SegmentCorrupt, match="16777217 bytes, over the limit of 16777216"):
            read_segment(with_blocks(lie, footer=None))


def test_cbor_that_lies_about_its_size_makes_no_room_for_it() -> None:
    for kind in (b"N", b"P", b"T", b"E", b"Z"):
        for body in (
            b"\x9b" + b"\xff" * 8,
            b"\xbb\x00\x00\x00\x01" + bytes(4),
            b"\x5b" + b"\x7f" * 8,
        ):
            with pytest.raises(SegmentCorrupt, match="CBOR"):
                read_segment(with_blocks(block(kind, body), footer=None))


def listed(kind: bytes, item: object) -> bytes:
    return block(kind, dumps([item]))


NO_TAGS: list[object] = []
EVENT: list[object] = [1004, 5, 1, None, "", NO_TAGS, ""]


def changed(place: int, value: object) -> list[object]:
    return [*EVENT[:place], value, *EVENT[place + 1 :]]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (block(b"X", b""), "a block of the unknown type 0x58"),
        (block(b"N", dumps({})), "no list"),
        (listed(b"N", 5), "a name that is no text of 1 to 255 bytes"),
        (listed(b"N", ""), "a name that is no text of 1 to 255 bytes"),
        (listed(b"N", "é" * 128), "a name that is no text of 1 to 255 bytes"),
        (block(b"N", dumps(["x"] * MAX_NAMES)), "over 65535 numbers are given"),
        (block(b"N", b"\x81\xc0\x61x"), "CBOR: a tag; only plain data is taken"),
        (listed(b"P", bytes(15)), "a route id that is not 16 bytes"),
        (listed(b"P", "x" * 16), "a route id that is not 16 bytes"),
        (listed(b"T", 5), "no list of 3"),
        (listed(b"T", [NO_TAGS, 0x80]), "no list of 3"),
        (listed(b"T", [NO_TAGS, 0x80, 5]), "a method that is no text"),
        (listed(b"T", [NO_TAGS, 0x81, ""]), "a routing that is none"),
        (listed(b"T", [NO_TAGS, True, ""]), "a routing that is none"),
        (listed(b"T", [5, 0x80, ""]), "no list of tags"),
        (listed(b"T", [[[1]], 0x80, ""]), "no list of 2"),
        (listed(b"T", [[[-1, ""]], 0x80, ""]), "the key of a tag is neither a number nor a text"),
        (
            listed(b"T", [[[1 << 24, ""]], 0x80, ""]),
            "the key of a tag is neither a number nor a text",
        ),
        (listed(b"T", [[["", ""]], 0x80, ""]), "the key of a tag is neither a number nor a text"),
        (listed(b"T", [[[True, ""]], 0x80, ""]), "the key of a tag is neither a number nor a text"),
        (listed(b"T", [[[1, 5]], 0x80, ""]), "the value of a tag is neither a text nor null"),
        (listed(b"E", EVENT[:6]), "no list of 7"),
        (listed(b"E", changed(0, "x")), "the number or the time of an event is not valid"),
        (listed(b"E", changed(1, None)), "the number or the time of an event is not valid"),
        (listed(b"E", changed(1, 1 << 63)), "the number or the time of an event is not valid"),
        (listed(b"E", changed(2, 99)), "an event of an unknown name"),
        (listed(b"E", changed(2, True)), "an event of an unknown name"),
        (listed(b"E", changed(3, b"x")), "a route id that is not 16 bytes"),
        (listed(b"E", changed(4, 5)), "the node or the reason of an event is not a text"),
        (listed(b"E", changed(6, 5)), "the node or the reason of an event is not a text"),
        (block(b"E", dumps([EVENT, EVENT])), "the numbers of events do not rise"),
        (listed(b"E", changed(0, 1000)), "the numbers of records do not rise"),
        (listed(b"E", changed(0, 1 << 63)), "the numbers of records do not rise"),
        (block(b"R", bytes(63)), "63 bytes are no records of 64"),
        (block(b"F", bytes(57)), "57 bytes are no records of 56"),
        (hops_block([HOP_2, HOP_1]), "the numbers of records do not rise"),
        (hops_block([HOP_1, HOP_2, HOP_2, HOP_2]), "the numbers of records do not rise"),
        (hops_block([replace(HOP_1, seq=1000)]), "the numbers of records do not rise"),
        (hops_block([replace(HOP_1, seq=(1 << 63) + 5)]), "the numbers of records do not rise"),
        (hops_block([HOP_1]) * 2, "the numbers of records do not rise"),
        (flows_block([FLOW_1]) * 2, "the numbers of records do not rise"),
        (
            hops_block([HOP_1]) + flows_block([replace(FLOW_1, seq=1001)]),
            "more records than numbers were given",
        ),
    ],
)
def test_a_block_that_says_what_cannot_be_is_damage(made: bytes, reason: str) -> None:
    with pytest.raises(SegmentCorrupt) as caught:
        read_segment(with_blocks(made, footer=None))
    assert caught.value.reason == reason
    assert len(with_blocks(footer=None)) <= caught.value.offset


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("hops", 1, "the footer counts other records than there are"),
        ("flows", 0, "the footer counts other records than there are"),
        ("events", 2, "the footer counts other records than there are"),
        ("last_seq", 1003, "the footer's last number is lower than that of a record"),
    ],
)
def test_a_footer_that_does_not_fit_is_damage(field: str, value: int, reason: str) -> None:
    footer = replace(FOOTER, **{field: value})
    with pytest.raises(SegmentCorrupt, match=reason):
        read_segment(b"".join(PARTS[:-1]) + footer.serialize())


@pytest.mark.parametrize("field", ["hops", "flows", "events", "last_seq", "ended_us"])
@pytest.mark.parametrize("value", [None, "5", 1.5, True, -(1 << 63), 1 << 63])
def test_a_footer_whose_fields_are_none_is_damage(field: str, value: object) -> None:
    fields: dict[str, object] = loads(PARTS[-1][9:])
    fields[field] = value
    with pytest.raises(SegmentCorrupt, match=f"{field} is no number from"):
        read_segment(b"".join(PARTS[:-1]) + block(b"Z", dumps(fields)))


def test_an_empty_block_is_fine() -> None:
    nothing = [names_block([]), routes_block([]), hops_block([]), flows_block([]), events_block([])]
    segment = read_segment(b"".join([*PARTS[:-1], *nothing, PARTS[-1]]))
    assert len(segment.hop_blocks) == 1
    assert list(segment.hops()) == [HOP_1, HOP_2]


# --- what is in the records is looked at when it is asked for -----------------------------


@pytest.mark.parametrize("wrong", [{"origin": 3}, {"dest": 3}, {"route": 2}, {"tagset": 2}])
def test_a_record_that_refers_to_what_is_not_there_is_damage(wrong: dict[str, int]) -> None:
    hops = replace(FOOTER, hops=1, flows=0, events=0)
    segment = read_segment(with_blocks(hops_block([replace(HOP_1, **wrong)]), footer=hops))
    with pytest.raises(SegmentCorrupt, match="refers to what has no number yet") as caught:
        segment.check()
    assert caught.value.offset == sum(map(len, PARTS[:4])) + 9
    flows = replace(FOOTER, hops=0, flows=1, events=0)
    segment = read_segment(with_blocks(flows_block([replace(FLOW_1, **wrong)]), footer=flows))
    with pytest.raises(SegmentCorrupt, match="refers to what has no number yet"):
        list(segment.flows())


def test_what_has_its_number_only_later_is_not_there_yet() -> None:
    hop = replace(HOP_1, origin=3)
    footer = replace(FOOTER, hops=1, flows=0, events=0)
    segment = read_segment(with_blocks(hops_block([hop]), names_block(["late"]), footer=footer))
    assert segment.hop_blocks == (
        RecordBlock(sum(map(len, PARTS[:4])) + 9, segment.hop_bodies[0], 2, 1, 1),
    )
    with pytest.raises(SegmentCorrupt):
        list(segment.hops())


def test_numbers_that_fall_inside_of_a_block_are_damage() -> None:
    seqs = (1001, 1003, 1002, 1004)
    footer = SegmentFooter(4, 0, 0, 1004, 0)
    hops = read_segment(
        with_blocks(hops_block([replace(HOP_1, seq=seq) for seq in seqs]), footer=footer)
    )
    with pytest.raises(SegmentCorrupt, match="do not rise"):
        list(hops.hops())
    flows = read_segment(
        with_blocks(
            flows_block([replace(FLOW_1, seq=seq) for seq in seqs]),
            footer=replace(footer, hops=0, flows=4),
        )
    )
    with pytest.raises(SegmentCorrupt, match="do not rise"):
        flows.check()


def test_spare_bits_of_a_flow_that_are_not_0_are_damage() -> None:
    body = bytearray(PARTS[5][9:])
    body[38] = 1
    footer = replace(FOOTER, hops=0, events=0)
    segment = read_segment(with_blocks(block(b"F", body), footer=footer))
    with pytest.raises(SegmentCorrupt, match="spare bits"):
        list(segment.flows())


# --- headers ------------------------------------------------------------------------------


def header_of(change: Callable[[dict[str, object]], object]) -> bytes:
    fields: dict[str, object] = loads(PARTS[0][12:])
    change(fields)
    body = dumps(fields)
    sizes = (len(body).to_bytes(4, "little"), crc32(body).to_bytes(4, "little"))
    return b"ONWL" + b"".join(sizes) + body


def test_a_segment_of_a_later_format_asks_for_a_newer_onward() -> None:
    data = header_of(lambda fields: fields.update(v=2, record_size=72, more="x"))
    for read in (read_header, read_segment):
        with pytest.raises(SegmentNewer, match="read it with a newer Onward") as caught:
            read(data)
        assert caught.value.version == 2


def test_fields_of_a_header_that_are_not_known_are_passed_over() -> None:
    assert read_header(header_of(lambda fields: fields.update(more=[1]))) == HEADER
    assert read_header(header_of(lambda fields: fields.update(sample_rate=0))).sample_rate == 0.0


@pytest.mark.parametrize(
    ("field", "values", "reason"),
    [
        ("v", [0, None, "1", 1.0], "v is no number"),
        ("broker", [None, 5], "broker is no text"),
        ("broker", ["", ".x", "a/b", "x" * 65, "a b"], "is no name of an event log"),
        ("log", [None, b"x", "x" * 16], "log is not 16 bytes"),
        ("epoch", [-1, 1 << 31, None], "epoch is no number"),
        ("first_seq", [0, 1 << 63, True], "first_seq is no number"),
        ("started_us", [None, 1.5, 1 << 63], "started_us is no number"),
        ("sample_rate", [None, -0.1, 1.1, 2, float("nan"), "1", True], "sample_rate is no rate"),
        ("record_size", [63, None], "record_size is not 64"),
        ("flow_size", [57, None], "flow_size is not 56"),
        ("fields", [[], ["seq"]], "fields is not"),
    ],
)
def test_a_header_whose_fields_are_none_is_damage(
    field: str, values: Iterable[object], reason: str
) -> None:
    for value in values:
        data = header_of(lambda fields, value=value: fields.__setitem__(field, value))  # type: ignore[misc]
        with pytest.raises(SegmentCorrupt, match=reason):
            read_header(data)


def test_what_is_no_header_is_refused() -> None:
    for data in (b"x", b"ONWX", b"PK\x03\x04" * 9, b"\0" * 12):
        with pytest.raises(SegmentCorrupt, match="no segment of an event log"):
            read_header(data)
    for data in (b"", b"ON", b"ONWL", PARTS[0][:11], PARTS[0][:-1]):
        with pytest.raises(SegmentUnfinished):
            read_header(data)
    big = b"ONWL" + (64 * 1024 - 11).to_bytes(4, "little") + bytes(4)
    with pytest.raises(SegmentCorrupt, match="over the limit of 65536"):
        read_header(big)
    body = dumps([])
    no_map = b"ONWL" + len(body).to_bytes(4, "little") + crc32(body).to_bytes(4, "little") + body
    with pytest.raises(SegmentCorrupt, match="no map"):
        read_header(no_map)


@pytest.mark.parametrize(
    "wrong",
    [
        {"broker": ""},
        {"log": b""},
        {"epoch": -1},
        {"epoch": 1 << 31},
        {"first_seq": 0},
        {"first_seq": 1 << 63},
        {"sample_rate": 1.5},
        {"sample_rate": float("nan")},
    ],
)
def test_a_header_that_could_not_be_read_is_not_written(wrong: dict[str, object]) -> None:
    header: SegmentHeader = replace(HEADER, **wrong)  # type: ignore[arg-type]
    with pytest.raises(EventLogError):
        header.serialize()


def test_a_block_over_the_limit_is_not_written() -> None:
    assert len(block_header(b"R", bytes(MAX_BLOCK))) == 9
    with pytest.raises(EventLogError, match="16777217 bytes is over the limit"):
        block_header(b"R", bytes(MAX_BLOCK + 1))
