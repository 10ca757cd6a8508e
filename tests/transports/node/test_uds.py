"""Unix sockets alone: paths, files, permissions, who is at the other end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest

from onward.actors import Node
from onward.protocol import LinkDown, UnreadableAddress
from onward.transports import StreamListener, UdsOptions, UdsTransport
from tests.support.loops import on_both_loops
from tests.support.transports import Echo


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s") / "s"


async def listening(node: Node, path: Path, *expose: str, **options: Any) -> StreamListener:
    return cast(StreamListener, await node.listen(f"uds://{path}", expose=expose, **options))


@on_both_loops
async def test_requests_on_each_loop(path: Path) -> None:
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
    assert not path.exists()


@pytest.mark.parametrize("value", ["/", "..", "a%00b", "x" * 108, "%ff"])
async def test_an_address_of_type_5_that_is_no_path(a: Node, value: str) -> None:
    with pytest.raises(UnreadableAddress):
        a.send(f"5#{value} => x", b"")


@pytest.mark.parametrize("uri", ["uds://", "uds:///", "uds:///a?b", "uds:///a#b", "uds:///%00"])
async def test_what_is_no_uri(a: Node, uri: str) -> None:
    with pytest.raises(ValueError, match="is not uds:///path"):
        await a.listen(uri)


@pytest.mark.parametrize(
    "name", ["plain-name_1.~", "a%41", "q?x", "a#b", "a b", "é", "100%", "\udcff"]
)
async def test_what_a_listener_says_of_itself_can_be_connected_to(
    a: Node, c: Node, path: Path, name: str
) -> None:
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


async def test_a_path_of_the_working_folder_and_one_with_a_space(
    a: Node, c: Node, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    await c.listen("uds://near%20by")
    assert (path.parent / "near by").is_socket()
    await a.connect("uds://near%20by")


async def test_who_may_connect(c: Node, path: Path) -> None:
    listener = await listening(c, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await listener.close()
    assert not path.exists()
    await listening(c, path, mode=0o666)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666
    with pytest.raises(ValueError, match="mode must be a whole number from 0 to 0o777, not 0o1000"):
        UdsOptions(mode=0o1000)


async def test_places_are_shared_by_user(a: Node, c: Node, path: Path) -> None:
    listener = await listening(c, path, max_connections=5, max_connections_per_source=1)
    await a.connect(listener.uri)
    with pytest.raises(LinkDown):
        await a.connect(listener.uri, reconnect=False)
    assert listener.statistics().turned_away == 1
    assert [*listener._worker.acceptor.places._by_source] == [f"uid={os.getuid()}"]


async def test_peers_of_a_proxy_do_not_share_places(a: Node, c: Node, path: Path) -> None:
    listener = await listening(
        c, path, max_connections=5, max_connections_per_source=1, proxies=("unix",)
    )
    for _ in range(2):
        await a.connect(listener.uri, reconnect=False)
    assert listener.statistics().turned_away == 0
