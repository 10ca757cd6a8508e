"""The sockets that several processes listen at together."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from onward.cli._broker_plan import Listening
from onward.cli._process_sockets import SPREADS, SharedSockets
from onward.cli._status import CommandError, Status

LISTENING = Listening()


async def opened(*uris: str, spreads: bool = SPREADS) -> SharedSockets:
    made = SharedSockets()
    await made.open([(uri, LISTENING) for uri in uris], spreads=spreads)
    return made


@pytest.mark.skipif(not SPREADS, reason="the system does not spread connections")
async def test_a_port_is_kept_for_several_processes() -> None:
    made = await opened("rsocket+ws://localhost:0/path")
    (uri,) = made.uris
    assert uri.startswith("rsocket+ws://localhost:")
    assert uri.endswith("/path")
    assert made.inherited == ()
    port = int(uri.split(":")[2].partition("/")[0])
    assert port > 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    processes = [socket.create_server(("127.0.0.1", port), reuse_port=True) for _ in range(2)]
    with pytest.raises(CommandError, match="Address already in use"):
        await opened(f"rsocket+tcp://127.0.0.1:{port}")
    for each in processes:
        each.close()
    made.close()


async def test_one_socket_for_all_where_the_system_does_not_spread_connections() -> None:
    made = await opened("rsocket+tcp://127.0.0.1:0", spreads=False)
    (number,) = made.inherited
    assert made.uris == [f"rsocket+tcp://fd:{number}"]
    with socket.socket(fileno=os.dup(number)) as found:
        socket.create_connection(found.getsockname()).close()
    made.close()


async def test_a_unix_socket_is_opened_once(tmp_path: Path) -> None:
    path = tmp_path / "broker"
    made = await opened(f"rsocket+unix://{path}")
    assert made.uris == [f"rsocket+unix://fd:{made.inherited[0]}"]
    assert path.stat().st_mode & 0o777 == 0o600
    made.close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("uri", "told", "status"),
    [
        ("tcp://127.0.0.1:0", "does not start with rsocket", Status.USAGE),
        ("rsocket+tcp://nowhere", "not host:port", Status.USAGE),
        ("rsocket+tcp://sd:web", "no socket named 'web'", Status.USAGE),
        ("rsocket+unix:///no/such/folder", "No such file", Status.FAILED),
    ],
)
async def test_what_cannot_be_listened_at(
    tmp_path: Path, uri: str, told: str, status: Status
) -> None:
    made = SharedSockets()
    first = f"rsocket+unix://{tmp_path}/first"
    with pytest.raises(CommandError, match=told) as caught:
        await made.open([(first, LISTENING), (uri, LISTENING)])
    assert caught.value.status == status
    assert made.inherited == ()
    assert not (tmp_path / "first").exists()
