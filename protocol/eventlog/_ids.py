"""Ids that are the same in every segment of every log: the first 8 bytes of BLAKE2b.

In a segment names, routes and tag sets have small numbers of their own. Across segments, in the
tables of the lake, they have these ids: signed 64-bit numbers, big-endian, of

- a name: its UTF-8;
- a route: the 16 bytes of its id;
- a tag set: the canonical CBOR (RFC 8949 section 4.2) of `[tags, routing, method]`, the tags in
  normal form and sorted as `format_query` sorts them, each `[key, value or null]`.
"""

from __future__ import annotations

import json
from hashlib import blake2b

from cbor2 import dumps

from ..broker import RoutingType, TagList, format_key, format_query, normal_form, tag_set
from ..broker._keys import escape
from ..broker._query import tag_order
from ._blocks import plain_asked
from ._records import Asked

__all__ = [
    "asked_tags_text",
    "asked_text",
    "carried_tags_text",
    "name_id",
    "route_key",
    "tagset_id",
]


def _id(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big", signed=True)


def name_id(text: str) -> int:
    """Return the id of a name."""
    return _id(text.encode())


def route_key(route_id: bytes) -> int:
    """Return the id of a route, of its 16 bytes."""
    return _id(route_id)


def tagset_id(asked: Asked) -> int:
    """Return the id of a tag set: equal for equal queries, however they were written."""
    tags = tuple(sorted(normal_form(asked.tags), key=tag_order))
    return _id(dumps(plain_asked(Asked(tags, asked.routing, asked.method)), canonical=True))


def asked_text(asked: Asked) -> str:
    """Write a tag set as people write queries: `@shard @method=jump service=orders zone=b`.

    For a shard request it does not say by which tags; they are not in the log. Messages to workers
    ask for no tags, and their text is empty.
    """
    words: list[str] = []
    if asked.routing != RoutingType.UNICAST:
        words.append(f"@{asked.routing.name.lower()}")
    if asked.method:
        words.append(f"@method={escape(asked.method)}")
    if asked.tags:
        words.append(format_query(tag_set(asked.tags)))
    return " ".join(words)


def asked_tags_text(asked: Asked) -> dict[str, str]:
    """Return the tags as people write them, by key; a null value is empty.

    Of a key that is there more than once the last value is left.
    """
    return {
        format_key(key): value or "" for key, value in sorted(tag_set(asked.tags), key=tag_order)
    }


def carried_tags_text(tags: TagList) -> dict[str, str]:
    """Return the tags of a destination as `asked_tags_text` does, and what that cannot say.

    Where a key is there more than once or with a null, another entry has all its values: its key
    ends with `[]`, which no key does that people write, and its value is a list in JSON.
    """
    values: dict[str, list[str | None]] = {}
    for key, value in sorted(tag_set(tags), key=tag_order):
        values.setdefault(format_key(key), []).append(value)
    said = {key: each[-1] or "" for key, each in values.items()}
    for key, each in values.items():
        if len(each) > 1 or each[0] is None:
            said[f"{key}[]"] = json.dumps(each, ensure_ascii=False)
    return said
