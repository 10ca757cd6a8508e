"""Snapshots of a table: what is written is read, and what is damaged is noticed."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from contextlib import suppress
from random import Random
from struct import pack_into
from zlib import crc32

import cbor2
import pytest
from hypothesis import given, settings, strategies as st
from pyroaring import BitMap

from onward.protocol.broker import (
    SNAPSHOT_HEADER_SIZE,
    RoutingTable,
    Snapshot,
    SnapshotCorrupt,
    SnapshotError,
    SnapshotNewer,
    SnapshotRoute,
    SnapshotWriter,
    TagList,
    encode_route,
    format_id,
    portable_bitmap,
    posting_order,
    read_snapshot,
    shard_hash,
    written_tags,
)
from tests.support.counts import times
from tests.support.snapshots import (
    REGION,
    ROUTE_ID,
    SERVICE,
    TWO,
    keys,
    rid,
    route,
    routes_of,
    tables,
    values,
    written,
)


def sealed(data: bytes, **changes: object) -> bytes:
    """Write the header anew with other fields, and sums that are right."""
    size = int.from_bytes(data[4:8], "little")
    fields = {**cbor2.loads(data[12 : 12 + size]), **changes}
    body = cbor2.dumps({k: v for k, v in fields.items() if v is not ...}, canonical=True)
    head = b"ONWX" + len(body).to_bytes(4, "little") + crc32(body).to_bytes(4, "little") + body
    return head.ljust(SNAPSHOT_HEADER_SIZE, b"\0") + data[SNAPSHOT_HEADER_SIZE:]


# --- what is read is what was written ------------------------------------------------------------


def test_routes_are_read_as_they_were_written() -> None:
    snapshot = read_snapshot(written(TWO))
    assert len(snapshot) == 2
    assert list(snapshot.routes()) == [TWO[1].settled(), TWO[0].settled()]
    assert snapshot.route_id(1) == rid(2)
    assert snapshot.number(rid(2)) == 1
    assert snapshot.number(rid(3)) is None
    assert (snapshot.bitmaps, snapshot.postings, snapshot.builder) == (4, 6, 1)
    snapshot.check()


def test_a_snapshot_of_nothing_has_nothing() -> None:
    snapshot = read_snapshot(written([]))
    assert len(snapshot) == 0
    assert list(snapshot.tags()) == []
    assert not snapshot.resolve(frozenset({(SERVICE, "x")}))
    assert not snapshot.resolve(frozenset({(ROUTE_ID, format_id(rid(1)))}))
    snapshot.check()


def test_a_number_that_is_not_there_is_an_index_error() -> None:
    snapshot = read_snapshot(written(TWO))
    for number in (-1, 2):
        with pytest.raises(IndexError):
            snapshot.route(number)


def test_an_entry_that_is_not_there_is_an_index_error() -> None:
    snapshot = read_snapshot(written(TWO))
    assert [snapshot.tag(at) for at in range(snapshot.bitmaps)] == list(snapshot.tags())
    for at in (-1, snapshot.bitmaps):
        with pytest.raises(IndexError):
            snapshot.tag(at)


@settings(deadline=None)
@given(tables, st.randoms(use_true_random=False))
def test_the_same_routes_make_the_same_bytes(table: dict[int, TagList], random: Random) -> None:
    routes = routes_of(table)
    shuffled = [
        SnapshotRoute(r.route_id, r.service, tuple(random.sample(r.tags, len(r.tags))))
        for r in random.sample(routes, len(routes))
    ]
    assert written(routes) == written(shuffled)


@settings(deadline=None)
@given(
    tables,
    st.lists(st.frozensets(st.tuples(keys.filter(bool), values), max_size=3)),
    st.sampled_from([{}, {"max_bitmaps": 1}, {"max_bitmaps": 2}, {"max_bitmap_bytes": 20}]),
)
def test_a_snapshot_resolves_as_a_table_does(
    table: dict[int, TagList],
    queries: list[frozenset[tuple[int | str, str | None]]],
    limits: dict[str, int],
) -> None:
    live: RoutingTable[None] = RoutingTable()
    for each in routes_of(table):
        live.add(each.route_id, rid(0), each.service, each.tags, 1, None, now=1)
    snapshot = Snapshot(written(routes_of(table)), **limits)
    snapshot.check()
    asked = [*queries, *(frozenset((tag,)) for entry in live for tag in entry.tags)]
    asked += [frozenset(entry.tags) for entry in live]
    for query in asked:
        found = {snapshot.route_id(number) for number in snapshot.resolve(query)}
        assert found == {entry.route_id for entry in live.candidates(query)}
        for entry in live.candidates(query):
            number = snapshot.number(entry.route_id)
            assert number is not None
            assert frozenset(snapshot.route(number).tags) == frozenset(entry.tags)


def test_the_own_route_id_has_no_bitmap_and_is_found_all_the_same() -> None:
    own, other = format_id(rid(1)), format_id(rid(7))
    snapshot = read_snapshot(written([route(1), route(2, "echo", (ROUTE_ID, own)), route(3)]))
    tags = {tag for tag, _, _ in snapshot.tags()}
    assert tags == {(SERVICE, "echo"), (ROUTE_ID, own)}
    assert list(snapshot.carriers((ROUTE_ID, own))) == [0, 1]
    assert list(snapshot.carriers((ROUTE_ID, format_id(rid(2))))) == []
    assert list(snapshot.carriers((ROUTE_ID, other))) == []
    assert list(snapshot.carriers((ROUTE_ID, None))) == []
    both = frozenset({(ROUTE_ID, own), (ROUTE_ID, format_id(rid(3)))})
    assert list(snapshot.resolve(both)) == []
    assert list(snapshot.resolve(both | {(SERVICE, "echo")})) == []


def test_bitmaps_that_were_read_are_kept_up_to_a_limit() -> None:
    snapshot = Snapshot(written(TWO), max_bitmaps=1)
    eu, us = frozenset({(REGION, "eu")}), frozenset({(REGION, "us")})
    for _ in range(2):
        assert list(snapshot.resolve(eu)) == [0, 1]
        assert list(snapshot.resolve(eu)) == [0, 1]
        assert list(snapshot.resolve(us)) == [0]
    assert len(snapshot._kept) == 1


def test_a_tag_may_push_out_the_bitmap_of_another_of_its_query() -> None:
    rows = [route(n, "s", ("big", "1"), *([("small", "1")] if n < 3 else [])) for n in range(1, 9)]
    snapshot = Snapshot(written(rows), max_bitmaps=1)
    assert len(snapshot.carriers(("big", "1"))) == 8
    assert list(snapshot.resolve(frozenset({("big", "1"), ("small", "1")}))) == [0, 1]
    assert list(snapshot.resolve(frozenset({("big", "1"), ("small", "1")}))) == [0, 1]


def test_bitmaps_that_were_read_are_kept_up_to_a_limit_of_bytes() -> None:
    rows = [route(n, "s", ("user", f"u{n % 4}")) for n in range(1, 400)]
    data = written(rows)
    users = {value: len(bitmap) for (_, value), _, bitmap in Snapshot(data).tags() if value}
    limit = users["u0"] + users["u1"]
    snapshot = Snapshot(data, max_bitmap_bytes=limit)
    for user in ("u0", "u1", "u2", "u3", "u0"):
        assert len(snapshot.carriers(("user", user))) in {99, 100}
        assert snapshot._kept_bytes == sum(size for _, _, size in snapshot._kept.values()) <= limit
    assert len(snapshot._kept) == 2
    nothing = Snapshot(data, max_bitmap_bytes=users["u0"] - 1)
    for _ in range(2):
        assert len(nothing.carriers(("user", "u0"))) == 99
    assert not nothing._kept


def test_how_a_bitmap_came_about_does_not_show() -> None:
    one = BitMap(range(10_000))
    for number in range(3_000, 10_000):
        one.discard(number)
    two = BitMap()
    for number in reversed(range(3_000)):
        two.add(number)
    assert portable_bitmap(one) == portable_bitmap(two)
    assert BitMap.deserialize(portable_bitmap(one)) == two


# --- what cannot be written ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (SnapshotRoute(b"short", "s"), "16 bytes"),
        (SnapshotRoute(rid(1), "s", broker_id=b""), "16 bytes"),
        (SnapshotRoute(rid(1), ""), "1 to 255 bytes"),
        (SnapshotRoute(rid(1), "x" * 256), "1 to 255 bytes"),
        (SnapshotRoute(rid(1), "s", timestamp=-1), "timestamp"),
        (SnapshotRoute(rid(1), "s", weight=float("nan")), "weight"),
        (SnapshotRoute(rid(1), "s", weight=-1.0), "weight"),
        (SnapshotRoute(rid(1), "s", tuple((f"k{n}", "") for n in range(300))), "256 tags"),
        (SnapshotRoute(rid(1), "s", (("k", "\ud800"),)), "UTF-8"),
        (SnapshotRoute(rid(1), "s", weight=10**400), "weight"),
        (SnapshotRoute(rid(1), "s", (("k", "x" * 128),)), "the tag 'k': .* at most 127 bytes"),
        (SnapshotRoute(rid(1), "s", (("k", "é" * 64),)), "at most 127 bytes"),
        (SnapshotRoute(rid(1), "s", (("k" * 128, ""),)), "a tag has 1 to 127 bytes"),
        (SnapshotRoute(rid(1), "s", (("", ""),)), "a tag has 1 to 127 bytes"),
        (SnapshotRoute(rid(1), "s", ((SERVICE, "x" * 128),)), "at most 127 bytes"),
    ],
)
def test_a_route_that_is_none_is_refused(bad: SnapshotRoute, why: str) -> None:
    with pytest.raises(SnapshotError, match=why):
        written([bad])


def test_a_service_name_may_be_longer_than_a_value_and_is_a_tag_all_the_same() -> None:
    named = route(1, "x" * 255, (SERVICE, "x" * 255), (SERVICE, "y")).settled()
    snapshot = read_snapshot(written([named]))
    snapshot.check()
    assert snapshot.route(0) == named
    assert list(snapshot.carriers((SERVICE, "x" * 255))) == [0]


def test_a_route_of_too_many_bytes_is_not_written() -> None:
    with pytest.raises(SnapshotError, match="over the limit of 131072 bytes"):
        encode_route(route(1, "s", ("k", "x" * 200_000)))


def test_a_route_that_is_there_twice_is_refused() -> None:
    with pytest.raises(SnapshotError, match="twice"):
        written([route(1), route(1)])


def test_a_writer_takes_routes_and_then_bitmaps_in_order() -> None:
    writer = SnapshotWriter()
    record = encode_route(route(2).settled())
    assert writer.route(rid(2), record) == record
    with pytest.raises(SnapshotError, match="out of order"):
        writer.route(rid(1), record)
    with pytest.raises(SnapshotError, match="16 bytes"):
        writer.route(b"", record)
    numbers = portable_bitmap(BitMap([0]))
    assert writer.posting(("b", None), 1, numbers).endswith(numbers)
    writer.posting(("b", ""), 1, numbers)
    for tag in (("b", ""), ("a", "z")):
        with pytest.raises(SnapshotError, match="twice or out of order"):
            writer.posting(tag, 1, numbers)
    with pytest.raises(SnapshotError, match="before bitmaps"):
        writer.route(rid(3), record)


def test_a_writer_has_a_limit_of_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "onward.protocol.broker._snapshot_writer.MAX_SNAPSHOT_ROUTES"
    monkeypatch.setattr(module, 1)
    with pytest.raises(SnapshotError, match="more than 1 routes"):
        written([route(1), route(2)])


def test_postings_have_the_order_of_their_texts() -> None:
    tags: list[tuple[int | str, str | None]] = [
        ("b", "x"),
        (REGION, "eu"),
        ("b", None),
        ("b", ""),
        (0x41, "x"),
    ]
    assert sorted(tags, key=posting_order) == [
        (0x41, "x"),
        ("b", None),
        ("b", ""),
        ("b", "x"),
        (REGION, "eu"),
    ]
    assert written_tags(route(1).settled()) == ((SERVICE, "echo"),)


# --- what is damaged -----------------------------------------------------------------------------


def everything(data: bytes) -> object:
    snapshot = read_snapshot(data)
    snapshot.check()
    return list(snapshot.routes()), list(snapshot.tags())


@settings(deadline=None, max_examples=times(40, 300))
@given(st.integers(0, 8 * len(written(TWO)) - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    data = bytearray(written(TWO))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SnapshotError):
        everything(bytes(data))


@settings(deadline=None)
@given(st.integers(0, len(written(TWO)) - 1))
def test_every_cut_is_noticed(size: int) -> None:
    with pytest.raises(SnapshotCorrupt):
        read_snapshot(written(TWO)[:size])


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_are_a_snapshot_or_refused(data: bytes) -> None:
    for head in (b"", b"ONWX", written(TWO)[:SNAPSHOT_HEADER_SIZE]):
        with suppress(SnapshotError):
            everything(head + data)


def test_bytes_behind_the_end_are_noticed() -> None:
    with pytest.raises(SnapshotCorrupt, match="and should have"):
        read_snapshot(written(TWO) + b"\0")


def test_a_newer_one_says_what_to_do() -> None:
    with pytest.raises(SnapshotNewer, match="read it with a newer one") as info:
        read_snapshot(sealed(written(TWO), v=2))
    assert info.value.version == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"routes": ...}, "does not say 'routes'"),
        ({"routes": True}, "does not say 'routes'"),
        ({"bitmaps": -1}, "does not say 'bitmaps'"),
        ({"v": "x"}, "does not say 'v'"),
        ({"routes": 2**33}, "more than 4294967295 routes"),
        ({"routes_crc": 1}, "directory of routes"),
        ({"bitmaps_crc": 1}, "directory of bitmaps"),
    ],
)
def test_a_header_that_lies_is_noticed(changes: dict[str, object], why: str) -> None:
    with pytest.raises(SnapshotCorrupt, match=why):
        read_snapshot(sealed(written(TWO), **changes))


@pytest.mark.parametrize(("body", "why"), [(b"\x80", "the header is none"), (b"\x1c", "cannot")])
def test_a_header_that_is_none_is_noticed(body: bytes, why: str) -> None:
    head = b"ONWX" + len(body).to_bytes(4, "little") + crc32(body).to_bytes(4, "little") + body
    with pytest.raises(SnapshotCorrupt, match=why):
        read_snapshot(head.ljust(SNAPSHOT_HEADER_SIZE, b"\0"))


def with_entry(data: bytes, at: int, layout: str, place: int, value: int, name: str) -> bytes:
    """Change a directory's entry, and put its sum right."""
    made = bytearray(data)
    pack_into(layout, made, at + place, value)
    snapshot = Snapshot(data)
    routes = len(made) - 32 * (snapshot.bitmaps + len(snapshot))
    middle = routes + 32 * len(snapshot)
    part = made[routes:middle] if name == "routes_crc" else made[middle:]
    return sealed(bytes(made), **{name: crc32(part)})


