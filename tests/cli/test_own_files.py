"""Files of credentials and contexts: whose they are, and what others may do with them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from onward.cli import main
from onward.cli._own_files import check_own
from onward.cli._status import CommandError, Status
from tests.support.fixtures import Capsys, Patch

US, OTHER, ROOT = 1000, 1001, 0


def state(owner: int, mode: int, kind: int = stat.S_IFREG) -> os.stat_result:
    return os.stat_result((kind | mode, 0, 0, 1, owner, owner, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("owner", "mode", "context", "secret"),
    [
        (US, 0o600, "", ""),
        (US, 0o400, "", ""),
        (US, 0o644, "", "may read"),
        (US, 0o640, "", "may read"),
        (US, 0o604, "", "may read"),
        (US, 0o611, "", "may read"),
        (US, 0o620, "may write", "may write"),
        (US, 0o602, "may write", "may write"),
        (ROOT, 0o644, "", ""),
        (ROOT, 0o440, "", ""),
        (ROOT, 0o664, "may write", "may write"),
        (OTHER, 0o600, "another user owns it", "another user owns it"),
        (OTHER, 0o644, "another user owns it", "another user owns it"),
    ],
)
def test_what_a_file_may_be(
    owner: int, mode: int, context: str, secret: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: US)
    for is_secret, told in ((False, context), (True, secret)):
        if not told:
            check_own(state(owner, mode), Path("/run/a"), secret=is_secret)
            continue
        with pytest.raises(CommandError, match=f"^/run/a: .*{told}") as refused:
            check_own(state(owner, mode), Path("/run/a"), secret=is_secret)
        assert refused.value.status is Status.USAGE


def test_root_has_files_of_its_own_too(monkeypatch: Patch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: ROOT)
    check_own(state(ROOT, 0o600), Path("a"), secret=True)
    with pytest.raises(CommandError, match="may read"):
        check_own(state(ROOT, 0o644), Path("a"), secret=True)
    with pytest.raises(CommandError, match="another user owns it"):
        check_own(state(US, 0o600), Path("a"), secret=True)


def test_a_pipe_is_not_checked() -> None:
    check_own(state(OTHER, 0o666, stat.S_IFIFO), Path("/dev/fd/63"), secret=True)


@pytest.mark.parametrize("option", ["--token-file", "--password-file"])
def test_a_command_shows_no_secret_that_others_may_read(
    option: str, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.delenv("ONWARD_PASSWORD", raising=False)
    file = tmp_path / "secret"
    file.write_text("planted")
    file.chmod(0o644)
    words = ["routes", "--broker", "rsocket+tcp://127.0.0.1:1", option, str(file)]
    words += ["--user", "ann"] if option == "--password-file" else []
    assert main(words) == Status.USAGE
    told = f"onward routes: {file}: others may read the secret in it: chmod 600\n"
    assert capsys.readouterr().err == told
    file.chmod(0o600)
    assert main(words) != Status.USAGE  # nothing listens there


def test_no_more_is_read_than_credentials_may_have(tmp_path: Path, capsys: Capsys) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    cut: list[bool] = []

    def write() -> None:
        try:
            pipe.write_bytes(bytes(10_000_000))
        except BrokenPipeError:
            cut.append(True)

    writer = Thread(target=write)
    writer.start()
    words = ["routes", "--broker", "rsocket+tcp://127.0.0.1:1", "--token-file", str(pipe)]
    assert main(words) == Status.USAGE
    writer.join()
    assert cut == [True]
    assert "8192 bytes" in capsys.readouterr().err
