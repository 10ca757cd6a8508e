"""What routes have in common, and what is each one's own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from onward.actors.broker import AnyRoute, RemoteRoute
from onward.actors.broker.table._group import GroupRoute
from onward.protocol.broker import (
    Dialect,
    Entry,
    RouteAdd,
    RouteKind,
    RoutingTable,
    SnapshotRoute,
    TagList,
    TargetEntry,
    _entry,
    _tags,
    format_id,
    parse_query,
    tag_set,
    with_default_tags,
)
from onward.protocol.broker._tags import OWN_ID
from onward.protocol.cluster import parse_java_route
from tests.support.compiled import interpreted
from tests.support.counts import times

HOME = bytes(15) + b"\x01"
NOW = 1000


def rid(number: int) -> bytes:
    return number.to_bytes(16)


def add(table: RoutingTable[int], number: int, tags: TagList = (), service: str = "a") -> None:
    assert table.add(rid(number), HOME, service, tags, NOW, number, now=NOW).applied


def found(table: RoutingTable[int], text: str) -> list[int]:
    return [entry.target for entry in table.candidates(parse_query(text))]


@pytest.mark.parametrize("told", [True, False])
def test_routes_with_equal_tags_share_them(told: bool) -> None:
    table = RoutingTable[int]()
    for number in range(3):
        tags: TagList = ((6, "eu"), ("k", "v"))
        add(table, number, with_default_tags(tags, "a", rid(number)) if told else tags)
    kinds = {entry.kind for entry in table}
    assert len(kinds) == 1
    for number in range(3):
        entry = table.get(rid(number))
        assert entry is not None
        assert entry.tags == ((6, "eu"), ("k", "v"), (1, "a"), (2, format_id(rid(number))))
        assert found(table, f"route={format_id(rid(number))} region=eu") == [number]
        assert found(table, f"route={format_id(rid(number))} region=us") == []


def test_the_kind_of_a_route_can_be_asked_for() -> None:
    table = RoutingTable[int]()
    kind = table.kind_of(HOME, "a", (), rid(1))
    update = table.put(TargetEntry(rid(1), kind, NOW, 1), now=NOW)
    assert update.entry is not None
    assert update.entry.kind is kind is table.kind_of(HOME, "a", (), rid(2))


def test_an_entry_may_be_its_own_target() -> None:
    table = RoutingTable[AnyRoute]()
    kind = table.kind_of(HOME, "a", (), rid(1))
    own = RemoteRoute(rid(1), kind, NOW)
    assert table.put(own, now=NOW).entry is own
    (found,) = table.candidates(parse_query("service=a"))
    assert found.target is own
    plain: Entry[object] = Entry(rid(2), kind, NOW)
    with pytest.raises(NotImplementedError):
        _ = plain.target


def test_the_own_id_of_routes_is_known_by_its_key() -> None:
    another = _tags.OWN_KEY, None  # as it is after compiled code
    table = RoutingTable[int]()
    kind = table.kind_of(HOME, "a", ((6, "eu"), another), rid(1))
    assert kind is table.kind_of(HOME, "a", ((6, "eu"),), rid(2))
    assert kind.common == ((6, "eu"), (1, "a"))
    alike = RouteKind(
        HOME, "a", tuple(another if tag == _tags.OWN_ID else tag for tag in kind.tags)
    )
    assert alike.common == kind.common
    assert alike.tags_of(rid(3)) == kind.tags_of(rid(3))


def test_another_broker_name_or_tag_is_another_kind() -> None:
    table = RoutingTable[int]()
    add(table, 0)
    add(table, 1, service="b")
    add(table, 2, ((6, "eu"),))
    table.add(rid(3), rid(9), "a", (), NOW, 3, now=NOW)
    assert len({entry.kind for entry in table}) == 4


def test_equal_tags_of_different_kinds_are_kept_once() -> None:
    table = RoutingTable[int]()
    for number in range(3):
        add(table, number, ((6, f"eu-{len('abc')}"), ("n", str(number))))
    regions = {id(entry.kind.tags[0]) for entry in table}
    assert len(regions) == 1


def test_each_part_of_the_tags_finds_all_its_routes() -> None:
    table = RoutingTable[GroupRoute]()
    kind = table.kind_of_service(HOME, "a")
    for number in range(1, 6):
        rest = table.rest_of(((6, "eu"), ("k", "v")))
        assert table.put_new(GroupRoute(rid(number), kind, rest, NOW, number))
    for text in ("service=a", "region=eu", "k=v", "service=a region=eu k=v"):
        targets = sorted(each.target.count for each in table.candidates(parse_query(text)))
        assert targets == [1, 2, 3, 4, 5]


@interpreted
def test_the_number_of_remembered_kinds_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_entry, "MAX_KINDS", 2)
    table = RoutingTable[int]()
    for number, region in enumerate("aabbcca"):
        add(table, number, ((6, region),))
    kinds = [entry.kind for entry in table]
    same = [kinds[0] is kinds[1], kinds[2] is kinds[3], kinds[4] is kinds[5], kinds[0] is kinds[6]]
    assert same == [True, True, True, False]
    assert found(table, "region=a") == [0, 1, 6]


def test_kinds_of_routes_that_have_left_are_forgotten() -> None:
    table = RoutingTable[int]()
    for number in range(3):
        add(table, number, ((6, "eu"),))
    kept = table.kind_of(HOME, "a", ((6, "eu"),), rid(0))
    for number in range(10, 10_000):
        name = f"pod-{number}"
        tags: TagList = ((6, "eu"), (1, name), (2, format_id(rid(number))))
        told = RouteAdd(HOME, rid(number), NOW, name, tags)
        told = RouteAdd.parse(told.serialize(Dialect.SPECIFICATION), Dialect.SPECIFICATION)
        kind = table.kind_of_text(HOME, told.text, rid(number))
        assert table.put_new(TargetEntry(rid(number), kind, NOW, number))
        table.remove(rid(number), NOW + 1, broker_id=HOME, now=NOW, remember=False)
    kinds = table._kinds
    assert max(len(kinds._kinds), len(kinds._of_texts)) <= _entry.FIRST_SWEEP
    assert table.kind_of(HOME, "a", ((6, "eu"),), rid(0)) is kept


def test_kinds_in_use_are_looked_through_seldom() -> None:
    table = RoutingTable[int]()
    for number in range(2000):
        add(table, number, service=f"s{number}")
    assert all(entry.kind is table.kind_of(HOME, entry.service_name, (), rid(0)) for entry in table)
    assert table._kinds._sweep_at == 2048


@pytest.mark.parametrize("spelling", ["Id{%s}", "{%s}"])
def test_the_own_id_is_one_tag_however_it_is_written(spelling: str) -> None:
    table = RoutingTable[int]()
    own = format_id(rid(1))
    add(table, 1, ((2, spelling % own.upper()), (2, own)))
    entry = table.get(rid(1))
    assert entry is not None
    assert tag_set(entry.tags) == {(1, "a"), (2, own)}
    assert len(entry.tags) == 2
    assert found(table, f"route={own}") == [1]


def test_a_route_that_claims_the_id_of_another() -> None:
    table = RoutingTable[int]()
    other, third = format_id(rid(2)), format_id(rid(3))
    add(table, 1, ((2, other),))
    assert found(table, f"route={other}") == [1]
    assert found(table, f"route={format_id(rid(1))}") == []
    add(table, 2)
    add(table, 3, ((2, other), (2, third)))
    add(table, 4, ((2, other), (2, third)))
    assert found(table, f"route={other}") == [1, 2, 3, 4]
    assert found(table, f"route={third}") == [3, 4]
    assert found(table, f"route={other} route={third}") == [3, 4]
    assert found(table, f"route={format_id(rid(4))}") == []
    table.remove(rid(2), 2000, broker_id=HOME, now=NOW)
    assert found(table, f"route={other}") == [1, 3, 4]


def test_a_route_id_that_is_no_id() -> None:
    table = RoutingTable[int]()
    add(table, 1, ((2, "mine"), (2, None)))
    assert found(table, "route=mine") == found(table, "route") == [1]
    assert found(table, "route=yours") == []


def test_an_isolated_query_by_id() -> None:
    table = RoutingTable[int]()
    add(table, 1, (("tenant", "x"),))
    add(table, 2, (("tenant", "y"),))
    table.isolate(parse_query("tenant=x"))
    table.isolate(parse_query(f"route={format_id(rid(2))}"))
    assert found(table, f"tenant=x route={format_id(rid(1))}") == [1]
    assert found(table, f"tenant=x route={format_id(rid(2))}") == []
    assert found(table, f"tenant=y route={format_id(rid(2))}") == [2]


def test_an_answer_by_id_is_dropped_when_the_route_changes() -> None:
    table = RoutingTable[int]()
    query = parse_query(f"route={format_id(rid(1))}")
    assert table.candidates(query) == ()
    add(table, 1)
    kept = table.candidates(query)
    assert [entry.target for entry in kept] == [1]
    add(table, 2)
    assert table.candidates(query) is kept
    table.remove(rid(1), 2000, broker_id=HOME, now=NOW)
    assert table.candidates(query) == ()


@interpreted
def test_the_kinds_by_shared_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_entry, "MAX_KINDS", 2)
    table = RoutingTable[int]()
    for number in range(7):
        tags: TagList = ((6, f"r{number}"), (1, "a"), (2, format_id(rid(number))))
        told = RouteAdd(HOME, rid(number), NOW, "a", tags)
        told = RouteAdd.parse(told.serialize(Dialect.SPECIFICATION), Dialect.SPECIFICATION)
        kind = table.kind_of_text(HOME, told.text, rid(number))
        assert table.kind_of_text(HOME, told.text, rid(number)) is kind
        assert table.put_new(TargetEntry(rid(number), kind, NOW, number))
        assert found(table, f"region=r{number}") == [number]


def test_a_route_that_names_another_route_id_comes_back() -> None:
    table = RoutingTable[int]()
    told = RouteAdd(HOME, rid(1), NOW, "a", ((1, "a"), (2, format_id(rid(9)))))
    kind = table.kind_of_text(HOME, told.text, rid(1))
    for number in range(4):
        at = NOW + 2 * number
        assert table.put(TargetEntry(rid(1), kind, at, number), now=NOW).applied
        assert found(table, f"route={format_id(rid(9))} service=a") == [number]
        gone = table.remove(rid(1), at + 1, broker_id=HOME, now=NOW, remember=False)
        assert gone.applied
        assert found(table, "service=a") == []


@pytest.mark.parametrize("order", [(8, 9), (9, 8)])
def test_a_text_that_names_the_id_of_one_of_its_routes(order: tuple[int, int]) -> None:
    table = RoutingTable[int]()
    named = format_id(rid(9))
    for number in order:
        raw = RouteAdd(HOME, rid(number), NOW, "a", ((2, named), (2, format_id(rid(number)))))
        told = parse_java_route(raw.serialize(Dialect.REFERENCE))
        kind = table.kind_of_text(HOME, told.text, rid(number))
        # A request for the id is remembered in between.
        found(table, f"route={named}")
        assert table.put_new(TargetEntry(rid(number), kind, NOW, number))
    assert sorted(found(table, f"route={named}")) == [8, 9]
    assert found(table, f"route={format_id(rid(8))}") == [8]
    assert table.remove(rid(9), NOW + 1, broker_id=HOME, now=NOW, remember=False).applied
    assert found(table, f"route={named}") == [8]


def test_what_is_known_elsewhere_is_asked_for_again() -> None:
    table = RoutingTable[int]()
    add(table, 1)
    assert found(table, "service=a") == [1]
    (answer,) = table.answers.values()
    assert answer.candidates is not None
    table.know_elsewhere(elsewhere=True)
    assert answer.candidates is None
    assert found(table, "service=a") == [1]


SERVICES = "ab"
RESTS: tuple[TagList, ...] = ((), ((6, "eu"),), ((6, "eu"), ("k", "v")), ((6, "us"),))
QUERIES = tuple(
    map(
        parse_query, ["service=a", "service=b", "region=eu", "region=us", "service=a region=eu k=v"]
    )
)
MOVES = st.tuples(
    st.sampled_from(["put", "put", "put", "remove", "suspend", "reveal", "ask"]),
    st.integers(1, 9),
    st.sampled_from([HOME, bytes(16)]),
    st.sampled_from(SERVICES),
    st.sampled_from(RESTS),
)


@settings(max_examples=times(150, 3000), deadline=None)
@given(st.lists(MOVES, max_size=40))
def test_tags_in_two_parts_are_found_as_others_are(
    moves: list[tuple[str, int, bytes, str, TagList]],
) -> None:
    plain, parted = RoutingTable[int](), RoutingTable[GroupRoute]()
    kinds = {
        (home, service): parted.kind_of_service(home, service)
        for home in (HOME, bytes(16))
        for service in SERVICES
    }
    for now, (move, number, home, service, tags) in enumerate(moves, NOW):
        if move == "put":
            kind = plain.kind_of(home, service, ((1, service), *tags), rid(number))
            one = TargetEntry(rid(number), kind, now, number)
            two = GroupRoute(rid(number), kinds[home, service], parted.rest_of(tags), now, number)
            if now % 2:
                assert plain.put_new(one) == parted.put_new(two)
            else:
                assert plain.put(one, now=now).applied == parted.put(two, now=now).applied
        elif move == "remove":
            gone = [
                table.remove(rid(number), now, broker_id=home, now=now, remember=False).applied
                for table in (plain, parted)
            ]
            assert gone[0] == gone[1]
        elif move == "suspend":
            plain.suspend(home)
            parted.suspend(home)
        elif move == "reveal":
            plain.reveal(home)
            parted.reveal(home)
        else:
            by_id = parse_query(f"route={format_id(rid(number))} region=eu")
            for query in (*QUERIES, by_id):
                assert sorted(e.target for e in plain.candidates(query)) == sorted(
                    e.target.count for e in parted.candidates(query)
                )
    assert plain.statistics().index.tags == parted.statistics().index.tags


@interpreted
def test_the_other_parts_of_tags_are_kept_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    table = RoutingTable[int]()
    rest = table.rest_of(((1, "x"), (6, "eu"), (2, "y"), (0, ""), (6, "eu"), OWN_ID))
    assert rest.tags == ((6, "eu"), OWN_ID)
    assert rest is table.rest_of(((1, "x"), (6, "eu"), (2, "y"), (0, ""), (6, "eu"), OWN_ID))
    monkeypatch.setattr(_entry, "MAX_KINDS", 1)
    table.rest_of(((6, "us"),))
    assert rest is not table.rest_of(((1, "x"), (6, "eu"), (2, "y"), (0, ""), (6, "eu"), OWN_ID))


def test_an_expected_route_may_come_with_tags_in_two_parts() -> None:
    table = RoutingTable[GroupRoute]()
    assert table.expect(SnapshotRoute(rid(1), "a", ((6, "us"),), HOME, NOW - 1))
    kind, rest = table.kind_of_service(HOME, "a"), table.rest_of(((6, "eu"),))
    made = GroupRoute(rid(1), kind, rest, NOW, 1)
    assert table.put(made, now=NOW).applied
    assert table.candidates(parse_query("service=a region=eu")) == (made,)
    assert table.candidates(parse_query("region=us")) == ()
