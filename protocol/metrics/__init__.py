"""Metrics as values, and their text as Prometheus reads it. Pure: figures in, text out.

A [`MetricFamily`][onward.protocol.metrics.MetricFamily] says what is measured; a
[`Metric`][onward.protocol.metrics.Metric] has the values of its series at one moment.

```python
CONNECTIONS = MetricFamily("onward_connections", "gauge", "Connections now.", ("listener",))
metric = Metric(CONNECTIONS, ((("rsocket+tcp://127.0.0.1:8001",), 3),))
text = "".join(metrics_text((metric,), TextFormat.PROMETHEUS))
```
"""

from ._families import Across, Metric, MetricFamily, Series
from ._histogram import BUCKETS, DurationHistogram, Durations, quantile
from ._merge import MAX_SERIES, PROCESS, MergedMetrics
from ._text import MAX_SLICE, TextFormat, metrics_text, text_format

__all__ = [
    "BUCKETS",
    "MAX_SERIES",
    "MAX_SLICE",
    "PROCESS",
    "Across",
    "DurationHistogram",
    "Durations",
    "MergedMetrics",
    "Metric",
    "MetricFamily",
    "Series",
    "TextFormat",
    "metrics_text",
    "quantile",
    "text_format",
]
