"""Requests for a trust in the file of a directory: none is lost, or done twice."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.actors import LimitReached, Node
from onward.actors.identity import (
    SAVE_RETRY,
    DirectoryFile,
    DirectoryFileFailed,
    TrustAnswer,
    find_directory_row,
    find_trust_answer,
    write_trust_request,
)
from onward.actors.testing import virtual_time
from onward.protocol.identity import TRUST_BANNED, DirectoryLimits, short_text
from tests.actors.identity.directory.test_file import KEYS, Saved, other
from tests.actors.identity.directory.test_worker import started

ONE, TWO, THREE = (key.identity for key in KEYS[:3])


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A directory of a node that has stopped."""
    made = tmp_path / "node.directory"
    DirectoryFile(made).close()
    yield made
    while Saved.opened:
        Saved.opened.pop().close()


def taken(saved: Saved) -> None:
    """Have a node take what waits."""
    saved.saver.requests.take(saved.file.requests())


def test_a_request_is_there_until_what_it_asks_for_is_saved(path: Path) -> None:
    saved = Saved(path)
    number = write_trust_request(path, ONE, TRUST_BANNED)
    assert find_trust_answer(path, number) is TrustAnswer.WAITS
    taken(saved)
    assert list(saved.directory.banned()) == [ONE]
    assert find_trust_answer(path, number) is TrustAnswer.WAITS
    late = saved.file.requests()
    assert saved.turn() == 0
    assert find_trust_answer(path, number) is TrustAnswer.TAKEN
    assert find_directory_row(path, ONE) == saved.directory.row(ONE)
    assert saved.timers == []
    # What changes nothing is answered too.
    number = write_trust_request(path, ONE, TRUST_BANNED)
    other_number = write_trust_request(path, TWO, 128)
    taken(saved)
    saved.turn()
    assert [find_trust_answer(path, each) for each in (number, other_number)] == [
        TrustAnswer.TAKEN
    ] * 2
    assert saved.saver.requests.answers == {}
    # A look that ends late has found what was taken since.
    saved.directory.set_trust(ONE, 3)
    saved.saver.requests.take(late)
    assert saved.directory.trust(ONE) == 3


def test_requests_are_taken_in_their_order_at_the_next_start(path: Path) -> None:
    numbers = [write_trust_request(path, ONE, trust) for trust in (0, 200, 7)]
    assert len(set(numbers)) == 3
    saved = Saved(path)
    assert saved.directory.trust(ONE) == 7
    saved.save_all()
    saved.saver.close()
    assert {find_trust_answer(path, each) for each in numbers} == {TrustAnswer.TAKEN}
    assert write_trust_request(path, ONE, 0) > max(numbers)


def test_a_disk_that_is_read_only_keeps_a_request_which_is_done_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = Saved(path)
    number = write_trust_request(path, ONE, TRUST_BANNED)
    saved.file._file.execute("PRAGMA query_only=1")
    taken(saved)
    assert list(saved.directory.banned()) == [ONE]
    saved.turn()
    assert saved.saver.trouble == "attempt to write a readonly database"
    # The node has thought better of it, and the request is still in the file.
    saved.say(KEYS[0], 3)
    taken(saved)
    assert saved.directory.trust(ONE) == 3
    assert find_trust_answer(path, number) is TrustAnswer.WAITS
    saved.file._file.execute("PRAGMA query_only=0")
    assert saved.turn() == SAVE_RETRY
    assert find_trust_answer(path, number) is TrustAnswer.TAKEN
    assert Saved.opened.pop() is saved.file
    saved.saver.close()
    assert Saved(path).directory.trust(ONE) == 3
    assert [getattr(each, "event", None) for each in caplog.records] == [
        "identity.trust_request_taken",
        "identity.directory_not_saved",
        "identity.directory_saved_again",
    ]


