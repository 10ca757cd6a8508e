from __future__ import annotations

import re
from typing import Any, cast

import pytest

from onward.protocol import AddressError
from onward.protocol.ockam import MAX_FRAME, WireLimits
from onward.transports import (
    Backoff,
    StreamOptions,
    TcpOptions,
    UdpOptions,
    UdsOptions,
    WsOptions,
    parse_uri,
)
from onward.transports.streams._options import format_endpoint, parse_endpoint, parse_websocket_uri
from tests.support.counts import exhaustive


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first=0.5, longest=3.0, random=lambda: 1.0)
    assert [backoff.wait(attempt) for attempt in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert backoff.wait(100_000) == 3.0


def test_jitter_takes_the_whole_of_the_wait() -> None:
    draws = iter([0.0, 0.25, 0.999])
    backoff = Backoff(first=1.0, longest=8.0, random=lambda: next(draws))
    assert [backoff.wait(3) for _ in range(3)] == [0.0, 2.0, 8 * 0.999]


def test_waits_by_default_are_random_and_bounded() -> None:
    assert all(0 <= Backoff().wait(attempt) <= 30 for attempt in range(50))


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:4000", ("127.0.0.1", 4000)),
        ("example.org:0", ("example.org", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_endpoints(text: str, endpoint: tuple[str, int]) -> None:
    assert parse_endpoint(text) == endpoint
    assert format_endpoint(*endpoint) == text
    assert parse_uri(f"tcp://{text}", "tcp") == endpoint
    assert parse_uri(f"tcp://{text}/", "tcp") == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "host",
        "host:",
        ":1",
        "host:x",
        "host:-1",
        "host:65536",
        "host:080",
        "host:100000",
        "::1:80",
        "[host]:1",
        "h:٣",
    ],
)
def test_no_endpoints(text: str) -> None:
    with pytest.raises(AddressError):
        parse_endpoint(text)


def test_an_ipv6_host_without_brackets_is_told_of() -> None:
    with pytest.raises(AddressError, match=r"an IPv6 host has brackets: \[fe80::1\]:4000$"):
        parse_endpoint("fe80::1:4000")


@pytest.mark.parametrize(
    "uri",
    [
        "127.0.0.1:1",
        "udp://h:1",
        "tcp://h:1/path",
        "tcp://h:1?q",
        "tcp://h:1#f",
        "tcp://h",
        "tcp://user@h:1",
        "tcp://user:secret@h:1",
        "tcp://[::1:1",
    ],
)
def test_no_uris(uri: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_uri(uri, "tcp")


@pytest.mark.parametrize("path", ["/a b", "/a\tb", "/a\r\nb", "/a\x7f", "/\u2028", "/a?b", "/a#b"])
def test_paths_that_cannot_be_asked_for(path: str) -> None:
    with pytest.raises(ValueError, match=r"is not ws://host:port/path"):
        parse_websocket_uri(f"ws://h:1{path}", "ws")


def test_the_scheme_of_a_uri_may_have_a_plus() -> None:
    assert parse_uri("rsocket+tcp://[::1]:7000", "rsocket+tcp") == ("::1", 7000)
    with pytest.raises(ValueError, match=r"not rsocket\+tcp://host:port"):
        parse_uri("tcp://h:1", "rsocket+tcp")


WRONG = [
    ({"max_returns": 0}, "max_returns must be a whole number of at least 1, not 0"),
    ({"queue": -1}, "queue must be a whole number of at least 0, not -1"),
    ({"queue": 1.5}, "queue must be a whole number of at least 0, not 1.5"),
    ({"queue": True}, "queue must be a whole number of at least 0, not True"),
    ({"max_queue_bytes": -1}, "max_queue_bytes must be a whole number of at least 0"),
    ({"high_water": -1}, "high_water must be a whole number of at least 0"),
    ({"high_water": None}, "high_water must be a whole number of at least 0, not None"),
    ({"arrivals": -1}, "arrivals must be a whole number of at least 0"),
    ({"max_arrival_bytes": -1}, "max_arrival_bytes must be a whole number of at least 0"),
    ({"stall_timeout": -0.1}, "stall_timeout must be a number of seconds, at least 0, not -0.1"),
    ({"idle_timeout": 0}, "idle_timeout must be None or a number of seconds, more than 0, not 0"),
    ({"heartbeat": -1.0}, "heartbeat must be None or a number of seconds, more than 0, not -1.0"),
    (
        {"heartbeat": "soon"},
        "heartbeat must be None or a number of seconds, more than 0, not 'soon'",
    ),
    (
        {"heartbeat": float("nan")},
        "heartbeat must be None or a number of seconds, more than 0, not nan",
    ),
    (
        {"heartbeat": float("inf")},
        "heartbeat must be None or a number of seconds, more than 0, not inf",
    ),
    ({"heartbeat": False}, "heartbeat must be None or a number of seconds, more than 0, not False"),
    ({"mailbox": 5}, "mailbox must be MailboxOptions, not 5"),
]
WRONG_OF_STREAMS = [
    ({"max_frame": 0}, "max_frame must be a whole number from 1 to 16777216, not 0"),
    (
        {"max_frame": MAX_FRAME + 1},
        "max_frame must be a whole number from 1 to 16777216, not 16777217",
    ),
    ({"max_connections": 0}, "max_connections must be a whole number of at least 1"),
    ({"max_unfinished": 0}, "max_unfinished must be a whole number of at least 1"),
    ({"max_pending": 0}, "max_pending must be a whole number of at least 1"),
    ({"preamble_timeout": 0}, "preamble_timeout must be a number of seconds, more than 0"),
    ({"connect_timeout": -1}, "connect_timeout must be a number of seconds, more than 0"),
    ({"frame_timeout": None}, "frame_timeout must be a number of seconds, more than 0, not None"),
    ({"write_timeout": 0.0}, "write_timeout must be a number of seconds, more than 0"),
    ({"tls_timeout": 0.0}, "tls_timeout must be a number of seconds, more than 0"),
    ({"drain_timeout": -1}, "drain_timeout must be a number of seconds, at least 0"),
    ({"reconnect": 1}, "reconnect must be True or False, not 1"),
    ({"backoff": 3}, "backoff must be Backoff, not 3"),
    ({"tls": True}, "tls must be None or TlsOptions or SSLContext, not True"),
]


@pytest.mark.parametrize("kind", [TcpOptions, *exhaustive(UdsOptions, WsOptions)])
@pytest.mark.parametrize(("wrong", "text"), WRONG + WRONG_OF_STREAMS)
def test_options_of_streams_that_make_no_sense(
    kind: type[StreamOptions], wrong: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        kind(**wrong)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        *WRONG,
        ({"max_peers": 0}, "max_peers must be a whole number of at least 1, not 0"),
        ({"resolve_timeout": 0}, "resolve_timeout must be a number of seconds, more than 0"),
        ({"receive_buffer": 0}, "receive_buffer must be a whole number from 1 to 2147483647"),
        ({"receive_buffer": 2**31}, "receive_buffer must be a whole number from 1 to 2147483647"),
        ({"datagrams": 5}, "datagrams must be DatagramLimits, not 5"),
    ],
)
def test_options_of_udp_that_make_no_sense(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        UdpOptions(**wrong)


def test_options_of_one_transport_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="mode must be a whole number from 0 to 0o777, not '0600'"):
        UdsOptions(mode=cast(Any, "0600"))
    with pytest.raises(ValueError, match="mode must be a whole number from 0 to 0o777, not -1"):
        UdsOptions(mode=-1)
    with pytest.raises(ValueError, match="websocket must be WebSocketOptions"):
        WsOptions(websocket=cast(Any, None))
    for name in ("first", "longest"):
        with pytest.raises(
            ValueError, match=f"Backoff.{name} must be a number of seconds, more than 0"
        ):
            Backoff(**cast(Any, {name: 0.0}))


def test_what_may_be_nothing() -> None:
    none: dict[str, Any] = {"queue": 0, "max_queue_bytes": 0, "arrivals": 0, "max_arrival_bytes": 0}
    for kind in (TcpOptions, UdpOptions):
        kind(**none, high_water=0, stall_timeout=0, idle_timeout=None, heartbeat=None)
    assert TcpOptions(drain_timeout=0).drain_timeout == 0


def test_the_options_have_the_limits_of_the_wire() -> None:
    assert TcpOptions().wire_limits == WireLimits(MAX_FRAME)
    assert TcpOptions(max_frame=10).wire_limits == WireLimits(10)
