"""ROUTE_ADD: what many routes have in common is read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from onward.protocol.broker import (
    COUNT_KEY,
    BrokerFrameError,
    Dialect,
    RouteAdd,
    TagList,
    format_id,
    with_owner,
)
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
def test_a_broken_tag_is_found_among_known_ones(dialect: Dialect) -> None:
    raw = route(1).serialize(dialect)
    RouteAdd.parse(raw, dialect)
    region = raw.index(b"eu")
    with pytest.raises(BrokerFrameError, match="UTF-8"):
        RouteAdd.parse(raw[:region] + b"\xff\xff" + raw[region + 2 :], dialect)
    # The list ends with the region; what follows belongs to no field.
    with pytest.raises(BrokerFrameError):
        RouteAdd.parse(raw[: region - 1] + b"\x02" + raw[region:], dialect)
    # The region is as long as all that follows.
    with pytest.raises(BrokerFrameError):
        RouteAdd.parse(raw[: region - 1] + b"\xff" + raw[region:], dialect)
    # Its key has no name.
    with pytest.raises(BrokerFrameError):
        RouteAdd.parse(raw[: region - 2] + b"\x00" + raw[region - 1 :], dialect)


@EACH
def test_a_long_key_is_read_among_known_tags(dialect: Dialect) -> None:
    key = 0x7C0102 if dialect is Dialect.SPECIFICATION else 0x7C
    for value in ("a", "b", "a"):
        tags = ((key, value), ("colour", value), (2, format_id(rid(1))))
        told = RouteAdd(HOME, rid(1), 1, "orders", tags)
        read = RouteAdd.parse(told.serialize(dialect), dialect)
        assert read == told
        assert read.text.tags == ((key, value), ("colour", value), OWN_ID)


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


def group(number: int, count: str, region: str = "eu", service: str = "orders") -> RouteAdd:
    tags: TagList = ((1, service), (COUNT_KEY, count), (6, region), (15, "1.2"))
    return RouteAdd(HOME, rid(number), 1 + number, service, (*tags, (2, format_id(rid(number)))))


@EACH
def test_the_tags_behind_a_tag_of_the_brokers_are_read_once(dialect: Dialect) -> None:
    told = (group(1, "5"), group(2, "7", service="mail"), group(3, "5", "us"))
    first, second, other = (RouteAdd.parse(each.serialize(dialect), dialect) for each in told)
    assert (first.text.count, first.text.rest) == ("5", ((6, "eu"), (15, "1.2"), OWN_ID))
    assert first.text.rest is second.text.rest is not other.text.rest
    assert (first, second, other) == (
        group(1, "5"),
        group(2, "7", service="mail"),
        group(3, "5", "us"),
    )


@EACH
def test_routes_share_their_tags_whatever_their_owners(dialect: Dialect) -> None:
    told = (
        route(1),
        with_owner(route(2), "ann"),
        with_owner(route(3), "ann", 1_600_000_000_000),
        with_owner(route(4), "bob", 1_600_000_000_001),
        with_owner(route(5), ""),
    )
    read = [RouteAdd.parse(each.serialize(dialect), dialect) for each in told]
    assert tuple(read) == told
    assert len({id(each.text) for each in read}) == 1
    owners = [each.owned()[0] for each in read]
    assert owners == [None, "ann", "ann", "bob", ""]
    assert owners[1] is owners[2], "each owner is kept once"


@EACH
@pytest.mark.parametrize(
    "tags",
    [
        ((COUNT_KEY, "5"), (6, "eu"), (COUNT_KEY, "6")),
        ((6, "eu"), (COUNT_KEY, "5")),
        ((1, "mail"), (COUNT_KEY, "5"), (6, "eu")),
        ((1, "orders"), ("x-onward.count", "5")),
        ((6, COUNT_KEY),),
        ((COUNT_KEY, ""),),
        (),
    ],
)
def test_tags_in_another_order_are_read_as_they_are(dialect: Dialect, tags: TagList) -> None:
    told = RouteAdd(HOME, rid(1), 1, "orders", (*tags, (2, format_id(rid(1)))))
    assert RouteAdd.parse(told.serialize(dialect), dialect) == told


@EACH
@pytest.mark.parametrize("service", ["orders", "o" * 127, "o" * 128, "", "é"])
def test_whatever_is_broken_is_read_field_by_field(dialect: Dialect, service: str) -> None:
    plain = group(1, "5", service="s" if len(service) > 127 else service)
    all_are_read_as_by_field(replace(plain, service_name=service), dialect)


@EACH
def test_a_broken_owner_is_read_field_by_field(dialect: Dialect) -> None:
    all_are_read_as_by_field(with_owner(route(1), "ann", 1_600_000_000_000), dialect)
    short = RouteAdd(HOME, rid(1), 1, "", ((2, format_id(rid(1))),))
    all_are_read_as_by_field(with_owner(short, ""), dialect)


def all_are_read_as_by_field(told: RouteAdd, dialect: Dialect) -> None:
    """Change each byte of the text of a route, and cut it at each."""
    raw = told.serialize(dialect)
    assert RouteAdd.parse(raw, dialect) == told
    values = (0, 6, 0x7F, 0x80, 0x81, 0x82, 0xFF)
    places = range(46, len(raw))
    wrong = [raw[:at] + bytes((byte,)) + raw[at + 1 :] for at in places for byte in values]
    wrong += [raw[:at] + raw[-36:] for at in places]
    for each in wrong:
        assert outcome(RouteAdd.parse, each, dialect) == outcome(RouteAdd._read, each, dialect)


def outcome(
    read: Callable[[bytes, Dialect], RouteAdd], data: bytes, dialect: Dialect
) -> RouteAdd | tuple[type, str]:
    try:
        return read(data, dialect)
    except BrokerFrameError as error:
        return type(error), str(error)
