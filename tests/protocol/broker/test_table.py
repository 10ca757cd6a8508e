from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from onward.protocol.broker import (
    Entry,
    Query,
    RoutingTable,
    Tag,
    TagList,
    Update,
    format_id,
    parse_query,
    tag_set,
    with_default_tags,
)
from tests.support.counts import times

BROKER = bytes(15) + b"\x11"
ROUTE = bytes(15) + b"\x22"
OTHER = bytes(15) + b"\x33"


def add(
    table: RoutingTable[str],
    route_id: bytes = ROUTE,
    timestamp: int = 1000,
    *,
    service: str = "orders",
    tags: TagList = (),
    target: str = "target",
    now: int = 1000,
) -> Update[str]:
    return table.add(route_id, BROKER, service, tags, timestamp, target, now=now)


def targets(table: RoutingTable[str], text: str) -> list[str]:
    return [entry.target for entry in table.candidates(parse_query(text))]


def test_adds_a_route() -> None:
    table = RoutingTable[str]()
    update = add(table, tags=((6, "eu"),))
    entry = update.entry
    assert entry is not None
    assert update == Update(applied=True, entry=entry, previous=None)
    assert (entry.route_id, entry.broker_id, entry.service_name) == (ROUTE, BROKER, "orders")
    assert (entry.timestamp, entry.target) == (1000, "target")
    assert entry.tags == ((6, "eu"), (1, "orders"), (2, format_id(ROUTE)))
    assert table.get(ROUTE) is entry
    assert list(table) == [entry]
    assert ROUTE in table
    assert len(table) == 1


def test_finds_a_route_by_its_default_tags() -> None:
    table = RoutingTable[str]()
    add(table)
    for text in ("service=orders", f"route={format_id(ROUTE)}", f"route=Id{{{format_id(ROUTE)}}}"):
        assert targets(table, text) == ["target"]
    assert targets(table, f"route={format_id(OTHER)}") == []


def test_a_route_may_bring_its_own_default_tags() -> None:
    table = RoutingTable[str]()
    add(table, tags=((1, "other"), (2, f"Id{{{format_id(OTHER)}}}")))
    assert targets(table, "service=orders") == []
    assert targets(table, "service=other") == ["target"]
    assert targets(table, f"route={format_id(OTHER)}") == ["target"]


def test_a_newer_update_replaces_a_route_and_gives_the_old_one_back() -> None:
    table = RoutingTable[str]()
    old = add(table, tags=((6, "eu"),), target="old").entry
    update = add(table, timestamp=1001, tags=((6, "us"),), target="new")
    assert update.applied
    assert update.previous is old
    assert table.get(ROUTE) is update.entry
    assert targets(table, "region=us") == ["new"]
    assert targets(table, "region=eu") == []
    assert targets(table, "service=orders") == ["new"]
    assert len(table) == 1


@pytest.mark.parametrize("timestamp", [1, 999, 1000])
def test_an_update_that_is_not_newer_changes_nothing(timestamp: int) -> None:
    table = RoutingTable[str]()
    entry = add(table).entry
    stale = Update(applied=False, entry=entry, previous=None)
    assert add(table, timestamp=timestamp, service="other", target="other") == stale
    assert table.remove(ROUTE, timestamp, broker_id=BROKER, now=2000) == stale
    assert targets(table, "service=orders") == ["target"]
    assert targets(table, "service=other") == []
    assert table.statistics().stale == 2


def test_removes_a_route() -> None:
    table = RoutingTable[str]()
    entry = add(table).entry
    assert table.remove(ROUTE, 1001, broker_id=BROKER, now=1001) == Update(
        applied=True, entry=None, previous=entry
    )
    assert table.get(ROUTE) is None
    assert ROUTE not in table
    assert targets(table, "service=orders") == []
    assert len(table) == 0


@pytest.mark.parametrize("known", [True, False])
def test_a_late_add_does_not_bring_a_removed_route_back(known: bool) -> None:
    table = RoutingTable[str]()
    if known:
        add(table)
    assert table.remove(ROUTE, 2000, broker_id=BROKER, now=2000).applied
    for timestamp in (1500, 2000):
        update = add(table, timestamp=timestamp, now=2001)
        assert update == Update(applied=False, entry=None, previous=None)
    assert table.remove(ROUTE, 2000, broker_id=BROKER, now=2001).applied is False
    assert add(table, timestamp=2001, now=2001).applied
    assert table.statistics().tombstones == 0


