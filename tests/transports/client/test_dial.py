"""The URIs of brokers for a client."""

from __future__ import annotations

import pytest

from onward.transports import TlsOptions
from onward.transports.client import ClientOptions
from onward.transports.client._dial import parse_place


@pytest.mark.parametrize(
    ("uri", "peer"),
    [
        ("rsocket+tcp://a:1", "a:1"),
        ("rsocket+tcp://[::1]:1", "[::1]:1"),
        ("rsocket+tls://a:1", "a:1"),
        ("rsocket+unix:///run/b", "/run/b"),
        ("rsocket+unix:///run/50%25", "/run/50%"),
        ("rsocket+ws://a:1", "a:1"),
        ("rsocket+ws://a:1?z=1", "a:1/?z=1"),
        ("rsocket+wss://[::1]:1/x/y?z=1", "[::1]:1/x/y?z=1"),
    ],
)
def test_the_endpoint_of_a_broker(uri: str, peer: str) -> None:
    place = parse_place(uri, ClientOptions())
    assert (place.uri, place.dialler.endpoint.peer) == (uri, peer)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "http://a:1",
        "rsocket+tcp://",
        "rsocket+tcp://a",
        "rsocket+tls://a",
        "rsocket+tcp://a:1/x",
        "rsocket+unix://x",
        "rsocket+unix:///a\0b",
        "rsocket+ws://a",
        "rsocket+ws://[a:1",
        "rsocket+ws://u@a:1",
        "rsocket+ws://a:1/x#y",
    ],
)
def test_what_is_no_broker_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"rsocket|port|host"):
        parse_place(uri, ClientOptions())


def test_a_unix_socket_with_tls_needs_a_name() -> None:
    with pytest.raises(ValueError, match="server_name"):
        parse_place("rsocket+unix:///run/b", ClientOptions(tls=TlsOptions()))
    named = ClientOptions(tls=TlsOptions(server_name="broker"))
    assert parse_place("rsocket+unix:///run/b", named).uri == "rsocket+unix:///run/b"
