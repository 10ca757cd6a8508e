"""What audits of a report find."""

from __future__ import annotations

from typing import Any

import pytest

from onward.cli._audits import MAX_FINDINGS, Level, audit

REPORT: dict[str, Any] = {"report": {"made": 1000.0, "missing": {}}}


def found(**parts: Any) -> list[tuple[str, str]]:
    named = {name.replace("_", "-"): part for name, part in parts.items()}
    return [(each.audit, each.text) for each in audit({**REPORT, **named})]


def rows(*given: dict[str, Any]) -> dict[str, Any]:
    return {"total": len(given), "rows": list(given)}


def listener(uri: str, **more: Any) -> dict[str, Any]:
    return {"uri": uri, "tls": None, "authentication": {}, **more}


def test_a_broker_without_anything() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("uri", "names"),
    [
        ("rsocket+tcp://0.0.0.0:1", ["tls"]),
        ("rsocket+ws://broker.example:1/x", ["tls"]),
        ("rsocket+tls://0.0.0.0:1", []),
        ("rsocket+tcp://127.0.0.1:1", []),
        ("rsocket+tcp://[::1]:1", []),
        ("rsocket+tcp://localhost:1", []),
        ("rsocket+unix:///run/x", []),
    ],
)
def test_listeners_that_others_reach(uri: str, names: list[str]) -> None:
    assert [name for name, _ in found(statistics={"listeners": [listener(uri)]})] == names
    open_ = listener(uri, authentication=None)
    local = "0.0.0.0" not in uri and "example" not in uri
    more = [] if local else ["authentication"]
    assert [name for name, _ in found(statistics={"listeners": [open_]})] == [*names, *more]


def test_certificates_whose_reloads_have_failed() -> None:
    # When a certificate ends is among the problems that the broker itself reports.
    tls = {"not_after": 999.0, "failed_reloads": 2}
    told = found(statistics={"listeners": [listener("rsocket+tls://127.0.0.1:1", tls=tls)]})
    assert [text.partition(": ")[2] for _, text in told] == ["2 reloads of its certificate failed"]


def test_what_the_broker_itself_says_comes_in_its_order() -> None:
    problems = [
        {"severity": severity, "kind": kind, "subject": subject, "text": "x", "advice": "y"}
        for severity, kind, subject in (
            ("info", "a", ""),
            ("warning", "b", "disk"),
            ("critical", "c", ""),
        )
    ]
    assert found(problems={"problems": problems}) == [("c", "x"), ("b", "disk: x"), ("a", "x")]


def test_services() -> None:
    good = {"service": "a", "requests": 1000, "success": 1.0, "p99": 0.1, "busy": 0}
    told = found(
        services=rows(
            {**good, "destinations": 2},
            {**good, "service": "b", "success": 0.5, "p99": 2.5, "busy": 1, "destinations": 1},
            {**good, "service": "c", "success": 0.5, "requests": 5, "destinations": 1},
            {**good, "service": "d", "success": None, "p99": None, "destinations": 2},
            {**good, "service": "onward.management", "destinations": 1},
        )
    )
    assert [name for name, _ in told] == ["success", "latency", "busy", "spare"]
    assert all(text.startswith("b") for _, text in told)


def test_connections() -> None:
    open_ = [{"peer": "a:1", "pending_bytes": 1 << 20}, {"peer": "b:1", "pending_bytes": 1}]
    assert found(connections=rows(*open_)) == [
        ("slow peers", "a:1: 1048576 bytes wait for its socket")
    ]
    closed = [
        {"reason": "silent", "source": "10.0.0.7", "opened": 0.0, "closed": 5.0} for _ in range(100)
    ]
    orderly = [{**each, "reason": "by the peer", "closed": 60.0} for each in closed]
    assert [name for name, _ in found(connections_closed=rows(*closed, *orderly))] == [
        "closed",
        "short connections",
    ]
    assert found(connections_closed=rows(*orderly)) == []


def test_what_waits_and_fails() -> None:
    worker = {"address": "0#a", "kind": "A", "waiting": 0, "limit": 10, "failed": 0, "restarts": 0}
    told = found(
        waiting=rows({"query": "service=x", "requests": 2}),
        workers=rows(
            worker, {**worker, "waiting": 5}, {**worker, "failed": 3}, {**worker, "limit": 0}
        ),
        dead_letters={"reasons": {"not exposed": 4}, "rows": []},
    )
    assert [name for name, _ in told] == ["waiting", "mailboxes", "failures", "dead letters"]


def test_parts_that_are_missing_or_odd_are_told() -> None:
    parts: dict[str, Any] = {
        "report": {"made": "x", "missing": {"stacks": "not allowed"}},
        "services": {"rows": [{}]},
        "workers": 5,
        "statistics": {"x": 1},
    }
    told = audit(parts)
    assert all(each.level is Level.NOTE for each in told)
    assert {each.audit for each in told} == {
        "services",
        "workers",
        "listeners",
        "certificates",
        "parts",
    }


def test_findings_of_one_audit_are_bounded() -> None:
    told = found(waiting=rows(*[{"query": str(at), "requests": 1} for at in range(50)]))
    assert len(told) == MAX_FINDINGS + 1
    assert told[-1] == ("waiting", f"and {50 - MAX_FINDINGS} more")