@pytest.mark.parametrize(
    ("layout", "place", "value", "why"),
    [
        ("<Q", 16, 3, "somewhere else"),
        ("<Q", 16, 10_000, "somewhere else"),
        ("<I", 24, 1 << 30, "somewhere else"),
        ("<I", 28, 1, "a route is damaged"),
    ],
)
def test_a_directory_of_routes_that_lies_is_noticed(
    layout: str, place: int, value: int, why: str
) -> None:
    data = written([route(1)])
    with pytest.raises(SnapshotCorrupt, match=why):
        read_snapshot(with_entry(data, len(data) - 64, layout, place, value, "routes_crc")).route(0)


@pytest.mark.parametrize(
    ("layout", "place", "value", "why"),
    [
        ("<Q", 8, 3, "somewhere else"),
        ("<Q", 8, 10_000, "somewhere else"),
        ("<I", 16, 1, "somewhere else"),
        ("<I", 20, 2, "the routes it should"),
        ("<I", 24, 1, "a bitmap is damaged"),
    ],
)
def test_a_directory_of_bitmaps_that_lies_is_noticed(
    layout: str, place: int, value: int, why: str
) -> None:
    data = written([route(1)])
    bad = with_entry(data, len(data) - 32, layout, place, value, "bitmaps_crc")
    with pytest.raises(SnapshotCorrupt, match=why):
        read_snapshot(bad).resolve(frozenset({(SERVICE, "echo")}))