def test_a_tombstone_is_kept_for_a_time() -> None:
    table = RoutingTable[str](tombstone_lifetime=100)
    table.remove(ROUTE, 2000, broker_id=BROKER, now=2000)
    table.remove(OTHER, 2050, broker_id=BROKER, now=2050)
    assert table.expire(2099) == 0
    assert not add(table, timestamp=1500, now=2099).applied
    assert table.expire(2100) == 1
    assert add(table, timestamp=1500, now=2100).applied
    assert table.expire(5000) == 1
    assert table.expire(5000) == 0
    statistics = table.statistics()
    assert (statistics.tombstones, statistics.tombstones_expired) == (0, 2)


def test_the_last_change_of_a_route_is_that_of_its_entry_or_its_removal() -> None:
    table = RoutingTable[str](tombstone_lifetime=100)
    assert table.last_change(ROUTE) == -1
    add(table, timestamp=2000, now=2000)
    assert table.last_change(ROUTE) == 2000
    table.remove(ROUTE, 2010, broker_id=BROKER, now=2010)
    assert (table.last_change(ROUTE), table.last_change(OTHER)) == (2010, -1)
    table.expire(2110)
    assert table.last_change(ROUTE) == -1


def test_updates_forget_old_tombstones() -> None:
    table = RoutingTable[str](tombstone_lifetime=100)
    table.remove(ROUTE, 2000, broker_id=BROKER, now=2000)
    add(table, OTHER, now=2100)
    assert table.statistics().tombstones_expired == 1
    table.remove(ROUTE, 2100, broker_id=BROKER, now=2100)
    table.remove(OTHER, 2300, broker_id=BROKER, now=2300)
    assert table.statistics().tombstones_expired == 2


def test_a_removal_that_is_repeated_is_remembered_from_the_last_on() -> None:
    table = RoutingTable[str](tombstone_lifetime=100, max_tombstones=2)
    table.remove(ROUTE, 2000, broker_id=BROKER, now=2000)
    table.remove(OTHER, 2010, broker_id=BROKER, now=2010)
    table.remove(ROUTE, 2020, broker_id=BROKER, now=2020)
    table.remove(BROKER, 2030, broker_id=BROKER, now=2030)
    assert not add(table, ROUTE, timestamp=2020, now=2030).applied
    assert add(table, OTHER, timestamp=2000, now=2030).applied
    assert table.statistics().tombstones_evicted == 1


def test_the_number_of_tombstones_is_limited() -> None:
    table = RoutingTable[str](max_tombstones=2)
    for number in range(5):
        table.remove(bytes([number]) * 16, 2000, broker_id=BROKER, now=2000)
    statistics = table.statistics()
    assert (statistics.tombstones, statistics.tombstones_evicted) == (2, 3)
    assert add(table, bytes([2]) * 16, timestamp=1999, now=2000).applied
    assert not add(table, bytes([3]) * 16, timestamp=1999, now=2000).applied


def test_no_tombstones_are_kept_at_limit_zero() -> None:
    table = RoutingTable[str](max_tombstones=0)
    add(table)
    table.remove(ROUTE, 2000, broker_id=BROKER, now=2000)
    assert table.statistics().tombstones == 0
    assert add(table, timestamp=1500).applied


def test_a_brokers_own_update_always_applies() -> None:
    table = RoutingTable[str]()
    assert table.next_timestamp(ROUTE, 500) == 500
    add(table, timestamp=1000)
    # The same millisecond, and a clock set back.
    assert table.next_timestamp(ROUTE, 1000) == 1001
    assert table.next_timestamp(ROUTE, 10) == 1001
    assert table.next_timestamp(ROUTE, 2000) == 2000
    table.remove(ROUTE, 3000, broker_id=BROKER, now=1000)
    assert table.next_timestamp(ROUTE, 1000) == 3001


