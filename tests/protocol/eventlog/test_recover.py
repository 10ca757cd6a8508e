"""What is kept of a segment that was left open: its whole blocks, and nothing else."""

from __future__ import annotations

from itertools import accumulate

from cbor2 import dumps
from hypothesis import HealthCheck, given, settings, strategies as st

from onward.protocol.eventlog import SegmentFooter, block, read_footer, read_segment, recover
from tests.protocol.eventlog.logs import FOOTER, HEADER, PARTS, SEGMENT, Written, segments
from tests.support.counts import times

SLOW = settings(
    max_examples=times(15, 60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def sealed(data: bytes) -> bytes:
    """What a writer makes of it."""
    kept = recover(data)
    return data[: kept.valid] + (b"" if kept.sealed else kept.footer.serialize())


def test_any_length_of_a_segment_keeps_its_whole_blocks() -> None:
    ends = list(accumulate(map(len, PARTS)))
    for size in range(len(SEGMENT) + 1):
        kept = recover(SEGMENT[:size])
        whole = [end for end in ends if end <= size]
        if not whole:
            assert kept.header is None
            assert (kept.valid, kept.lost) == (0, size)
            assert kept.reason
            continue
        assert kept.header == HEADER
        assert (kept.valid, kept.lost) == (whole[-1], size - whole[-1])
        assert bool(kept.reason) == (kept.lost > 0)
        assert kept.sealed == (size == len(SEGMENT))
        read = read_segment(sealed(SEGMENT[:size]))
        read.check()
        assert read.footer == kept.footer
    assert recover(SEGMENT).footer == FOOTER


def test_the_end_of_what_is_kept_is_when_its_last_record_was_written() -> None:
    started = HEADER.started_us
    none = SegmentFooter(0, 0, 0, 1000, started)
    assert recover(b"".join(PARTS[:4])).footer == none
    assert recover(b"".join(PARTS[:5])).footer == SegmentFooter(2, 0, 0, 1003, started + 6)
    assert recover(b"".join(PARTS[:6])).footer == SegmentFooter(2, 1, 0, 1003, started + 10_000_000)
    assert recover(b"".join(PARTS[:7])).footer == SegmentFooter(2, 1, 1, 1004, started + 10_000_000)


def test_bytes_behind_a_footer_are_lost_and_it_stays() -> None:
    kept = recover(SEGMENT + b"more")
    assert (kept.valid, kept.lost, kept.sealed) == (len(SEGMENT), 4, True)
    assert kept.reason == f"the segment is damaged at byte {len(SEGMENT)}: bytes behind the footer"
    assert sealed(SEGMENT + b"more") == SEGMENT


def test_a_block_that_is_damaged_ends_what_is_kept() -> None:
    data = bytearray(SEGMENT)
    place = sum(map(len, PARTS[:4])) + 20
    data[place] ^= 1
    kept = recover(bytes(data))
    assert kept.valid == sum(map(len, PARTS[:4]))
    assert "the check of a block" in kept.reason


def test_a_footer_that_does_not_fit_is_written_again() -> None:
    wrong = SegmentFooter(9, 9, 9, 2000, 0).serialize()
    data = b"".join(PARTS[:-1]) + wrong
    kept = recover(data)
    assert (kept.valid, kept.sealed) == (len(data) - len(wrong), False)
    assert read_segment(sealed(data)).footer == kept.footer


def test_a_block_that_is_whole_and_not_understood_is_no_torn_end() -> None:
    front = b"".join(PARTS[:4])
    for strange in (block(b"X", b"new"), block(b"R", bytes(63)), block(b"N", b"\xff")):
        kept = recover(front + strange + b"".join(PARTS[4:]))
        assert kept.refused
        assert (kept.valid, kept.lost) == (len(front), len(strange) + sum(map(len, PARTS[4:])))
        assert recover(front + strange).refused
        assert not recover(front + strange[:-1]).refused
    wrong = SegmentFooter(9, 9, 9, 2000, 0).serialize()
    assert not recover(b"".join(PARTS[:-1]) + wrong).refused
    assert recover(b"".join(PARTS[:-1]) + wrong + PARTS[-1]).refused


def test_a_segment_of_a_later_format_is_not_cut() -> None:
    later = PARTS[0].replace(b"\x61v\x01", b"\x61v\x02")
    assert recover(later).header is None


@SLOW
@given(segments(), st.data())
def test_any_cut_of_any_segment_reads_back_as_sealed(written: Written, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(written.data)))
    cut = written.data[:size]
    kept = recover(cut)
    if kept.header is None:
        assert size < len(written.parts[0])
        return
    assert kept.valid in list(accumulate(map(len, written.parts)))
    assert size - kept.valid == kept.lost
    read = read_segment(sealed(cut))
    hops, flows = list(read.hops()), list(read.flows())
    assert hops == list(written.hops[: len(hops)])
    assert flows == list(written.flows[: len(flows)])
    assert read.events == written.events[: len(read.events)]


@given(st.binary(max_size=200))
def test_anything_is_recovered_without_an_error(data: bytes) -> None:
    for given_ in (data, PARTS[0] + data, SEGMENT + data, b"ONWL" + data):
        kept = recover(given_)
        assert kept.valid + kept.lost == len(given_)
        if kept.header is not None:
            read_segment(sealed(given_))


def test_the_footer_is_read_from_the_end_alone() -> None:
    for tail in (SEGMENT, SEGMENT[-200:], PARTS[-1], b"Z" * 5000 + PARTS[-1]):
        assert read_footer(tail) == FOOTER


def test_an_end_without_a_footer_is_unfinished() -> None:
    import pytest

    from onward.protocol.eventlog import SegmentCorrupt, SegmentUnfinished

    for tail in (b"", b"Z", SEGMENT[:-1], PARTS[-1][1:], b"Z" * 40, PARTS[-1] + b"x"):
        with pytest.raises(SegmentUnfinished):
            read_footer(tail)
    with pytest.raises(SegmentCorrupt):
        read_footer(block(b"Z", dumps({})))
