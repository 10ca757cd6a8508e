"""The figures of `onward bench` as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from typing import Any, Final

from ..protocol import counted
from ._histogram import Histogram
from ._load import End, Measured
from ._show import printable

__all__ = ["as_csv", "as_json", "as_text"]

QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}

LATE: Final = 0.01
"""Seconds of delay of the load itself from which on it is told."""

_MS: Final = 1000.0


def figures(described: Mapping[str, Any], measured: Measured) -> dict[str, Any]:
    """Return all figures by name; times are in seconds."""
    answered = measured.ends[End.ANSWERED]
    found: dict[str, Any] = {
        **described,
        "seconds": measured.seconds,
        "sent": measured.sent,
        "ends": {end.value.replace(" ", "_"): measured.ends[end] for end in End},
        "per_second": answered / measured.seconds if measured.seconds else 0.0,
        "received_bytes": measured.received,
        "latency": _durations(measured.latencies),
        "late": measured.late,
        "problems": dict(measured.problems.most_common()),
    }
    if described["interaction"] == "stream":
        found["elements"] = measured.elements
        found["first"] = _durations(measured.firsts)
    return found


def _durations(histogram: Histogram) -> dict[str, float]:
    return {
        "min": histogram.shortest,
        **{name: histogram.quantile(part) for name, part in QUANTILES.items()},
        "max": histogram.longest,
        "mean": histogram.mean,
    }


def as_json(described: Mapping[str, Any], measured: Measured) -> str:
    """Return the figures as JSON."""
    return json.dumps(figures(described, measured), indent=2)


def as_csv(described: Mapping[str, Any], measured: Measured) -> str:
    """Return the figures as two lines: headings and values, the same for all interactions."""
    found = figures(described, measured)
    row: dict[str, Any] = {
        **{name: found[name] for name in described},
        "seconds": f"{measured.seconds:.3f}",
        "sent": measured.sent,
        **found["ends"],
        "per_second": f"{found['per_second']:.1f}",
        "elements": measured.elements,
        "received_bytes": measured.received,
        **{name: f"{value:.6f}" for name, value in found["latency"].items()},
        "late": f"{measured.late:.6f}",
    }
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(row)
    writer.writerow(["" if value is None else value for value in row.values()])
    return text.getvalue().rstrip("\n")


def as_text(described: Mapping[str, Any], measured: Measured) -> str:
    """Return the figures for a person."""
    found = figures(described, measured)
    rate, window = described["rate"], described["window"]
    loop = f"{rate:g}/s" if window is None else f"{window} in flight for each client"
    fire = described["interaction"] == "fnf"
    ends = [
        f"{measured.ends[end]} {'handed over' if fire and end is End.ANSWERED else end.value}"
        for end in End
        if measured.ends[end] or end is End.ANSWERED
    ]
    clients, length = counted(described["clients"], "client"), max(measured.seconds, 1e-9)
    received = measured.received / length / 1e6
    lines = [
        f"{described['interaction']} to {printable(described['query'])}: {clients}, {loop}, "
        + counted(described["size"], "byte"),
        f"{measured.sent} sent in {measured.seconds:.2f} s: {', '.join(ends)}",
        f"{found['per_second']:.1f} requests/s, {received:.2f} MB/s received",
    ]
    if measured.latencies.count:
        lines += ["", _table({"latency": found["latency"], "first element": found.get("first")})]
    if described["interaction"] == "stream":
        lines.append(f"{measured.elements} elements, {measured.elements / length:.0f}/s")
    if measured.late > LATE:
        lines.append(
            f"the load was sent up to {measured.late * _MS:.0f} ms late: latencies count from when "
            "it was due, and this machine may be the limit"
        )
    lines += [printable(f"{count} x {text}") for text, count in measured.problems.most_common()]
    return "\n".join(lines)


def _table(rows: Mapping[str, Mapping[str, float] | None]) -> str:
    shown = {name: row for name, row in rows.items() if row is not None}
    width = max(map(len, shown))
    headings = next(iter(shown.values()))
    lines = [" " * width + "".join(f"{heading:>10}" for heading in headings) + "   ms"]
    lines += [
        f"{name:<{width}}" + "".join(f"{value * _MS:10.2f}" for value in row.values())
        for name, row in shown.items()
    ]
    return "\n".join(lines)
