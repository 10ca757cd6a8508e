"""The sizes of texts in the log, and their conversion to valid UTF-8."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from ....protocol.broker import Tag, TagList
from ....protocol.eventlog import Asked

__all__ = [
    "MAX_ASKED",
    "clean",
    "clean_asked",
    "clean_tags",
    "size_of",
    "size_of_asked",
    "size_of_tags",
]

MAX_ASKED: Final = 4096
"""Most bytes of a tag set in the log; requests with a larger one are counted without tags."""

T = TypeVar("T")

_PART: Final = 5
"""Most bytes of a CBOR header or a number."""


def clean(text: str, most: int) -> str:
    """Return a text as valid UTF-8 of at most a number of bytes."""
    if len(text) <= most and text.isascii():
        return text
    data = text.encode("utf-8", "replace")
    return data[:most].decode("utf-8", "ignore")


def clean_tags(tags: TagList) -> TagList:
    """Return tags as valid UTF-8; other characters become question marks."""
    try:
        for key, value in tags:
            if isinstance(key, str):
                key.encode()
            if value is not None:
                value.encode()
    except UnicodeEncodeError:
        return tuple((_written(key), _written(value)) for key, value in tags)
    return tags


def clean_asked(asked: Asked) -> Asked:
    """Return a query as valid UTF-8."""
    tags, method = clean_tags(asked.tags), _written(asked.method)
    if tags is asked.tags and method == asked.method:
        return asked
    return Asked(tags, asked.routing, method)


def size_of(text: str) -> int:
    """Return the bytes of a text in a block."""
    return _PART + (len(text) if text.isascii() else len(text.encode("utf-8", "replace")))


def size_of_tags(tags: Iterable[Tag]) -> int:
    """Return the most bytes of tags in a block."""
    size = _PART
    for key, value in tags:
        size += 2 * _PART
        if isinstance(key, str):
            size += size_of(key)
        if value is not None:
            size += size_of(value)
    return size


def size_of_asked(asked: Asked) -> int:
    """Return the most bytes of a query in a block."""
    return size_of_tags(asked.tags) + size_of(asked.method) + _PART


def _written(part: T) -> T | str:
    return part.encode("utf-8", "replace").decode() if isinstance(part, str) else part
