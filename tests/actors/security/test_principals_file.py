"""The file of principals on disk: read, and replaced in one step by one without faults."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onward.actors.security import PrincipalsFile
from onward.protocol.security import PrincipalsLimits
from onward.protocol.toml import FileError

pytestmark = pytest.mark.real_time

ONE = '[[unix]]\nname = "one"\nuid = 1\n'
TWO = '[[unix]]\nname = "two"\nuid = 2\n'


async def test_a_reload_replaces_all_entries(tmp_path: Path) -> None:
    path = tmp_path / "principals.toml"
    path.write_text(ONE)
    file = PrincipalsFile(path)
    before = file.content
    path.write_text(TWO)
    await asyncio.gather(file.reload(), file.reload())
    assert (set(before.unix), set(file.content.unix)) == ({1}, {2})


@pytest.mark.parametrize("broken", [ONE + "[[uni", "nonsense = 1"])
async def test_a_broken_file_leaves_the_entries_as_they_are(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "principals.toml"
    path.write_text(ONE)
    file = PrincipalsFile(str(path))
    path.write_text(broken)
    with pytest.raises(FileError, match=r"principals\.toml"):
        await file.reload()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        await file.reload()
    assert set(file.content.unix) == {1}


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "principals.toml"
    path.write_text("#" * 100)
    with pytest.raises(FileError, match="9 bytes are over the limit of 8"):
        PrincipalsFile(path, PrincipalsLimits(size=8))
