"""The state of a node and its broker for operators: health checks, metrics, events, problems.

A [`Monitor`][onward.actors.monitoring.Monitor] holds them for one node. It only reads
what is counted elsewhere.

```python
monitor = Monitor(node, broker)
monitor.start()
text = "".join(metrics_text(monitor.metrics.collect()))
```
"""

from ._event_ring import EventReader, EventRing, RecentEvent, RecentEvents
from ._health import CheckResult, HealthChecks, Stage
from ._lag import LoopLag
from ._limits import limit_uses
from ._metrics import Collector, Metrics
from ._monitor import METRIC_FAMILIES, Monitor
from ._problems import Observation, Problem, Severity, find_problems
from ._window import Window, WindowPoint

__all__ = [
    "METRIC_FAMILIES",
    "CheckResult",
    "Collector",
    "EventReader",
    "EventRing",
    "HealthChecks",
    "LoopLag",
    "Metrics",
    "Monitor",
    "Observation",
    "Problem",
    "RecentEvent",
    "RecentEvents",
    "Severity",
    "Stage",
    "Window",
    "WindowPoint",
    "find_problems",
    "limit_uses",
]
