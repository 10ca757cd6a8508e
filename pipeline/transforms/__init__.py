"""Transforms: the reports, as pure functions of data frames.

```python
matrix = lake.table(spark, "flows", day=day).transform(traffic_matrix)
quantiles = hops.transform(latency_histogram).transform(latency_quantiles)
```

A transform takes tables of the lake as `LAKE_TABLES` declares them, and returns exactly the columns
that `REPORT_TABLES` declares for its report. It does not read, write, look up a session, run a job
or read a clock: the caller chooses the day of the tables. It uses Spark's expressions only, no
functions of Python. Each row of the lake is one event; ingestion removes duplicates.
"""

from ._audit import AUDIT_SECONDS, audit, audit_totals
from ._churn import FLAP_SECONDS, route_churn
from ._histogram import (
    MAX_ERROR,
    MAX_LATENCY_US,
    bucket_bounds,
    bucket_column,
    bucket_of,
)
from ._holes import MAX_REASONS, log_holes
from ._latency import latency_histogram, latency_quantiles, merge_latency
from ._names import name_outcomes
from ._objectives import MAX_OBJECTIVES, Objective, slo_burn
from ._paths import (
    LOOK_AROUND,
    MAX_PATH,
    MAX_PATHS,
    MAX_PLACES,
    SETTLED,
    TEMPORARY,
    path_anomalies,
    paths,
)
from ._relays import relay_load
from ._shards import MAX_HOT_KEYS, hot_keys, shard_load
from ._traffic import traffic_matrix
from ._unroutable import MAX_CANDIDATES, MAX_SEARCHED, unroutable

__all__ = [
    "AUDIT_SECONDS",
    "FLAP_SECONDS",
    "LOOK_AROUND",
    "MAX_CANDIDATES",
    "MAX_ERROR",
    "MAX_HOT_KEYS",
    "MAX_LATENCY_US",
    "MAX_OBJECTIVES",
    "MAX_PATH",
    "MAX_PATHS",
    "MAX_PLACES",
    "MAX_REASONS",
    "MAX_SEARCHED",
    "SETTLED",
    "TEMPORARY",
    "Objective",
    "audit",
    "audit_totals",
    "bucket_bounds",
    "bucket_column",
    "bucket_of",
    "hot_keys",
    "latency_histogram",
    "latency_quantiles",
    "log_holes",
    "merge_latency",
    "name_outcomes",
    "path_anomalies",
    "paths",
    "relay_load",
    "route_churn",
    "shard_load",
    "slo_burn",
    "traffic_matrix",
    "unroutable",
]
