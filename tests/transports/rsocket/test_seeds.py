"""The addresses behind the name of a seed."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from onward.transports.rsocket import seed_addresses
from onward.transports.rsocket._seeds import MAX_SEED_ADDRESSES, address_in
from tests.support.fixtures import Patch


@pytest.fixture
def names(monkeypatch: Patch) -> dict[str, list[str]]:
    """The addresses of names, in place of those of a name server."""
    known: dict[str, list[str]] = {}

    async def getaddrinfo(_: object, host: str, port: int, **more: Any) -> list[Any]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "unknown name")
        return [(0, more["type"], 0, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return known


async def test_each_address_of_a_name_is_one(names: dict[str, list[str]]) -> None:
    names["brokers"] = ["10.0.0.1", "10.0.0.2", "10.0.0.1", "fd00::1"]
    assert await seed_addresses("rsocket+tcp://brokers:8001") == (
        "rsocket+tcp://10.0.0.1:8001",
        "rsocket+tcp://10.0.0.2:8001",
        "rsocket+tcp://[fd00::1]:8001",
    )
    names["one"] = ["10.0.0.1"]
    assert await seed_addresses("rsocket+ws://one:80/path") == ("rsocket+ws://10.0.0.1:80/path",)


@pytest.mark.parametrize(
    "uri",
    [
        "rsocket+tcp://10.0.0.1:8001",
        "rsocket+tcp://[::1]:8001",
        "rsocket+tls://10.0.0.1:8001",
        "rsocket+tls://brokers",
        "rsocket+unix:///run/broker",
        "rsocket+tcp://brokers",
    ],
)
async def test_what_has_no_name_to_look_up_stays(names: dict[str, list[str]], uri: str) -> None:
    assert await seed_addresses(uri) == (uri,)
    assert not names


async def test_with_tls_the_name_is_kept_for_the_certificate(names: dict[str, list[str]]) -> None:
    names["brokers"] = ["10.0.0.1", "fd00::1"]
    tls = await seed_addresses("rsocket+tls://brokers:8001")
    assert tls == ("rsocket+tls://brokers:8001#10.0.0.1", "rsocket+tls://brokers:8001#fd00::1")
    assert [address_in(each) for each in tls] == [
        ("rsocket+tls://brokers:8001", "10.0.0.1"),
        ("rsocket+tls://brokers:8001", "fd00::1"),
    ]
    assert await seed_addresses("rsocket+wss://brokers:443/a?b") == (
        "rsocket+wss://brokers:443/a?b#10.0.0.1",
        "rsocket+wss://brokers:443/a?b#fd00::1",
    )
    for uri in ("rsocket+tls://brokers:8001", "rsocket+unix:///a#b"):
        assert address_in(uri) == (uri, "")


async def test_a_name_without_an_address(names: dict[str, list[str]]) -> None:
    with pytest.raises(OSError, match="unknown name"):
        await seed_addresses("rsocket+tcp://nowhere:8001")


async def test_a_name_with_too_many_addresses(names: dict[str, list[str]]) -> None:
    names["many"] = [f"10.0.{n // 256}.{n % 256}" for n in range(300)]
    assert len(await seed_addresses("rsocket+tcp://many:1")) == MAX_SEED_ADDRESSES
