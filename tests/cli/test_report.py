"""`onward report`: what is in it, and that no secret is."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from onward.cli import _report, main
from onward.cli._access import Access
from onward.cli._client import connected
from onward.cli._report import _ANSWERS, _TABLES
from onward.cli._report_archive import read_archive, write_archive
from onward.cli._status import CommandError, Status
from onward.protocol import OnwardError
from onward.protocol.security import (
    BearerToken,
    UserPassword,
    hash_password,
    make_token,
    token_digest,
)
from onward.transports.client import ClientOptions, RetryOptions
from tests.support.commands import TIMEOUT, broker_process
from tests.support.fixtures import Capsys, Patch

PASSWORD = "correct-horse-battery"
OPERATOR, SERVICE, OTHER = (make_token(bytes((each,)) * 32) for each in range(1, 4))
JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJpZGEifQ.c2lnbmF0dXJlLXBsYW50ZWQ"
SECRETS = (PASSWORD, OPERATOR, SERVICE, OTHER, JWT, "planted-in-a-tag", "planted-in-a-url")

RULES = """\
[[rule]]
names = ["operator"]
read = true
operate = true
request = ["service=onward.management"]

[[rule]]
names = ["shop", "ida"]
register = "service=* password=* note=* jwt=* url=*"
request = ["service=*"]
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the files of a broker, and what its principals show."""
    entries = list[str]()
    for name, token in (("operator", OPERATOR), ("shop", SERVICE)):
        digest = token_digest(token.encode()).hex()
        entries.append(f'[[tokens]]\nname = "{name}"\nsha256 = "{digest}"\n')
        (tmp_path / name).write_text(token)
    stored = hash_password(PASSWORD, b"1" * 16).text
    entries.append(f'[[users]]\nname = "ida"\npassword = "{stored}"\n')
    (tmp_path / "principals.toml").write_text("".join(entries))
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path


async def leave_secrets(uri: str) -> None:
    """Register, ask and fail with secrets wherever a client can put some."""
    options = ClientOptions(retry=RetryOptions(max_tries=1), connect_timeout=TIMEOUT)
    tags = {"password": "planted-in-a-tag", "note": OTHER, "jwt": JWT}
    url = "https://ida:planted-in-a-url@a.example/x"
    shop = Access(credentials=BearerToken(SERVICE.encode()))
    ida = Access(credentials=UserPassword("ida", PASSWORD))
    async with connected(
        uri, TIMEOUT, shop, options, service=f"shop-{OTHER}", tags=tags | {"url": url}
    ):
        async with connected(uri, TIMEOUT, ida, options) as client:
            for query in (f"service=nobody note={OTHER}", "service=nobody token=planted-in-a-tag"):
                with pytest.raises(OnwardError):
                    await client.request(query, JWT.encode(), timeout=TIMEOUT)
        wrong = connected(uri, TIMEOUT, Access(credentials=BearerToken(OTHER.encode())), options)
        with pytest.raises(CommandError, match="refuses the credentials"):
            await wrong.__aenter__()


async def test_no_secret_is_in_it(files: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    monkeypatch.setenv("ONWARD_PASSWORD", PASSWORD)
    monkeypatch.setenv("ONWARD_TOKEN", OTHER)
    words = ["--principals", str(files / "principals.toml"), "--rules", str(files / "rules.toml")]
    path = files / "r.tar.gz"
    with broker_process(*words, "--no-route-timeout", "0") as uri:
        await leave_secrets(uri)
        by = ("--broker", uri, "--token-file", str(files / "operator"), "--output", str(path))
        status = await asyncio.to_thread(main, ["report", *by])
        assert status == Status.OK
    out = capsys.readouterr().out
    whole = gzip.decompress(path.read_bytes()).decode(errors="replace")
    for secret in SECRETS:
        assert secret not in whole
        assert secret not in out
    parts = read_archive(path)
    assert set(parts) == {"report", *_ANSWERS, *_TABLES}
    assert parts["report"]["missing"] == {}
    assert "thread MainThread" in parts["stacks"]
    assert "onward_routes" in parts["metrics"]
    assert [row["principal"] for row in parts["connections-closed"]["rows"]]
    kinds = {row["kind"] for row in parts["events"]["rows"]}
    assert {"joined", "rejected"} <= kinds
    assert "scrypt" not in whole


def test_what_it_says_and_what_the_archive_says_later(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "r.tar.gz"
    with broker_process() as uri:
        assert main(["report", "--broker", uri, "--output", str(path)]) == Status.OK
        first, *told = capsys.readouterr().out.splitlines()
        assert first == f"written to {path}, {path.stat().st_size} bytes"
        assert "note: parts: the report has no stacks: not allowed: operate" in told
        assert main(["report", "--broker", uri, "--output", str(path)]) == Status.FAILED
        assert "exists" in capsys.readouterr().err
    assert main(["report", "--check", str(path)]) == Status.OK
    assert capsys.readouterr().out.splitlines() == told
    assert main(["report", "--check", str(path), "--json"]) == Status.OK
    rows = json.loads(capsys.readouterr().out)
    assert {row["level"] for row in rows} == {"note"}
    assert main(["report", "--check", str(path), "--output", "x"]) == Status.USAGE


def test_a_broker_in_a_program_tells_a_part(broker: str, tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "r.tar.gz"
    assert main(["report", "--broker", broker, "--output", str(path), "--json"]) == Status.OK
    json.loads(capsys.readouterr().out)
    parts = read_archive(path)
    assert set(parts) == {"report", "statistics", "dead-letters"}
    assert set(parts["report"]["missing"]) == {*_ANSWERS, *_TABLES} - set(parts)


def test_nobody_there_leaves_no_file(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "r.tar.gz"
    words = ("report", "--broker", "rsocket+tcp://127.0.0.1:1", "--output", str(path))
    assert main(words) == Status.FAILED
    assert "cannot connect" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_its_size_is_bounded(broker: str, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(_report, "MAX_REPORT", 100)
    path = tmp_path / "r.tar.gz"
    assert main(["report", "--broker", broker, "--output", str(path)]) == Status.OK
    parts = read_archive(path)
    assert "over 100 bytes" in parts["report"]["missing"]["statistics"]


def test_nothing_stands_out(capsys: Capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.tar.gz"
    write_archive(path, {"report": {"made": 1.0}}, 1.0)
    assert main(["report", "--check", str(path)]) == Status.OK
    assert capsys.readouterr().out == "nothing stands out\n"
