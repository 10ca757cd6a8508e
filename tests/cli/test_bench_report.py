"""The figures of `onward bench` in its formats."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from onward.cli._bench_report import as_csv, as_json, as_text
from onward.cli._load import End, Measured

DESCRIBED: dict[str, Any] = {
    "interaction": "stream",
    "query": "service=a\x1b",
    "broker": "rsocket+tcp://a:1",
    "clients": 2,
    "rate": 50.0,
    "window": None,
    "size": 64,
}


def measured() -> Measured:
    found = Measured(elements=500, received=32_000, sent=106, seconds=2.0, late=0.5)
    for number in range(1, 101):
        found.latencies.add(number / 1000)
        found.firsts.add(number / 10_000)
    found.ends.update({End.ANSWERED: 100, End.REJECTED: 1, End.CANCELED: 2, End.ERROR: 3})
    found.problems["DestinationError: no\x1b[2J"] = 3
    return found


def test_text() -> None:
    lines = as_text(DESCRIBED, measured()).splitlines()
    assert lines[:3] == [
        "stream to service=a\\x1b: 2 clients, 50/s, 64 bytes",
        "106 sent in 2.00 s: 100 answered, 1 rejected, 2 canceled, 3 errors",
        "50.0 requests/s, 0.02 MB/s received",
    ]
    assert lines[4].split() == [
        "min",
        *("p50", "p90", "p99", "p99.9", "p99.99"),
        "max",
        "mean",
        "ms",
    ]
    assert lines[5].split()[:2] == ["latency", "1.00"]
    assert lines[6].split()[:4] == ["first", "element", "0.10", "5.02"]
    assert lines[7] == "500 elements, 250/s"
    assert lines[8].startswith("the load was sent up to 500 ms late")
    assert lines[9:] == ["3 x DestinationError: no\\x1b[2J"]


def test_text_of_a_closed_loop_and_of_nothing() -> None:
    described = {**DESCRIBED, "interaction": "fnf", "rate": None, "window": 8}
    assert as_text(described, Measured()).splitlines() == [
        "fnf to service=a\\x1b: 2 clients, 8 in flight for each client, 64 bytes",
        "0 sent in 0.00 s: 0 handed over",
        "0.0 requests/s, 0.00 MB/s received",
    ]


def test_json() -> None:
    found = json.loads(as_json(DESCRIBED, measured()))
    assert found["ends"] == {
        "answered": 100,
        "rejected": 1,
        "canceled": 2,
        "errors": 3,
        "timeouts": 0,
        "lost": 0,
        "not_sent": 0,
    }
    assert (found["latency"]["min"], found["latency"]["max"]) == (0.001, 0.1)
    assert 0.05 <= found["latency"]["p50"] <= 0.0504
    assert (found["elements"], found["per_second"], found["late"]) == (500, 50, 0.5)


def test_csv_has_the_same_columns_for_all_interactions() -> None:
    text = as_csv(DESCRIBED, measured())
    (row,) = csv.DictReader(io.StringIO(text))
    assert (row["rate"], row["window"], row["rejected"]) == ("50.0", "", "1")
    assert row["p99.99"] == "0.100000"
    assert row["query"] == "service=a\x1b"
    other = {**DESCRIBED, "interaction": "fnf"}
    assert as_csv(other, Measured()).splitlines()[0] == text.splitlines()[0]
