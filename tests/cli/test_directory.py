"""`onward lookup`, `onward identity trust`, `ban` and `unban`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from onward.actors.identity import (
    MAX_TRUST_REQUESTS,
    DirectoryFile,
    DirectoryFileFailed,
    DirectorySaver,
    TrustAnswer,
    write_trust_request,
)
from onward.cli import main
from onward.cli._status import Status
from onward.protocol.identity import (
    SCOPE_ANY,
    Advert,
    AdvertAddress,
    AdvertSource,
    ConnectionPrefs,
    Directory,
    DirectoryLimits,
    DirectoryRow,
    DomainAdvert,
    EngineAdvert,
    Identity,
    LocalMetadata,
    NodeAdvert,
    RowJournal,
    SigningKey,
    TopicAdvert,
    Verifiers,
    identity_text,
    key_id,
    sign_advert,
)
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys, Patch

NOW = 1_900_000_000_000
SMALL = DirectoryLimits(max_identities=2, max_unknown=1)
"""Limits by which a node says something about one identity."""
NODE, ENGINE, TOPIC, DOMAIN, OTHER = (SigningKey(bytes([number]) * 32) for number in range(5))
ADVERTS: list[tuple[Advert, SigningKey]] = [
    (NodeAdvert(NODE.identity, (AdvertAddress("1#127.0.0.1:4000", 9),), bytes(32), 7, NOW), NODE),
    (EngineAdvert(ENGINE.identity, NODE.identity, b"orders", 1, NOW), ENGINE),
    (TopicAdvert(TOPIC.identity, ("news",), (ENGINE.identity,), SCOPE_ANY, 1, NOW), TOPIC),
    (DomainAdvert(DOMAIN.identity, (NODE.identity,), 1, NOW), DOMAIN),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with four adverts, as a node has left it."""
    made = tmp_path / "node.directory"
    known = Directory(Verifiers())
    for advert, key in ADVERTS:
        known.put_advert(sign_advert(advert, key), NOW, AdvertSource.ANSWER)
    known.update(NODE.identity, LocalMetadata(200, connection=ConnectionPrefs.PERMANENT))
    file = DirectoryFile(made)
    file.save(known.snapshot(), ())
    file.close()
    return made


def looked_up(path: Path, key: SigningKey | Identity, capsys: Capsys) -> dict[str, object]:
    identity = key.identity if isinstance(key, SigningKey) else key
    arguments = ["lookup", identity_text(identity), "--directory", str(path), "--json"]
    assert main(arguments) == Status.OK
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def run(path: Path, *words: str) -> int:
    return main([*words, "--directory", str(path)])


def test_lookup_prints_what_is_known_of_an_identity(path: Path, capsys: Capsys) -> None:
    assert run(path, "lookup", identity_text(NODE.identity)) == Status.OK
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()[4:])
    assert rows == {
        "known": "yes, and kept for good",
        "trust": "200",
        "equivocated": "no",
        "connection": "permanent",
        "advert": "node",
        "signature": "fits",
        "version": "7",
        "created": "2030-03-17T17:46:40Z",
        "routes": "1#127.0.0.1:4000",
        "sealing": f"key  {key_id(bytes(32)).hex()}",
    }


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (ENGINE, {"advert": "engine", "node": identity_text(NODE.identity), "worker": "orders"}),
        (
            TOPIC,
            {
                "advert": "topic",
                "tags": ["news"],
                "publishers": [identity_text(ENGINE.identity)],
                "scope": "any",
            },
        ),
        (DOMAIN, {"advert": "domain", "nodes": [identity_text(NODE.identity)]}),
    ],
)
def test_lookup_prints_adverts_of_each_kind(
    key: SigningKey, told: dict[str, object], path: Path, capsys: Capsys
) -> None:
    rows = looked_up(path, key, capsys)
    assert {**rows, **told} == rows
    assert rows["trust"] == 128
    assert rows["known"] == "used"


