"""Listeners at Unix sockets: whose file it is, who may connect, and who has."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from onward.actors import Node
from onward.actors.broker import Broker
from onward.protocol import LinkDown
from onward.transports.rsocket import LinkOptions, RSocketListener, UnixOptions, WebSocketOptions
from onward.transports.streams import _unix_file
from onward.transports.streams._options import parse_unix_uri
from onward.transports.streams._unix_file import LOCK_RETRY, MAX_PATH, clear
from tests.support.loops import on_both_loops
from tests.support.rsocket_peer import *
from tests.support.transports import eventually


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a socket may be; its name is short enough wherever the tests run."""
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "s"
    if len(os.fsencode(made)) > MAX_PATH:
        pytest.skip("the temporary folder's name is too long for a socket")
    return made


@asynccontextmanager
async def listening(
    path: Path, unix: UnixOptions | None = None, options: LinkOptions | None = None
) -> AsyncGenerator[tuple[Broker, RSocketListener]]:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        uri = f"rsocket+unix://{path}"
        listener = await node.listen(uri, broker=broker, options=options, unix=unix)
        assert isinstance(listener, RSocketListener)
        assert listener.uri == uri
        yield broker, listener


@contextlib.contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock of a path, as a broker does that is just starting."""
    file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        Path(f"{path}.lock").unlink()
    finally:
        os.close(file)


async def next_frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(20):
        head = await reader.readexactly(3)
        return head + await reader.readexactly(int.from_bytes(head))


@on_both_loops
async def test_requests_and_answers(path: Path) -> None:
    async with listening(path) as (broker, listener):
        taker, to_taker = await asyncio.open_unix_connection(path)
        to_taker.write(setup(composite((BROKER_FRAME, route_setup(UUID(int=1), "a")))))
        await eventually(lambda: len(broker.routes()) == 2)
        (row,) = (row for row in broker.routes() if row.service == "a")
        assert row.peer == f"unix:pid={os.getpid()},uid={os.getuid()}"
        asker, to_asker = await asyncio.open_unix_connection(path)
        asked = request(RR, 1, asked_for("a"), b"x" * 100_000)
        to_asker.write(setup() + asked)
        assert await next_frame(taker) == restamped(asked, 2)
        answer = payload(2, b"y" * 100_000, C | N)
        to_taker.write(answer)
        assert await next_frame(asker) == restamped(answer, 1)
        assert listener.statistics().accepted == 2
        for writer in (to_asker, to_taker):
            writer.close()
        await eventually(lambda: listener.statistics().connections == 0)
    assert not path.exists()


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o777, 0])
async def test_the_mode_of_the_file(path: Path, mode: int) -> None:
    unix = None if mode == 0o600 else UnixOptions(mode=mode)
    async with listening(path, unix):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert not path.exists()


async def test_a_file_left_by_a_dead_broker_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    assert path.is_socket()
    async with listening(path):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.close()
        del reader


async def test_a_broker_that_lives_is_not_robbed(path: Path) -> None:
    async with listening(path) as (broker, listener):
        with pytest.raises(OSError, match="another listener is there"):
            async with listening(path):
                pass
        with pytest.raises(OSError, match="another listener is there"):
            await broker.node.listen(listener.uri, broker=broker)
        # Nothing is left of the attempt, and all goes on.
        assert path.is_socket()
        _, writer = await asyncio.open_unix_connection(path)
        writer.close()


async def test_one_whose_queue_is_full_lives(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(path))
        busy.listen(0)
        waiting: list[socket.socket] = []
        try:
            for _ in range(5):
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                waiting.append(one)
                one.connect_ex(str(path))
            with pytest.raises(OSError, match="another listener is there"):
                clear(path)
        finally:
            for one in waiting:
                one.close()
    assert path.is_socket()


async def test_what_is_no_socket_is_left_alone(path: Path) -> None:
    path.write_text("important")
    with pytest.raises(FileExistsError, match="no socket"):
        async with listening(path):
            pass
    assert path.read_text() == "important"


async def test_a_socket_of_another_kind_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(OSError, match=r"(?i)protocol"):
            clear(path)
    assert path.is_socket()


async def test_a_file_put_in_its_place_is_left_alone(path: Path) -> None:
    async with listening(path):
        path.unlink()
        path.write_text("somebody else's")
    assert path.read_text() == "somebody else's"


async def test_a_file_that_is_gone_already(path: Path) -> None:
    async with listening(path) as (_, listener):
        path.unlink()
        await listener.close()
        await listener.close()


async def test_no_such_folder(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with listening(path / "more"):
            pass


async def test_two_that_begin_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_unix_file, "LOCK_PATIENCE", 0.0)
    with locked(path), pytest.raises(OSError, match=r"another process .*s\.lock"):
        async with listening(path):
            pass
    async with listening(path):
        assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_the_second_waits_a_little_for_the_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    with contextlib.ExitStack() as first:
        first.enter_context(locked(path))

        async def sleep(seconds: float) -> None:
            nonlocal looks
            assert seconds == LOCK_RETRY
            looks += 1
            if looks == 3:
                first.close()

        monkeypatch.setattr(asyncio, "sleep", sleep)
        async with listening(path):
            assert looks == 3


async def test_a_lock_that_was_taken_away_is_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Path] = []
    lock = fcntl.flock

    def after(file: int, operation: int) -> None:
        lock(file, operation)
        if not taken:
            taken.append(Path(f"{path}.lock"))
            taken[0].unlink()  # as who had it before does

    monkeypatch.setattr(fcntl, "flock", after)
    async with listening(path):
        assert taken


async def test_who_can_look_into_the_folder_does_not_stop_a_broker(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        async with listening(path):
            pass
    finally:
        os.close(folder)


async def test_a_server_that_cannot_be_made_leaves_no_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    async def fail(*_: object, **__: object) -> None:
        raise OSError("no more servers")

    monkeypatch.setattr(loop, "create_unix_server", fail)
    with pytest.raises(OSError, match="no more servers"):
        async with listening(path):
            pass
    assert not path.exists()


async def test_a_system_that_does_not_tell_who_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    async with listening(path) as (broker, _):
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(setup(composite((BROKER_FRAME, route_setup(UUID(int=1), "a")))))
        await eventually(lambda: len(broker.routes()) == 2)
        assert [row.peer for row in broker.routes() if row.service == "a"] == ["unix"]
        writer.close()


async def test_the_uri_of_a_listener_leads_there_whatever_its_path_has(tmp_path: Path) -> None:
    escaped = f"rsocket+unix://{tmp_path}/50%25%20of%20%231%3F"
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen(escaped, broker=broker)
        assert isinstance(listener, RSocketListener)
        assert (tmp_path / "50% of #1?").is_socket()
        assert parse_unix_uri(listener.uri, "rsocket+unix") == str(tmp_path / "50% of #1?")
        assert listener.uri == escaped


@pytest.mark.parametrize(
    "uri",
    [
        "unix:///run/x",
        "rsocket+unix://run/x",
        "rsocket+unix://@name",
        "rsocket+unix:///",
        "rsocket+unix://",
        "rsocket+unix:run/x",
        "rsocket+unix:///x?mode=1",
        "rsocket+unix:///x#y",
        "rsocket+unix:///%00name",
    ],
)
def test_what_is_no_uri_of_it(uri: str) -> None:
    with pytest.raises(ValueError, match=r"is not rsocket\+unix:///path"):
        parse_unix_uri(uri, "rsocket+unix")


def test_a_path_that_is_too_long() -> None:
    assert parse_unix_uri("rsocket+unix:///" + "x" * (MAX_PATH - 1), "rsocket+unix")
    with pytest.raises(ValueError, match="at most 107 bytes"):
        parse_unix_uri("rsocket+unix:///" + "x" * MAX_PATH, "rsocket+unix")


@pytest.mark.parametrize("mode", [-1, 0o1000])
def test_modes_there_are_not(mode: int) -> None:
    with pytest.raises(ValueError, match="mode must be"):
        UnixOptions(mode=mode)


async def test_what_it_is_told_wrong(path: Path) -> None:
    async with Node() as node:
        broker = await Broker.attach(node)
        uri = f"rsocket+unix://{path}"
        with pytest.raises(ValueError, match="unix must be None or UnixOptions, not "):
            await node.listen(uri, broker=broker, unix=0o600)
        with pytest.raises(ValueError, match="unknown option 'websocket'"):
            await node.listen(uri, broker=broker, websocket=WebSocketOptions())
        with pytest.raises(LinkDown, match="only listens"):
            await node.connect(uri)
    assert not path.exists()