def crafted(record: bytes | None = None, bitmaps: Iterable[tuple[TagList, bytes]] = ()) -> bytes:
    writer = SnapshotWriter()
    chunks = [writer.route(rid(1), encode_route(route(1).settled()) if record is None else record)]
    chunks += [writer.posting(tags[0], 1, bitmap) for tags, bitmap in bitmaps]
    tail, header = writer.finish()
    return b"".join((header, *chunks, tail))


ORDER = ("service", "tags", "timestamp", "weight")
ONE = portable_bitmap(BitMap([0]))
ECHO = (SERVICE, "echo")


@pytest.mark.parametrize(
    "record",
    [
        b"\x1c",
        cbor2.dumps(1),
        cbor2.dumps([b"", "s", (), 0, 1.0, True]),
        cbor2.dumps([rid(0), "s", [[1]], 0, 1.0, True]),
        cbor2.dumps([rid(0), "s", [[-1, "x"]], 0, 1.0, True]),
        cbor2.dumps([rid(0), "s", [["", "x"]], 0, 1.0, True]),
        cbor2.dumps([rid(0), "s", [["k", 1]], 0, 1.0, True]),
        cbor2.dumps([rid(0), "s", [[True, "x"]], 0, 1.0, True]),
        cbor2.dumps([rid(0), "s", (), False, 1.0, True]),
        cbor2.dumps([rid(0), "s", (), 0, 1.0, True, False]),
    ],
)
def test_a_route_that_is_none_is_noticed(record: bytes) -> None:
    with pytest.raises(SnapshotCorrupt):
        read_snapshot(crafted(record)).route(0)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"service": ""}, "its service name has not 1 to 255 bytes"),
        ({"service": "é" * 128}, "its service name has not 1 to 255 bytes"),
        ({"timestamp": -5}, "its timestamp"),
        ({"timestamp": 2**63}, "its timestamp"),
        ({"weight": -1.0}, "its weight"),
        ({"weight": float("nan")}, "its weight"),
        ({"weight": float("inf")}, "its weight"),
        ({"tags": [["k", "x" * 128]]}, "at most 127 bytes"),
        ({"tags": [["k" * 128, None]]}, "1 to 127 bytes"),
        ({"tags": [["k", str(n)] for n in range(259)]}, "more than 256 tags"),
    ],
)
def test_a_route_out_of_its_ranges_is_corrupt(fields: dict[str, object], why: str) -> None:
    whole: dict[str, object] = {"service": "s", "tags": [], "timestamp": 0, "weight": 1.0}
    said = {**whole, **fields}
    snapshot = read_snapshot(crafted(cbor2.dumps([rid(0), *map(said.__getitem__, ORDER), True])))
    with pytest.raises(SnapshotCorrupt, match=f"at byte 256: .*{why}"):
        snapshot.route(0)