@pytest.mark.parametrize("text", ["engine:{}", "36#ENGINE:{}"])
def test_a_key_may_be_in_a_destination_or_an_address(text: str, path: Path, capsys: Capsys) -> None:
    assert run(path, "lookup", text.format(identity_text(ENGINE.identity))) == Status.OK
    assert identity_text(ENGINE.identity) in capsys.readouterr().out


def test_what_is_not_known_is_an_error(path: Path, capsys: Capsys) -> None:
    assert run(path, "lookup", identity_text(OTHER.identity)) == Status.FAILED
    assert f"{path}: the identity is not in it" in capsys.readouterr().err
    assert run(path, "lookup", "aeb2") == Status.USAGE
    assert "'aeb2' is no identity" in capsys.readouterr().err


def test_an_advert_that_was_changed_does_not_fit(path: Path, capsys: Capsys) -> None:
    file = sqlite3.connect(path, isolation_level=None)
    envelopes = "SELECT envelope FROM entry WHERE identity = ?"
    (node,) = file.execute(envelopes, (NODE.identity,)).fetchone()
    put = "UPDATE entry SET envelope = ? WHERE identity = ?"
    file.execute(put, (node[:-1] + b"x", NODE.identity))
    file.execute(put, (b"x", ENGINE.identity))
    file.execute("UPDATE entry SET created = -1 WHERE identity = ?", (TOPIC.identity,))
    file.close()
    for key in (NODE, ENGINE):
        rows = looked_up(path, key, capsys)
        assert rows["signature"] == "does not fit"
        assert "version" not in rows
    assert run(path, "lookup", identity_text(TOPIC.identity)) == Status.FAILED
    assert "a row has a number out of its range" in capsys.readouterr().err


def test_an_identity_is_banned_trusted_and_unbanned(path: Path, capsys: Capsys) -> None:
    text, short = identity_text(OTHER.identity), identity_text(OTHER.identity)[:12]
    for words, told, trust in [
        (("ban", text), "0 (banned), before 128 (as in any)", 0),
        (("ban", text), "0 (banned), before 0 (banned)", 0),
        (("trust", text, "200"), "200, before 0 (banned)", 200),
        (("trust", text, "255"), "255 (own), before 200", 255),
    ]:
        assert run(path, "identity", *words) == Status.OK
        assert capsys.readouterr() == (f"trust in {short}: {told}\n", "")
        assert looked_up(path, OTHER, capsys)["trust"] == trust
    assert looked_up(path, OTHER, capsys)["advert"] == "none"
    assert run(path, "identity", "unban", text) == Status.OK
    capsys.readouterr()
    assert run(path, "lookup", text) == Status.FAILED


def test_trust_leaves_all_else(path: Path, capsys: Capsys) -> None:
    before = looked_up(path, NODE, capsys)
    assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.OK
    capsys.readouterr()
    assert looked_up(path, NODE, capsys) == {**before, "trust": 0}


