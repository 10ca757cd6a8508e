"""Ingestion of event logs into a lake of plain Parquet, each event exactly once.

```python
ingest(spark, Path("/var/log/onward"), Path("/data/lake"), Path("/data/checkpoint"))
flows = Lake("/data/lake").table(spark, "flows", day=date(2026, 11, 20))
```
"""

from ._compact import FILE_BYTES, CompactSummary, compact
from ._files import LOCK_SECONDS
from ._ingest import MAX_SEGMENTS, IngestSummary, ingest
from ._lake import Dropped, Lake
from ._parquet import GROUP_ROWS, HELD_BYTES, OPEN_FILES
from ._parts import KEPT_COMMITS, SWEPT_BATCHES
from ._state import KEPT_RANGES, KEPT_SKIPPED, SILENT_AFTER, BrokerState, LakeState, Skipped

__all__ = [
    "FILE_BYTES",
    "GROUP_ROWS",
    "HELD_BYTES",
    "KEPT_COMMITS",
    "KEPT_RANGES",
    "KEPT_SKIPPED",
    "LOCK_SECONDS",
    "MAX_SEGMENTS",
    "OPEN_FILES",
    "SILENT_AFTER",
    "SWEPT_BATCHES",
    "BrokerState",
    "CompactSummary",
    "Dropped",
    "IngestSummary",
    "Lake",
    "LakeState",
    "Skipped",
    "compact",
    "ingest",
]
