"""Tag queries: the tags that an ADDRESS, or an address of type 32, asks for.

A query is a set of tags; a route matches if it carries all of them. As text it is the
tags with a space between: `service=orders region=eu`. This is what stands in the value of
an address of type 32. A word without `=` is a key with the value null. Reserved characters are
percent-encoded, so that reading and writing are inverse.
"""

from __future__ import annotations

from typing import TypeAlias

from .._errors import AddressError
from ._dialect import Dialect
from ._errors import BrokerFrameError, TrailingBytes
from ._keys import Key, escape, format_key, parse_key, unescape
from ._tags import MAX_TAGS, MAX_VALUE_SIZE, Tag, TagSet, parse_tags, tag_set

__all__ = [
    "Query",
    "format_query",
    "format_tag",
    "parse_query",
    "parse_tag",
    "query_from_tags",
]

Query: TypeAlias = TagSet
"""The tags asked for, in normal form and never empty: hashable, and equal however written."""


def parse_tag(word: str) -> Tag:
    """Read one tag: `region=eu`, `region=` (empty), or `region` (null).

    Raises:
        AddressError: It cannot be read, or the key or value is over 127 bytes.
    """
    if word.startswith("@"):
        raise AddressError(word[:80], "no tag; write %40 for a key's leading '@'")
    name, mark, rest = word.partition("=")
    key = parse_key(name)
    if not mark:
        return key, None
    value = unescape(rest)
    if len(value.encode()) > MAX_VALUE_SIZE:
        raise AddressError(word[:80], f"a value has at most {MAX_VALUE_SIZE} bytes")
    return key, value


def format_tag(tag: Tag) -> str:
    """Write one tag: the inverse of `parse_tag`."""
    key, value = tag
    return format_key(key) if value is None else f"{format_key(key)}={escape(value)}"


def parse_query(text: str | bytes) -> Query:
    """Read a query from its text form.

    Raises:
        AddressError: It is not UTF-8, has no tags or more than `MAX_TAGS`, or a tag
            cannot be read.
    """
    return query_from_words(decoded(text).split(), text)


def decoded(text: str | bytes) -> str:
    """Return the text of bytes.

    Raises:
        AddressError: They are not UTF-8.
    """
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise AddressError(text[:80], "not UTF-8") from None


def query_from_words(words: list[str], text: str | bytes) -> Query:
    """Read a query that is split into words; errors quote `text`."""
    if len(words) > MAX_TAGS:
        raise AddressError(text[:80], f"more than {MAX_TAGS} tags")
    query = tag_set(map(parse_tag, words))
    if not query:
        raise AddressError(text[:80], "no tags")
    return query


def format_query(query: Query) -> str:
    """Write a query as text: the inverse of `parse_query`. Equal queries give equal texts."""
    return " ".join(map(format_tag, sorted(query, key=tag_order)))


def query_from_tags(raw: bytes, dialect: Dialect) -> Query:
    """Read a query from the tag list of an ADDRESS.

    Raises:
        BrokerFrameError: The list is broken, is followed by more bytes, or has no tags.
    """
    tags, end = parse_tags(raw, 0, dialect)
    if end != len(raw):
        raise TrailingBytes("tags", len(raw) - end)
    query = tag_set(tags)
    if not query:
        raise BrokerFrameError("tags", "an ADDRESS needs at least one")
    return query


def tag_order(tag: Tag) -> tuple[bool, int, str, bool, str]:
    """Return what tags are sorted by: numbers, then texts; null before any value."""
    key: Key = tag[0]
    value = tag[1]
    number, name = (key, "") if isinstance(key, int) else (0, key)
    return isinstance(key, str), number, name, value is not None, value or ""
