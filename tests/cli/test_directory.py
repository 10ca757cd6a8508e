"""`onward lookup`, `onward identity trust`, `ban` and `unban`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from onward.actors.identity import DirectoryFile
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
    SigningKey,
    TopicAdvert,
    Verifiers,
    identity_text,
    key_id,
    sign_advert,
)
from tests.support.fixtures import Capsys, Patch

NOW = 1_900_000_000_000
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


def test_a_file_that_a_node_has_open_is_read_and_not_changed(path: Path, capsys: Capsys) -> None:
    file = DirectoryFile(path)
    try:
        assert run(path, "identity", "ban", identity_text(NODE.identity)) == Status.FAILED
        assert "a node has this directory open" in capsys.readouterr().err
        assert looked_up(path, NODE, capsys)["trust"] == 200
    finally:
        file.close()


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


def test_a_disk_that_is_full_is_an_error(path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    save = DirectoryFile.save

    def fill(file: DirectoryFile, rows: list[DirectoryRow], gone: list[Identity]) -> None:
        (pages,) = file._file.execute("PRAGMA page_count").fetchone()
        file._file.execute(f"PRAGMA max_page_count={pages}")
        save(file, [row._replace(envelope=bytes(8000), kind=1) for row in rows], gone)

    monkeypatch.setattr(DirectoryFile, "save", fill)
    assert run(path, "identity", "ban", identity_text(OTHER.identity)) == Status.FAILED
    told = f"{path}: database or disk is full; nothing has changed"
    assert told in capsys.readouterr().err
    assert run(path, "lookup", identity_text(OTHER.identity)) == Status.FAILED
