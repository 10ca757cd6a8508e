"""`onward identity new`, `show`, `rotate` and `advert`."""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from onward.actors.identity import load_key_file, make_key_file, read_key_file
from onward.cli import main
from onward.cli._status import Status
from onward.protocol.identity import (
    MAX_ADVERT_ADDRESSES,
    DomainAdvert,
    Identity,
    Lock,
    NodeAdvert,
    SealingKey,
    SigningKey,
    Verifiers,
    derived_engine,
    identity_text,
    open_advert,
    parse_advert_envelope,
    serialize_advert_envelope,
    short_text,
    sign_advert,
)
from tests.support.fixtures import Capsys, Patch

WORDS = "correct horse"
QUICK = Lock(bytes(16), bytes(12), log_n=1, r=1)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: Patch) -> None:
    monkeypatch.setattr("onward.actors.identity._key_file.new_lock", lambda: QUICK)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words"
    path.write_text(f"{WORDS}\n")
    path.chmod(0o600)
    return path


def answer(monkeypatch: Patch, answers: Iterable[str], *, terminal: bool = True) -> None:
    given = iter(answers)

    def ask(prompt: str) -> str:
        try:
            return next(given)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("getpass.getpass", ask)
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal, raising=False)


def made(path: Path, passphrase: str | None = None, name: str = "relay in Oslo") -> Identity:
    return make_key_file(path, name=name, passphrase=passphrase).identity


