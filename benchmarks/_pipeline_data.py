"""Traffic for the pipeline's benchmark: seeded, made with numpy, in segments as of a broker.

Seven hops of ten are requests through a broker, for 120 tag sets of 40 services in three zones;
half of the tag sets have a shard key. The other three are of messages, four hops each. There is a
flow for every ten hops. Four brokers record two hours.
"""

# PySpark, pyarrow and DuckDB are annotated in part, as in the pipeline itself: see pyproject.toml.
# pyright: reportUnknownMemberType=none, reportUnknownVariableType=none
# pyright: reportUnknownArgumentType=none, reportUnknownLambdaType=none

from __future__ import annotations

import zlib
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from onward.protocol.broker import (
    RoutingType,
    SnapshotRoute,
    TagList,
    WellKnownKey,
    write_snapshot,
)
from onward.protocol.eventlog import (
    FLOW,
    HOP,
    Asked,
    Flag,
    Kind,
    Outcome,
    SegmentFooter,
    SegmentHeader,
    block,
    names_block,
    routes_block,
    segment_name,
    tagset_id,
    tagsets_block,
)

__all__ = [
    "START_US",
    "Data",
    "make_flows",
    "make_frames",
    "make_logs",
    "make_postings",
    "make_tables",
]

START_US: Final = 1_795_132_800_000_000  # 2026-11-20, midnight
SPAN_US: Final = 7_200_000_000
BROKERS: Final = 4
SEGMENT_HOPS: Final = 500_000
BLOCK_HOPS: Final = 1024
ORIGINS: Final = 300
SERVICES: Final = 40
ZONES: Final = 3
WORKERS: Final = 24
KEYS: Final = 900_000
ROUTES_EACH: Final = 25
TENANTS: Final = 20_000
"""Distinct tag sets of `make_frames` with `many`."""

HOP_RECORD: Final = np.dtype(
    [
        ("seq", "<u8"),
        ("ts", "<i8"),
        ("trace", "<u8"),
        ("shard", "<u8"),
        ("kind", "u1"),
        ("outcome", "u1"),
        ("hop", "u1"),
        ("flags", "u1"),
        ("origin", "<u4"),
        ("dest", "<u4"),
        ("route", "<u4"),
        ("tagset", "<u4"),
        ("latency", "<u4"),
        ("bytes", "<u4"),
        ("weight", "<u4"),
    ]
)
FLOW_RECORD: Final = np.dtype(
    [
        ("seq", "<u8"),
        ("window", "<i8"),
        ("window_ms", "<u4"),
        ("origin", "<u4"),
        ("dest", "<u4"),
        ("route", "<u4"),
        ("tagset", "<u4"),
        ("kind", "u1"),
        ("outcome", "u1"),
        ("spare", "<u2"),
        ("frames", "<u8"),
        ("bytes", "<u8"),
    ]
)
assert (HOP_RECORD.itemsize, FLOW_RECORD.itemsize) == (HOP.size, FLOW.size)

NAMES: Final = [
    *(f"client-{number}" for number in range(ORIGINS)),
    *(f"service-{number}" for number in range(SERVICES)),
    *(f"node-{number % 4}/worker-{number}" for number in range(WORKERS)),
]


def _tags(service: int, zone: int) -> TagList:
    return (WellKnownKey.SERVICE_NAME, f"service-{service}"), ("zone", f"z{zone}")


TAGSETS: Final = [
    Asked(_tags(service, zone), RoutingType.SHARD if service % 2 else RoutingType.UNICAST)
    for service in range(SERVICES)
    for zone in range(ZONES)
]
ROUTES: Final = [
    blake2b(f"{tagset}/{number}".encode(), digest_size=16).digest()
    for tagset in range(len(TAGSETS))
    for number in range(ROUTES_EACH)
]


@dataclass(frozen=True)
class Data:
    """The logs made, with their counts.

    Attributes:
        log: The directory of logs.
        hops: The number of hops.
        flows: The number of flows.
        segments: The number of segments.
        size: The size in bytes.
    """

    log: Path
    hops: int
    flows: int
    segments: int
    size: int


