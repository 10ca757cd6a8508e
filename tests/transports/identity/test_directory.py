"""The file of a directory on a loop with threads, where each batch is written in one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.identity import (
    DirectoryFile,
    DirectoryFileFailed,
    DirectorySaver,
    find_directory_row,
)
from onward.protocol.identity import DirectoryRow, Identity
from onward.transports.identity import Identities
from tests.support.identities import attached, key_of
from tests.support.transports import eventually

ONE, OTHER = (key_of(name).identity for name in ("one", "other"))


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have changes written at once, and tried again as soon."""
    for name in ("SAVE_DELAY", "SAVE_PAUSE", "SAVE_RETRY"):
        monkeypatch.setattr(f"onward.actors.identity._directory_saver.{name}", 0.001)


def saver_of(identities: Identities) -> DirectorySaver:
    saver = identities.directory.saver
    assert saver is not None
    return saver


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
        with saver._file._lock:
            ours.directory.set_trust(ONE, 1)
            await eventually(lambda: saver._writing)
            # The loop goes on, and what changes now is written after that.
            ours.directory.set_trust(ONE, 2)
            ours.directory.set_trust(OTHER, 3)
            await asyncio.sleep(0.01)
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
        file: DirectoryFile, rows: Iterable[DirectoryRow], gone: Iterable[Identity]
    ) -> None:
        threads.add(threading.get_ident())
        hold.wait(5)
        save(file, rows, gone)

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


async def test_a_disk_that_is_full_is_tried_again_and_what_is_left_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, save = tmp_path / "node.directory", DirectoryFile.save
    is_full = True

    def failing(
        file: DirectoryFile, rows: Iterable[DirectoryRow], gone: Iterable[Identity]
    ) -> None:
        if is_full:
            raise DirectoryFileFailed(file.path, "database or disk is full")
        save(file, rows, gone)

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
