"""Tag indexes of many routes, and the check of a broker's index against its log.

```python
manifest = write_snapshot_from(prepare(spark.read.parquet("routes")), "index")
drift = verify(spark, "saved.onwx", Lake("lake"))
```

The snapshot has the bytes that a single process writes (`protocol.broker.write_snapshot`). A broker
loads it with `onward broker --index index/index.onwx`.
"""

from ._build import MAX_PARTIALS, build, number_routes
from ._routes import (
    PREPARED,
    ROUTE_ROWS,
    prepare,
    routes_of_events,
    routes_of_lines,
    routes_of_snapshot,
)
from ._write import MANIFEST, MAX_SHOWN, SNAPSHOT, Drift, Manifest, verify, write_snapshot_from

__all__ = [
    "MANIFEST",
    "MAX_PARTIALS",
    "MAX_SHOWN",
    "PREPARED",
    "ROUTE_ROWS",
    "SNAPSHOT",
    "Drift",
    "Manifest",
    "build",
    "number_routes",
    "prepare",
    "routes_of_events",
    "routes_of_lines",
    "routes_of_snapshot",
    "verify",
    "write_snapshot_from",
]
