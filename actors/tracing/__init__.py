"""Traces of a message's hops, and spans for OpenTelemetry.

```python
async with Node("near") as node:
    node.add_instrument(HopTracer(node))
    traced = await trace(node, "1#127.0.0.1:4000 => relay => echo", b"hi")
    for hop in traced.hops:
        print(hop.node, hop.report.worker, hop.at, hop.waited, hop.handled)
```

Only nodes with a tracer report hops; a node has none by default.
"""

from ._collect import TraceOptions, trace
from ._hops import HopTracer, HopTracerOptions, HopTracerStatistics
from ._otel import OpenTelemetryTracer
from ._trace import Trace, TraceClock, TraceGap, TraceHop

__all__ = [
    "HopTracer",
    "HopTracerOptions",
    "HopTracerStatistics",
    "OpenTelemetryTracer",
    "Trace",
    "TraceClock",
    "TraceGap",
    "TraceHop",
    "TraceOptions",
    "trace",
]
