"""Batches and their answers: their bytes, and that nothing else is read as one."""

from __future__ import annotations

from dataclasses import replace

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol import ProtocolError
from onward.protocol.batches import (
    MAX_BATCH,
    MAX_NUMBER,
    MAX_QUERY,
    MAX_ROWS,
    MAX_TO,
    BatchAnswer,
    BatchFrameError,
    BatchStatus,
    BatchTooBig,
    Reason,
    RowBatch,
    decode_answer,
    decode_batch,
    encode_answer,
    encode_batch,
)

BATCH = RowBatch("q", 3, 7, 500, (b"ab", b""), True, "r", 1)
NUMBERS = st.integers(0, 1 << 40)
BATCHES = st.builds(
    RowBatch,
    query=st.text(st.characters(codec="utf-8"), min_size=1, max_size=25),
    partition=NUMBERS,
    epoch=NUMBERS,
    first=NUMBERS,
    rows=st.lists(st.binary(max_size=300), min_size=1, max_size=9).map(tuple),
    last=st.booleans(),
    to=st.text(st.characters(codec="utf-8"), max_size=20),
    attempt=NUMBERS,
)


def test_a_batch_is_these_bytes() -> None:
    assert encode_batch(BATCH).hex() == "89 01 6171 6172 03 07 01 1901f4 f5 82 426162 40".replace(
        " ", ""
    )
    assert decode_batch(encode_batch(BATCH)) == BATCH
    assert BATCH.end == 502


def test_an_answer_is_these_bytes() -> None:
    answer = BatchAnswer(BatchStatus.REFUSED, 500, Reason.GAP)
    assert encode_answer(answer).hex() == "8401 03 03 1901f4".replace(" ", "")
    assert decode_answer(encode_answer(answer)) == answer
    assert not answer.done
    assert BatchAnswer(BatchStatus.DUPLICATE, 1).done


@given(BATCHES)
def test_what_was_written_is_read(batch: RowBatch) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@given(BATCHES, st.data())
def test_a_batch_cut_short_is_refused(batch: RowBatch, data: st.DataObject) -> None:
    written = encode_batch(batch)
    with pytest.raises(BatchFrameError):
        decode_batch(written[: data.draw(st.integers(0, len(written) - 1))])


@pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 65_535, 65_536])
def test_rows_of_any_size_are_read(size: int) -> None:
    batch = replace(BATCH, rows=(bytes(size), b"next"))
    assert decode_batch(encode_batch(batch)) == batch


@pytest.mark.parametrize("status", [BatchStatus.ACCEPTED, BatchStatus.DUPLICATE])
def test_an_answer_that_is_no_refusal_has_no_reason(status: BatchStatus) -> None:
    for answer in (BatchAnswer(status, 0, Reason.GAP), BatchAnswer(BatchStatus.REFUSED, 0)):
        with pytest.raises(BatchFrameError, match="for the reason"):
            decode_answer(encode_answer(answer))


PARTS = [1, "q", "r", 3, 7, 1, 500, True, [b"ab", b""]]


