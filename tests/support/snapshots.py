"""Routes for snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from onward.protocol.broker import SnapshotRoute, TagList, WellKnownKey, format_id, write_snapshot

REGION = int(WellKnownKey.REGION)
ROUTE_ID = int(WellKnownKey.ROUTE_ID)
SERVICE = int(WellKnownKey.SERVICE_NAME)


def rid(number: int) -> bytes:
    return number.to_bytes(16)


def route(number: int, service: str = "echo", *tags: tuple[int | str, str | None]) -> SnapshotRoute:
    return SnapshotRoute(rid(number), service, tags)


def written(routes: Iterable[SnapshotRoute]) -> bytes:
    return b"".join(write_snapshot(routes))


TWO = (
    SnapshotRoute(rid(2), "orders", ((REGION, "eu"), ("colour", None)), rid(9), 1234, 2.5),
    SnapshotRoute(rid(1), "orders", ((REGION, "eu"), (REGION, "us"))),
)


keys = st.one_of(st.sampled_from([0, 1, 2, 6, 7, 0x41]), st.sampled_from(["a", "b", "region"]))
values = st.one_of(st.none(), st.sampled_from(["", "x", "y", format_id(rid(3)), "Id{no}", "\0"]))
tag_lists = st.lists(st.tuples(keys, values), max_size=5).map(tuple)
tables = st.dictionaries(st.integers(0, 30), tag_lists, max_size=12)


def routes_of(table: dict[int, TagList]) -> list[SnapshotRoute]:
    return [SnapshotRoute(rid(n), f"s{n % 3}", tags) for n, tags in table.items()]
