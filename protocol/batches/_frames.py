"""A batch and the answer to it, byte for byte: CBOR (RFC 8949), two arrays.

| a batch | | an answer | |
| --- | --- | --- | --- |
| version | 1 | version | 1 |
| query | text: the query that the rows belong to | status | 1 accepted, 2 duplicate, 3 refused |
| to | text: which of the sender's destinations; may be empty | reason | why refused, else 0 |
| partition | number | next | number of the row that is expected next |
| epoch | number | | |
| attempt | number: which try of the sender this is; for people | | |
| first | number of the first row, counted from 0 in each epoch of a partition | | |
| last | whether no more rows follow in this epoch | | |
| rows | array of byte strings | | |

Rows are numbered, and not the batches: so that rows that are sent again in batches of another size
are known again all the same.

A reader looks at each header before it makes anything of it. Arrays and strings have a definite
length, nothing may come behind the array, and nothing but the above may be in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

import cbor2

from .._words import counted
from ._errors import BatchFrameError, BatchTooBig

__all__ = [
    "MAX_BATCH",
    "MAX_NUMBER",
    "MAX_QUERY",
    "MAX_ROWS",
    "MAX_TO",
    "VERSION",
    "BatchAnswer",
    "BatchStatus",
    "Reason",
    "RowBatch",
    "decode_answer",
    "decode_batch",
    "encode_answer",
    "encode_batch",
]

VERSION: Final = 1
"""The first number of a batch and of an answer."""

MAX_BATCH: Final = 8 * 1024 * 1024
"""Most bytes of a batch, all of it; a receiver may take less."""

MAX_ROWS: Final = 100_000
"""Most rows of a batch; a receiver may take less."""

MAX_QUERY: Final = 100
"""Most bytes of the name of a query, in UTF-8."""

MAX_TO: Final = 1024
"""Most bytes of the text that tells a sender's destinations apart, in UTF-8."""

MAX_NUMBER: Final = (1 << 63) - 1
"""The greatest epoch, partition, attempt and number of a row."""

_NUMBER, _BYTES, _TEXT, _ARRAY = 0, 2, 3, 4
_NAMES: Final = {_NUMBER: "a number", _BYTES: "bytes", _TEXT: "a text", _ARRAY: "an array"}
_FALSE: Final = 0xF4
_TRUE: Final = 0xF5
_PARTS: Final = 9
_ANSWER_PARTS: Final = 4


class BatchStatus(IntEnum):
    """The outcome of a batch."""

    ACCEPTED = 1
    """Its rows, or the new ones among them, were handed on."""

    DUPLICATE = 2
    """All its rows had been handed on before."""

    REFUSED = 3
    """None of its rows was handed on; see the reason."""


class Reason(IntEnum):
    """The reason for the refusal of a batch."""

    NONE = 0
    """The batch was not refused."""

    BROKEN = 1
    """It cannot be read as a batch."""

    TOO_BIG = 2
    """It has more rows or bytes than this receiver takes."""

    GAP = 3
    """Rows before it are missing. The receiver may be another one, or may have lost its state."""

    # 4 is not given again: once it refused an epoch if the one before had not ended.

    CHANGED = 5
    """The number of rows of this epoch differs from that of an earlier attempt."""

    BUSY = 6
    """Rows of this partition are in hand just now, or of too many partitions."""

    FAILED = 7
    """The consumer of the rows has failed. The rows count as not taken."""

    FORGOTTEN = 8
    """Its epoch is so old that the receiver no longer knows which of its rows were taken."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one partition, in one epoch, for one destination.

    Attributes:
        query: The name of the query, the same in each run of the same work, 1 to `MAX_QUERY` bytes.
        partition: The number of the partition.
        epoch: The run of the query; later runs have greater numbers.
        first: The number of the first row, from 0.
        rows: The rows.
        last: Whether the epoch of this partition ends with them.
        to: The sender's name for the destination, at most `MAX_TO` bytes; may be empty.
        attempt: The number of the sender's attempt. Duplicates are not recognised by it.
    """

    query: str
    partition: int
    epoch: int
    first: int
    rows: tuple[bytes, ...]
    last: bool = False
    to: str = ""
    attempt: int = 0

    @property
    def end(self) -> int:
        """The number of the row behind the last."""
        return self.first + len(self.rows)


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """The answer to a batch.

    Attributes:
        status: Whether its rows were handed on, now or before.
        next: The number of the row that is expected next.
        reason: Why it was refused.
    """

    status: BatchStatus
    next: int
    reason: Reason = Reason.NONE

    @property
    def done(self) -> bool:
        """Whether the rows were handed on, now or before."""
        return self.status is not BatchStatus.REFUSED


# --- writing ----------------------------------------------------------------------------------


def encode_batch(batch: RowBatch) -> bytes:
    """Write a batch.

    Raises:
        BatchFrameError: It could not be read again: a number or text is out of range, or there
            are no rows and it is not the last.
        BatchTooBig: It has more than `MAX_ROWS` rows or `MAX_BATCH` bytes.
    """
    _check(batch)
    if len(batch.rows) > MAX_ROWS:
        raise BatchTooBig(len(batch.rows), MAX_ROWS, "rows")
    size = sum(map(len, batch.rows))
    if size > MAX_BATCH:  # before anything is made of it
        raise BatchTooBig(size, MAX_BATCH, "bytes")
    numbers = (batch.partition, batch.epoch, batch.attempt, batch.first)
    made: bytes = cbor2.dumps((VERSION, batch.query, batch.to, *numbers, batch.last, batch.rows))
    if len(made) > MAX_BATCH:
        raise BatchTooBig(len(made), MAX_BATCH, "bytes")
    return made


