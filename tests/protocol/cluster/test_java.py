"""The frames and addresses of a Java broker, with bytes that one has sent."""

from __future__ import annotations

import pytest

from onward.protocol.broker import BrokerInfo, Dialect, RouteAdd
from onward.protocol.cluster import (
    ClusterFrameError,
    PeerInfo,
    java_info,
    java_places,
    java_route,
    parse_java_route,
    with_seed_uri,
)

INFO = bytes.fromhex(
    "0000000110000000000000000000000000000000000b000001a221f73863a1957463703a2f2f3132372e302e302e31"
    "3a3439343735a2157463703a2f2f3132372e302e302e313a3530383939"
)
"""Its BROKER_INFO."""
ROUTE = bytes.fromhex(
    "0000000108000000000000000000000000000000000b71bb741e8c034c6d9e130137496b3ff4000001a221f73c1c02"
    "736a82a849647b37316262373431652d386330332d346336642d396531332d3031333734393662336666347d810273"
    "6a"
)
"""Its ROUTE_JOIN of a destination."""
ROUTE_ID = bytes.fromhex("71bb741e8c034c6d9e130137496b3ff4")


def test_a_route_is_read() -> None:
    route = parse_java_route(ROUTE)
    assert (route.route_id, route.service_name) == (ROUTE_ID, "sj")
    assert route.tags == ((2, "Id{71bb741e-8c03-4c6d-9e13-0137496b3ff4}"), (1, "sj"))


@pytest.mark.parametrize("size", range(len(ROUTE)))
def test_a_route_that_is_cut_anywhere_is_none(size: int) -> None:
    if size in (49, 50, 92):  # before the tags, and before the value of the last
        assert parse_java_route(ROUTE[:size]) != parse_java_route(ROUTE)
        return
    with pytest.raises(ClusterFrameError, match="ROUTE_JOIN, "):
        parse_java_route(ROUTE[:size])


def test_a_route_with_bytes_behind_it_is_none() -> None:
    with pytest.raises(ClusterFrameError):
        parse_java_route(ROUTE + b"\x01")


def test_an_own_route_is_told_as_a_java_broker_writes_its_own() -> None:
    told = parse_java_route(ROUTE)
    ours = RouteAdd(
        told.broker_id,
        told.route_id,
        told.timestamp,
        "sj",
        ((2, "71bb741e-8c03-4c6d-9e13-0137496b3ff4"), (1, "sj")),
    )
    assert parse_java_route(java_route(ours)).tags == told.tags[::-1]


def test_its_two_addresses_become_one() -> None:
    info = with_seed_uri(PeerInfo.parse(INFO, Dialect.REFERENCE))
    assert info.cluster_uri == "rsocket+tcp://127.0.0.1:50899?proxy=49475"
    assert java_places(info.cluster_uri) == (
        "rsocket+tcp://127.0.0.1:50899",
        "rsocket+tcp://127.0.0.1:49475",
    )
    assert with_seed_uri(info) is info


@pytest.mark.parametrize(
    ("cluster", "proxy"),
    [
        ("tcp://a:1", "tcp://b:2"),
        ("tcp://a:1", "tcp://a"),
        ("tcp://a:1", ""),
        ("tcp://a:1", "tcp://a:x"),
        ("other://a:1", "other://a:2"),
        (f"tcp://{'a' * 110}:7001", f"tcp://{'a' * 110}:8001"),
        ("", ""),
    ],
)
def test_other_addresses_stay(cluster: str, proxy: str) -> None:
    info = PeerInfo(bytes(16), 1, cluster_uri=cluster, proxy_uri=proxy, version="")
    assert with_seed_uri(info) is info
    assert PeerInfo.parse(info.serialize()) == info


def test_the_address_of_another_kind_of_broker_stays() -> None:
    info = PeerInfo(bytes(16), 1, cluster_uri="tcp://a:1", proxy_uri="tcp://a:2")
    assert with_seed_uri(info) is info


@pytest.mark.parametrize("scheme", ["tcp", "ws", "wss"])
def test_the_addresses_of_each_scheme(scheme: str) -> None:
    uri = f"rsocket+{scheme}://[::1]:7001/rsocket?proxy=8001"
    assert java_places(uri) == (
        f"rsocket+{scheme}://[::1]:7001/rsocket",
        f"rsocket+{scheme}://[::1]:8001/rsocket",
    )


def test_an_address_without_the_parameter_is_that_of_another_kind_of_broker() -> None:
    assert java_places("rsocket+ws://host:1/path?a=b") is None


@pytest.mark.parametrize(
    "uri",
    [
        "rsocket+tcp://host:1?proxy=",
        "rsocket+tcp://host:1?proxy=x",
        "rsocket+tcp://host:1?proxy=0",
        "rsocket+tcp://host:1?proxy=65536",
        "rsocket+tcp://host:1?proxy=2&a=b",
        "rsocket+tcp://host?proxy=2",
    ],
)
def test_a_broken_address(uri: str) -> None:
    with pytest.raises(ValueError, match="proxy=PORT"):
        java_places(uri)


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("rsocket+tcp://host:7000", b"tcp://host:7000"),
        ("rsocket+ws://host:7000/x", b"ws://host:7000"),
        ("rsocket+unix:///socket", None),
        ("", None),
    ],
)
def test_it_is_told_this_broker(uri: str, told: bytes | None) -> None:
    data = java_info(PeerInfo(bytes(15) + b"\x01", 5, instance=5, cluster_uri=uri, name="a"))
    info = BrokerInfo.parse(data, Dialect.REFERENCE)
    assert (info.broker_id[-1], info.timestamp) == (1, 5)
    assert info.metadata == (() if told is None else ((0x21, told), (0x22, told)))