def test_new_makes_a_file_and_prints_the_identity(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "node.key"
    assert main(["identity", "new", str(path), "--name", "relay in Oslo"]) == Status.OK
    keys = load_key_file(path)
    assert capsys.readouterr() == (f"{identity_text(keys.identity)}\n", "")
    assert keys.name == "relay in Oslo"
    assert read_key_file(path).lock is None
    content = path.read_bytes()
    assert main(["identity", "new", str(path)]) == Status.FAILED
    assert "it is there, and is not overwritten" in capsys.readouterr().err
    assert path.read_bytes() == content


def test_new_encrypts_with_the_passphrase_of_a_file(
    tmp_path: Path, words: Path, capsys: Capsys
) -> None:
    path = tmp_path / "node.key"
    assert main(["identity", "new", str(path), "--passphrase-file", str(words)]) == Status.OK
    assert read_key_file(path).lock == QUICK
    assert capsys.readouterr().out == f"{identity_text(load_key_file(path, WORDS).identity)}\n"


def test_new_asks_twice_for_a_passphrase(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    path = tmp_path / "node.key"
    answer(monkeypatch, [WORDS, WORDS])
    assert main(["identity", "new", str(path), "--encrypt"]) == Status.OK
    assert load_key_file(path, WORDS)
    assert WORDS not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("answers", "terminal", "status", "told"),
    [
        ([WORDS, "wrong horse"], True, Status.FAILED, "the two passphrases differ"),
        ([WORDS], True, Status.FAILED, "no passphrase was given"),
        ([], True, Status.FAILED, "no passphrase was given"),
        (["", ""], True, Status.FAILED, "a passphrase has 1 to 1024 bytes"),
        ([], False, Status.USAGE, "there is no terminal"),
    ],
)
def test_new_makes_nothing_without_a_passphrase_that_it_was_to_have(
    answers: list[str],
    terminal: bool,
    status: Status,
    told: str,
    tmp_path: Path,
    capsys: Capsys,
    monkeypatch: Patch,
) -> None:
    answer(monkeypatch, answers, terminal=terminal)
    assert main(["identity", "new", str(tmp_path / "node.key"), "--encrypt"]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert "horse" not in err
    assert list(tmp_path.iterdir()) == []


def test_new_refuses_a_file_of_a_passphrase_that_others_read(
    tmp_path: Path, words: Path, capsys: Capsys
) -> None:
    words.chmod(0o644)
    path = tmp_path / "node.key"
    assert main(["identity", "new", str(path), "--passphrase-file", str(words)]) != Status.OK
    assert "others may read the secret in it" in capsys.readouterr().err
    assert not path.exists()


def test_new_tells_what_is_wrong(tmp_path: Path, capsys: Capsys) -> None:
    assert main(["identity", "new", str(tmp_path / "no" / "node.key")]) == Status.FAILED
    assert "No such file" in capsys.readouterr().err
    assert main(["identity", "new", str(tmp_path / "k"), "--name", "a\nb"]) == Status.FAILED
    assert "printable characters" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["identity", "new", str(tmp_path / "k"), "--encrypt", "--passphrase-file", "p"])
    assert "not allowed with" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_show_shows_a_file(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "node.key"
    identity = made(path)
    assert main(["identity", "show", str(path)]) == Status.OK
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    key = SealingKey(load_key_file(path).sealing_seed).key_id.hex()
    assert lines.pop("created").endswith("Z")
    assert lines == {
        "identity": identity_text(identity),
        "short": short_text(identity),
        "kind": "key",
        "checksum": "fits",
        "name": "relay in Oslo",
        "encrypted": "no",
        "checked": "yes",
        "sealing": f"key  {key}",
        "rotated": "never",
    }


def test_show_shows_an_encrypted_file_and_checks_it_with_its_passphrase(
    tmp_path: Path, words: Path, capsys: Capsys
) -> None:
    path = tmp_path / "node.key"
    identity = made(path, WORDS)
    for more, checked in ([], False), (["--passphrase-file", str(words)], True):
        assert main(["identity", "show", str(path), "--json", *more]) == Status.OK
        found = json.loads(capsys.readouterr().out)
        assert found["identity"] == identity_text(identity)
        assert (found["encrypted"], found["checked"]) == (True, checked)
        assert found["rotated"] is None
    words.write_text("wrong horse")
    more = ["--passphrase-file", str(words)]
    assert main(["identity", "show", str(path), *more]) == Status.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{path}: the passphrase is wrong, or it is damaged" in err


def test_show_prints_no_secret(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "node.key"
    made(path)
    assert main(["identity", "rotate", str(path)]) == Status.OK
    for more in [], ["--json"]:
        assert main(["identity", "show", str(path), *more]) == Status.OK
    shown = "".join(capsys.readouterr())
    keys = load_key_file(path)
    assert keys.previous_seed is not None
    lines = path.read_text().splitlines()[2:-1]
    for secret in (keys.sealing_seed.hex(), keys.previous_seed.hex(), *lines):
        assert secret[:16] not in shown


def test_show_checks_a_text(capsys: Capsys, tmp_path: Path) -> None:
    node = made(tmp_path / "node.key")
    engine = derived_engine(node, b"printer")
    assert main(["identity", "show", identity_text(node).upper(), "--json"]) == Status.OK
    assert json.loads(capsys.readouterr().out) == {
        "identity": identity_text(node),
        "short": short_text(node),
        "kind": "key",
        "checksum": "fits",
    }
    assert main(["identity", "show", f"36#engine:{identity_text(engine)}"]) == Status.OK
    assert main(["identity", "show", f"engine:{identity_text(engine)}"]) == Status.OK
    lines = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert lines["destination"] == "engine"
    assert lines["kind"] == "derived"


NO_IDENTITIES: list[tuple[Callable[[str], str], str]] = [
    (lambda text: ("b" if text[5] != "b" else "c").join((text[:5], text[6:])), "checksum"),
    (lambda text: text[:-1], "one has 56 characters, not 55"),
    (lambda text: "nodes:" + text, "it begins with one of"),
    (lambda _: "\x1b[2J", r"'\x1b[2J'"),
    (lambda _: "node.key.old", "there is no such file"),
]


@pytest.mark.parametrize(("change", "told"), NO_IDENTITIES)
def test_show_tells_what_is_no_identity(
    change: Callable[[str], str], told: str, tmp_path: Path, capsys: Capsys
) -> None:
    text = change(identity_text(made(tmp_path / "node.key")))
    assert main(["identity", "show", text]) == Status.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err


def test_show_refuses_a_file_that_others_read(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "node.key"
    made(path)
    path.chmod(0o640)
    assert main(["identity", "show", str(path)]) == Status.FAILED
    assert "others may read the secret in it" in capsys.readouterr().err
    assert main(["identity", "show", str(tmp_path)]) == Status.FAILED
    assert "Is a directory" in capsys.readouterr().err


def test_rotate_changes_the_sealing_key(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "node.key"
    identity = made(path)
    before = load_key_file(path)
    left = tmp_path / ".node.key.12345678.rotating"
    left.touch()
    assert main(["identity", "rotate", str(path)]) == Status.OK
    keys = load_key_file(path)
    assert (keys.identity, keys.previous_seed) == (identity, before.sealing_seed)
    out, err = capsys.readouterr()
    assert out == f"sealing key {SealingKey(keys.sealing_seed).key_id.hex()}\n"
    assert err == f"{left} was left by a rotation that was cut off, and can be removed\n"
    left.unlink()
    assert main(["identity", "rotate", str(path)]) == Status.FAILED
    (told,) = capsys.readouterr().err.splitlines()
    assert "less than ten minutes ago" in told
    assert re.search(r"rotate it after \d{4}-\d\d-\d\dT[\d:]+Z, or lose those by --force$", told)
    assert main(["identity", "rotate", str(path), "--force"]) == Status.OK
    assert main(["identity", "show", str(path), "--json"]) == Status.OK
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rotated"].endswith("Z")


def test_rotate_asks_for_the_passphrase_of_an_encrypted_file(
    tmp_path: Path, words: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    path = tmp_path / "node.key"
    made(path, WORDS)
    answer(monkeypatch, [WORDS])
    assert main(["identity", "rotate", str(path)]) == Status.OK
    more = ["--force", "--passphrase-file", str(words)]
    assert main(["identity", "rotate", str(path), *more]) == Status.OK
    assert load_key_file(path, WORDS)
    content = path.read_bytes()
    answer(monkeypatch, [], terminal=False)
    assert main(["identity", "rotate", str(path)]) == Status.USAGE
    assert "there is no terminal" in capsys.readouterr().err
    answer(monkeypatch, ["wrong horse"])
    assert main(["identity", "rotate", str(path)]) == Status.FAILED
    assert "the passphrase is wrong" in capsys.readouterr().err
    assert path.read_bytes() == content


def test_advert_prints_what_the_node_signs(tmp_path: Path, words: Path, capsys: Capsys) -> None:
    path = tmp_path / "node.key"
    identity = made(path, WORDS)
    more = ["--passphrase-file", str(words)]
    uris = ["tcp://b.example.net:4000", f"36#relay:{identity_text(identity)}", "uds:///run/a"]
    for given in ([], uris):
        options = [each for uri in given for each in ("--advertise", uri)]
        assert main(["identity", "advert", str(path), *more, *options]) == Status.OK
        text = capsys.readouterr().out
        assert text.count("\n") == 1
        envelope = parse_advert_envelope(b64decode(text))
        advert = open_advert(envelope, Verifiers())
        assert isinstance(advert, NodeAdvert)
        keys = load_key_file(path, WORDS)
        assert (advert.identity, advert.kx) == (identity, SealingKey(keys.sealing_seed).public)
        assert [each.route for each in advert.addresses] == given
        weights = [each.weight for each in advert.addresses]
        assert weights == sorted(set(weights), reverse=True)
        assert advert.version == advert.created // 1000
        assert main(["identity", "show", text, "--json"]) == Status.OK
        found = json.loads(capsys.readouterr().out)
        assert (found["advert"], found["identity"]) == ("node", identity_text(identity))
        assert found["signature"] == "fits"
        assert found["routes"] == [each.route for each in advert.addresses]
        assert found["sealing_key"] == SealingKey(keys.sealing_seed).key_id.hex()
        assert main(["identity", "show", text]) == Status.OK
        assert "none" in capsys.readouterr().out or given


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("1#a.example.net:4000", "--advertise: '1#a.example.net:4000' is no URI, such as tcp://"),
        ("tcp:a.example.net:4000", "--advertise: 'tcp:a.example.net:4000' is no URI"),
        ("tpc://a.example.net:4000", "no transport 'tpc'; there are: tcp, "),
        ("tcp://a.example.net", "tcp://a.example.net"),
        ("36#relay:aera", "--advertise: 'aera' is no identity"),
        ("36#node:aera", "no 36#relay:IDENTITY"),
    ],
)
def test_advert_refuses_what_no_node_would_use(
    uri: str, told: str, tmp_path: Path, capsys: Capsys
) -> None:
    made(tmp_path / "node.key")
    words = ["identity", "advert", str(tmp_path / "node.key"), "--advertise", uri]
    assert main(words) == Status.USAGE
    assert told in capsys.readouterr().err


def test_advert_refuses_more_uris_than_there_may_be(tmp_path: Path, capsys: Capsys) -> None:
    made(tmp_path / "node.key")
    options = ["--advertise", "tcp://a.example.net:4000"] * (MAX_ADVERT_ADDRESSES + 1)
    assert main(["identity", "advert", str(tmp_path / "node.key"), *options]) == Status.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert "the list of addresses has 17 items" in err


def test_show_shows_adverts_of_all_kinds_and_none_that_is_changed(capsys: Capsys) -> None:
    key = SigningKey(bytes(32))
    advert = sign_advert(DomainAdvert(key.identity, (key.identity,), 1, 1), key)
    data = serialize_advert_envelope(advert)
    assert main(["identity", "show", b64encode(data).decode(), "--json"]) == Status.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["advert"], found["version"]) == ("domain", 1)
    assert "routes" not in found
    changed = data[:-1] + bytes((data[-1] ^ 1,))
    for text, told in (
        (b64encode(changed).decode(), "the signature of the advert does not fit"),
        (b64encode(data[:-1]).decode(), "it is no advert"),
        ("!" * 200, "it is no advert"),
        ("a" * 300, "it is no advert"),
    ):
        assert main(["identity", "show", text]) == Status.FAILED
        out, err = capsys.readouterr()
        assert out == ""
        assert told in err


def test_a_time_beyond_all_calendars_is_shown(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "node.key"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onward.actors.identity._key_file._now", lambda: 2**64 - 1)
        made(path, name="")
    assert main(["identity", "show", str(path)]) == Status.OK
    assert f"{2**64 - 1} ms" in capsys.readouterr().out


def test_without_the_extra_it_says_which(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    join = ["--join", "tcp://127.0.0.1:1", "36#node:x"]
    for words in (
        ["identity", "new", str(tmp_path / "k")],
        ["identity", "show", "x"],
        ["identity", "rotate", "x"],
        ["identity", "advert", "x"],
        ["identity", "ban", "x", "--directory", "d"],
        ["lookup", "x", "--directory", "d"],
        ["node", "--identity", "x"],
        ["dispatch", "--identity", "x"],
        ["request", *join, "hello"],
        ["send", *join, "hello"],
        ["trace", *join],
    ):
        assert main(words) == Status.FAILED
        told = f"onward {words[0]}: an identity needs the extra: install onward[identity]\n"
        assert capsys.readouterr().err == told
