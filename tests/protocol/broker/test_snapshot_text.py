"""Snapshots as text that people write and read."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.broker import (
    SnapshotError,
    TagList,
    encode_route,
    format_id,
    format_route,
    parse_route,
    parse_routes,
    read_snapshot,
)
from tests.support.snapshots import ROUTE_ID, SERVICE, TWO, rid, route, routes_of, tables, written


@settings(deadline=None)
@given(tables)
def test_a_line_says_a_whole_route(table: dict[int, TagList]) -> None:
    routes = [each.settled() for each in routes_of(table)]
    text = "\n".join(map(format_route, routes))
    assert list(parse_routes(text.encode())) == routes
    if routes:
        assert bytes(read_snapshot(text.encode()).data) == written(routes)


def test_who_had_not_come_is_marked() -> None:
    there, expected = TWO[0], replace(TWO[0], expected=True)
    assert format_route(expected) == format_route(there)[:-1] + ', "expected": true}'
    assert parse_route(format_route(expected)) == expected.settled()
    snapshot = read_snapshot(written([expected, TWO[1]]))
    snapshot.check()
    assert [each.expected for each in snapshot.routes()] == [False, True]
    # The others have the bytes that they had before there was a mark.
    assert len(encode_route(expected.settled())) == len(encode_route(there.settled())) + 1


def test_a_line_says_no_more_than_it_has_to() -> None:
    assert json.loads(format_route(route(1))) == {
        "route": format_id(rid(1)),
        "service": "echo",
        "tags": {},
    }
    assert json.loads(format_route(TWO[0])) == {
        "route": format_id(rid(2)),
        "service": "orders",
        "tags": {"region": "eu", "colour": None},
        "weight": 2.5,
        "broker": format_id(rid(9)),
        "timestamp": 1234,
    }
    assert json.loads(format_route(TWO[1]))["tags"] == {"region": ["eu", "us"]}


def test_a_text_may_have_remarks() -> None:
    line = format_route(TWO[0])
    text = f"# the table of Monday\n\n{line}\n  # and\n\t#more\n".encode()
    assert len(read_snapshot(text)) == 1
    assert len(read_snapshot(f"  # the table of Tuesday\n  {line}".encode())) == 1


@pytest.mark.parametrize("mark", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_named(mark: str) -> None:
    with pytest.raises(SnapshotError, match="byte order mark: save it as UTF-8 without one"):
        read_snapshot(format_route(TWO[0]).encode(mark))


def test_a_list_is_no_table() -> None:
    with pytest.raises(SnapshotError, match="a line of JSON for each route, no list"):
        read_snapshot(b"\n [" + format_route(TWO[0]).encode() + b"]")


@pytest.mark.parametrize("blank", [b"", b"\n", b" \n\t\n"])
def test_an_empty_text_is_no_table_unless_it_says_so(blank: bytes) -> None:
    with pytest.raises(SnapshotError, match=r"it is empty; .*'#'"):
        read_snapshot(blank)
    assert len(read_snapshot(blank + b"# nobody\n")) == 0


def test_a_text_may_begin_with_blank_lines() -> None:
    assert len(read_snapshot(b"\n" * 99 + format_route(TWO[0]).encode())) == 1
    with pytest.raises(SnapshotError, match="it is empty"):
        read_snapshot(b"\n" * 99)


ID = format_id(rid(1))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "an object"),
        ("{}", "'route' is a text"),
        (f'{{"route": "{ID}"}}', "'service' is a text"),
        (f'{{"route": "{ID}", "route": "{ID}", "service": "s"}}', "twice"),
        ('{"route": "x", "service": "s"}', "'x': not a UUID"),
        (f'{{"route": "{ID}", "service": "s", "tag": 1}}', "'tag' is none of"),
        (f'{{"route": "{ID}", "service": "s", "tags": []}}', "'tags' is an object"),
        (f'{{"route": "{ID}", "service": "s", "tags": {{"a": 1}}}}', "a text or null"),
        (f'{{"route": "{ID}", "service": "s", "tags": {{"": ""}}}}', "1 to 127 bytes"),
        (f'{{"route": "{ID}", "service": "s", "tags": {{"a": "{"x" * 128}"}}}}', "at most 127"),
        (f'{{"route": "{ID}", "service": "s", "broker": 1}}', "'broker' is a text"),
        (f'{{"route": "{ID}", "service": "s", "timestamp": 1.5}}', "'timestamp' is a number"),
        (f'{{"route": "{ID}", "service": "s", "weight": true}}', "'weight' is a number"),
        (f'{{"route": "{ID}", "service": "s", "weight": -1}}', "its weight"),
        (f'{{"route": "{ID}", "service": "s", "weight": 1{"0" * 400}}}', "its weight"),
        (f'{{"route": "{ID}", "service": "s", "weight": 1e400}}', "its weight"),
        (f'{{"route": "{ID}", "service": "s", "weight": NaN}}', "its weight"),
        (f'{{"route": "{ID}", "service": "s", "weight": 1{"0" * 9999}}}', "no JSON"),
        (f'{{"route": "{ID}", "service": "s", "timestamp": 1{"0" * 400}}}', "its timestamp"),
        (f'{{"route": "{ID}", "service": "s", "expected": 1}}', "'expected' is true or false"),
    ],
)
def test_a_line_that_is_no_route_says_why(line: str, why: str) -> None:
    with pytest.raises(SnapshotError, match=why):
        parse_route(line)
    with pytest.raises(SnapshotError, match=f"line 2: .*{why}"):
        list(parse_routes(f"\n{line}".encode()))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=5,
)
lines = st.fixed_dictionaries(
    {"route": st.just(ID) | anything, "service": st.just("s") | anything},
    optional=dict.fromkeys(("tags", "broker", "timestamp", "weight", "expected"), anything),
)


@settings(deadline=None)
@given(lines | anything)
def test_any_json_is_a_route_or_refused(line: object) -> None:
    with suppress(SnapshotError):
        parse_route(json.dumps(line))


def test_a_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(SnapshotError, match="line 1: not UTF-8"):
        read_snapshot(b'{"\xff": 1}')


def test_all_own_tags_can_be_written_by_hand() -> None:
    line = f'{{"route": "{ID}", "service": "s", "broker": "{ID}", "weight": 2}}'
    made = parse_route(line)
    assert made.tags == ((SERVICE, "s"), (ROUTE_ID, ID))
    assert (made.broker_id, made.weight) == (rid(1), 2.0)
