"""A trace as values that JSON can represent."""

from __future__ import annotations

from typing import Any

from ...protocol import HopOutcome, format_route
from ._trace import Trace

__all__ = ["trace_row"]


def trace_row(traced: Trace) -> dict[str, Any]:
    """Return a trace as values that JSON can represent; times are in seconds."""
    answer = traced.answer
    return {
        "trace": traced.trace,
        "route": format_route(traced.route),
        "took": traced.took,
        "lost": traced.lost,
        "answer": None
        if answer is None
        else {
            "payload": answer.payload.hex(),
            "return_route": format_route(answer.return_route),
            "after": traced.answered_after,
        },
        "hops": [
            {
                "hop": hop.report.hop,
                "before": hop.report.before,
                "node": hop.node,
                "node_id": hop.report.node_id,
                "worker": str(hop.report.worker),
                "kind": hop.report.kind,
                "at": hop.at,
                "waited": hop.waited,
                "handled": hop.handled,
                "result": HopOutcome(hop.report.outcome).name.lower(),
                "onward_route": format_route(hop.report.onward_route),
                "return_route": format_route(hop.report.return_route),
                "bytes": hop.report.size,
            }
            for hop in traced.hops
        ],
        "silent": [
            {
                "after": gap.after,
                "before": gap.before,
                "passed": format_route(gap.passed),
                "due": format_route(gap.due),
            }
            for gap in traced.gaps
        ],
        "clocks": [
            {
                "node": clock.name,
                "node_id": clock.node_id,
                "offset": clock.offset,
                "error": clock.error,
            }
            for clock in traced.clocks
        ],
    }
