"""A cache of parsed queries: the same few queries repeat."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from .._closed import close_class
from ._address_frame import locate_address
from ._dialect import Dialect
from ._fields import HEADER_SIZE
from ._hints import AddressQuery, read_address
from ._ids import ID_SIZE
from ._query_text import parse_address_query

__all__ = ["MAX_REMEMBERED_QUERIES", "MAX_REMEMBERED_SIZE", "QueryReader"]

MAX_REMEMBERED_QUERIES: Final = 4096
"""How many raw queries of each dialect, and how many texts, a `QueryReader` remembers, by
default; at the limit the one read first is forgotten."""

MAX_REMEMBERED_SIZE: Final = 1024
"""Most bytes of a raw query that is remembered; a longer one is read each time."""

_BODY: Final = HEADER_SIZE + ID_SIZE


class QueryReader:
    """A parser of raw queries with a cache, so that a repeated query is not parsed again.

    What bytes mean does not depend on the routing table, so nothing here ever is stale. At
    the limit the query read first is forgotten.

    Args:
        limit: How many raw queries to remember of each dialect, and how many texts; 0
            remembers none.
    """

    def __init__(self, limit: int = MAX_REMEMBERED_QUERIES) -> None:
        self._limit = limit
        self._specification: OrderedDict[bytes, AddressQuery] = OrderedDict()
        self._reference: OrderedDict[bytes, AddressQuery] = OrderedDict()
        self._text: OrderedDict[bytes, AddressQuery] = OrderedDict()

    def from_address(self, frame: bytes, dialect: Dialect) -> AddressQuery:
        """Return the query of a whole ADDRESS frame.

        It is cached by the frame without its origin and its wrapped metadata, which differ
        between requests.

        Raises:
            BrokerFrameError: As in `read_address`.
        """
        known = self._reference if dialect is Dialect.REFERENCE else self._specification
        # A frame too short for tags leaves its header as key, which is never remembered.
        key = frame[:HEADER_SIZE] + frame[_BODY:]
        found = known.get(key)
        if found is not None:
            return found
        wrapped = locate_address(frame, dialect).wrapped
        if wrapped != len(frame):
            # The lists end where they say, so without what follows they mean the same.
            key = frame[:HEADER_SIZE] + frame[_BODY:wrapped]
            found = known.get(key)
        if found is None:
            found = read_address(frame, dialect)
            self._remember(known, key, found)
        return found

    def from_text(self, value: bytes) -> AddressQuery:
        """Return what the value of an address of type 32 asks for.

        Raises:
            AddressError: As in `parse_address_query`.
        """
        found = self._text.get(value)
        if found is None:
            found = parse_address_query(value)
            self._remember(self._text, value, found)
        return found

    def _remember(
        self, known: OrderedDict[bytes, AddressQuery], raw: bytes, read: AddressQuery
    ) -> None:
        if len(raw) <= MAX_REMEMBERED_SIZE:
            known[raw] = read
            if len(known) > self._limit:
                known.popitem(last=False)

    def __len__(self) -> int:
        """Return how many raw queries are remembered, texts included, in both dialects."""
        return len(self._specification) + len(self._reference) + len(self._text)


close_class(QueryReader)
