"""Many at once is what one by one is, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from hypothesis import given, settings, strategies as st

from onward.pipeline._errors import PipelineError
from onward.pipeline.replay import (
    GateFailed,
    MethodSet,
    OpenTable,
    Question,
    Rehearsal,
    RehearsalPlan,
    ReplayTotals,
    Resolver,
    _memo,
    _placing,
    _sides,
    _tables,
    check_gates,
    open_table,
    read_question,
    turn_of,
)
from onward.pipeline.replay._questions import Code
from onward.pipeline.replay._turns import fraction, fractions, next_turn, turns_of
from onward.protocol import AddressError
from onward.protocol.broker import (
    BALANCERS,
    SHARD_METHODS,
    Balancer,
    Candidate,
    Placement,
    RoutingType,
    Sharding,
    SnapshotRoute,
    format_route,
    parse_query,
    read_snapshot,
    write_snapshot,
)
from onward.protocol.eventlog import Asked, Flag, asked_text, route_key, tagset_id
from tests.support.counts import times

MASK = 2**64 - 1
numbers = st.integers(0, MASK)


def rid(number: int) -> bytes:
    return blake2b(number.to_bytes(4), digest_size=16).digest()


def routes(count: int, **more: object) -> list[SnapshotRoute]:
    return [
        SnapshotRoute(
            rid(n),
            f"s{n % 3}",
            (("zone", f"z{n % 4}"), ("n", str(n))),
            weight=float(n % 5) if not more else 0.0,
        )
        for n in range(count)
    ]


def written(path: Path, rows: list[SnapshotRoute]) -> str:
    path.write_bytes(b"".join(write_snapshot(rows)))
    return str(path)


def table_of(rows: list[SnapshotRoute]) -> OpenTable:
    return OpenTable(read_snapshot(b"".join(write_snapshot(rows))))


def question(text: str, routing: RoutingType = RoutingType.UNICAST, method: str = "") -> Question:
    return Question(parse_query(text), routing, method)


METHODS = [
    *((RoutingType.SHARD, name) for name in SHARD_METHODS),
    *((RoutingType.UNICAST, name) for name in BALANCERS),
]


# --- turns ---------------------------------------------------------------------------------
@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)), min_size=1))
def test_turns_of_many_are_those_of_each(frames: list[tuple[int, int]]) -> None:
    epochs, seqs = (np.array(each, np.int64) for each in zip(*frames, strict=True))
    turns = turns_of(epochs, seqs)
    assert turns.tolist() == [turn_of(*each) for each in frames]
    assert fractions(turns).tolist() == [fraction(turn_of(*each)) for each in frames]
    assert all(0 <= fraction(next_turn(turn)) < 1 for turn in turns.tolist())


def test_turns_are_spread_even_if_every_other_frame_asks_for_something_else() -> None:
    got = np.bincount([turn_of(1, seq) % 4 for seq in range(0, 8000, 2)])
    assert got.min() > 900


# --- placing -------------------------------------------------------------------------------
@pytest.mark.parametrize(("routing", "method"), METHODS)
@settings(deadline=None, max_examples=times(4, 12))
@given(st.lists(st.tuples(st.integers(0, 3), numbers), min_size=1, max_size=60), st.booleans())
def test_groups_are_placed_as_each_frame_is(
    routing: RoutingType, method: str, frames: list[tuple[int, int]], heavy: bool
) -> None:
    table = table_of(routes(40) if heavy else routes(40, none=True))
    methods = MethodSet(None, None)
    side, one = _sides.TableResolver(table, methods), Resolver(table, methods)
    texts = ("service=s0", "zone=z1", "service=s1 zone=z2", "n=7")
    # As 'zone' is a name people use, the literal key is written out.
    asked = [Question(parse_query(t.replace("zone", "%7Aone")), routing, method) for t in texts]
    frames.sort(key=lambda each: each[0])
    groups = sorted({group for group, _ in frames})
    answers = [side.answer(asked[group]) for group in groups]
    assert all(len(each.numbers) for each in answers)
    sizes = np.array([sum(g == group for g, _ in frames) for group in groups])
    keys = np.array([key for _, key in frames], np.uint64)
    placed = side.place(answers, sizes, keys)
    expected = [one.place(asked[g], one.candidates(asked[g]), key) for g, key in frames]
    assert placed.places.tolist() == expected
    assert not placed.failed.any()
    keys_found = table.keys(placed.numbers).tolist()
    assert [(key,) for key in keys_found] == [one.route(asked[g], key) for g, key in frames]


def test_limits_of_pairs_and_of_copies_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    table, methods = table_of(routes(60)), MethodSet(None, None)
    asked = [question(f"service=s{n}", RoutingType.SHARD) for n in range(3)]
    sizes = np.array([5, 40, 3])
    keys = turns_of(np.zeros(48, np.int64), np.arange(48))

    def places() -> list[int]:
        side = _sides.TableResolver(table, methods)
        placed = side.place([side.answer(a) for a in asked], sizes, keys)
        numbers: list[int] = placed.numbers.tolist()
        return numbers

    before = places()
    monkeypatch.setattr(_placing, "MAX_PAIRS", 30)
    monkeypatch.setattr(_sides, "LARGE", 2)
    assert places() == before


def test_points_on_rings_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tables, "MAX_POINTS", 3)
    table = table_of(routes(9))
    points, owners = table.ring(table.resolve(parse_query("service=s0")))
    assert len(points) == len(owners) == 3 * 64
    table.ring(table.resolve(parse_query("service=s1")))
    assert len(table._points) <= 3


def test_a_large_ring_is_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    table, methods = table_of(routes(60)), MethodSet(None, "bounded-ring")
    asked = question("s=1", RoutingType.SHARD)
    numbers = table.resolve(parse_query("service=s0"))
    keys = turns_of(np.zeros(400, np.int64), np.arange(400))

    def places() -> list[int]:
        side = _sides.TableResolver(table, methods)
        answer = _sides.Candidates(asked, methods.code(asked), numbers)
        placed = side.place([answer], np.array([400]), keys).places.tolist()
        assert (answer.kept is None) == (len(numbers) > _sides.RING_MEMBERS)
        return list(placed)

    whole = places()
    for members in (1, 7, 19):
        monkeypatch.setattr(_sides, "RING_MEMBERS", members)
        assert places() == whole


class Last(Balancer):
    """A plug-in: the last one, one that is not there, or it raises."""

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        lot = random()
        if lot < 0.2:
            raise RuntimeError("a plug-in failed")
        return len(candidates) - 1 if lot < 0.5 else 99


class First(Sharding):
    """A plug-in: the first one, or it raises; made as often as is noted."""

    made: ClassVar[list[int]] = []

    def prepare(self, members: Sequence[bytes]) -> Placement:
        self.made.append(len(members))
        if len(members) == 2:
            raise RuntimeError("a plug-in failed")
        return FirstPlacement()


class FirstPlacement(Placement):
    def pick(self, key: int, load: Callable[[int], int]) -> int:
        if key % 5 == 1:
            raise RuntimeError("a plug-in failed")
        return 0


class Plugged:
    """An entry point."""

    def __init__(self, name: str, method: type) -> None:
        self.name = name
        self.value = f"plugged:{method.__name__}"
        self._method = method

    def load(self) -> type:
        return self._method


def plug_in(monkeypatch: pytest.MonkeyPatch, **methods: type) -> None:
    found = [Plugged(name, method) for name, method in methods.items()]

    def entry_points(*, group: str) -> list[Plugged]:
        kind: type = Sharding if group == "onward.shard_methods" else Balancer
        return [each for each in found if issubclass(each.load(), kind)]

    monkeypatch.setattr("onward.actors.broker.table._methods.entry_points", entry_points)


def test_a_plug_in_is_asked_frame_by_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, last=Last)
    table, methods = table_of(routes(9)), MethodSet(None, None)
    asked = question("service=s0", method="last")
    side, one = _sides.TableResolver(table, methods), Resolver(table, methods)
    keys = turns_of(np.zeros(50, np.int64), np.arange(50))
    placed = side.place([side.answer(asked)], np.array([50]), keys)
    candidates = one.candidates(asked)
    assert placed.places.tolist() == [one.place(asked, candidates, k) for k in keys.tolist()]
    assert 2 in placed.places.tolist()
    # Whoever fails is counted, and as at the broker anybody gets the frame.
    lots = [fraction(key) for key in keys.tolist()]
    assert placed.failed.tolist() == [not 0.2 <= lot < 0.5 for lot in lots]
    failed = np.flatnonzero(placed.failed)
    assert placed.places[failed].tolist() == [int(lots[at] * 3) for at in failed.tolist()]


def test_a_plug_in_of_sharding_is_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, first=First)
    monkeypatch.setattr(First, "made", [])
    table, methods = table_of(routes(8)), MethodSet(None, "first")
    side = _sides.TableResolver(table, methods)
    # Three routes, and two, on which it cannot even be prepared.
    answers = [side.answer(question(f"service=s{n}", RoutingType.SHARD)) for n in (0, 2)]
    keys = np.arange(20, dtype=np.uint64)
    for _ in range(2):
        placed = side.place(answers, np.array([10, 10]), keys)
        assert placed.failed.tolist() == [key % 5 == 1 or key >= 10 for key in range(20)]
        assert placed.places[:10].tolist() == [k % 3 if k % 5 == 1 else 0 for k in range(10)]
        assert placed.places[10:].tolist() == [k % 2 for k in range(10, 20)]
    assert First.made == [3, 2]


@pytest.mark.parametrize(("routing", "name"), METHODS)
def test_a_plug_in_goes_first(
    monkeypatch: pytest.MonkeyPatch, routing: RoutingType, name: str
) -> None:
    plug_in(monkeypatch, **{name: First if routing is RoutingType.SHARD else Last})
    table, methods = table_of(routes(9)), MethodSet(None, None)
    asked = question("service=s0", routing, name)
    assert methods.code(asked) is Code.FOREIGN
    side, one = _sides.TableResolver(table, methods), Resolver(table, methods)
    keys = turns_of(np.ones(50, np.int64), np.arange(50))
    placed = side.place([side.answer(asked)], np.array([50]), keys)
    candidates = one.candidates(asked)
    assert placed.places.tolist() == [one.place(asked, candidates, k) for k in keys.tolist()]
    assert 0 < placed.failed.sum() < 50


class Broken(Sharding):
    """A plug-in that cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("a plug-in failed")

    def prepare(self, members: Sequence[bytes]) -> Placement:
        raise NotImplementedError


