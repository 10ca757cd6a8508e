"""What files of an event log are called."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.eventlog import (
    MAX_EPOCH,
    OPEN,
    SEALED,
    EventLogError,
    check_log_name,
    is_log_name,
    is_segment_name,
    parse_segment_name,
    segment_name,
)

epochs = st.integers(0, MAX_EPOCH)
seqs = st.integers(0, (1 << 63) - 1)


def test_a_name_is_the_epoch_and_the_first_event() -> None:
    assert segment_name(31, 1001) == "0000001f-00000000000003e9.seg"
    assert parse_segment_name("0000001f-00000000000003e9.open") == (31, 1001)
    assert is_segment_name("0000001f-00000000000003e9.seg")
    assert is_segment_name("0000001f-00000000000003e9.open")


@given(epochs, seqs, epochs, seqs)
def test_names_sort_as_segments_follow_each_other(e1: int, s1: int, e2: int, s2: int) -> None:
    one, two = segment_name(e1, s1), segment_name(e2, s2)
    assert parse_segment_name(one) == (e1, s1)
    assert (one < two) == ((e1, s1) < (e2, s2))


@pytest.mark.parametrize(("epoch", "seq"), [(-1, 0), (0, -1), (MAX_EPOCH + 1, 0), (0, 1 << 63)])
def test_numbers_out_of_range_have_no_name(epoch: int, seq: int) -> None:
    with pytest.raises(EventLogError, match="no segment has the epoch"):
        segment_name(epoch, seq)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x.seg",
        "0000001F-00000000000003e9.seg",
        "0000001f-00000000000003e9",
        "0000001f-00000000000003e9.seg.bad",
        "0000001f-00000000000003e9.seg\n",
        "80000000-0000000000000001.seg",
        "00000001-8000000000000000.seg",
        "../0000001f-00000000000003e9.seg",
    ],
)
def test_other_files_are_no_segments(name: str) -> None:
    assert not is_segment_name(name)
    with pytest.raises(EventLogError, match="is no name of a segment"):
        parse_segment_name(name)


@pytest.mark.parametrize("name", ["a", "broker-1", "eu.west_2", "x" * 64, "-", "0"])
def test_a_log_may_be_called_so(name: str) -> None:
    assert is_log_name(name)
    assert check_log_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "a/b", "a b", "é", "x" * 65, "a\n", "a\0"])
def test_a_log_may_not_be_called_so(name: str) -> None:
    assert not is_log_name(name)
    with pytest.raises(EventLogError, match="is no name of an event log: give 1 to 64"):
        check_log_name(name)


def test_suffixes_tell_sealed_ones_from_the_open_one() -> None:
    assert (SEALED, OPEN) == (".seg", ".open")