def _check(batch: RowBatch) -> None:
    for what, text, most in (("query", batch.query, MAX_QUERY), ("to", batch.to, MAX_TO)):
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise BatchFrameError(f"its {what} cannot be written as UTF-8") from None
        if size > most:
            raise BatchFrameError(f"its {what} has {size} bytes, over {most}")
    if not batch.query:
        raise BatchFrameError("its query has no name")
    for number in (batch.partition, batch.epoch, batch.attempt, batch.first, batch.end):
        if not 0 <= number <= MAX_NUMBER:
            raise BatchFrameError(f"a number is {number}, not from 0 to {MAX_NUMBER}")
    if not batch.rows and not batch.last:
        raise BatchFrameError("it has no rows and is not the last")


def encode_answer(answer: BatchAnswer) -> bytes:
    """Write an answer."""
    made: bytes = cbor2.dumps((VERSION, int(answer.status), int(answer.reason), answer.next))
    return made


# --- reading ----------------------------------------------------------------------------------


def decode_batch(data: bytes, *, max_rows: int = MAX_ROWS, max_bytes: int = MAX_BATCH) -> RowBatch:
    """Read a batch.

    Args:
        data: All of it.
        max_rows: Most rows it may have.
        max_bytes: Most bytes it may have, all of it.

    Raises:
        BatchFrameError: It is none.
        BatchTooBig: It has too many rows or bytes; they are not looked at.
    """
    if len(data) > max_bytes:
        raise BatchTooBig(len(data), max_bytes, "bytes")
    reader = _ItemReader(data)
    reader.begin(_PARTS)
    query, to = reader.text("its query", MAX_QUERY), reader.text("its destination", MAX_TO)
    partition, epoch = reader.number("its partition"), reader.number("its epoch")
    attempt, first = reader.number("its attempt"), reader.number("its first row")
    last = reader.truth("whether it is the last")
    rows = reader.rows(max_rows)
    reader.finish()
    batch = RowBatch(query, partition, epoch, first, rows, last, to, attempt)
    _check(batch)
    return batch


def decode_answer(data: bytes) -> BatchAnswer:
    """Read an answer.

    Raises:
        BatchFrameError: It is none.
    """
    reader = _ItemReader(data)
    reader.begin(_ANSWER_PARTS)
    status = _code(BatchStatus, reader.number("its status"))
    reason = _code(Reason, reader.number("its reason"))
    expected = reader.number("the row expected next")
    reader.finish()
    if (status is BatchStatus.REFUSED) is (reason is Reason.NONE):
        raise BatchFrameError(f"{status.name} for the reason {reason.name}")
    return BatchAnswer(status, expected, reason)


_Code = TypeVar("_Code", BatchStatus, Reason)


def _code(kind: type[_Code], number: int) -> _Code:
    try:
        return kind(number)
    except ValueError:
        raise BatchFrameError(f"there is no {kind.__name__} {number}") from None


class _ItemReader:
    """Reads items from left to right, each by its header."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def begin(self, parts: int) -> None:
        count = self._head(_ARRAY, "it")
        if count != parts:
            raise BatchFrameError(f"{count} parts, not {parts}")
        version = self.number("its version")
        if version != VERSION:
            raise BatchFrameError(f"version {version}, not {VERSION}")

    def number(self, what: str) -> int:
        return self._head(_NUMBER, what)

    def text(self, what: str, most: int) -> str:
        size = self._head(_TEXT, what)
        if size > most:
            raise BatchFrameError(f"{what} has {size} bytes, over {most}")
        start, self._position = self._position, self._position + size
        if self._position > len(self._data):
            raise BatchFrameError("it is cut short")
        try:
            return self._data[start : self._position].decode()
        except UnicodeDecodeError:
            raise BatchFrameError(f"{what} is no UTF-8") from None

    def truth(self, what: str) -> bool:
        head = self._byte()
        if head not in (_FALSE, _TRUE):
            raise BatchFrameError(f"{what} is not true or false")
        return head == _TRUE

    def rows(self, most: int) -> tuple[bytes, ...]:
        count = self._head(_ARRAY, "its rows")
        if count > most:
            raise BatchTooBig(count, most, "rows")
        data, rows = self._data, list[bytes]()
        for _ in range(count):
            # Most rows are short: their header is read here, without a call.
            at = self._position
            head = data[at] if at < len(data) else 0
            if 0x40 <= head < 0x58:
                size, at = head - 0x40, at + 1
            elif head == 0x58 and at + 1 < len(data):
                size, at = data[at + 1], at + 2
            else:
                size = self._head(_BYTES, "a row")
                at = self._position
            self._position = at + size
            if self._position > len(data):
                raise BatchFrameError("it is cut short")
            rows.append(data[at : self._position])
        return tuple(rows)

    def finish(self) -> None:
        left = len(self._data) - self._position
        if left:
            raise BatchFrameError(f"{counted(left, 'byte')} behind it")

    def _byte(self) -> int:
        if self._position >= len(self._data):
            raise BatchFrameError("it is cut short")
        self._position += 1
        return self._data[self._position - 1]

    def _head(self, major: int, what: str) -> int:
        head = self._byte()
        if head >> 5 != major or head & 31 > 27:
            raise BatchFrameError(f"{what} is not {_NAMES[major]}")
        if head & 31 < 24:
            return head & 31
        start, self._position = self._position, self._position + (1 << (head & 31) - 24)
        if self._position > len(self._data):
            raise BatchFrameError("it is cut short")
        return int.from_bytes(self._data[start : self._position])