@pytest.mark.parametrize(
    "tags",
    [
        [],
        [[SERVICE, "echo"], ["b", ""], ["a", ""]],
        [[SERVICE, "echo"], ["a", ""], ["a", ""]],
        [[0, ""], [SERVICE, "echo"]],
        [[SERVICE, "echo"], [ROUTE_ID, f"Id{{{format_id(rid(7))}}}"]],
    ],
)
def test_tags_that_no_table_would_have_so_are_noticed(tags: list[list[int | str]]) -> None:
    record = cbor2.dumps([rid(0), "echo", tags, 0, 1.0, False])
    with pytest.raises(SnapshotCorrupt, match="not as in a table"):
        read_snapshot(crafted(record)).check()


def test_what_is_checked_is_handed_out_on_the_way() -> None:
    assert list(read_snapshot(written(TWO)).checked()) == [TWO[1].settled(), TWO[0].settled()]
    handed = read_snapshot(crafted(None)).checked()
    assert next(handed) == route(1).settled()
    with pytest.raises(SnapshotCorrupt, match="missing"):
        next(handed)


@pytest.mark.parametrize(
    ("bitmaps", "why"),
    [
        ([], "missing"),
        ([((ECHO,), portable_bitmap(BitMap([1])))], "not of the routes"),
        ([((ECHO,), ONE), ((("z", ""),), ONE)], "not of the routes"),
    ],
)
def test_bitmaps_of_other_routes_are_noticed(
    bitmaps: list[tuple[TagList, bytes]], why: str
) -> None:
    with pytest.raises(SnapshotCorrupt, match=why):
        read_snapshot(crafted(None, bitmaps)).check()


