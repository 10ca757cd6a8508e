"""Tag queries: which routes an ADDRESS, or an address of type 32, asks for.

A query is a set of tags; a route matches if it carries all of them. As text it is the
tags with a space between: `service=orders region=eu`. This is what stands in the value of
an address of type 32. A word without `=` is a key whose value is null. Odd characters are
written as percent-escapes, so that reading and writing are inverse.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple, TypeAlias, TypeVar

from .._errors import AddressError
from ._dialect import Dialect
from ._errors import BrokerFrameError, TrailingBytes
from ._fields import HEADER_SIZE
from ._frames import RoutingType, locate_address
from ._ids import ID_SIZE
from ._keys import Key, escape, format_key, parse_key, unescape
from ._tags import MAX_TAGS, MAX_VALUE_SIZE, Tag, TagSet, parse_tags, tag_set

__all__ = [
    "MAX_REMEMBERED_QUERIES",
    "MAX_REMEMBERED_SIZE",
    "AddressQuery",
    "Query",
    "QueryReader",
    "format_query",
    "format_tag",
    "parse_query",
    "parse_tag",
    "query_from_tags",
]

Query: TypeAlias = TagSet
"""The tags asked for, in normal form and never empty: hashable, and equal however written."""


class AddressQuery(NamedTuple):
    """What an ADDRESS asks for.

    Attributes:
        routing: Unicast, multicast or shard.
        encrypted: Whether the payload is encrypted.
        query: The tags a destination must carry.
    """

    routing: RoutingType
    encrypted: bool
    query: Query


MAX_REMEMBERED_QUERIES: Final = 4096
"""How many raw queries of each kind and dialect a `QueryReader` remembers, by default."""

MAX_REMEMBERED_SIZE: Final = 1024
"""Most bytes of a raw query that is remembered; a longer one is read each time."""


def parse_tag(word: str) -> Tag:
    """Read one tag: `region=eu`, `region=` (empty), or `region` (null).

    Raises:
        AddressError: It cannot be read, or the key or value is over 127 bytes.
    """
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
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError:
            raise AddressError(text[:80], "not UTF-8") from None
    words = text.split()
    if len(words) > MAX_TAGS:
        raise AddressError(text[:80], f"more than {MAX_TAGS} tags")
    query = tag_set(map(parse_tag, words))
    if not query:
        raise AddressError(text[:80], "no tags")
    return query


def format_query(query: Query) -> str:
    """Write a query as text: the inverse of `parse_query`. Equal queries give equal texts."""
    return " ".join(map(format_tag, sorted(query, key=_order)))


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


_BODY: Final = HEADER_SIZE + ID_SIZE
_Read = TypeVar("_Read", Query, AddressQuery)


class QueryReader:
    """Reads raw queries and remembers what they said, so that a repeated one is not parsed.

    What bytes mean does not depend on the routing table, so nothing here ever is stale. At
    the limit the query read first is forgotten.

    Args:
        limit: How many raw queries to remember of each kind and dialect; 0 remembers none.
    """

    def __init__(self, limit: int = MAX_REMEMBERED_QUERIES) -> None:
        self._limit = limit
        self._specification: OrderedDict[bytes, AddressQuery] = OrderedDict()
        self._reference: OrderedDict[bytes, AddressQuery] = OrderedDict()
        self._specification_tags: OrderedDict[bytes, Query] = OrderedDict()
        self._reference_tags: OrderedDict[bytes, Query] = OrderedDict()
        self._text: OrderedDict[bytes, Query] = OrderedDict()

    def from_address(self, frame: bytes, dialect: Dialect) -> AddressQuery:
        """Return what a whole ADDRESS frame asks for, whoever sent it.

        The frame is remembered without its origin, and only if it wraps no metadata:
        that differs from request to request. The tags of one that does are remembered.

        Raises:
            BrokerFrameError: As in `locate_address` and `query_from_tags`.
        """
        known = self._reference if dialect is Dialect.REFERENCE else self._specification
        # A frame too short for tags leaves its header as key, which is never remembered.
        key = frame[:HEADER_SIZE] + frame[_BODY:]
        found = known.get(key)
        if found is None:
            spans = locate_address(frame, dialect)
            query = self.from_tags(frame[spans.tags : spans.wrapped], dialect)
            found = AddressQuery(spans.routing, spans.encrypted, query)
            if spans.wrapped == len(frame):
                self._remember(known, key, found)
        return found

    def from_tags(self, raw: bytes, dialect: Dialect) -> Query:
        """Return what the tag list of an ADDRESS asks for.

        Raises:
            BrokerFrameError: As in `query_from_tags`.
        """
        reference = dialect is Dialect.REFERENCE
        known = self._reference_tags if reference else self._specification_tags
        query = known.get(raw)
        if query is None:
            query = query_from_tags(raw, dialect)
            self._remember(known, raw, query)
        return query

    def from_text(self, value: bytes) -> Query:
        """Return what the value of an address of type 32 asks for.

        Raises:
            AddressError: As in `parse_query`.
        """
        query = self._text.get(value)
        if query is None:
            query = parse_query(value)
            self._remember(self._text, value, query)
        return query

    def _remember(self, known: OrderedDict[bytes, _Read], raw: bytes, read: _Read) -> None:
        if len(raw) <= MAX_REMEMBERED_SIZE:
            known[raw] = read
            if len(known) > self._limit:
                known.popitem(last=False)

    def __len__(self) -> int:
        """Return how many raw queries are remembered, of all kinds and dialects."""
        return (
            len(self._specification)
            + len(self._reference)
            + len(self._specification_tags)
            + len(self._reference_tags)
            + len(self._text)
        )


def _order(tag: Tag) -> tuple[bool, int, str, bool, str]:
    key: Key = tag[0]
    value = tag[1]
    number, name = (key, "") if isinstance(key, int) else (0, key)
    return isinstance(key, str), number, name, value is not None, value or ""