def changed(place: int, value: object) -> bytes:
    made: bytes = cbor2.dumps([*PARTS[:place], value, *PARTS[place + 1 :]])
    return made


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"", "cut short"),
        (b"\x89", "cut short"),
        (b"\x18", "not an array"),
        (b"\x9f", "not an array"),
        (b"\x9b\x01", "cut short"),
        (cbor2.dumps({}), "not an array"),
        (cbor2.dumps(PARTS[:-1]), "8 parts, not 9"),
        (changed(0, 2), "version 2, not 1"),
        (changed(1, b"q"), "its query is not a text"),
        (changed(1, ""), "no name"),
        (changed(1, "q" * (MAX_QUERY + 1)), "its query has 101 bytes, over 100"),
        (changed(2, "r" * (MAX_TO + 1)), "its destination has 1025 bytes"),
        (changed(3, -1), "its partition is not a number"),
        (changed(3, 1.5), "its partition is not a number"),
        (changed(4, 1 << 63), "a number is 9223372036854775808"),
        (changed(6, MAX_NUMBER), "a number is 9223372036854775809"),
        (changed(7, 1), "whether it is the last is not true or false"),
        (changed(8, [1]), "a row is not bytes"),
        (changed(8, ["text"]), "a row is not bytes"),
        (changed(8, [[b""]]), "a row is not bytes"),
        (changed(8, [cbor2.CBORTag(1, 0)]), "a row is not bytes"),
        (changed(8, b""), "its rows is not an array"),
        (cbor2.dumps([*PARTS[:7], False, []]), "no rows and is not the last"),
        (cbor2.dumps(PARTS) + b"\0", "1 byte behind it"),
        (bytes.fromhex("8901 61ff 6172 03 07 01 00 f5 80".replace(" ", "")), "its query is no UTF"),
        (bytes.fromhex("8901 6471"), "cut short"),
        (bytes.fromhex("8901 6171 6172 03 07 01 00 f5 81 58".replace(" ", "")), "cut short"),
        (bytes.fromhex("8901 6171 6172 03 07 01 00 f5 81 59ffff".replace(" ", "")), "cut short"),
        (bytes.fromhex("8901 6171 6172 03 07 01 00 f5 82 40".replace(" ", "")), "cut short"),
    ],
)
def test_what_is_no_batch_is_refused(frame: bytes, said: str) -> None:
    with pytest.raises(BatchFrameError, match=said) as raised:
        decode_batch(frame)
    assert str(raised.value).startswith("no batch: ")
    assert isinstance(raised.value, ProtocolError)


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"", "cut short"),
        (cbor2.dumps([1, 1, 0]), "3 parts"),
        (cbor2.dumps([2, 1, 0, 0]), "version 2"),
        (cbor2.dumps([1, 4, 0, 0]), "no BatchStatus 4"),
        (cbor2.dumps([1, 3, 99, 0]), "no Reason 99"),
        (cbor2.dumps([1, 1, 0, 0]) + b"\0", "1 byte behind"),
    ],
)
def test_what_is_no_answer_is_refused(frame: bytes, said: str) -> None:
    with pytest.raises(BatchFrameError, match=said):
        decode_answer(frame)


def test_limits_are_looked_at_before_the_rows() -> None:
    # An array that announces 2**32 rows, and none there: neither counted nor made room for.
    head = bytes.fromhex("8901 6171 6172 03 07 01 00 f5 9a ffffffff".replace(" ", ""))
    with pytest.raises(BatchTooBig, match="4294967295 rows, over 100000") as raised:
        decode_batch(head)
    assert (raised.value.size, raised.value.limit, raised.value.what) == (
        4_294_967_295,
        MAX_ROWS,
        "rows",
    )
    with pytest.raises(BatchTooBig, match="2 rows, over 1"):
        decode_batch(encode_batch(BATCH), max_rows=1)
    with pytest.raises(BatchTooBig, match="bytes, over 9"):
        decode_batch(encode_batch(BATCH), max_bytes=9)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (replace(BATCH, query=""), "no name"),
        (replace(BATCH, query="é" * 51), "its query has 102 bytes"),
        (replace(BATCH, query="\ud800"), "its query cannot be written"),
        (replace(BATCH, to="é" * 513), "its to has 1026 bytes"),
        (replace(BATCH, epoch=-1), "a number is -1"),
        (replace(BATCH, first=MAX_NUMBER), "a number is"),
        (replace(BATCH, rows=(), last=False), "no rows"),
        (replace(BATCH, rows=(b"",) * (MAX_ROWS + 1)), "100001 rows"),
        (replace(BATCH, rows=(bytes(MAX_BATCH), b"1")), "8388609 bytes"),
        (replace(BATCH, rows=(bytes(MAX_BATCH),)), "bytes, over"),
    ],
)
def test_what_could_not_be_read_is_not_written(batch: RowBatch, said: str) -> None:
    with pytest.raises(BatchFrameError, match=said):
        encode_batch(batch)


def test_an_end_without_rows_is_a_batch() -> None:
    batch = replace(BATCH, rows=())
    assert decode_batch(encode_batch(batch)) == batch
