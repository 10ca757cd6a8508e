"""Records that are a union by number: one table has the fields of each, to read and to write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from cbor2 import dumps

from ._errors import BadRecord
from ._record_reader import MAX_NUMBER, MAX_RECORD, RecordReader
from ._results import ResultCode

__all__ = [
    "RESULT_CODE",
    "Field",
    "Layout",
    "RecordTable",
    "binary",
    "keyed",
    "number",
    "or_null",
    "read_result_code",
]

R = TypeVar("R")


def _as_it_is(value: object) -> object:
    return value


class Field(NamedTuple):
    """A field of a record, which is one item.

    Attributes:
        read: Reads its value.
        item: Returns the item of a value.
        of_first: Whether `read` is given the value of the first field as well.
    """

    read: Callable[..., object]
    item: Callable[[Any], object] = _as_it_is
    of_first: bool = False


Layout: TypeAlias = tuple[type[Any], tuple[Field, ...]]
"""A dataclass, and its fields in their order."""


def keyed(what: str) -> Field:
    """Return the field of an identity that has a key."""

    def read(reader: RecordReader) -> object:
        return reader.keyed(what)

    return Field(read)


def number(what: str, most: int = MAX_NUMBER) -> Field:
    """Return the field of a number."""

    def read(reader: RecordReader) -> object:
        return reader.number(what, most)

    return Field(read)


def binary(what: str, most: int = MAX_RECORD, least: int = 0) -> Field:
    """Return the field of bytes."""

    def read(reader: RecordReader) -> object:
        return reader.binary(what, most, least)

    return Field(read)


def or_null(what: str, field: Field) -> Field:
    """Return a field that may be null."""

    def read(reader: RecordReader) -> object:
        return None if reader.is_null(what) else field.read(reader)

    def item(value: Any) -> object:
        return None if value is None else field.item(value)

    return Field(read, item)


def read_result_code(reader: RecordReader) -> ResultCode:
    """Read a result without its detail.

    Raises:
        BadRecord: It is none.
    """
    return ResultCode(reader.number("the result", int(max(ResultCode))))


RESULT_CODE: Final = Field(read_result_code, int)
"""The field of a result without its detail."""


class RecordTable(Generic[R]):
    """A table of records, by their numbers.

    Args:
        about: What they are about, for errors.
        limit: Most bytes of a record.
        layouts: The layout of each record.
    """

    __slots__ = ("_about", "_items", "_layouts", "_limit", "_numbers")

    def __init__(self, about: str, limit: int, layouts: Mapping[int, Layout]) -> None:
        self._about: Final = about
        self._limit: Final = limit
        self._layouts: Final = layouts
        sizes = [len(each) + 1 for _, each in layouts.values()]
        self._items: Final = min(sizes), max(sizes)
        self._numbers: Final = {
            kind: (key, tuple(zip((each.name for each in fields(kind)), each_of, strict=True)))
            for key, (kind, each_of) in layouts.items()
        }

    def parse(self, data: bytes) -> R:
        """Read a record.

        Raises:
            BadRecord: It is none.
        """
        reader = RecordReader(data, self._limit)
        count = reader.enter("the record", *self._items)
        key = reader.number("the kind of the record")
        layout = self._layouts.get(key)
        if layout is None:
            raise BadRecord(f"there is no record {key} about {self._about}")
        kind, each_of = layout
        if count != len(each_of) + 1:
            raise BadRecord(f"the record {key} has {count} items, not {len(each_of) + 1}")
        values: list[Any] = []
        for each in each_of:
            values.append(each.read(reader, *values[:1]) if each.of_first else each.read(reader))
        record: R = kind(*values)
        reader.leave()
        reader.end()
        return record

    def serialize(self, record: R) -> bytes:
        """Return the bytes of a record."""
        key, named = self._numbers[type(record)]
        items = (field.item(getattr(record, name)) for name, field in named)
        data: bytes = dumps((key, *items))
        return data