def make_logs(folder: Path, rows: int, seed: int = 1) -> Data:
    """Write the logs of the brokers, with this number of hops and a tenth of it in flows."""
    each = rows // BROKERS
    written = flows = segments = size = 0
    for broker in range(BROKERS):
        seq, left, parts = 1, each, max(1, -(-each // SEGMENT_HOPS))
        for part in range(parts):
            hops = min(left, -(-each // parts))
            left -= hops
            random = np.random.default_rng((seed, broker, part))
            start = START_US + SPAN_US * part // parts
            data = _segment(random, broker, seq, hops, start, SPAN_US // parts)
            path = folder / f"broker-{broker}" / segment_name(1, seq)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            seq += hops + hops // 10
            written, flows, segments = written + hops, flows + hops // 10, segments + 1
            size += len(data)
    return Data(folder, written, flows, segments, size)


def _segment(
    random: np.random.Generator, broker: int, first: int, hops: int, start: int, span: int
) -> bytes:
    log = blake2b(f"log {broker}".encode(), digest_size=16).digest()
    header = SegmentHeader(f"broker-{broker}", log, 1, first, start, 1.0)
    last = first + hops + hops // 10 - 1
    parts = [header.serialize(), names_block(NAMES), routes_block(ROUTES), tagsets_block(TAGSETS)]
    made, records = _hops(random, first, hops, start, span), HOP.size
    raw = memoryview(made.tobytes())
    parts += [
        block(b"R", raw[at : at + records * BLOCK_HOPS])
        for at in range(0, len(raw), records * BLOCK_HOPS)
    ]
    if hops >= 10:
        parts.append(block(b"F", _flows(random, first + hops, hops // 10, start, span).tobytes()))
    parts.append(SegmentFooter(hops, hops // 10, 0, last, start + span).serialize())
    return b"".join(parts)


def _hops(random: np.random.Generator, first: int, count: int, start: int, span: int) -> Any:
    made = np.zeros(count, HOP_RECORD)
    made["seq"] = np.arange(first, first + count, dtype=np.uint64)
    made["ts"] = start + np.sort(random.integers(0, span, count))
    made["weight"] = 1
    made["latency"] = np.minimum(random.lognormal(7.0, 1.0, count), 4e9).astype(np.uint32)
    made["bytes"] = np.minimum(random.lognormal(6.0, 1.0, count), 4e9).astype(np.uint32)
    asked = count - count * 3 // 10 // 4 * 4
    _requests(random, made[:asked])
    _messages(random, made[asked:])
    return made


def _requests(random: np.random.Generator, made: Any) -> None:
    count = len(made)
    tagset = (len(TAGSETS) * random.random(count) ** 2).astype(np.int64)
    keyed = (tagset // ZONES) % 2 == 1
    key = (KEYS * random.random(count) ** 3).astype(np.uint64) + np.uint64(1)
    made["trace"] = random.integers(1, 1 << 63, count, dtype=np.uint64)
    made["shard"] = np.where(keyed, key * np.uint64(0x9E3779B97F4A7C15), np.uint64(0))
    made["flags"] = np.where(keyed, int(Flag.SHARD), 0)
    made["kind"] = int(Kind.RESPONSE)
    outcomes = [Outcome.DELIVER, Outcome.FAILED, Outcome.UNROUTABLE, Outcome.REJECTED]
    made["outcome"] = random.choice(np.array(outcomes, np.uint8), count, p=[0.96, 0.02, 0.01, 0.01])
    made["origin"] = (ORIGINS * random.random(count) ** 1.5).astype(np.uint32) + 1
    made["dest"] = ORIGINS + 1 + tagset // ZONES
    made["tagset"] = tagset + 1
    made["route"] = tagset * ROUTES_EACH + random.integers(0, ROUTES_EACH, count) + 1


def _messages(random: np.random.Generator, made: Any) -> None:
    traces = len(made) // 4
    made["trace"] = np.repeat(random.integers(1, 1 << 63, traces, dtype=np.uint64), 4)
    made["kind"] = int(Kind.MESSAGE)
    made["hop"] = np.tile(np.arange(4, dtype=np.uint8), traces)
    outcome = np.array([Outcome.FORWARD] * 3 + [Outcome.DELIVER], np.uint8)
    made["outcome"] = np.tile(outcome, traces)
    # 432 routes: six workers at each of three places, then one of two.
    place = random.integers(0, 6, (traces, 4))
    place[:, 3] %= 2
    made["dest"] = (ORIGINS + SERVICES + 1 + place + 6 * np.arange(4)).ravel()
    made["origin"] = np.repeat(random.integers(1, ORIGINS + 1, traces), 4)


def _flows(random: np.random.Generator, first: int, count: int, start: int, span: int) -> Any:
    made = np.zeros(count, FLOW_RECORD)
    made["seq"] = np.arange(first, first + count, dtype=np.uint64)
    made["window"] = start + np.sort(random.integers(0, span, count)) // 10_000_000 * 10_000_000
    made["window_ms"] = 10_000
    tagset = random.integers(0, len(TAGSETS), count)
    made["origin"] = random.integers(1, ORIGINS + 1, count)
    made["dest"] = ORIGINS + 1 + tagset // ZONES
    made["route"] = tagset * ROUTES_EACH + random.integers(0, ROUTES_EACH, count) + 1
    made["tagset"] = tagset + 1
    made["kind"] = int(Kind.RESPONSE)
    outcomes = np.array([Outcome.FORWARD, Outcome.DELIVER, Outcome.UNROUTABLE], np.uint8)
    made["outcome"] = random.choice(outcomes, count, p=[0.5, 0.48, 0.02])
    made["frames"] = random.integers(1, 1000, count)
    made["bytes"] = made["frames"] * 300
    return made


# --- tables that are made at once, without a log ------------------------------------------------


def _ids(count: int, what: str) -> Any:
    digests = [blake2b(f"{what} {n}".encode(), digest_size=8).digest() for n in range(count)]
    return np.array([int.from_bytes(each, signed=True) for each in digests], np.int64)


def _write(folder: Path, columns: dict[str, Any], files: int = 8) -> None:
    folder.mkdir(parents=True)
    table = pa.table(columns)
    size = -(-len(table) // files)
    for number in range(files):
        part = table.slice(number * size, size)
        pq.write_table(part, folder / f"{number}.parquet", compression="zstd")


def make_flows(folder: Path, rows: int, seed: int = 2) -> None:
    """Write a table `flows` of this number of rows, with 90,000 pairs of origin and destination."""
    random = np.random.default_rng(seed)
    names, tagsets = _ids(600, "name"), _ids(120, "tagset")
    outcomes = np.array([Outcome.FORWARD, Outcome.DELIVER, Outcome.UNROUTABLE], np.int8)
    frames = random.integers(1, 1000, rows)
    # As ingest writes it: in order of time, in windows of ten seconds.
    window = START_US + np.sort(random.integers(0, 12, rows)) * 10_000_000
    dest = random.integers(0, 300, rows)
    _write(
        folder,
        {
            "broker": pa.array(["broker-0"], pa.string()).take(pa.array(np.zeros(rows, np.int8))),
            "epoch": np.ones(rows, np.int32),
            "seq": np.arange(1, rows + 1),
            "window_start": pa.array(window, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "window_ms": np.full(rows, 10_000, np.int32),
            "origin_node": names[random.integers(0, 300, rows)],
            "dest_node": names[300 + dest],
            "route_id": np.zeros(rows, np.int64),
            "tagset_id": tagsets[dest % 120],
            "kind": np.full(rows, int(Kind.RESPONSE), np.int8),
            "outcome": random.choice(outcomes, rows, p=[0.5, 0.48, 0.02]),
            "frames": frames,
            "bytes": frames * 300,
        },
    )


def _many(tenant: int) -> TagList:
    return (WellKnownKey.SERVICE_NAME, "tenancy"), ("tenant", f"t{tenant}")


def make_frames(folder: Path, rows: int, *, many: bool, seed: int = 3) -> list[Asked]:
    """Write a table `hops` of requests for few or many tag sets; return the tag sets.

    Half of the requests have a shard key.
    """
    random = np.random.default_rng(seed)
    asked = (
        [
            Asked(_many(tenant), RoutingType.SHARD if tenant % 2 else RoutingType.UNICAST)
            for tenant in range(TENANTS)
        ]
        if many
        else TAGSETS
    )
    ids = np.array([tagset_id(each) for each in asked], np.int64)
    sharded = np.array([each.routing is RoutingType.SHARD for each in asked])
    which = random.integers(0, len(asked), rows)
    zeros = np.zeros(rows, np.int64)
    _write(
        folder,
        {
            "broker": pa.array(["broker-0"], pa.string()).take(pa.array(np.zeros(rows, np.int8))),
            "epoch": np.ones(rows, np.int32),
            "seq": np.arange(1, rows + 1),
            "ts": pa.array(START_US + np.arange(rows)).cast(pa.timestamp("us", tz="UTC")),
            "trace_id": random.integers(1, 1 << 62, rows),
            "kind": np.full(rows, int(Kind.RESPONSE), np.int8),
            "outcome": np.full(rows, int(Outcome.DELIVER), np.int8),
            "hop": zeros.astype(np.int16),
            "flags": np.where(sharded[which], int(Flag.SHARD), 0).astype(np.int16),
            "origin_node": zeros,
            "dest_node": zeros,
            "route_id": zeros,
            "tagset_id": ids[which],
            "shard_hash": np.where(sharded[which], random.integers(-(1 << 62), 1 << 62, rows), 0),
            "latency_us": zeros,
            "bytes": zeros,
            "weight": np.ones(rows, np.int64),
        },
    )
    return asked


def make_tables(folder: Path) -> tuple[Path, Path]:
    """Write a routing table and a candidate for it that lacks each fiftieth destination."""
    rows = [
        SnapshotRoute(route_id, f"service-{number // ROUTES_EACH // ZONES}", asked_tags)
        for number, route_id in enumerate(ROUTES)
        for asked_tags in [TAGSETS[number // ROUTES_EACH].tags]
    ]
    for tenant in range(TENANTS):
        for number in range(2):
            digest = blake2b(f"tenant {tenant}/{number}".encode(), digest_size=16).digest()
            rows.append(SnapshotRoute(digest, "tenancy", _many(tenant)))
    folder.mkdir(parents=True)
    table, candidate = folder / "now.onwx", folder / "then.onwx"
    table.write_bytes(b"".join(write_snapshot(rows)))
    left = [row for row in rows if zlib.crc32(row.route_id) % 50]
    candidate.write_bytes(b"".join(write_snapshot(left)))
    return table, candidate


def make_postings(folder: Path, routes: int, seed: int = 4) -> None:
    """Write routes with four tags each: `number`, `keys`, `values`."""
    random = np.random.default_rng(seed)
    values, each = list[Any](), {"service": 1000, "zone": 5, "version": 50, "host": routes // 25}
    for key, distinct in each.items():
        texts = pa.array([f"{key}-{number}" for number in range(max(1, distinct))])
        values.append(texts.take(pa.array(random.integers(0, max(1, distinct), routes))))
    # The four tags of a route are adjacent.
    order = pa.array((np.arange(4) * routes + np.arange(routes)[:, None]).ravel())
    offsets = pa.array(np.arange(0, 4 * routes + 1, 4, dtype=np.int32))
    keys = pa.array(list(each)).take(pa.array(np.tile(np.arange(4), routes)))
    _write(
        folder,
        {
            "number": np.arange(routes, dtype=np.int64),
            "keys": pa.ListArray.from_arrays(offsets, keys),
            "values": pa.ListArray.from_arrays(offsets, pa.concat_arrays(values).take(order)),
        },
    )