def test_a_plug_in_cannot_be_made(tables: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(monkeypatch, modulo=Broken)
    batch = batch_of([(2, n, n, False, 3) for n in range(9)])
    (row,) = [
        row for row in summed(Rehearsal(RehearsalPlan(*tables)), batch).values() if "frames" in row
    ]
    assert row["failed"] == row["frames"] == 27


def test_a_method_that_a_request_names_is_taken_if_it_is_known() -> None:
    methods = MethodSet("random", "jump")
    assert methods.method(question("a=b", method="weighted")) == "weighted"
    assert methods.method(question("a=b", method="nobody")) == "random"
    assert methods.method(question("a=b", RoutingType.SHARD)) == "jump"
    for given_name in (("nobody", None), (None, "nobody")):
        with pytest.raises(PipelineError, match="there is no method 'nobody': take one of"):
            MethodSet(*given_name)


# --- questions and tables --------------------------------------------------------------------
def test_a_question_is_read_as_the_log_writes_it() -> None:
    asked = Asked(((6, "eu"), ("a b", None)), RoutingType.SHARD, "jump")
    read = read_question(asked_text(asked), "shard", "jump")
    assert read == Question(frozenset(asked.tags), RoutingType.SHARD, "jump")
    for text, routing in (("a=%zz", "unicast"), ("a=b", "nothing")):
        with pytest.raises(AddressError):
            read_question(text, routing, "")


def test_a_table_is_opened_once_until_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "t"
    first = open_table(written(path, routes(3)))
    assert open_table(str(path)) is first
    second = open_table(written(path, routes(4)))
    assert len(second.snapshot) == 4
    for number in range(_tables.MAX_TABLES):
        open_table(written(tmp_path / str(number), routes(number + 1)))
    assert len(_tables._opened) == _tables.MAX_TABLES
    assert open_table(str(path)) is not second
    (tmp_path / "text").write_text("\n".join(map(format_route, routes(5))))
    assert len(open_table(str(tmp_path / "text")).snapshot) == 5


def test_a_table_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"x" * 999)
    for name, why in (("bad", "begins as no snapshot does"), ("gone", "No such file")):
        with pytest.raises(PipelineError, match=f"{why}.*--files"):
            open_table(str(tmp_path / name))


