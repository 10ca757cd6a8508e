"""The entries of several home brokers: who wins, who is hidden, what a round leaves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from onward.protocol.broker import (
    BrokerFrameError,
    Dialect,
    Entry,
    Query,
    RouteAdd,
    RoutingTable,
    SnapshotRoute,
    Tag,
    TagList,
    TargetEntry,
    Update,
    null_last,
    parse_query,
    tag_set,
    with_default_tags,
)
from tests.support.counts import times

ONE, TWO, THREE = (bytes(15) + bytes((number,)) for number in (1, 2, 3))
ROUTE = b"r" * 16
OTHER = b"s" * 16
NOW = 1000


def add(
    table: RoutingTable[str],
    home: bytes,
    route_id: bytes = ROUTE,
    timestamp: int = 1000,
    *,
    service: str = "orders",
    tags: TagList = (),
    target: str = "",
) -> Update[str]:
    target = target or f"{home[-1]}{chr(route_id[0])}"
    return table.add(route_id, home, service, tags, timestamp, target, now=NOW)


def remove(
    table: RoutingTable[str], home: bytes, route_id: bytes = ROUTE, timestamp: int = 5000
) -> Update[str]:
    return table.remove(route_id, timestamp, broker_id=home, now=NOW, remember=False)


def targets(table: RoutingTable[str], text: str = "service=orders") -> list[str]:
    query = parse_query(text)
    found = [entry.target for entry in table.candidates(query)]
    assert table.count(query) == len(found)
    return found


def at(table: RoutingTable[str], home: bytes, text: str = "service=orders") -> list[str]:
    query = table.at(parse_query(text), home)
    return [entry.target for entry in table.candidates(query)]


def newest(table: RoutingTable[str]) -> str:
    entry = table.get(ROUTE)
    assert entry is not None
    return entry.target


# --- one route id, several brokers --------------------------------------------------------------


@pytest.mark.parametrize("older_first", [True, False])
def test_the_newest_entry_of_a_route_id_hides_the_others(older_first: bool) -> None:
    table = RoutingTable[str]()
    for home, timestamp in ((ONE, 1000), (TWO, 1001))[:: 1 if older_first else -1]:
        assert add(table, home, timestamp=timestamp).applied
    assert targets(table) == ["2r"]
    assert len(table) == table.count_of(TWO) == table.hidden_of(ONE) == 1
    assert table.count_of(ONE) == table.hidden_of(TWO) == 0
    assert table.statistics().hidden == 1
    hidden = table.entry_of(ROUTE, ONE)
    assert hidden is not None
    assert (hidden.target, table.number_of(hidden)) == ("1r", -1)


def test_the_entries_of_a_route_id_begin_with_the_one_in_the_index() -> None:
    table = RoutingTable[str]()
    assert table.entries_of(ROUTE) == []
    add(table, TWO, timestamp=1001)
    assert [entry.target for entry in table.entries_of(ROUTE)] == ["2r"]
    add(table, ONE)
    add(table, THREE, OTHER)
    assert [entry.target for entry in table.entries_of(ROUTE)] == ["2r", "1r"]
    remove(table, TWO)
    assert [entry.target for entry in table.entries_of(ROUTE)] == ["1r"]


def test_of_two_equally_new_ones_that_of_the_larger_broker_id_wins() -> None:
    for first, second in ((ONE, TWO), (TWO, ONE)):
        table = RoutingTable[str]()
        add(table, first)
        add(table, second)
        assert targets(table) == ["2r"]


def test_an_update_says_what_it_hides() -> None:
    table = RoutingTable[str]()
    first = add(table, ONE)
    second = add(table, TWO, timestamp=1001)
    assert second == Update(True, second.entry, None, first.entry)
    # Older than what is there: it is kept, and changes nothing.
    third = add(table, THREE, timestamp=999)
    assert third == Update(True, second.entry, None, None)


def test_a_removal_concerns_the_entry_of_its_broker_only() -> None:
    table = RoutingTable[str]()
    one = add(table, ONE).entry
    two = add(table, TWO, timestamp=1001, tags=((6, "eu"),)).entry
    assert remove(table, THREE) == Update(True, two, None)
    # The one that is hidden.
    assert remove(table, ONE) == Update(True, two, one)
    one = add(table, ONE).previous
    assert one is None
    one = table.entry_of(ROUTE, ONE)
    # The one that hides it.
    assert targets(table, "region=eu") == ["2r"]
    assert remove(table, TWO) == Update(True, one, two, one)
    assert targets(table) == ["1r"]
    assert targets(table, "region=eu") == []
    assert remove(table, ONE) == Update(True, None, one)
    assert len(table) == table.statistics().index.routes == 0


def best_of_first(entries: Sequence[Entry[str]]) -> Entry[str]:
    """Return the newest of those with the target of the oldest, as of an owner."""
    first = min(entries, key=lambda each: each.rank).target
    return max((each for each in entries if each.target == first), key=lambda each: each.rank)


def test_the_removal_of_a_hidden_entry_may_show_another_one() -> None:
    table = RoutingTable[str](best=best_of_first)
    one = add(table, ONE, timestamp=1000, target="ann").entry
    two = add(table, TWO, timestamp=1001, target="bob")
    three = add(table, THREE, timestamp=1002, target="ann")
    assert (two.entry, three.other) == (one, one)
    update = remove(table, ONE)
    shown, hidden = table.entry_of(ROUTE, TWO), table.entry_of(ROUTE, THREE)
    assert update == Update(True, shown, one, hidden)
    assert targets(table) == ["bob"]
    assert table.entries_of(ROUTE) == [shown, hidden]
    # So it is if it was not told in a round.
    add(table, ONE, timestamp=1000, target="ann")
    table.begin_round(ONE)
    assert targets(table) == ["ann"]
    (swept,) = table.sweep(ONE, 10)
    assert (swept.entry, swept.other) == (shown, hidden)
    assert targets(table) == ["bob"]


def test_an_entry_is_renewed_where_what_is_shown_goes_by_more_than_times() -> None:
    table = RoutingTable[str](best=best_of_first)
    one = add(table, ONE, timestamp=1000, target="ann").entry
    two = add(table, TWO, timestamp=1001, target="bob")
    assert (table.entry_of(ROUTE, TWO), two.entry) == (table.entries_of(ROUTE)[1], one)
    # The hidden one.
    hidden = table.entry_of(ROUTE, TWO)
    assert hidden is not None
    made = TargetEntry(ROUTE, hidden.kind, 1001, "ann")
    assert table.renew(made) == Update(True, made, hidden, one)
    assert (table.number_of(made) >= 0, made.times >= 0) == (True, True)
    # The one that is shown.
    again = TargetEntry(ROUTE, hidden.kind, 1001, "eve")
    assert table.renew(again) == Update(True, one, made, again)
    assert (table.entries_of(ROUTE), again.times < 0, made.times < 0) == ([one, again], True, True)
    last = TargetEntry(ROUTE, hidden.kind, 1001, "bob")
    assert table.renew(last) == Update(True, one, again)
    assert (table.entries_of(ROUTE), last.times < 0) == ([one, last], True)
    with pytest.raises(KeyError):
        table.renew(TargetEntry(OTHER, hidden.kind, 1000, ""))


def test_a_hidden_entry_that_becomes_the_newest_comes_back() -> None:
    table = RoutingTable[str]()
    add(table, ONE)
    two = add(table, TWO, timestamp=1001).entry
    before = table.entry_of(ROUTE, ONE)
    update = add(table, ONE, timestamp=1002, target="new")
    assert update == Update(True, table.get(ROUTE), before, two)
    assert targets(table) == ["new"]
    assert add(table, TWO, timestamp=1001) == Update(False, update.entry, None)
    assert table.discard(two, now=NOW) if two is not None else False
    assert table.statistics().hidden == 0


def test_a_brokers_own_update_is_newer_than_the_entries_of_all() -> None:
    table = RoutingTable[str]()
    add(table, ONE, timestamp=3000)
    add(table, TWO, timestamp=4000)
    assert table.next_timestamp(ROUTE, NOW) == 4001
    add(table, THREE, timestamp=3500)
    remove(table, TWO)
    assert table.next_timestamp(ROUTE, NOW) == 3501


def test_a_removal_of_another_broker_does_not_keep_a_route_away() -> None:
    table = RoutingTable[str]()
    table.remove(ROUTE, 2000, broker_id=ONE, now=NOW)
    assert add(table, TWO, timestamp=1500).applied
    assert not add(table, ONE, timestamp=1900).applied
    assert table.next_timestamp(ROUTE, NOW) == 2001
    assert add(table, ONE, timestamp=2001).applied
    assert table.statistics().tombstones == 0


def test_what_comes_in_order_leaves_no_tombstone() -> None:
    table = RoutingTable[str]()
    add(table, ONE)
    remove(table, ONE)
    assert table.statistics().tombstones == 0


# --- look-up ------------------------------------------------------------------------------------


def test_routes_of_one_broker() -> None:
    table = RoutingTable[str]()
    add(table, ONE, b"a" * 16)
    assert at(table, ONE) == ["1a"]
    add(table, TWO, b"b" * 16)
    add(table, TWO, b"c" * 16, service="billing")
    assert targets(table) == ["1a", "2b"]
    assert (at(table, ONE), at(table, TWO), at(table, THREE)) == (["1a"], ["2b"], [])
    assert [entry.target for entry in table.of(TWO)] == ["2b", "2c"]
    assert table.of(THREE) == []
    # An answer for one broker is kept, and dropped by its changes only.
    query = table.at(parse_query("service=orders"), ONE)
    kept = table.candidates(query)
    add(table, TWO, b"d" * 16)
    assert table.candidates(query) is kept
    add(table, ONE, b"e" * 16)
    assert at(table, ONE) == ["1a", "1e"]


def test_the_tag_of_a_home_broker_is_not_shown() -> None:
    table = RoutingTable[str]()
    entry = add(table, ONE, tags=((6, "eu"),)).entry
    assert entry is not None
    assert tag_set(entry.tags) == tag_set(with_default_tags(((6, "eu"),), "orders", ROUTE))
    assert table.statistics().index.tags == 3
    assert (entry.broker_id, entry.service_name) == (ONE, "orders")


def test_the_routes_of_one_broker_are_preferred() -> None:
    table = RoutingTable[str](near=TWO)
    query = parse_query("service=orders")
    add(table, ONE, b"a" * 16)
    answer = table.answer(query)
    assert answer.near is answer.candidates
    assert answer.mixed
    add(table, TWO, b"b" * 16)
    add(table, ONE, b"c" * 16)
    add(table, TWO, b"d" * 16)
    answer = table.answer(query)
    assert [entry.target for entry in answer.near] == ["2b", "2d"]
    assert [entry.target for entry in answer.candidates or ()] == ["2b", "2d", "1a", "1c"]
    assert answer.several
    table.prefer(ONE)
    assert [entry.target for entry in table.answer(query).near] == ["1a", "1c"]
    table.prefer(None)
    assert [entry.target for entry in table.answer(query).near] == ["1a", "2b", "1c", "2d"]
    for route_id in (b"a" * 16, b"c" * 16):
        remove(table, ONE, route_id)
    answer = table.answer(query)
    assert answer.near is answer.candidates
    assert not answer.mixed


# --- brokers that are away ----------------------------------------------------------------------


def test_a_suspended_broker_is_in_no_answer() -> None:
    table = RoutingTable[str]()
    add(table, ONE, b"a" * 16)
    add(table, TWO, b"b" * 16)
    assert targets(table) == ["1a", "2b"]
    table.suspend(TWO)
    table.suspend(TWO)
    assert table.is_suspended(TWO)
    assert targets(table) == at(table, ONE) == ["1a"]
    assert at(table, TWO) == []
    assert table.expects(parse_query("service=orders"))
    # What it has is still there, and what comes is hidden.
    add(table, TWO, b"c" * 16)
    assert (len(table), table.count_of(TWO)) == (3, 2)
    assert targets(table) == ["1a"]
    table.reveal(TWO)
    table.reveal(TWO)
    assert not table.is_suspended(TWO)
    assert targets(table) == ["1a", "2b", "2c"]


def test_a_suspension_drops_those_answers_only_that_it_changes() -> None:
    table = RoutingTable[str]()
    add(table, ONE, b"a" * 16)
    add(table, TWO, b"b" * 16, service="billing")
    queries = [parse_query(f"service={name}") for name in ("orders", "billing")]
    for change in (table.suspend, table.reveal):
        before = [table.candidates(query) for query in queries]
        change(TWO)
        kept = [table.candidates(query) is was for query, was in zip(queries, before, strict=True)]
        assert kept == [True, False]


def test_a_route_moves_to_a_suspended_broker_and_back() -> None:
    table = RoutingTable[str]()
    table.suspend(TWO)
    add(table, ONE)
    assert targets(table) == ["1r"]
    add(table, TWO, timestamp=1001)
    assert targets(table) == []
    add(table, ONE, timestamp=1002)
    assert targets(table) == ["1r"]


def test_a_broker_that_is_unknown_is_revealed_and_dropped_in_vain() -> None:
    table = RoutingTable[str]()
    table.reveal(ONE)
    assert table.drop(ONE, 10) == table.sweep(ONE, 10) == []
    assert not table.is_suspended(ONE)
    assert table.count_of(ONE) == table.hidden_of(ONE) == 0


def test_a_broker_that_is_gone_is_dropped_in_slices() -> None:
    table = RoutingTable[str]()
    for name in b"abc":
        add(table, TWO, bytes((name,)) * 16)
    add(table, ONE, b"a" * 16, timestamp=999)
    add(table, ONE, b"b" * 16, timestamp=2000)
    table.suspend(TWO)
    slices = [table.drop(TWO, 2) for _ in range(3)]
    assert [len(each) for each in slices] == [2, 1, 0]
    updates = [update for each in slices for update in each]
    assert {(u.previous.target if u.previous else "") for u in updates} == {"2a", "2b", "2c"}
    # What it has hidden is there instead.
    assert [u.other.target for u in updates if u.other is not None] == ["1a"]
    assert targets(table) == ["1a", "1b"]
    assert table.statistics().hidden == 0
    # It is forgotten: when it comes again, it is not suspended.
    add(table, TWO, b"d" * 16)
    assert "2d" in targets(table)


# --- rounds -------------------------------------------------------------------------------------


def test_nothing_is_kept_of_a_broker_that_is_gone() -> None:
    table: RoutingTable[str] = RoutingTable(near=ONE)
    add(table, ONE, OTHER)
    query = parse_query("service=orders")
    for number in range(100):
        home = number.to_bytes(16, "little")
        assert table.candidates(table.at(query, home)) == ()
        add(table, home)
        table.suspend(home)
        assert table.count(table.at(query, home)) == 0
        table.reveal(home)
        assert table.count(table.at(query, home)) == 1
        assert len(table.drop(home, 10)) == 1
        assert table.count(table.at(query, home)) == 0
    assert list(table._homes) == [ONE]


def test_what_is_not_told_in_a_round_is_removed() -> None:
    table = RoutingTable[str]()
    for name in b"abcd":
        add(table, TWO, bytes((name,)) * 16)
    add(table, ONE, b"d" * 16, timestamp=2000)
    add(table, TWO, b"e" * 16)
    table.begin_round(TWO)
    # As it was, in another way, and one that is new.
    assert not add(table, TWO, b"a" * 16).applied
    assert add(table, TWO, b"b" * 16, timestamp=900, tags=((6, "eu"),)).applied
    assert add(table, TWO, b"f" * 16).applied
    assert targets(table, "region=eu") == ["2b"]
    assert [len(table.sweep(TWO, 2)) for _ in range(3)] == [2, 1, 0]
    assert sorted(targets(table)) == ["1d", "2a", "2b", "2f"]
    assert table.hidden_of(TWO) == 0
    # The round has ended: timestamps count again.
    assert not add(table, TWO, b"b" * 16, timestamp=899).applied


def test_only_the_first_word_of_a_round_may_be_older() -> None:
    table = RoutingTable[str]()
    add(table, ONE)
    table.begin_round(ONE)
    assert add(table, ONE, timestamp=900).applied
    assert not add(table, ONE, timestamp=800).applied
    assert table.sweep(ONE, 10) == []


def test_a_word_of_a_round_may_let_another_broker_win() -> None:
    table = RoutingTable[str]()
    add(table, ONE, timestamp=1500)
    add(table, TWO, timestamp=1000)
    table.begin_round(ONE)
    update = add(table, ONE, timestamp=900, target="late")
    assert (update.entry, update.other) == (table.entry_of(ROUTE, TWO), table.entry_of(ROUTE, ONE))
    assert newest(table) == "2r"
    assert table.sweep(ONE, 10) == []


def test_a_route_that_changes_hands_in_a_round_is_swept_all_the_same() -> None:
    table = RoutingTable[str]()
    add(table, ONE)
    add(table, TWO, OTHER)
    add(table, ONE, OTHER, timestamp=1001)
    for home in (ONE, TWO):
        table.begin_round(home)
    add(table, THREE, timestamp=1001)  # hides what is not told yet
    remove(table, ONE, OTHER)  # shows what is not told yet
    assert (newest(table), table.hidden_of(ONE), table.count_of(TWO)) == ("3r", 1, 1)
    assert len(table.sweep(ONE, 10)) == len(table.sweep(TWO, 10)) == 1
    assert targets(table) == ["3r"]


def test_a_hidden_entry_is_told_as_well() -> None:
    table = RoutingTable[str]()
    add(table, ONE)
    add(table, TWO, timestamp=1001)
    table.begin_round(ONE)
    assert add(table, ONE, timestamp=999, target="told").applied
    assert table.sweep(ONE, 10) == []
    remove(table, TWO)
    assert newest(table) == "told"


def test_a_round_that_breaks_off_begins_anew() -> None:
    table = RoutingTable[str]()
    add(table, ONE, b"a" * 16)
    add(table, ONE, b"b" * 16)
    table.begin_round(ONE)
    add(table, ONE, b"a" * 16)
    table.begin_round(ONE)
    add(table, ONE, b"b" * 16)
    assert len(table.sweep(ONE, 10)) == 1
    assert targets(table) == ["1b"]


def test_what_is_expected_is_neither_swept_nor_dropped() -> None:
    table = RoutingTable[str]()
    table.expect(SnapshotRoute(ROUTE, "orders", broker_id=TWO), home=ONE)
    add(table, ONE, OTHER)
    table.begin_round(ONE)
    assert len(table.sweep(ONE, 10)) == 1
    (expected,) = table.expected()
    assert (expected.broker_id, expected.service_name) == (TWO, "orders")
    assert tag_set(expected.tags) == tag_set(with_default_tags((), "orders", ROUTE))
    assert table.of(ONE) == []
    add(table, TWO)
    assert (table.expecting, targets(table)) == (0, ["2r"])


# --- against a model ----------------------------------------------------------------------------

HOMES = st.sampled_from([ONE, TWO, THREE])
IDS = st.integers(0, 3).map(lambda number: bytes([number]) * 16)
SOME_TAGS: st.SearchStrategy[Tag] = st.tuples(
    st.sampled_from([1, 6, "k"]), st.sampled_from(["a", "b", None])
)
SOME_LISTS = st.lists(SOME_TAGS, max_size=3).map(tuple)
SOME_QUERIES = st.frozensets(SOME_TAGS, min_size=1, max_size=2)
TIMES = st.integers(1, 9)


@dataclass(frozen=True)
class Known:
    """An entry of a home broker, and whether it has told it in its round."""

    timestamp: int
    tags: frozenset[Tag]
    target: int
    service: str
    told: bool = True


def rank(known: tuple[bytes, Known]) -> tuple[int, bytes]:
    """Return the place of an entry among those of its route id."""
    home, entry = known
    return entry.timestamp, home


class AgainstModel(RuleBasedStateMachine):
    """Updates of several home brokers, which come and go, against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.make_table()
        self.model: dict[tuple[bytes, bytes], Known] = {}
        self.suspended: set[bytes] = set()
        self.in_round: set[bytes] = set()
        self.made = 0

    def make_table(self) -> RoutingTable[int]:
        return RoutingTable(max_cached_queries=5, max_cached_matches=12, near=ONE)

    def best(self, some: list[tuple[bytes, Known]]) -> tuple[bytes, Known]:
        """Return the one that hides the others, of those of a route id."""
        return max(some, key=rank)

    def visible(self) -> dict[bytes, tuple[bytes, Known]]:
        found: dict[bytes, list[tuple[bytes, Known]]] = {}
        for (home, route_id), known in self.model.items():
            found.setdefault(route_id, []).append((home, known))
        return {route_id: self.best(some) for route_id, some in found.items()}

    @rule(home=HOMES, route_id=IDS, tags=SOME_LISTS, timestamp=TIMES, name=st.sampled_from("ab"))
    def add(self, home: bytes, route_id: bytes, tags: TagList, timestamp: int, name: str) -> None:
        self.made += 1
        known = self.model.get((home, route_id))
        given = tag_set(with_default_tags(tags, name, route_id))
        made = Known(timestamp, given, self.made, name)
        update = self.table.add(route_id, home, name, tags, timestamp, self.made, now=NOW)
        if known is None or timestamp > known.timestamp:
            assert update.applied
        elif known.told or (timestamp == known.timestamp and made.tags == known.tags):
            # A kind is known by the order of its tags too, so it may count as another one.
            assert not (update.applied and known.told)
        else:
            assert update.applied
        if update.applied:
            assert (None if update.previous is None else update.previous.target) == (
                None if known is None else known.target
            )
            self.model[home, route_id] = made
        elif known is not None:
            self.model[home, route_id] = replace(known, told=True)

    @rule(home=HOMES, route_id=IDS, tags=SOME_LISTS, timestamp=TIMES, name=st.sampled_from("ab"))
    def add_told(
        self, home: bytes, route_id: bytes, tags: TagList, timestamp: int, name: str
    ) -> None:
        """As a peer broker tells it, if the table knows nothing of the route."""
        tags = null_last(tags)
        told = RouteAdd(home, route_id, timestamp, name, with_default_tags(tags, name, route_id))
        with suppress(BrokerFrameError):
            told = RouteAdd.parse(told.serialize(Dialect.SPECIFICATION), Dialect.SPECIFICATION)
        self.made += 1
        kind = self.table.kind_of_text(home, told.text, route_id)
        new = self.table.put_new(TargetEntry(route_id, kind, timestamp, self.made))
        assert new == all(each != route_id for _, each in self.model)
        if new:
            self.model[home, route_id] = Known(timestamp, tag_set(told.tags), self.made, name)

    @rule(home=HOMES, route_id=IDS, timestamp=TIMES)
    def remove(self, home: bytes, route_id: bytes, timestamp: int) -> None:
        update = self.table.remove(route_id, timestamp, broker_id=home, now=NOW, remember=False)
        known = self.model.get((home, route_id))
        assert update.applied == (known is None or timestamp > known.timestamp)
        if update.applied and known is not None:
            del self.model[home, route_id]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove_known(self, data: st.DataObject) -> None:
        home, route_id = data.draw(st.sampled_from(sorted(self.model)))
        self.remove(home, route_id, self.model[home, route_id].timestamp + 1)

    @rule(home=HOMES)
    def suspend(self, home: bytes) -> None:
        self.table.suspend(home)
        self.suspended.add(home)

    @rule(home=HOMES)
    def reveal(self, home: bytes) -> None:
        self.table.reveal(home)
        self.suspended.discard(home)

    @rule(home=HOMES)
    def begin_round(self, home: bytes) -> None:
        self.table.begin_round(home)
        self.in_round.add(home)
        for key, known in self.model.items():
            if key[0] == home:
                self.model[key] = replace(known, told=False)

    @rule(home=HOMES, limit=st.integers(1, 3))
    def sweep(self, home: bytes, limit: int) -> None:
        removed = self.table.sweep(home, limit)
        untold = [key for key, known in self.model.items() if key[0] == home and not known.told]
        assert len(removed) == min(limit, len(untold))
        for update in removed:
            assert update.previous is not None
            key = home, update.previous.route_id
            assert key in untold
            del self.model[key]

    @rule(home=HOMES)
    def drop(self, home: bytes) -> None:
        while len(self.table.drop(home, 2)) == 2:
            pass
        self.suspended.discard(home)
        self.model = {key: known for key, known in self.model.items() if key[0] != home}

    @rule(query=SOME_QUERIES, home=HOMES)
    def look_up(self, query: Query, home: bytes) -> None:
        matches = {
            known.target: at_home
            for at_home, known in self.visible().values()
            if at_home not in self.suspended and query <= known.tags
        }
        answer = self.table.answer(query)
        found: tuple[Entry[int], ...] = answer.candidates or ()
        assert {entry.target for entry in found} == set(matches)
        assert answer.several == (len(matches) > 1)
        near = [target for target, at_home in matches.items() if at_home == ONE] or list(matches)
        assert sorted(entry.target for entry in answer.near) == sorted(near)
        assert found[: len(near)] == answer.near
        there = self.table.candidates(self.table.at(query, home))
        assert {entry.target for entry in there} == {
            target for target, at_home in matches.items() if at_home == home
        }

    @invariant()
    def has_what_the_model_has(self) -> None:
        visible = self.visible()
        assert {entry.route_id: entry.target for entry in self.table} == {
            route_id: known.target for route_id, (_, known) in visible.items()
        }
        for home in (ONE, TWO, THREE):
            mine = [known for at_home, known in visible.values() if at_home == home]
            assert self.table.count_of(home) == len(mine)
            assert {entry.target for entry in self.table.of(home)} == {k.target for k in mine}
            held = [known for (at_home, _), known in self.model.items() if at_home == home]
            assert self.table.hidden_of(home) == len(held) - len(mine)
        for (home, route_id), known in self.model.items():
            entry = self.table.entry_of(route_id, home)
            assert entry is not None
            assert (entry.target, tag_set(entry.tags)) == (known.target, known.tags)
            assert entry.timestamp == known.timestamp
            shown = visible[route_id][0] == home
            assert (entry.times >= 0, self.table.number_of(entry) >= 0) == (shown, shown)
        statistics = self.table.statistics()
        assert statistics.routes == statistics.index.routes == len(visible)
        assert statistics.hidden == len(self.model) - len(visible)
        numbers = [self.table.number_of(entry) for entry in self.table]
        assert min(numbers, default=0) >= 0
        assert len(set(numbers)) == len(numbers)
        tags = {tag for _, known in visible.values() for tag in known.tags}
        assert statistics.index.tags == len(tags)


