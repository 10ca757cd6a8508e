"""ROUTE_ADD: what many routes have in common is read once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onward.protocol.broker import BrokerFrameError, Dialect, RouteAdd, format_id
from onward.protocol.broker._tags import OWN_ID

HOME = bytes(15) + b"\x01"
EACH = pytest.mark.parametrize("dialect", list(Dialect))


def rid(number: int) -> bytes:
    return number.to_bytes(2) * 8


def route(number: int, region: str = "eu", own: str | None = None) -> RouteAdd:
    tags = ((6, region), (1, "orders"), (2, own or format_id(rid(number))))
    return RouteAdd(HOME, rid(number), 1_700_000_000_000 + number, "orders", tags)


@EACH
def test_routes_with_equal_names_and_tags_share_them(dialect: Dialect) -> None:
    first, second, other = (
        RouteAdd.parse(each.serialize(dialect), dialect)
        for each in (route(1), route(2), route(3, "us"))
    )
    assert first.text is second.text is not other.text
    assert first.text.tags == ((6, "eu"), (1, "orders"), OWN_ID)
    assert (first.service_name, first.tags) == ("orders", route(1).tags)
    assert (first, second, other) == (route(1), route(2), route(3, "us"))
    assert hash(first) == hash(route(1))
    assert first != second
    assert repr(first) == repr(route(1))
    assert replace(first, tags=(), timestamp=7) == RouteAdd(HOME, rid(1), 7, "orders")


@EACH
@pytest.mark.parametrize(
    "own",
    [
        format_id(rid(2)),
        format_id(rid(1)).upper().replace("0001", "000A"),
        f"Id{{{format_id(rid(1))}}}",
        rid(1).hex(),
        "0001-0001000100010001000100-010001-00"[:36],
    ],
)
def test_another_route_id_among_the_tags_stays_as_it_is(dialect: Dialect, own: str) -> None:
    parsed = RouteAdd.parse(route(1, own=own).serialize(dialect), dialect)
    assert parsed.tags[-1] == (2, own)
    assert OWN_ID not in parsed.text.tags


@EACH
def test_what_only_looks_like_a_route_id_is_read_field_by_field(dialect: Dialect) -> None:
    text = format_id(rid(1))
    # The last bytes are those of the route's id, and belong to a longer value, or to another key.
    for tags in (((2, f"x{text}"),), ((6, text),), ((1, "a"), (6, f"eu{text}"))):
        frame = RouteAdd(HOME, rid(1), 1, "orders", tags)
        assert RouteAdd.parse(frame.serialize(dialect), dialect) == frame
    long = RouteAdd(
        HOME, rid(1), 1, "o" * 255, (*((f"k{n}", "v" * 60) for n in range(9)), (2, text))
    )
    assert RouteAdd.parse(long.serialize(dialect), dialect) == long


@EACH
def test_a_broken_field_is_found_behind_a_text_that_is_known(dialect: Dialect) -> None:
    raw = route(1).serialize(dialect)
    RouteAdd.parse(raw, dialect)
    with pytest.raises(BrokerFrameError, match="timestamp"):
        RouteAdd.parse(raw[:38] + bytes(8) + raw[46:], dialect)
    with pytest.raises(BrokerFrameError):
        RouteAdd.parse(raw[:4] + b"\x0c" + raw[5:], dialect)
    with pytest.raises(BrokerFrameError):
        RouteAdd.parse(raw[:46] + b"\xff" + raw[47:], dialect)
