"""Archives of reports: bounded, whole, and read with care."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from onward.cli import _report_archive
from onward.cli._report_archive import MAX_MEMBERS, read_archive, write_archive
from onward.cli._status import CommandError
from tests.support.fixtures import Patch

PARTS: dict[str, Any] = {
    "report": {"format": 1},
    "connections-closed": {"rows": [1, None]},
    "metrics": "a 1\n",
}


def archive(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz") as made:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind
            made.addfile(member, io.BytesIO(content))
    return found.getvalue()


REPORT = ("onward-report/report.json", b"{}")


def sparse(size: int) -> bytes:
    """Return a report with a file of some size that takes no bytes of the archive."""
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w:gz", format=tarfile.PAX_FORMAT) as made:
        member = tarfile.TarInfo(REPORT[0])
        member.size = len(REPORT[1])
        made.addfile(member, io.BytesIO(REPORT[1]))
        member = tarfile.TarInfo("onward-report/x.txt")
        member.pax_headers = {
            "GNU.sparse.major": "0",
            "GNU.sparse.minor": "1",
            "GNU.sparse.name": member.name,
            "GNU.sparse.size": str(size),
            "GNU.sparse.map": f"{size},0",
            "GNU.sparse.numblocks": "1",
        }
        made.addfile(member)
    return found.getvalue()


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "r.tar.gz"
    write_archive(path, PARTS, 1e9)
    assert read_archive(path) == PARTS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    with pytest.raises(CommandError, match="exists"):
        write_archive(path, {}, 1e9)
    assert read_archive(path) == PARTS
    with pytest.raises(CommandError, match="No such file"):
        write_archive(tmp_path / "nowhere" / "r", PARTS, 1e9)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing of the kind",
        gzip.compress(b"nothing of the kind" * 1000),
        archive(),
        archive(("onward-report/report.json", b"[]")),
        archive(("onward-report/report.json", b"{")),
        archive(REPORT, ("onward-report/x.txt", b"\xff")),
        archive(REPORT, ("other/x.json", b"{}")),
        archive(REPORT, ("../x.json", b"{}")),
        archive(("onward-report/report.json", b""), kind=tarfile.SYMTYPE),
        archive(REPORT)[:-20],
        archive(*[(f"onward-report/{at}.json", b"{}") for at in range(MAX_MEMBERS + 1)]),
        archive(("onward-report/report.json", b"[" * 100_000)),
        sparse(1000),
    ],
    # An archive has the time at which it is made in it, and names have to be alike in all workers.
    ids=count(),
)
def test_what_is_no_report(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "r.tar.gz"
    path.write_bytes(content)
    with pytest.raises(CommandError, match="is no report"):
        read_archive(path)


def test_an_archive_that_unpacks_to_much_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "r.tar.gz"
    path.write_bytes(archive(REPORT, ("onward-report/x.txt", b"0" * 200_000)))
    assert path.stat().st_size < 2000
    monkeypatch.setattr(_report_archive, "MAX_ARCHIVE", 100_000)
    with pytest.raises(CommandError, match="over 100000 bytes"):
        read_archive(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        read_archive(tmp_path / "r")
