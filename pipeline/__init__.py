"""The analysis of event logs with Spark: the lake, reports and rehearsals of changes.

A session needs the extra `onward[spark]`. Of Onward only the command imports this package, and
only for its own subcommands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import (
    BadMethod,
    BadOption,
    CheckpointLost,
    CheckpointRefused,
    CommitsLost,
    DayOpen,
    DiskRefused,
    DuplicateBroker,
    FileGone,
    LakeBusy,
    LakeError,
    LakeLost,
    LogError,
    NeedsClassic,
    NewerLake,
    NewerSegment,
    NoCommit,
    NoEventLog,
    NotALake,
    OtherQuery,
    PipelineError,
    RouteUnreadable,
    SegmentDamaged,
    SegmentGap,
    SegmentGone,
    SegmentLate,
    TableUnreadable,
    known_error,
)
from ._java import MIN_JAVA, JavaMissing, find_java
from ._schema import (
    EVENT_TABLES,
    FROM_DISPATCHERS,
    FROM_HOLD,
    FROM_PEERS,
    LAKE_TABLES,
    PARTITIONS,
    REPORT_TABLES,
)

if TYPE_CHECKING:
    from ._session import CONF, LOCAL, TEST, build_session

__all__ = [
    "CONF",
    "EVENT_TABLES",
    "FROM_DISPATCHERS",
    "FROM_HOLD",
    "FROM_PEERS",
    "LAKE_TABLES",
    "LOCAL",
    "MIN_JAVA",
    "PARTITIONS",
    "REPORT_TABLES",
    "TEST",
    "BadMethod",
    "BadOption",
    "CheckpointLost",
    "CheckpointRefused",
    "CommitsLost",
    "DayOpen",
    "DiskRefused",
    "DuplicateBroker",
    "FileGone",
    "JavaMissing",
    "LakeBusy",
    "LakeError",
    "LakeLost",
    "LogError",
    "NeedsClassic",
    "NewerLake",
    "NewerSegment",
    "NoCommit",
    "NoEventLog",
    "NotALake",
    "OtherQuery",
    "PipelineError",
    "RouteUnreadable",
    "SegmentDamaged",
    "SegmentGap",
    "SegmentGone",
    "SegmentLate",
    "TableUnreadable",
    "build_session",
    "find_java",
    "known_error",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, as it needs PySpark: the command reports a missing package first.
    if name in {"CONF", "LOCAL", "TEST", "build_session"}:
        from . import _session

        return getattr(_session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
