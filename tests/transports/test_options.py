from __future__ import annotations

import pytest

from onward.protocol import AddressError
from onward.protocol.ockam import MAX_FRAME, WireLimits
from onward.transports import Backoff, TcpOptions, parse_uri
from onward.transports._options import format_endpoint, parse_endpoint, parse_websocket_uri


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


def test_the_options_have_the_limits_of_the_wire() -> None:
    assert TcpOptions().wire_limits == WireLimits(MAX_FRAME)
    assert TcpOptions(max_frame=10).wire_limits == WireLimits(10)