def test_what_is_between_the_routes_is_noticed() -> None:
    record = encode_route(route(1).settled()) + b"more"
    with pytest.raises(SnapshotCorrupt):
        read_snapshot(crafted(record)).check()
    snapshot = read_snapshot(crafted(cbor2.dumps([rid(0), "s", (), 0, 0.1, True])))
    assert snapshot.route(0).weight == 0.1


@pytest.mark.parametrize("bitmap", [b"", b"\xff" * 20, portable_bitmap(BitMap([5]))])
def test_a_bitmap_that_is_none_is_noticed(bitmap: bytes) -> None:
    snapshot = read_snapshot(crafted(None, [((ECHO,), bitmap)]))
    with pytest.raises(SnapshotCorrupt, match="bitmap"):
        snapshot.carriers(ECHO)


@pytest.mark.parametrize("near", [1, 64])
def test_every_tag_of_many_is_found(near: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onward.protocol.broker._snapshot.NEAR", near)
    snapshot = read_snapshot(written(route(n, "s", ("user", f"u{n}")) for n in range(400)))
    for number in range(400):
        assert list(snapshot.carriers(("user", f"u{number}"))) == [number]
        assert list(snapshot.carriers(("user", f"v{number}"))) == []


def seven(_: TagList) -> int:
    return 7


def test_tags_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("_snapshot", "_snapshot_writer"):
        monkeypatch.setattr(f"onward.protocol.broker.{module}.shard_hash", seven)
    snapshot = read_snapshot(written(TWO))
    for _ in range(2):
        assert list(snapshot.carriers((REGION, "us"))) == [0]
        assert list(snapshot.carriers(("colour", None))) == [1]
        assert list(snapshot.carriers(("colour", ""))) == []
    assert shard_hash((("a", "b"),)) != 7


def test_the_errors_survive_a_pickle() -> None:
    for error in (SnapshotError("x"), SnapshotCorrupt(3, "y"), SnapshotNewer(9)):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
