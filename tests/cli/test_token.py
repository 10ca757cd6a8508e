"""`onward token new`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from onward.actors.security import TokenAuthenticator
from onward.cli import main
from onward.cli._status import Status
from onward.protocol.security import BearerToken, PeerIdentity, read_principals, token_digest
from tests.support.fixtures import Capsys


def test_it_prints_the_token_and_its_entry(capsys: Capsys) -> None:
    words = ["--role", "orders", "--role", "reports", "--tag", "tenant=a=b", "--tag", "x y=z"]
    assert main(["token", "new", 'bil"ling', *words, "--expires", "2999-01-01"]) == Status.OK
    token, nothing, entry = capsys.readouterr().out.split("\n", 2)
    assert nothing == ""
    (account,) = read_principals(entry).tokens.values()
    assert read_principals(entry).tokens.keys() == {token_digest(token.encode())}
    assert token not in entry
    principal = account.principal
    assert principal.name == 'bil"ling'
    assert principal.roles == {"orders", "reports"}
    assert principal.tags == {("tenant", "a=b"), ("x y", "z")}
    assert principal.expires == 32_472_144_000.0


async def test_it_adds_the_entry_to_a_file(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "tokens.toml"
    for _ in range(2):
        assert main(["token", "new", "billing", "--file", str(path)]) == Status.OK
    tokens = capsys.readouterr().out.split()
    assert len(tokens) == 2
    assert path.stat().st_mode & 0o777 == 0o600
    method = TokenAuthenticator(path)
    for token in tokens:
        assert await method.authenticate(BearerToken(token.encode()), PeerIdentity()) is not None
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.toml"]


def test_a_file_that_exists_keeps_its_mode_and_its_content(tmp_path: Path, capsys: Capsys) -> None:
    path, link = tmp_path / "tokens.toml", tmp_path / "link.toml"
    path.write_text("# ours\n[[unix]]\nname = 'a'\nuid = 1")
    path.chmod(0o640)
    link.symlink_to(path)
    assert main(["token", "new", "billing", "--file", str(link)]) == Status.OK
    content = path.read_text()
    assert content.startswith("# ours\n[[unix]]\nname = 'a'\nuid = 1\n\n[[tokens]]\n")
    assert path.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    capsys.readouterr()


def test_a_broken_file_stays_and_no_token_is_printed(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text("[[token]]\n")
    assert main(["token", "new", "billing", "--file", str(path)]) == Status.FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert "unknown key" in err
    assert path.read_text() == "[[token]]\n"
    assert main(["token", "new", "a", "--file", str(tmp_path / "no" / "f")]) == Status.FAILED
    assert "No such file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--expires", "2020-01-01"], "not in the future"),
        (["--expires", "soon"], "no date and no duration"),
        (["--expires", "2999-01-01T10:00:00"], "has no offset"),
        (["--tag", "tenant"], "not KEY=VALUE"),
    ],
)
def test_wrong_words_are_usage_errors(words: list[str], told: str, capsys: Capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["token", "new", "billing", *words])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_a_name_is_checked(capsys: Capsys) -> None:
    assert main(["token", "new", ""]) == Status.FAILED
    assert "a name has 1 to 255 bytes" in capsys.readouterr().err
    assert main(["token", "new", "a", "--tag", "=b"]) == Status.FAILED


def test_a_duration_counts_from_now(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000_000.7)
    assert main(["token", "new", "billing", "--expires", "90d"]) == Status.OK
    entry = tomllib.loads(capsys.readouterr().out.split("\n\n")[1])["tokens"][0]
    assert entry["expires"].timestamp() == 1_000_000_000 + 90 * 86_400
