"""`onward statistics`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from onward.cli import main
from onward.cli._statistics import show
from onward.cli._status import CommandError, Status

LISTENER = {
    "uri": "rsocket+tcp://x:1",
    "connections": 2,
    "handshakes": 0,
    "streams": 3,
    "accepted": 5,
    "turned_away": 0,
    "requests": 9,
    "refused": 1,
    "dropped": {"unknown_type": 1},
    "closed": {"by the peer": 2, "silent": 1},
    "refused_handshakes": {},
}


def test_it_prints_the_figures(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statistics", "--broker", broker]) == Status.OK
    own, listeners = capsys.readouterr().out.split("\n\n")
    assert own.splitlines()[0].split() == ["routes", "2"]
    assert "oldest wait" in own
    headings, line = listeners.splitlines()
    assert headings.split()[:4] == ["LISTENER", "CONNECTIONS", "HANDSHAKES", "STREAMS"]
    assert line.split() == [broker, "1", "0", "1", "1", "0", "1", "0"]


def test_it_prints_json(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statistics", "--broker", broker, "--json"]) == Status.OK
    figures = json.loads(capsys.readouterr().out)
    assert (figures["routes"], figures["streams"]) == (2, 1)
    assert figures["listeners"][0]["uri"] == broker


def test_what_is_counted_by_reason() -> None:
    other = {**LISTENER, "closed": {"silent": 4}, "dropped": {}}
    printed = show({"routes": 1, "oldest_wait": 0.25, "listeners": [LISTENER, other]})
    assert printed.splitlines()[-2:] == [
        "connections closed: 2 by the peer, 5 silent",
        "frames dropped: 1 unknown_type",
    ]
    assert "0.2 s" in printed


def test_the_certificates_of_listeners() -> None:
    tls: dict[str, Any] = {
        "handshakes": {},
        "not_after": 2524607999.0,
        "reloads": 3,
        "failed_reloads": 1,
    }
    own: dict[str, Any] = {**LISTENER, "tls": {**tls, "not_after": None}}  # a context of one's own
    printed = show({"routes": 1, "listeners": [LISTENER, {**LISTENER, "tls": tls}, own]})
    assert printed.splitlines()[-1] == (
        "certificate of rsocket+tcp://x:1: expires 2049-12-31 23:59 UTC; 3 reloads, 1 failed"
    )
    with pytest.raises(CommandError, match="is not a set of statistics"):
        show({"routes": 1, "listeners": [{**LISTENER, "tls": {**tls, "not_after": 1e300}}]})


def test_the_authentication_of_listeners_that_share_it() -> None:
    figures = {"accepted": {"token": 3, "unix": 1}, "refused": {"unknown": 2}, "banned": 7}
    quiet: dict[str, object] = {"accepted": {}, "refused": {}, "banned": 0}
    guarded = {**LISTENER, "authentication": figures}
    other: dict[str, object] = {**LISTENER, "authentication": quiet}
    printed = show({"routes": 1, "listeners": [guarded, guarded, other]})
    assert printed.splitlines()[-3:] == [
        "authenticated: 3 token, 1 unix",
        "not authenticated: 2 unknown",
        "connections of banned sources: 7",
    ]


def test_a_broker_that_does_not_listen() -> None:
    assert show({"routes": 1, "listeners": []}).split() == ["routes", "1"]


@pytest.mark.parametrize("answer", [{"error": "what?"}, 5, {"listeners": []}, {"a": 1}, None])
def test_an_answer_that_tells_no_figures(answer: object) -> None:
    with pytest.raises(CommandError, match="is not a set of statistics"):
        show(answer)