def test_an_answer_waits_for_the_change_of_its_identity(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.directory._saver.SAVE_BATCH", 2)
    saved = Saved(path)
    for key in KEYS[3:6]:
        saved.directory.set_trust(key.identity, 1)
    number = write_trust_request(path, ONE, 1)
    taken(saved)
    for expected in (TrustAnswer.WAITS, TrustAnswer.TAKEN):
        saved.turn()
        assert find_trust_answer(path, number) is expected


@pytest.mark.parametrize(
    ("identity", "trust"),
    [
        ("'text'", "0"),
        ("x''", "0"),
        ("zeroblob(100000)", "0"),
        ("zeroblob(32)", "0"),
        (f"x'{ONE.hex()}'", "256"),
        (f"x'{ONE.hex()}'", "-1"),
        (f"x'{ONE.hex()}'", "0.5"),
        (f"x'{ONE.hex()}'", "'none'"),
        (f"x'{ONE.hex()}'", str(2**63 - 1)),
    ],
)
def test_a_request_without_an_identity_or_a_trust_is_dropped(
    identity: str, trust: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add = f"INSERT INTO request (identity, trust) VALUES ({identity}, {trust})"
    other(path, add, add)
    number = write_trust_request(path, TWO, TRUST_BANNED)
    saved = Saved(path)
    saved.turn()
    assert list(saved.directory.banned()) == [TWO]
    assert saved.saver.requests.bad == 2
    told, taken_after = caplog.messages
    assert told.endswith("has no identity or no trust: all such are dropped")
    assert taken_after.endswith(f"has set the trust in {short_text(TWO)} to 0")
    assert find_trust_answer(path, number - 1) is TrustAnswer.REFUSED
    assert saved.file.requests() == []


def test_a_directory_that_is_full_refuses(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saved = Saved(path, DirectoryLimits(max_identities=2, max_unknown=1))
    saved.say(KEYS[0], 1)
    numbers = [write_trust_request(path, each, TRUST_BANNED) for each in (ONE, TWO)]
    taken(saved)
    saved.turn()
    assert [find_trust_answer(path, each) for each in numbers] == [
        TrustAnswer.TAKEN,
        TrustAnswer.REFUSED,
    ]
    assert list(saved.directory.banned()) == [ONE]
    assert "there is no place for " in caplog.messages[1]
    taken(saved)  # it is not tried again
    assert len(caplog.messages) == 2


def test_there_are_no_more_requests_than_may_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MAX_TRUST_REQUESTS", 3), ("_ANSWERED", 5)):
        monkeypatch.setattr(f"onward.actors.identity.directory._request_table.{name}", value)
    saved = Saved(path, DirectoryLimits(max_identities=2, max_unknown=1))
    for _ in range(3):
        write_trust_request(path, ONE, 1)
    with pytest.raises(LimitReached, match="the limit of 3 requests for a trust that wait is"):
        write_trust_request(path, ONE, 1)
    taken(saved)
    saved.turn()
    # Those that were answered do not count, and are removed in the end.
    first = write_trust_request(path, TWO, 1)
    for number in range(first + 1, first + 7):
        taken(saved)
        saved.turn()
        assert find_trust_answer(path, first) is TrustAnswer.REFUSED
        assert write_trust_request(path, TWO, 1) == number
    assert find_trust_answer(path, first) is TrustAnswer.GONE  # none asks for it any more


def test_a_file_without_the_table_gets_it_from_the_next_node(path: Path) -> None:
    other(path, "DROP TABLE request")
    with pytest.raises(DirectoryFileFailed, match="takes no requests, as it is of a former"):
        write_trust_request(path, ONE, 1)
    Saved(path).saver.close()
    write_trust_request(path, ONE, 1)
    assert Saved(path).directory.trust(ONE) == 1


def test_requests_are_of_this_user_only(path: Path) -> None:
    saved = Saved(path)
    write_trust_request(path, ONE, 1)
    modes = {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert modes == {0o600}
    saved.saver.close()
    path.chmod(0o640)
    with pytest.raises(DirectoryFileFailed, match="others may read"):
        write_trust_request(path, ONE, 1)
    path.write_bytes(b"")
    path.chmod(0o600)
    with pytest.raises(DirectoryFileFailed, match="or has only begun to start: try again"):
        write_trust_request(path, ONE, 1)  # of a node that has only begun to start
    path.unlink()
    with pytest.raises(FileNotFoundError):
        write_trust_request(path, ONE, 1)
    assert not path.exists()


def test_a_file_that_another_process_keeps_locked_is_tried_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors.identity.directory._file._LOCK_WAIT", 0.001)
    saved = Saved(path)
    number = write_trust_request(path, ONE, TRUST_BANNED)
    taken(saved)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    saved.turn()
    assert saved.saver.trouble == "database is locked"
    with pytest.raises(DirectoryFileFailed, match="database is locked"):
        write_trust_request(path, ONE, 1)
    holder.close()
    assert saved.turn() == SAVE_RETRY
    assert saved.saver.trouble == ""
    assert find_trust_answer(path, number) is TrustAnswer.TAKEN


_KILLED = """
import sys, time
from pathlib import Path
from tests.actors.identity.directory.test_trust_requests import Saved, taken
saved = Saved(Path(sys.argv[1]))
for line in sys.stdin:
    taken(saved)
    print(len(list(saved.directory.banned())), flush=True)
"""


def test_requests_outlast_a_process_that_is_killed(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, each in enumerate((ONE, TWO), 1):
            write_trust_request(path, each, TRUST_BANNED)
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{number}\n"  # and it is not saved
        write_trust_request(path, THREE, TRUST_BANNED)
        process.send_signal(signal.SIGKILL)
    saved = Saved(path)
    assert set(saved.directory.banned()) == {ONE, TWO, THREE}
    saved.save_all()
    assert saved.file.requests() == []


@virtual_time
async def test_a_worker_takes_what_waits_and_looks_no_more_without_threads(path: Path) -> None:
    write_trust_request(path, ONE, TRUST_BANNED)
    async with Node("a") as node:
        worker = await started(node, path)
        saver = worker.service.saver
        assert saver is not None
        assert list(worker.service.directory.banned()) == [ONE]
        number = write_trust_request(path, TWO, TRUST_BANNED)
        await asyncio.sleep(60)
    assert find_trust_answer(path, number) is TrustAnswer.WAITS
    assert find_directory_row(path, ONE)