def test_a_replaced_registration_removes_nothing() -> None:
    table = RoutingTable[str]()
    old = add(table, target="old").entry
    new = add(table, timestamp=1001, target="new").entry
    assert old is not None
    assert new is not None
    assert table.discard(old, now=2000) is False
    assert targets(table, "service=orders") == ["new"]
    assert table.discard(new, now=500) is True
    assert targets(table, "service=orders") == []
    assert table.discard(new, now=2000) is False
    # It has left a tombstone, newer than the registration whatever the clock says.
    assert not add(table, timestamp=1002).applied
    assert add(table, timestamp=1003).applied


def test_entries_are_registrations_not_values() -> None:
    table = RoutingTable[str]()
    first = add(table).entry
    table.remove(ROUTE, 1001, broker_id=BROKER, now=1001)
    second = add(table, timestamp=1002).entry
    assert first is not None
    assert first != second
    assert len({first, second}) == 2


# --- candidates -----------------------------------------------------------------------------


def test_candidates_are_the_same_object_until_a_change_that_matters() -> None:
    table = RoutingTable[str]()
    query = parse_query("service=orders")
    add(table, target="first")
    before = table.candidates(query)
    assert [entry.target for entry in before] == ["first"]
    assert table.candidates(query) is before
    add(table, OTHER, service="billing")
    assert table.candidates(query) is before
    # The same route with the same tags: another registration.
    add(table, timestamp=1001, target="second")
    assert targets(table, "service=orders") == ["second"]
    assert [entry.target for entry in before] == ["first"]


def test_a_number_used_again_does_not_leak_into_old_candidates() -> None:
    table = RoutingTable[str]()
    query = parse_query("region=eu")
    add(table, tags=((6, "eu"),), target="mine")
    held = table.candidates(query)
    number = table.number_of(held[0])
    table.remove(ROUTE, 1001, broker_id=BROKER, now=1001)
    other = add(table, OTHER, tags=((6, "us"),), target="other").entry
    assert other is not None
    assert (table.number_of(other), table.number_of(held[0])) == (number, -1)
    assert held[0].target == "mine"
    assert table.candidates(query) == ()


def test_nothing_matches() -> None:
    table = RoutingTable[str]()
    query = parse_query("service=orders")
    assert table.candidates(query) == ()
    assert table.pick(query, 0) is None
    assert table.count(query) == 0


def test_picks_in_turn() -> None:
    table = RoutingTable[str]()
    for number in range(3):
        add(table, bytes([number]) * 16, target=str(number))
    add(table, ROUTE, service="billing", target="billing")
    query = parse_query("service=orders")
    picked = [table.pick(query, turn) for turn in range(7)]
    assert [entry.target for entry in picked if entry] == ["0", "1", "2", "0", "1", "2", "0"]
    assert [entry for entry in picked[:3] if entry] == list(table.candidates(query))
    assert table.count(query) == 3


def test_answers_over_the_limit_are_made_each_time() -> None:
    table = RoutingTable[str](max_cached_matches=1)
    for number in range(2):
        add(table, bytes([number]) * 16, target=str(number))
    query = parse_query("service=orders")
    assert table.candidates(query) == table.candidates(query)
    assert table.candidates(query) is not table.candidates(query)
    assert table.statistics().index.cached_queries == 0


def test_reads_raw_queries() -> None:
    table = RoutingTable[str]()
    add(table)
    assert table.candidates(table.queries.from_text(b"service=orders").query) == tuple(table)


def test_statistics() -> None:
    table = RoutingTable[str]()
    add(table)
    add(table, OTHER, service="billing")
    add(table, OTHER, service="late", timestamp=1)
    table.remove(OTHER, 1001, broker_id=BROKER, now=1001)
    statistics = table.statistics()
    assert (statistics.routes, statistics.tombstones) == (1, 1)
    assert (statistics.applied, statistics.stale) == (3, 1)
    assert (statistics.index.routes, statistics.index.tags) == (1, 2)
    with pytest.raises(FrozenInstanceError):
        statistics.routes = 5  # type: ignore[misc]


# --- against a model ------------------------------------------------------------------------