# --- a batch -------------------------------------------------------------------------------
TEXTS = [
    Asked((("zone", "z1"),)),
    Asked(((1, "s1"),), RoutingType.SHARD),
    Asked(((1, "s2"),), RoutingType.SHARD, "modulo"),
    Asked((("zone", "z9"),)),
    Asked(((1, "s0"),), RoutingType.MULTICAST),
    Asked((("n", "3"),)),
    Asked((("n", "39"),), RoutingType.MULTICAST),
    Asked((("n", "40"),)),
]


Sums = dict[tuple[int, int | None], dict[str, int]]


def batch_of(frames: list[tuple[int, int, int, int, int]]) -> Any:
    """Make a batch of (tag set, seq, shard hash, sticky, weight); the last tag set is unknown."""
    known: list[Asked | None] = [*TEXTS, None]
    rows: list[Any] = [(known[at % len(known)], *rest) for at, *rest in frames]
    columns = {
        "tagset_id": [0 if each is None else tagset_id(each) for each, *_ in rows],
        "epoch": [1 for _ in rows],
        "seq": [seq for _, seq, *_ in rows],
        "shard_hash": [int(np.uint64(key).view(np.int64)) for _, _, key, *_ in rows],
        "flags": [int(Flag.STICKY) if sticky else 0 for *_, sticky, _ in rows],
        "weight": [weight for *_, weight in rows],
        "delivered": [seq % 2 for _, seq, *_ in rows],
        "text": [None if each is None else asked_text(each) for each, *_ in rows],
        "routing": [None if each is None else each.routing.name.lower() for each, *_ in rows],
        "method": [None if each is None else each.method for each, *_ in rows],
    }
    kinds = {"text": pa.string(), "routing": pa.string(), "method": pa.string()}
    return pa.record_batch(
        [pa.array(values, kinds.get(name, pa.int64())) for name, values in columns.items()],
        names=list(columns),
    )


