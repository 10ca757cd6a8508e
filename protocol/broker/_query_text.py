"""The text form of what is asked for: the value of an address of type 32.

Words with a space between. Those that begin with `@` say how to choose, and come first:

| word | meaning |
| --- | --- |
| `@multicast` | all destinations that carry the tags; without it and `@shard` it is unicast |
| `@shard=user` | one destination for each value of the tag; may be repeated |
| `@sticky=user` | the destination that got this value before; may be repeated |
| `@method=jump` | the method to choose by |
| `@no-route=2.5` | wait so many seconds for a route; or `reject`, or `wait` |
| `@encrypted` | the payload is encrypted |

The others are the tags: `@shard=user service=orders user=42`. Tags that `@shard` or `@sticky`
name are given like the others; a `@sticky` that leaves no tag to ask for is passed over. A key that
begins with `@` is written with `%40`.
"""

from __future__ import annotations

from typing import Final

from .._errors import AddressError
from ._address_frame import RoutingType
from ._hints import AddressQuery, divide, format_no_route, method_name, parse_no_route
from ._keys import escape, format_key, parse_key, unescape
from ._query import decoded, format_query, query_from_words
from ._tags import MAX_TAGS

__all__ = ["format_address_query", "parse_address_query"]

# For each word: whether it has a value, whether it may be repeated, and with what routing it
# makes sense; `None` is any.
_WORDS: Final[dict[str, tuple[bool, bool, RoutingType | None]]] = {
    "multicast": (False, False, RoutingType.MULTICAST),
    "shard": (True, True, RoutingType.SHARD),
    "sticky": (True, True, RoutingType.UNICAST),
    "method": (True, False, None),
    "no-route": (True, False, None),
    "encrypted": (False, False, None),
}


def parse_address_query(text: str | bytes) -> AddressQuery:
    """Read the text form.

    Raises:
        AddressError: It is not UTF-8; a word cannot be read, is repeated though it may not
            be, or does not go with another; a word that begins with `@` follows a tag; a
            word names a tag that is not there; or there are no tags to ask for, or more
            than `MAX_TAGS`.
    """
    words = decoded(text).split()
    first = next((at for at, word in enumerate(words) if word[0] != "@"), len(words))
    given = _read_options(words[:first])
    routing = _routing(given)
    tags = query_from_words(words[first:], text)
    names = [parse_key(value) for value in (*given.get("shard", ()), *given.get("sticky", ()))]
    for name in names:
        if not any(name == key for key, _ in tags):
            raise AddressError(format_key(name)[:80], "no tag has this key")
    query, keys = divide(tags, names)
    if not query and routing is RoutingType.UNICAST:
        # As in an ADDRESS: a hint that leaves nothing to ask for is passed over.
        query, keys = frozenset(tags), ()
    if not query:
        raise AddressError(text[:80], "no tags besides those that choose")
    method = method_name(unescape(given["method"][0])) if "method" in given else ""
    no_route = _no_route(given["no-route"][0]) if "no-route" in given else None
    return AddressQuery(routing, "encrypted" in given, query, method, keys, no_route)


def _read_options(words: list[str]) -> dict[str, list[str]]:
    """Return the values of each word that begins with `@`."""
    given: dict[str, list[str]] = {}
    if len(words) > MAX_TAGS + len(_WORDS):
        raise AddressError(words[0][:80], f"more than {MAX_TAGS} words like it")
    for word in words:
        name, mark, value = word[1:].partition("=")
        if name not in _WORDS:
            raise AddressError(word[:80], "unknown; write %40 for a key's leading '@'")
        has_value, repeats, _ = _WORDS[name]
        if bool(mark) != has_value:
            raise AddressError(word[:80], "it needs a value" if has_value else "it has no value")
        if name in given and not repeats:
            raise AddressError(word[:80], "given twice")
        given.setdefault(name, []).append(value)
    return given


def _routing(given: dict[str, list[str]]) -> RoutingType:
    kinds = [kind for name in given if (kind := _WORDS[name][2]) is not None]
    if len(kinds) > 1:
        raise AddressError("@multicast, @shard, @sticky", "no two of them go together")
    routing = kinds[0] if kinds else RoutingType.UNICAST
    if routing is RoutingType.MULTICAST and "method" in given:
        raise AddressError("@method", "a multicast chooses nothing")
    return routing


def _no_route(value: str) -> float:
    seconds = parse_no_route(value)
    if seconds is None:
        raise AddressError(value[:80], "neither 'reject' nor 'wait' nor seconds")
    return seconds


def format_address_query(asked: AddressQuery) -> str:
    """Write the text form: the inverse of `parse_address_query`. Equal queries, equal texts.

    A `no_route` is written in milliseconds at best.

    Raises:
        ValueError: `no_route` is out of range.
    """
    words: list[str] = []
    if asked.routing is RoutingType.MULTICAST:
        words.append("@multicast")
    word = "@shard" if asked.routing is RoutingType.SHARD else "@sticky"
    words += [f"{word}={format_key(key)}" for key in dict.fromkeys(key for key, _ in asked.keys)]
    if asked.method:
        words.append(f"@method={escape(asked.method)}")
    if asked.no_route is not None:
        words.append(f"@no-route={format_no_route(asked.no_route)}")
    if asked.encrypted:
        words.append("@encrypted")
    words.append(format_query(asked.query.union(asked.keys)))
    return " ".join(words)
