"""Unix sockets alone: paths, files, permissions, who is at the other end."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import quote

import pytest

from onward.actors import Node
from onward.protocol import LinkDown, UnreadableAddress
from onward.transports import StreamListener, UdsOptions, UdsTransport
from tests.support.loops import LoopFactory, on_each_loop, run_on
from tests.support.transports import Echo, eventually

Nodes: TypeAlias = tuple[Node, Node, Node]


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s") / "s"


async def listening(node: Node, path: Path, *expose: str, **options: Any) -> StreamListener:
    return cast(StreamListener, await node.listen(f"uds://{path}", expose=expose, **options))


@on_each_loop
def test_requests_on_each_loop(loop_factory: LoopFactory, path: Path) -> None:
    async def main() -> None:
        async with Node("a") as a, Node("c") as c:
            await c.start(Echo, address="echo")
            listener = await listening(c, path, "echo")
            assert listener.uri == f"uds://{path}"
            link = await a.connect(listener.uri)
            for size in (1, 1_000_000):
                assert (await a.request([link, "echo"], bytes(size))).payload == bytes(size)
            (accepted,) = listener.statistics().links
            assert accepted.peer == f"unix:pid={os.getpid()},uid={os.getuid()}"
            (dialled,) = cast(UdsTransport, a.transport("uds://")).statistics()
            assert dialled.peer == str(path)

    run_on(loop_factory, main())
    assert not path.exists()


async def test_an_address_of_type_5_connects_and_the_next_one_reuses(
    nodes: Nodes, path: Path
) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, path, "echo")
    first = await a.request(f"5#{path} => echo", b"")
    again = await a.request(f"5#{path} => echo", b"")
    assert first.return_route == again.return_route
    assert listener.statistics().accepted == 1


@pytest.mark.parametrize("value", ["/", "..", "a%00b", "x" * 108, "%ff"])
async def test_an_address_of_type_5_that_is_no_path(nodes: Nodes, value: str) -> None:
    with pytest.raises(UnreadableAddress):
        nodes[0].send(f"5#{value} => x", b"")


@pytest.mark.parametrize("uri", ["uds://", "uds:///", "uds:///a?b", "uds:///a#b", "uds:///%00"])
async def test_what_is_no_uri(nodes: Nodes, uri: str) -> None:
    with pytest.raises(ValueError, match="is not uds:///path"):
        await nodes[0].listen(uri)


@pytest.mark.parametrize(
    "name", ["plain-name_1.~", "a%41", "q?x", "a#b", "a b", "é", "100%", "\udcff"]
)
async def test_what_a_listener_says_of_itself_can_be_connected_to(
    nodes: Nodes, path: Path, name: str
) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    where = path.with_name(name)
    named = f"uds://{path.parent}/{quote(os.fsencode(name))}"
    listener = cast(StreamListener, await c.listen(named, expose=["echo"]))
    assert where.exists()
    assert listener.uri == named
    link = await a.connect(listener.uri)
    assert (await a.request([link, "echo"], b"hi")).payload == b"hi"
    (dialled,) = cast(UdsTransport, a.transport("uds")).statistics()
    assert dialled.peer == str(where)


async def test_a_path_that_is_too_long(nodes: Nodes) -> None:
    with pytest.raises(ValueError, match="at most 107 bytes"):
        await nodes[0].listen(f"uds:///{'x' * 107}")


async def test_a_path_of_the_working_folder_and_one_with_a_space(
    nodes: Nodes, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _, c = nodes
    monkeypatch.chdir(path.parent)
    await c.listen("uds://near%20by")
    assert (path.parent / "near by").is_socket()
    await a.connect("uds://near%20by")


async def test_who_may_connect(nodes: Nodes, path: Path) -> None:
    _, _, c = nodes
    listener = await listening(c, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await listener.close()
    assert not path.exists()
    await listening(c, path, mode=0o666)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    with pytest.raises(ValueError, match="mode must be a whole number from 0 to 0o777, not 0o1000"):
        UdsOptions(mode=0o1000)


async def test_the_file_of_a_process_that_is_gone_is_replaced(nodes: Nodes, path: Path) -> None:
    a, _, c = nodes
    left = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    left.bind(str(path))
    left.close()
    listener = await listening(c, path)
    await a.connect(listener.uri)


async def test_anything_else_is_left_alone(nodes: Nodes, path: Path) -> None:
    _, b, c = nodes
    path.write_text("important")
    with pytest.raises(FileExistsError):
        await listening(c, path)
    assert path.read_text() == "important"
    path.unlink()
    listener = await listening(c, path)
    with pytest.raises(OSError, match="another listener is there already"):
        await listening(b, path)
    # Nor is what somebody has put in its place when it closes.
    path.unlink()
    path.write_text("somebody else's")
    await listener.close()
    assert path.exists()


async def test_a_server_that_cannot_be_made_leaves_no_file(
    nodes: Nodes, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, c = nodes

    async def fail(*_: object, **__: object) -> None:
        raise OSError("no more servers")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "create_unix_server", fail)
        with pytest.raises(OSError, match="no more servers"):
            await listening(c, path)
    assert not path.exists()
    assert c.statistics().worker_count == 0


async def test_nobody_there(nodes: Nodes, path: Path) -> None:
    with pytest.raises(LinkDown, match="No such file"):
        await nodes[0].connect(f"uds://{path}")


async def test_it_comes_back_when_the_listener_does(nodes: Nodes, path: Path) -> None:
    a, _, c = nodes
    await c.start(Echo, address="echo")
    listener = await listening(c, path, "echo")
    link = await a.connect(listener.uri)
    await listener.close()
    transport = cast(UdsTransport, a.transport("uds://"))
    await eventually(lambda: transport.statistics()[0].reason)
    await listening(c, path, "echo")
    await eventually(lambda: transport.statistics()[0].connects == 2)
    assert (await a.request([link, "echo"], b"again")).payload == b"again"


async def test_places_are_shared_by_user(nodes: Nodes, path: Path) -> None:
    a, _, c = nodes
    listener = await listening(c, path, max_connections=5, max_connections_per_source=1)
    await a.connect(listener.uri)
    with pytest.raises(LinkDown):
        await a.connect(listener.uri, reconnect=False)
    assert listener.statistics().turned_away == 1
    assert [*listener._worker.acceptor.places._by_source] == [f"uid={os.getuid()}"]


async def test_peers_of_a_proxy_do_not_share_places(nodes: Nodes, path: Path) -> None:
    a, _, c = nodes
    listener = await listening(
        c, path, max_connections=5, max_connections_per_source=1, proxies=("unix",)
    )
    for _ in range(2):
        await a.connect(listener.uri, reconnect=False)
    assert listener.statistics().turned_away == 0