def in_a_loop(plan: RehearsalPlan, batch: Any) -> Sums:
    """Do what a rehearsal does, the plain way."""
    old = Resolver(open_table(plan.table), MethodSet(plan.method_old, plan.shard_old))
    new = Resolver(open_table(plan.candidate), MethodSet(plan.method_new, plan.shard_new))
    sums: Sums = {}

    def add(tagset: int, route: int | None, name: str, weight: int) -> None:
        row = sums.setdefault((tagset, route), {})
        row[name] = row.get(name, 0) + weight

    for row in batch.to_pylist():
        tagset, weight = row["tagset_id"], row["weight"]
        if row["text"] is None:
            add(tagset, None, "unknown", weight)
            continue
        asked = read_question(row["text"], row["routing"], row["method"])
        by_key = asked.routing is RoutingType.SHARD or row["flags"] & Flag.STICKY
        key = row["shard_hash"] & MASK if by_key else turn_of(row["epoch"], row["seq"])
        was, would = old.route(asked, key), new.route(asked, key)
        add(tagset, None, "frames", weight)
        add(tagset, None, "samples", 1)
        if was and would and set(was) != set(would):
            add(tagset, None, "moved", weight)
        if was and not would:
            add(tagset, None, "lost", weight)
        if would and not was:
            add(tagset, None, "gained", weight)
        if not was and not would:
            add(tagset, None, "nowhere", weight)
        if not was and row["delivered"]:
            add(tagset, None, "stale", weight)
        for route in was:
            add(tagset, route, "frames_old", weight)
        for route in would:
            add(tagset, route, "frames_new", weight)
    return sums


def summed(rehearsal: Rehearsal, *batches: Any) -> Sums:
    sums: Sums = {}
    for batch in batches:
        for row in (row for part in rehearsal.sums(batch) for row in part.to_pylist()):
            key = row.pop("tagset_id"), row.pop("route_id")
            kept = sums.setdefault(key, {})
            for name, value in row.items():
                if value and not name.startswith("routes_"):
                    kept[name] = kept.get(name, 0) + value
    return {key: row for key, row in sums.items() if row}