@pytest.mark.parametrize("value", ["256", "-1", "high", "²", "1.5"])
def test_trust_is_a_number(value: str, path: Path, capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as refused:
        run(path, "identity", "trust", identity_text(OTHER.identity), value)
    assert refused.value.code == Status.USAGE
    assert "VALUE" in capsys.readouterr().err


@pytest.fixture
def running(path: Path, monkeypatch: Patch) -> Iterator[Running]:
    """A node that has the file open, and does something while the command waits for it."""
    node = Running(path)
    monkeypatch.setattr("onward.cli._directory.time", node)
    yield node
    node.file.close()


class Running:
    """A node that has a directory open, and the clock of the command that waits for it.

    Attributes:
        action: What it does while a command waits; by default it takes requests.
    """

    now = 0.0

    def __init__(self, path: Path) -> None:
        self.file = DirectoryFile(path)
        journal = RowJournal()
        directory = Directory(Verifiers(), SMALL, journal)
        self.saver = DirectorySaver(directory, journal, self.file, self.after)
        self.action: Callable[[], object] = self.take
        for _ in self.saver.load():
            pass

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do nothing: all is done while a command waits."""

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.action()

    def take(self) -> None:
        self.saver.requests.take(self.file.requests())
        self.saver.save()


def test_a_node_that_has_the_file_open_is_asked(
    path: Path, running: Running, capsys: Capsys
) -> None:
    short, text = identity_text(NODE.identity)[:12], identity_text(NODE.identity)
    for words, told in [
        (("ban", text), "0 (banned)"),
        (("trust", text, "9"), "9"),
        (("unban", text), "128 (as in any)"),
    ]:
        assert run(path, "identity", *words) == Status.OK
        expected = f"trust in {short}: {told}, in the node that has the file open\n"
        assert capsys.readouterr() == (expected, "")
        assert looked_up(path, NODE, capsys)["trust"] == int(told.split()[0])
    assert run(path, "identity", "ban", identity_text(OTHER.identity)) == Status.FAILED
    assert "it says something about as many identities as it may" in capsys.readouterr().err
    assert run(path, "lookup", identity_text(OTHER.identity)) == Status.FAILED


def test_a_request_that_is_not_taken_in_time_is_taken_later(
    path: Path, running: Running, capsys: Capsys
) -> None:
    running.action = lambda: None
    assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.IN_DOUBT
    told = f"{path}: the node that has it open has not answered in 5 s: the request waits there"
    assert told in capsys.readouterr().err
    assert looked_up(path, NODE, capsys)["trust"] == 200
    running.file.close()
    # The next command does it, and then what it was told to do itself.
    assert run(path, "identity", "trust", identity_text(OTHER.identity), "1") == Status.OK
    capsys.readouterr()
    assert looked_up(path, NODE, capsys)["trust"] == 0
    assert looked_up(path, OTHER, capsys)["trust"] == 1


def test_a_node_that_stops_meanwhile_leaves_it_to_the_command(
    path: Path, running: Running, capsys: Capsys
) -> None:
    running.action = running.file.close
    assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.OK
    short = identity_text(NODE.identity)[:12]
    assert capsys.readouterr() == (f"trust in {short}: 0 (banned)\n", "")
    assert looked_up(path, NODE, capsys)["trust"] == 0


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("interrupted", "interrupted"),
        ("stopped", "database or disk is full"),
        ("removed", "unable to open database file"),
    ],
)
def test_a_failure_after_the_request_leaves_it_in_doubt(
    what: str, told: str, path: Path, running: Running, capsys: Capsys, monkeypatch: Patch
) -> None:
    def happen() -> None:
        match what:
            case "interrupted":
                raise KeyboardInterrupt
            case "stopped":
                running.file.close()
                monkeypatch.setattr(DirectoryFile, "save", full)
            case _:
                path.unlink()

    running.action = happen
    assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.IN_DOUBT
    waits = "the request may wait there, and is taken when it can be, or when a node starts"
    assert f"{path}: {told}; {waits}\n" in capsys.readouterr().err


def test_a_file_that_is_made_anew_has_no_ban(path: Path, running: Running, capsys: Capsys) -> None:
    def make_anew() -> None:
        running.file.close()
        path.unlink()
        anew = Running(path)
        running.file = anew.file
        write_trust_request(path, OTHER.identity, 1)  # of another command, the first one there
        anew.take()

    running.action = make_anew
    assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.IN_DOUBT
    told = f"{path}: it is another file than before, without the request that was written"
    assert told in capsys.readouterr().err


def test_more_requests_than_may_wait_are_an_error(
    path: Path, running: Running, capsys: Capsys
) -> None:
    for _ in range(MAX_TRUST_REQUESTS):
        write_trust_request(path, NODE.identity, 1)
    assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.FAILED
    told = f"the limit of {MAX_TRUST_REQUESTS} requests for a trust that wait is reached"
    assert told in capsys.readouterr().err
    assert running.saver.requests.answers == {}


def test_a_request_that_cannot_be_written_is_an_error(
    path: Path, running: Running, capsys: Capsys
) -> None:
    running.file._file.execute("BEGIN IMMEDIATE")
    assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.FAILED
    assert f"{path}: database is locked" in capsys.readouterr().err


def test_commands_at_once_all_do_their_part(path: Path, capsys: Capsys) -> None:
    keys = (NODE, ENGINE, OTHER)
    with ExitStack() as stack:
        words = [
            ("identity", "ban", identity_text(key.identity), "--directory", str(path))
            for key in keys
        ]
        processes = [stack.enter_context(onward(*each)) for each in words]
        for process in processes:
            _, errors = process.communicate(timeout=TIMEOUT)
            assert (process.returncode, errors) == (Status.OK, "")
    assert [looked_up(path, key, capsys)["trust"] for key in keys] == [0, 0, 0]


def test_no_file_is_made(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "nowhere"
    assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.FAILED
    assert "there is no such file: a node makes it" in capsys.readouterr().err
    assert run(path, "lookup", identity_text(NODE.identity)) == Status.FAILED
    assert "there is no such file: a node makes it" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_rows_that_cannot_be_used_are_reported(path: Path, capsys: Capsys) -> None:
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("UPDATE entry SET shelf = 9 WHERE identity = ?", (TOPIC.identity,))
    file.close()
    assert run(path, "identity", "ban", identity_text(OTHER.identity)) == Status.OK
    assert capsys.readouterr().err == f"{path}: left there, as they cannot be used: 1 row\n"


def test_a_directory_that_is_full_is_an_error(
    path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    small = DirectoryLimits(max_identities=2, max_unknown=1)
    monkeypatch.setattr("onward.protocol.identity._directory.DirectoryLimits", lambda: small)
    assert run(path, "identity", "ban", identity_text(OTHER.identity)) == Status.FAILED
    assert "it says something about as many identities as it may" in capsys.readouterr().err


def full(file: DirectoryFile, *changes: object) -> None:
    raise DirectoryFileFailed(file.path, "database or disk is full")


def test_what_is_written_in_part_is_in_doubt(
    path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    save = DirectoryFile.save

    def fill(file: DirectoryFile, *changes: Any) -> None:
        save(file, *changes)
        monkeypatch.setattr(DirectoryFile, "save", full)

    write_trust_request(path, NODE.identity, 1)
    monkeypatch.setattr("onward.actors.identity.directory._saver.SAVE_BATCH", 1)
    monkeypatch.setattr(DirectoryFile, "save", fill)
    assert run(path, "identity", "ban", identity_text(OTHER.identity)) == Status.IN_DOUBT
    told = f"{path}: database or disk is full; a part of the changes is written"
    assert told in capsys.readouterr().err

    def interrupt(file: DirectoryFile, *changes: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DirectoryFile, "save", interrupt)
    assert run(path, "identity", "ban", identity_text(OTHER.identity)) == Status.IN_DOUBT
    assert f"{path}: interrupted; the changes may be written" in capsys.readouterr().err


def test_a_disk_that_is_full_is_an_error(path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    save = DirectoryFile.save

    def fill(
        file: DirectoryFile,
        rows: list[DirectoryRow],
        gone: list[Identity],
        answers: Iterable[tuple[int, TrustAnswer]],
    ) -> None:
        (pages,) = file._file.execute("PRAGMA page_count").fetchone()
        file._file.execute(f"PRAGMA max_page_count={pages}")
        save(file, [row._replace(envelope=bytes(8000), kind=1) for row in rows], gone, answers)

    monkeypatch.setattr(DirectoryFile, "save", fill)
    assert run(path, "identity", "ban", identity_text(OTHER.identity)) == Status.FAILED
    told = f"{path}: database or disk is full; nothing has changed"
    assert told in capsys.readouterr().err
    assert run(path, "lookup", identity_text(OTHER.identity)) == Status.FAILED
