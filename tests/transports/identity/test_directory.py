"""The file of a directory on a loop with threads, where each batch is written in one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.identity import (
    ROUTER,
    SAVE_BATCH,
    DirectoryFile,
    DirectoryFileFailed,
    DirectoryFileInUse,
    DirectorySaver,
    PeerRefused,
    TrustAnswer,
    find_directory_row,
    find_trust_answer,
    write_trust_request,
)
from onward.actors.identity.directory._request_table import TrustRequest
from onward.protocol import LinkLost
from onward.protocol.identity import TRUST_BANNED, TRUST_DEFAULT, DirectoryRow, Identity, short_text
from onward.transports.identity import Identities
from tests.support.commands import Silent
from tests.support.identities import attached, engine_text, key_of
from tests.support.transports import eventually

ONE, OTHER = (key_of(name).identity for name in ("one", "other"))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have changes written at once, and tried again as soon."""
    for name in ("SAVE_DELAY", "SAVE_PAUSE", "SAVE_RETRY"):
        monkeypatch.setattr(f"onward.actors.identity.directory._saver.{name}", 0.001)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests of other processes looked for at once."""
    monkeypatch.setattr("onward.actors.identity.directory._trust_requests.TRUST_LOOK", 0.001)


def saver_of(identities: Identities) -> DirectorySaver:
    saver = identities.directory.saver
    assert saver is not None
    return saver


@contextmanager
def held(saver: DirectorySaver) -> Generator[None]:
    """Hold up the thread of the file."""
    end = threading.Event()
    assert saver._in_thread is not None
    saver._in_thread(end.wait)
    try:
        yield
    finally:
        end.set()


async def test_a_disk_that_is_slow_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "node.directory"
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        saver = saver_of(ours)
        await eventually(lambda: saver.unsaved == 0 and not saver._is_scheduled)
        ours.directory.set_trust(ONE, 1)
        ours.directory.forget(ONE)  # there is nothing to write after all
        assert saver._is_scheduled
        await eventually(lambda: not saver._is_scheduled)
        with held(saver):
            ours.directory.set_trust(ONE, 1)
            await eventually(lambda: saver._writing)
            # The loop goes on, and what changes now is written after that.
            ours.directory.set_trust(ONE, 2)
            ours.directory.set_trust(OTHER, 3)
            await asyncio.sleep(0)
            assert saver.unsaved == 2
        await eventually(lambda: saver.unsaved == 0)
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        assert [ours.directory.directory.trust(each) for each in (ONE, OTHER)] == [2, 3]


async def test_batches_are_written_in_another_thread_and_the_rest_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, save = tmp_path / "node.directory", DirectoryFile.save
    threads = set[int]()
    hold = threading.Event()

    def watched(
        file: DirectoryFile,
        rows: Iterable[DirectoryRow],
        gone: Iterable[Identity],
        answers: Iterable[tuple[int, TrustAnswer]],
    ) -> None:
        threads.add(threading.get_ident())
        hold.wait(5)
        save(file, rows, gone, answers)

    monkeypatch.setattr(DirectoryFile, "save", watched)
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        saver = saver_of(ours)
        for number in range(600):
            ours.directory.set_trust(key_of(f"many {number}").identity, 1)
        await eventually(lambda: saver._writing)
        a.loop.call_later(0.01, hold.set)
    assert saver.unsaved == 0
    assert threading.get_ident() not in threads
    assert all(find_directory_row(path, key_of(f"many {each}").identity) for each in range(600))


@pytest.mark.parametrize("is_full", [False, True])
async def test_the_end_does_not_wait_for_a_thread_that_writes(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    is_full: bool,
) -> None:
    path = tmp_path / "node.directory"
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        saver = saver_of(ours)
        await eventually(lambda: saver.unsaved == 0 and not saver._is_scheduled)
        if is_full:
            (pages,) = saver._file._file.execute("PRAGMA page_count").fetchone()
            saver._file._file.execute(f"PRAGMA max_page_count={pages}")
        caplog.clear()
        with held(saver):
            for number in range(SAVE_BATCH):
                ours.directory.set_trust(key_of(f"many {number}").identity, 1)
            await eventually(lambda: saver._writing)
            ours.directory.set_trust(ONE, 1)
            ending = asyncio.create_task(saver.save_all())
            await asyncio.sleep(0)
            ending.cancel()
            closing = saver.close()  # the thread has not written yet
            under_way = "the changes of 256 identities are still being written"
            assert caplog.messages == [f"{path}: {under_way}; the file is closed then"]
            with pytest.raises(DirectoryFileInUse):
                DirectoryFile(path)
        assert closing is not None
        await closing
        await eventually(lambda: saver._batch is None)
        lost, why = (1, "there was no time to write them")
        if is_full:
            lost, why = 257, "database or disk is full"
        assert caplog.messages[1:] == [f"{path}: the changes of {lost} identities are lost: {why}"]
        DirectoryFile(path).close()
    assert (find_directory_row(path, key_of("many 9").identity) is None) is is_full
    assert find_directory_row(path, ONE) is None


async def test_a_thread_that_has_just_written_is_seen_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Node("a") as a:
        ours = await attached(a, directory=tmp_path / "node.directory")
        saver = saver_of(ours)
        await eventually(lambda: saver.unsaved == 0 and not saver._is_scheduled)
        caplog.clear()
        writes = list[asyncio.Future[Any]]()

        def in_thread(action: Callable[[], object]) -> asyncio.Future[Any]:
            writes.append(a.loop.create_future())
            action()
            return writes[-1]

        monkeypatch.setattr(saver, "_in_thread", in_thread)
        ours.directory.set_trust(ONE, 1)
        await eventually(lambda: saver._writing)
        writes[0].set_result(None)
        closing = saver.close()
        assert saver.unsaved == 0
        await asyncio.sleep(0)  # its own word comes after that
        assert closing is writes[1]
    assert caplog.messages == []
    assert find_directory_row(tmp_path / "node.directory", ONE)


async def test_a_disk_that_is_full_is_tried_again_and_what_is_left_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, save = tmp_path / "node.directory", DirectoryFile.save
    is_full = True

    def failing(
        file: DirectoryFile,
        rows: Iterable[DirectoryRow],
        gone: Iterable[Identity],
        answers: Iterable[tuple[int, TrustAnswer]],
    ) -> None:
        if is_full:
            raise DirectoryFileFailed(file.path, "database or disk is full")
        save(file, rows, gone, answers)

    monkeypatch.setattr(DirectoryFile, "save", failing)
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        saver = saver_of(ours)
        ours.directory.set_trust(ONE, 1)
        await eventually(lambda: saver.failures > 2)
        assert saver.trouble == "database or disk is full"
        is_full = False
        await eventually(lambda: saver.unsaved == 0)
        assert saver.trouble == ""
        is_full = True
        ours.directory.set_trust(OTHER, 1)
        await eventually(lambda: saver.trouble)
    assert "the changes of 1 identities are lost: database or disk is full" in caplog.text
    assert find_directory_row(path, ONE)
    assert find_directory_row(path, OTHER) is None


@pytest.mark.usefixtures("looks")
async def test_a_node_that_runs_takes_requests_of_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "node.directory"
    async with Node("a") as a, Node("c") as c:
        ours, theirs = await attached(a, directory=path), await attached(c)
        silent = Silent()
        await c.start(lambda: silent, address="silent")
        uri = (await a.listen("memory://requests", expose=[ROUTER])).uri
        await theirs.join(uri, identity=ours.own)
        request = asyncio.create_task(a.request(engine_text(theirs.engine("silent")), b"x"))
        await eventually(silent.came.is_set)
        number = write_trust_request(path, theirs.own, TRUST_BANNED)
        with pytest.raises(LinkLost):
            await request
        assert ours.peers() == ()
        await eventually(lambda: find_trust_answer(path, number) is TrustAnswer.TAKEN)
        with pytest.raises(PeerRefused):
            await theirs.join(uri, identity=ours.own)
        number = write_trust_request(path, theirs.own, TRUST_DEFAULT)
        await eventually(lambda: find_trust_answer(path, number) is TrustAnswer.TAKEN)
        await theirs.join(uri, identity=ours.own)


@pytest.mark.usefixtures("looks")
async def test_requests_that_cannot_be_read_are_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, read = tmp_path / "node.directory", DirectoryFile.requests
    reads = 0
    is_broken = False

    def failing(file: DirectoryFile) -> list[TrustRequest]:
        nonlocal reads
        reads += 1
        if is_broken:
            raise DirectoryFileFailed(file.path, "database disk image is malformed")
        return read(file)

    monkeypatch.setattr(DirectoryFile, "requests", failing)
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        requests, is_broken = saver_of(ours).requests, True
        await eventually(lambda: requests.trouble)
        write_trust_request(path, ONE, 1)
        before = reads
        await eventually(lambda: reads > before + 2)
        assert requests.trouble == "database disk image is malformed"
        is_broken = False
        await eventually(lambda: ours.directory.directory.trust(ONE) == 1)
        assert requests.trouble == ""
    assert len(caplog.messages) == 2
    assert caplog.messages[0].endswith("requests in it are taken as soon as they can be read")
    assert caplog.messages[1].endswith(f"has set the trust in {short_text(ONE)} to 1")


@pytest.mark.usefixtures("looks")
async def test_what_holds_up_other_threads_does_not_hold_up_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.directory"
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        # A peer can do that: the name of a host in its advert is looked up slowly.
        a.loop.set_default_executor(ThreadPoolExecutor(1))
        end = threading.Event()
        holding = a.loop.run_in_executor(None, end.wait)
        try:
            number = write_trust_request(path, ONE, TRUST_BANNED)
            await eventually(lambda: find_trust_answer(path, number) is TrustAnswer.TAKEN)
            ours.directory.set_trust(OTHER, TRUST_BANNED)
            await a.stop()
        finally:
            end.set()
            await holding
    assert all(find_directory_row(path, each) for each in (ONE, OTHER))


@pytest.mark.usefixtures("looks")
async def test_a_look_that_waits_keeps_no_change_from_being_written(tmp_path: Path) -> None:
    path = tmp_path / "node.directory"
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        saver = saver_of(ours)
        number = write_trust_request(path, OTHER, 1)
        with held(saver):
            assert saver._in_thread is not None
            saver.requests._look(saver._in_thread)
            ours.directory.set_trust(ONE, TRUST_BANNED)
            ending = asyncio.create_task(saver.save_all())
            await asyncio.sleep(0)
            ending.cancel()
            closing = saver.close()
        assert closing is not None
        await closing
        DirectoryFile(path).close()
    assert find_directory_row(path, ONE)
    assert find_trust_answer(path, number) is TrustAnswer.WAITS  # for the next node


@pytest.mark.usefixtures("looks")
async def test_looks_and_writes_go_on_after_any_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "node.directory"

    def fail(*arguments: object) -> None:
        raise MemoryError("no page")

    told = list[object]()
    async with Node("a") as a:
        ours = await attached(a, directory=path)
        saver = saver_of(ours)
        await eventually(lambda: saver.unsaved == 0)
        with monkeypatch.context() as patch:
            patch.setattr(DirectoryFile, "requests", fail)
            patch.setattr(DirectoryFile, "save", fail)
            ours.directory.set_trust(ONE, 1)
            await eventually(lambda: saver.requests.trouble and saver.trouble)
        assert saver.requests.trouble == saver.trouble == "MemoryError: no page"
        assert [each.split("; ")[0] for each in caplog.messages] == [
            f"{path}: MemoryError: no page"
        ] * 2
        await eventually(lambda: not saver.requests.trouble and not saver.unsaved)
        # What is wrong with a request is told by the loop, and others are taken.
        a.loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        with monkeypatch.context() as patch:
            patch.setattr(saver.requests, "_set_trust", fail)
            write_trust_request(path, ONE, 3)
            await eventually(lambda: told)
        write_trust_request(path, OTHER, 4)
        await eventually(lambda: ours.directory.directory.trust(OTHER) == 4)
        assert isinstance(told[0], MemoryError)
    assert find_directory_row(path, ONE)


async def test_a_file_is_closed_that_is_opened_for_a_node_that_has_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, begun, end = tmp_path / "node.directory", threading.Event(), threading.Event()
    make = DirectoryFile._open

    def slow(file: DirectoryFile) -> object:
        begun.set()
        end.wait()
        return make(file)

    async with Node("a") as a:
        with monkeypatch.context() as patch:
            patch.setattr(DirectoryFile, "_open", slow)
            starting = asyncio.create_task(attached(a, directory=path))
            await eventually(begun.is_set)  # and the loop goes on
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            end.set()
    async with Node("a") as a:
        await attached(a, directory=path)