frames = st.lists(
    st.tuples(
        st.integers(0, len(TEXTS)),
        st.integers(1, 2**40),
        numbers,
        st.booleans(),
        st.integers(1, 100),
    ),
    min_size=1,
    max_size=80,
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tables")
    candidate = [each for each in routes(41) if each.route_id not in {rid(3), rid(8)}]
    return written(folder / "old", routes(40)), written(folder / "new", candidate)


@settings(deadline=None, max_examples=times(6, 20))
@given(frames, st.sampled_from(list(SHARD_METHODS)), st.sampled_from(list(BALANCERS)))
def test_a_batch_comes_to_what_a_loop_does(
    tables: tuple[str, str], frames: list[tuple[int, int, int, int, int]], shard: str, method: str
) -> None:
    plan = RehearsalPlan(*tables, shard_new=shard, method_new=method)
    batch = batch_of(frames)
    half = batch.num_rows // 2
    expected = in_a_loop(plan, batch)
    rehearsal = Rehearsal(plan)
    assert summed(rehearsal, batch) == expected
    # However they are divided, and with what it remembers.
    parts = [batch.slice(0, half), batch.slice(half)]
    assert summed(rehearsal, *(each for each in parts if each.num_rows)) == expected


@settings(deadline=None, max_examples=times(4, 10))
@given(frames, st.sampled_from(list(SHARD_METHODS)), st.sampled_from(list(BALANCERS)))
def test_of_the_same_nothing_moves(
    tables: tuple[str, str], frames: list[tuple[int, int, int, int, int]], shard: str, method: str
) -> None:
    plan = RehearsalPlan(tables[0], tables[0], shard, shard, method, method)
    for row in summed(Rehearsal(plan), batch_of(frames)).values():
        assert not row.keys() & {"moved", "lost", "gained"}
        assert row.get("frames_old") == row.get("frames_new")


@pytest.mark.parametrize("shard", [None, "bounded-ring"])
def test_memory(
    tables: tuple[str, str], monkeypatch: pytest.MonkeyPatch, shard: str | None
) -> None:
    rehearsal = Rehearsal(RehearsalPlan(*tables, shard_new=shard))
    memo = rehearsal.memo
    batch = batch_of([(n, n, n, False, 1) for n in range(len(TEXTS) + 1)])
    expected = summed(rehearsal, batch)
    # Not the one that nobody knows: it may be known when the next task looks.
    assert len(memo) == len(TEXTS)
    whole = memo.bytes
    assert whole == sum(map(_memo._size, memo._kept.values()))
    monkeypatch.setattr(_memo, "MAX_REMEMBERED_SETS", 3)
    memo._kept.clear()
    memo.bytes = 0
    assert summed(rehearsal, batch) == expected
    assert len(memo) == 3
    for limit in (whole // 2, _memo.SET_BYTES, 0):
        monkeypatch.setattr(_memo, "MAX_REMEMBERED_BYTES", limit)
        for _ in range(2):
            memo._kept.clear()
            memo.bytes = 0
            assert summed(rehearsal, batch) == expected
            assert memo.bytes == sum(map(_memo._size, memo._kept.values())) <= limit


def test_an_evicted_answer_is_remade(
    tables: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_memo, "MAX_REMEMBERED_SETS", 2)
    rehearsal = Rehearsal(RehearsalPlan(*tables))
    batch = batch_of([(n, n, n, False, 1) for n in range(len(TEXTS))])
    expected = summed(Rehearsal(RehearsalPlan(*tables)), batch)
    for _ in range(3):
        assert summed(rehearsal, batch) == expected


def test_a_batch_is_done_in_parts(tables: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsal = Rehearsal(RehearsalPlan(*tables))
    batch = batch_of([(n % 9, n, n, False, 1) for n in range(40)])
    expected = summed(rehearsal, batch)
    assert len(list(rehearsal.sums(batch))) == 1
    monkeypatch.setattr(_memo, "MAX_PART_BYTES", 1)
    assert summed(rehearsal, batch) == expected
    # One for each tag set that has candidates; the others are no work.
    assert len(list(rehearsal.sums(batch))) > 4


def test_what_is_prepared_counts_before_it_is(tables: tuple[str, str]) -> None:
    rehearsal = Rehearsal(RehearsalPlan(*tables, shard_old="bounded-ring"))
    asked = question("service=s0", RoutingType.SHARD)
    answer = rehearsal.old.answer(asked)
    before = answer.size
    rehearsal.old.place([answer], np.array([1]), np.array([7], np.uint64))
    points, owners = answer.kept
    assert answer.size == before == answer.numbers.nbytes + points.nbytes + owners.nbytes


def test_the_broker_s_own_services_are_left_out(tables: tuple[str, str]) -> None:
    columns = batch_of([(0, 1, 1, False, 7)]).to_pydict()
    columns["text"] = ["service=onward.management"]
    batch = pa.record_batch([pa.array(each) for each in columns.values()], names=list(columns))
    assert [*summed(Rehearsal(RehearsalPlan(*tables)), batch).values()] == [{"own": 7}]


def test_what_cannot_be_read_is_counted(tables: tuple[str, str]) -> None:
    columns = batch_of([(0, 1, 1, 0, 7), (1, 1, 1, 0, 5)]).to_pydict()
    columns["text"] = ["a=%zz", ""]
    kinds = {"text": pa.string(), "routing": pa.string(), "method": pa.string()}
    batch = pa.record_batch(
        [pa.array(values, kinds.get(name, pa.int64())) for name, values in columns.items()],
        names=list(columns),
    )
    rows = summed(Rehearsal(RehearsalPlan(*tables)), batch)
    assert sorted(row["unknown"] for row in rows.values()) == [5, 7]
    assert route_key(rid(1)) != 0


# --- gates ---------------------------------------------------------------------------------
TOTALS = ReplayTotals(1000, 125, 3, 0, 10, 4, 1.0, 1.5, stale=20)
LOOSE = {"max_unknown": 0.01, "max_stale": 0.02}


@pytest.mark.parametrize(
    ("gates", "failed"),
    [
        (LOOSE, []),
        ({**LOOSE, "max_moved": 0.125, "max_skew": 1.5}, []),
        ({**LOOSE, "max_moved": 0.1}, ["12.50% of the frames would move, more than 10.00%"]),
        ({**LOOSE, "fail_if_lost": True}, ["3 frames would have no route any more"]),
        ({**LOOSE, "max_skew": 1.4}, ["the skew would be 1.50, more than 1.40"]),
        ({"max_unknown": 0.01}, ["20 frames (2.00%) delivered, without a route"]),
        ({"max_stale": 0.02}, ["10 frames (0.99%) could not be resolved"]),
    ],
)
def test_a_gate_fails_above_its_limit(gates: dict[str, float], failed: list[str]) -> None:
    found = check_gates(TOTALS, **gates)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - of each its own type
    assert [text for each, text in zip(found, failed, strict=True) if text not in str(each)] == []
    assert all(isinstance(each, GateFailed) for each in found)


def test_nothing_that_was_asked_moves_nothing() -> None:
    nothing = ReplayTotals(0, 0, 0, 0, 0, 0, 0.0, 0.0)
    assert nothing.moved_ratio == nothing.stale_ratio == nothing.unknown_ratio == 0.0
    for bad in (-1.0, float("nan")):
        for name in ("max_moved", "max_skew", "max_unknown", "max_stale"):
            with pytest.raises(ValueError, match=name):
                check_gates(TOTALS, **{name: bad})  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] - as above


def test_a_rehearsal_of_nothing_does_not_pass() -> None:
    nobody = ReplayTotals(0, 0, 0, 0, 0, 0, 0.0, 0.0, own=7)
    (found,) = check_gates(nobody)
    assert (found.gate, "nothing was rehearsed" in str(found)) == ("frames", True)
    wrong = ReplayTotals(9, 0, 0, 0, 0, 1, 0.0, 0.0, nowhere=9, stale=8)
    assert [each.gate for each in check_gates(wrong)] == ["frames", "max_stale"]
    unroutable = ReplayTotals(9, 0, 0, 0, 0, 1, 0.0, 0.0, nowhere=8)
    assert check_gates(unroutable) == []
    lost = ReplayTotals(0, 0, 0, 0, 5, 1, 0.0, 0.0)
    assert [each.gate for each in check_gates(lost)] == ["frames", "max_unknown"]
