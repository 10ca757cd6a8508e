"""Routes as people write them: a line of JSON for each, to be edited, compared and kept in Git.

```
{"route": "6b1d…", "service": "orders", "tags": {"region": "eu", "zone": ["a", "b"]}, "weight": 2}
```

`route` and `service` have to be there. Keys of tags are written as in a query (`region`, any text,
`0x41`); the value is a text, `null`, or a list of them where a route carries a key several times.
The default tags need not be written. `broker`, `timestamp`, `weight` and `expected` are none, 0, 1
and false if they are not. Empty lines, and those that begin with `#`, whatever blanks are before
it, say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, cast

from .._errors import AddressError
from ._ids import format_id, parse_id
from ._keys import WellKnownKey, format_key, parse_key
from ._snapshot_format import NO_BROKER, SnapshotError, SnapshotRoute, own_tag
from ._tags import Tag

__all__ = ["format_route", "parse_route", "parse_routes"]

_SERVICE: Final = int(WellKnownKey.SERVICE_NAME)
_FIELDS: Final = frozenset(
    {"route", "service", "tags", "broker", "timestamp", "weight", "expected"}
)


def format_route(route: SnapshotRoute) -> str:
    """Write a route as a line, without its end. Equal routes make equal lines.

    Raises:
        SnapshotError: The route is none: see `SnapshotRoute.settled`.
    """
    route = route.settled()
    defaults = {own_tag(route.route_id), (_SERVICE, route.service)}
    tags: dict[str, list[str | None]] = {}
    for key, value in route.tags:
        tags.setdefault(format_key(key), []).append(value)
    for key, value in defaults:
        # What stands alone is added again; beside another of its key it has to be said.
        name = format_key(key)
        if tags.get(name) == [value]:
            del tags[name]
    line: dict[str, Any] = {"route": format_id(route.route_id), "service": route.service}
    line["tags"] = {
        name: values[0] if len(values) == 1 else values for name, values in sorted(tags.items())
    }
    if route.weight != 1.0:
        line["weight"] = route.weight
    if route.broker_id != NO_BROKER:
        line["broker"] = format_id(route.broker_id)
    if route.timestamp:
        line["timestamp"] = route.timestamp
    if route.expected:
        line["expected"] = True
    return json.dumps(line, ensure_ascii=False)


def parse_route(line: str) -> SnapshotRoute:
    """Read a route from a line.

    Raises:
        SnapshotError: It cannot be read; the reason says why.
    """
    try:
        fields: Any = json.loads(line, object_pairs_hook=_object)
        if not isinstance(fields, dict):
            raise SnapshotError("a route is an object")
        return _route(cast("dict[str, Any]", fields))
    except SnapshotError:
        raise
    except AddressError as error:
        raise SnapshotError(f"{error.text!r}: {error.reason}") from None
    except (ValueError, RecursionError) as error:
        raise SnapshotError(f"no JSON: {error}") from None


def parse_routes(data: bytes) -> Iterator[SnapshotRoute]:
    """Yield the routes of a text, in the order of its lines.

    Raises:
        SnapshotError: A line cannot be read; the reason says which.
    """
    for number, raw in enumerate(data.split(b"\n"), 1):
        if not raw.strip() or raw.lstrip().startswith(b"#"):
            continue
        try:
            yield parse_route(raw.decode())
        except SnapshotError as error:
            raise SnapshotError(f"line {number}: {error.reason}") from None
        except UnicodeDecodeError:
            raise SnapshotError(f"line {number}: not UTF-8") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise SnapshotError("a name is there twice")
    return made


def _route(fields: dict[str, Any]) -> SnapshotRoute:
    unknown = sorted(fields.keys() - _FIELDS)
    if unknown:
        raise SnapshotError(f"{unknown[0]!r} is none of {', '.join(sorted(_FIELDS))}")
    tags = fields.get("tags", {})
    if not isinstance(tags, dict):
        raise SnapshotError("'tags' is an object")
    broker, expected = fields.get("broker"), fields.get("expected", False)
    if not isinstance(expected, bool):
        raise SnapshotError("'expected' is true or false")
    route = SnapshotRoute(
        parse_id(_text(fields, "route")),
        _text(fields, "service"),
        tuple(_tags(cast("dict[str, Any]", tags))),
        NO_BROKER if broker is None else parse_id(_text(fields, "broker")),
        _number(fields, "timestamp", 0, int),
        _number(fields, "weight", 1.0, (int, float)),
        expected,
    )
    return route.settled()


def _tags(tags: dict[str, Any]) -> Iterator[Tag]:
    for name, values in tags.items():
        key = parse_key(name)
        for value in _listed(values):
            if not isinstance(value, str | None):
                raise SnapshotError(f"the value of the tag {name!r} is a text or null")
            yield key, value


def _listed(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value  # pyright: ignore[reportUnknownVariableType] - checked one by one
    return [value]


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise SnapshotError(f"{name!r} is a text, and has to be there")
    return value


def _number(fields: dict[str, Any], name: str, default: Any, kinds: Any) -> Any:
    value = fields.get(name, default)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise SnapshotError(f"{name!r} is a number")
    return value
