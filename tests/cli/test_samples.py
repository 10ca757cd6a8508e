"""What the how-to shows of each command is what it prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from onward.cli import _resolve, _routes, _statistics, _watch

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-the-broker.md"
AT = datetime(2026, 11, 21, 20, 27, 12, tzinfo=UTC).timestamp()


def row(
    route: str, service: str, tags: Mapping[str, str], peer: str, requests: int, latency: float
) -> dict[str, Any]:
    return {
        "route": route,
        "service": service,
        "tags": {"service": service, **tags, "route": route},
        "peer": peer,
        "outstanding": 1 if peer == "local" else 0,
        "requests": requests,
        "latency": latency,
        "busy": False,
        "since": AT,
    }


OWN = row("991a76fb-0438-44f6-a4f9-f5dd7775f7f0", "onward.management", {}, "local", 2, 0.0)
ONE = row(
    "7188a111-4eea-4426-9606-e9eb31675d9c",
    "orders",
    {"region": "eu", "weight": "2"},
    "10.0.0.4:51214",
    10,
    0.00104,
)
TWO = row(
    "9c0899d1-3bd4-48e3-b414-f2fe81831c41", "orders", {"region": "eu"}, "10.0.0.5:40922", 10, 0.0012
)
THREE = row(
    "b045a603-ed9d-4e4d-b659-7ebfec29af0f",
    "orders",
    {"region": "us"},
    "unix:pid=7896,uid=1000",
    1,
    0.0,
)
FOUND = {
    "query": "service=orders region=eu",
    "routing": "unicast",
    "method": "roundrobin",
    "next": ONE["route"],
    "sticky": False,
    "matching": [ONE, TWO],
    "others": [
        {"route": THREE, "missing": [], "different": ["region=us"]},
        {"route": OWN, "missing": ["region=eu"], "different": ["service=onward.management"]},
    ],
    "matches": 2,
    "routes": 4,
}
LISTENER = {
    "uri": "rsocket+tcp://127.0.0.1:8001",
    "connections": 3,
    "handshakes": 0,
    "streams": 1,
    "accepted": 9,
    "turned_away": 0,
    "requests": 28,
    "refused": 0,
    "dropped": {},
    "closed": {"by the peer": 5, "silent": 1},
    "refused_handshakes": {},
}
FIGURES = {
    "routes": 4,
    "waiting": 0,
    "waiting_bytes": 0,
    "oldest_wait": 0.0,
    "waited": 2,
    "rejected": 1,
    "lost": 0,
    "unknown_methods": 0,
    "failed_methods": 0,
    "sticky_forgotten": 0,
    "multicast_skipped": 0,
    "multicast_left": 0,
    "multicast_overflowed": 0,
    "watchers": 0,
    "streams": 1,
    "listeners": [LISTENER, {**LISTENER, "uri": "rsocket+unix:///run/onward.sock", "streams": 0}],
}
EVENT = {
    "kind": "joined",
    "at": AT,
    "route_id": THREE["route"],
    "service": "orders",
    "tags": list(THREE["tags"].items()),
    "peer": THREE["peer"],
    "reason": "",
    "query": "",
    "missed": 0,
}
NOBODY = {
    **EVENT,
    "kind": "rejected",
    "route_id": None,
    "peer": "",
    "reason": "no route: service=stock",
}


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show times as the page does, wherever the machine is."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(lambda: _routes.show([OWN, ONE, TWO, THREE]), id="routes"),
        pytest.param(lambda: _resolve.show(FOUND), id="resolve"),
        pytest.param(lambda: "\n".join(map(_watch.show, (EVENT, NOBODY))), id="watch"),
        pytest.param(lambda: _statistics.show(FIGURES), id="statistics"),
    ],
)
def test_the_how_to_shows_what_is_printed(shown: Callable[[], str]) -> None:
    assert f"\n{shown()}\n```" in PAGE.read_text()