LIFETIME = 20
IDS = st.integers(0, 5).map(lambda number: bytes([number]) * 16)
SOME_TAGS: st.SearchStrategy[Tag] = st.tuples(
    st.sampled_from([1, 6, "k"]), st.sampled_from(["a", "b", None])
)
SOME_LISTS = st.lists(SOME_TAGS, max_size=3).map(tuple)
SOME_QUERIES = st.frozensets(SOME_TAGS, min_size=1, max_size=2)
AGES = st.integers(-8, 3)


@dataclass
class Known:
    """What the model knows of a route id: a registration, or when it was removed."""

    timestamp: int
    tags: frozenset[Tag]
    target: int
    until: int | None = None


class AgainstModel(RuleBasedStateMachine):
    """Updates in any order of timestamps, against a dictionary that is searched one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RoutingTable[int](
            tombstone_lifetime=LIFETIME, max_cached_queries=5, max_cached_matches=12
        )
        self.model: dict[bytes, Known] = {}
        self.now = 100
        self.made = 0
        self.registrations: list[Entry[int]] = []

    def known(self, route_id: bytes) -> Known | None:
        known = self.model.get(route_id)
        if known is not None and known.until is not None and known.until <= self.now:
            del self.model[route_id]
            return None
        return known

    @rule(by=st.integers(1, 15))
    def pass_time(self, by: int) -> None:
        self.now += by

    @rule(route_id=IDS, tags=SOME_LISTS, age=AGES, name=st.sampled_from("ab"))
    def add(self, route_id: bytes, tags: TagList, age: int, name: str) -> None:
        self.made += 1
        timestamp = self.now + age
        known = self.known(route_id)
        update = self.table.add(route_id, BROKER, name, tags, timestamp, self.made, now=self.now)
        assert update.applied == (known is None or timestamp > known.timestamp)
        if update.applied:
            assert update.entry is not None
            self.registrations.append(update.entry)
            was = known.target if known is not None and known.until is None else None
            assert (update.previous.target if update.previous else None) == was
            self.model[route_id] = Known(
                timestamp, tag_set(with_default_tags(tags, name, route_id)), self.made
            )

    @rule(route_id=IDS, age=AGES)
    def remove(self, route_id: bytes, age: int) -> None:
        timestamp = self.now + age
        known = self.known(route_id)
        update = self.table.remove(route_id, timestamp, broker_id=BROKER, now=self.now)
        assert update.applied == (known is None or timestamp > known.timestamp)
        if update.applied:
            self.model[route_id] = Known(timestamp, frozenset(), 0, self.now + LIFETIME)

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        if not self.registrations:
            return
        entry = data.draw(st.sampled_from(self.registrations))
        known = self.known(entry.route_id)
        living = known is not None and known.until is None and known.target == entry.target
        stamp = self.table.next_timestamp(entry.route_id, self.now)
        assert self.table.discard(entry, now=self.now) == living
        if living:
            self.model[entry.route_id] = Known(stamp, frozenset(), 0, self.now + LIFETIME)

    @rule(query=SOME_QUERIES, turn=st.integers(0, 9))
    def look_up(self, query: Query, turn: int) -> None:
        expected = {
            known.target
            for known in self.model.values()
            if known.until is None and query <= known.tags
        }
        candidates = self.table.candidates(query)
        assert {entry.target for entry in candidates} == expected
        assert len(candidates) == len(expected) == self.table.count(query)
        picked = self.table.pick(query, turn)
        assert picked is (candidates[turn % len(candidates)] if candidates else None)

    @invariant()
    def has_what_the_model_has(self) -> None:
        living = {key: known for key, known in self.model.items() if known.until is None}
        assert {entry.route_id: entry.target for entry in self.table} == {
            key: known.target for key, known in living.items()
        }
        for key, known in living.items():
            entry = self.table.get(key)
            assert entry is not None
            assert tag_set(entry.tags) == known.tags
            assert entry.timestamp == known.timestamp
        numbers = [self.table.number_of(entry) for entry in self.table]
        assert len(set(numbers)) == len(numbers)
        statistics = self.table.statistics()
        assert statistics.routes == statistics.index.routes == len(living)


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(
    max_examples=times(15, 60), stateful_step_count=40, deadline=None
)
