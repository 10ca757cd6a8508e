"""The columns of the tables of the lake and of the reports.

Spark has no unsigned numbers: 64-bit ids keep their bits and are only compared. Times are UTC.
A test compares the columns with `protocol.eventlog`.

Ids of names (`node`), routes and tag sets are the first 8 bytes of BLAKE2b, as a signed number;
`protocol.eventlog` defines the bytes that are hashed. 0 stands for none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = [
    "EVENT_TABLES",
    "FROM_DISPATCHERS",
    "FROM_HOLD",
    "FROM_PEERS",
    "LAKE_TABLES",
    "PARTITIONS",
    "REPORT_TABLES",
]

FROM_PEERS: Final = "(from peer brokers)"
"""The `dst`, in the audit, of the requests that other brokers have forwarded to a broker."""

FROM_DISPATCHERS: Final = "(from other dispatchers)"
"""The `dst`, in the audit, of the messages to names that other dispatchers have sent to one."""

FROM_HOLD: Final = "(from messages on disk)"
"""The `dst`, in the audit, of messages to names that have come out of the file of those on hold."""

EVENT_TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hops": "broker string, epoch int, seq bigint, ts timestamp, trace_id bigint, kind tinyint,"
        " outcome tinyint, hop smallint, flags smallint, origin_node bigint, dest_node bigint,"
        " route_id bigint, tagset_id bigint, shard_hash bigint, latency_us bigint, bytes bigint,"
        " weight bigint",
        "flows": "broker string, epoch int, seq bigint, window_start timestamp, window_ms int,"
        " origin_node bigint, dest_node bigint, route_id bigint, tagset_id bigint, kind tinyint,"
        " outcome tinyint, frames bigint, bytes bigint",
        "route_events": "broker string, epoch int, seq bigint, ts timestamp, event string,"
        " route_id bigint, node bigint, tags map<string,string>, reason string",
        "tagsets": "broker string, epoch int, first_seq bigint, tagset_id bigint,"
        " tags map<string,string>, text string, routing string, method string,"
        " first_seen timestamp",
        "nodes": "broker string, epoch int, first_seq bigint, node bigint, name string,"
        " first_seen timestamp",
        "routes": "broker string, epoch int, first_seq bigint, route_id bigint, uuid string,"
        " first_seen timestamp",
        "segments": "broker string, epoch int, first_seq bigint, last_seq bigint, log_id string,"
        " path string, version int, sample_rate double, started timestamp, ended timestamp,"
        " hops bigint, flows bigint, events bigint, size bigint, damaged string",
    }
)
"""The tables of the data source `onward`, by its option `table`: DDL."""

LAKE_TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hops": EVENT_TABLES["hops"],
        "flows": EVENT_TABLES["flows"],
        "route_events": EVENT_TABLES["route_events"],
        "segments": EVENT_TABLES["segments"],
        "dim_tagset": "tagset_id bigint, tags map<string,string>, text string, routing string,"
        " method string, first_seen timestamp",
        "dim_node": "node bigint, name string, first_seen timestamp",
        "dim_route": "route_id bigint, uuid string, first_seen timestamp",
        "completeness": "broker string, log_id string, sealed_through timestamp, last_epoch int,"
        " last_seq bigint, segments bigint, events bigint, missing bigint",
        "late": "broker string, epoch int, seq bigint, ts timestamp, source string, day date",
    }
)
"""The tables of the lake: DDL, without the columns of `PARTITIONS`."""

PARTITIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "hops": ("date", "hour", "batch"),
        "flows": ("date", "hour", "batch"),
        "route_events": ("date", "batch"),
        "segments": ("batch",),
        "late": ("date", "batch"),
        "dim_tagset": ("batch",),
        "dim_node": ("batch",),
        "dim_route": ("batch",),
        "completeness": ("batch",),
    }
)
"""The partition columns of each table: `date` is a date, `hour` an int, `batch` a bigint."""

REPORT_TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "traffic_matrix": "minute timestamp, origin_node bigint, dest_node bigint,"
        " tagset_id bigint, frames bigint, bytes bigint, failed bigint",
        "latency_hist": "minute timestamp, dest_node bigint, tagset_id bigint, bucket int,"
        " n bigint",
        "latency_quantiles": "minute timestamp, dest_node bigint, tagset_id bigint, n bigint,"
        " p50_us double, p95_us double, p99_us double",
        "shard_load": "hour timestamp, tagset_id bigint, route_id bigint, frames bigint,"
        " share double, skew double",
        "hot_keys": "hour timestamp, tagset_id bigint, shard_hash bigint, frames bigint,"
        " share double",
        "route_churn": "hour timestamp, node bigint, route_id bigint, ups int, downs int,"
        " flaps int, median_life_s double",
        "unroutable": "hour timestamp, tagset_id bigint, frames bigint, first_ts timestamp,"
        " last_ts timestamp, nearest map<string,string>",
        "slo_burn": "window_start timestamp, objective string, good bigint, total bigint,"
        " burn_5m double, burn_1h double, burn_6h double",
        "name_outcomes": "hour timestamp, name_node bigint, dest_node bigint, received bigint,"
        " accepted bigint, settled bigint, rejected bigint, released bigint, modified bigint,"
        " dropped bigint, canceled bigint, held bigint, redirected bigint",
        "relay_load": "hour timestamp, relay string, origin_node bigint, dest_node bigint,"
        " relayed bigint, bytes bigint, refused bigint",
        "audit": "window_start timestamp, src string, dst string, sent bigint, received bigint,"
        " delivered bigint, dropped bigint, unroutable bigint, missing bigint,"
        " duplicated bigint",
        "paths": "path array<bigint>, traces bigint, p95_us double",
        "path_anomalies": "trace_id bigint, kind string, path array<bigint>",
        "replay_summary": "tagset_id bigint, frames bigint, moved bigint, lost bigint,"
        " gained bigint, moved_ratio double, skew_old double, skew_new double",
        "replay_routes": "route_id bigint, frames_old bigint, frames_new bigint",
        "tag_index": "key string, value string, n bigint, bitmap binary",
    }
)
"""The tables of the reports: DDL. A time is the start of the period that it names."""