class AgainstModelOfOwners(AgainstModel):
    """The same where the newest entry with the service of the oldest one hides the others.

    A removal of a hidden entry may then show another one.
    """

    def make_table(self) -> RoutingTable[int]:
        return RoutingTable(max_cached_queries=5, max_cached_matches=12, near=ONE, best=self.shown)

    @staticmethod
    def shown(entries: Sequence[Entry[int]]) -> Entry[int]:
        first = min(entries, key=lambda each: each.rank).service_name
        return max((e for e in entries if e.service_name == first), key=lambda each: each.rank)

    def best(self, some: list[tuple[bytes, Known]]) -> tuple[bytes, Known]:
        first = min(some, key=rank)[1].service
        return max((each for each in some if each[1].service == first), key=rank)

    @rule(route_id=IDS, some=st.permutations([(4, "a"), (5, "b"), (6, "a")]))
    def add_all(self, route_id: bytes, some: list[tuple[int, str]]) -> None:
        """At each home broker, so that the removal of the oldest entry shows another one."""
        for home, (timestamp, name) in zip((ONE, TWO, THREE), some, strict=True):
            self.add(home, route_id, (), timestamp, name)


TestAgainstModel = AgainstModel.TestCase
TestAgainstModelOfOwners = AgainstModelOfOwners.TestCase
TestAgainstModel.settings = TestAgainstModelOfOwners.settings = settings(
    max_examples=times(20, 200), stateful_step_count=50, deadline=None
)
