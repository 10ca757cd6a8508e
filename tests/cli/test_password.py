"""`onward password`."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import pytest

from onward.cli import main
from onward.cli._status import Status
from onward.protocol.security import read_principals, verify_scrypt
from tests.support.fixtures import Capsys


def answer(monkeypatch: pytest.MonkeyPatch, answers: Iterable[str]) -> None:
    given = iter(answers)

    def ask(prompt: str) -> str:
        try:
            return next(given)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("getpass.getpass", ask)


def test_it_asks_twice_and_prints_the_entry(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, ["secret", "secret"])
    assert main(["password", "ann", "--role", "orders"]) == Status.OK
    account = read_principals(capsys.readouterr().out).users["ann"]
    assert account.principal.roles == {"orders"}
    assert account.password is not None
    assert verify_scrypt("secret", account.password)


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["one", "other"], "the two passwords differ"),
        (["", ""], "a password has 1 to 1024 bytes"),
        (["ä" * 513] * 2, "a password has 1 to 1024 bytes"),
        (["\udcff"] * 2, "the password is not UTF-8"),
        ([], "no password was given"),
    ],
)
def test_what_is_refused(
    answers: list[str], told: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, answers)
    assert main(["password", "ann"]) == Status.FAILED
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"onward password: {told}\n")


def test_it_reads_the_first_line_of_stdin(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "users.toml"
    for name in ("ann", "bob", "ann"):
        monkeypatch.setattr("sys.stdin", io.StringIO("secret\r\nmore"))
        status = main(["password", name, "--stdin", "--file", str(path)])
        assert status == (Status.OK if len(capsys.readouterr().err) == 0 else Status.FAILED)
    users = read_principals(path.read_bytes()).users
    assert list(users) == ["ann", "bob"]
    assert all(each.password and verify_scrypt("secret", each.password) for each in users.values())
