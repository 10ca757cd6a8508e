"""The check that a lake and a checkpoint belong together, before either is written to.

Spark's checkpoint records which segments were read; the lake records which it has. If one of them
were lost or exchanged, events would be duplicated or lost. So each has a small file that names the
other, and a mismatch is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from .._errors import (
    CheckpointLost,
    CheckpointRefused,
    LakeLost,
    NewerLake,
    NotALake,
    OtherQuery,
)
from ._files import MARKER, UNNAMED, read_json, refusals, write_json
from ._lake import FORMAT
from ._parts import LakeFiles

__all__ = ["OpenLake", "check_apart", "open_lake"]

_CHECKPOINT = "onward.json"
_OURS = (MARKER, "_write.lock", "_ingest.lock", f".{MARKER}{UNNAMED}")


class OpenLake:
    """A lake and its checkpoint.

    Attributes:
        query: The query's id, equal in both.
        base: The number in the lake of Spark's batch 0.
    """

    def __init__(self, query: str, base: int) -> None:
        self.query = query
        self.base = base


def open_lake(lake: Path, checkpoint: Path, *, rebuild: bool) -> OpenLake:
    """Check that lake and checkpoint belong together, and create either if missing.

    Args:
        lake: The lake's directory.
        checkpoint: The checkpoint's directory.
        rebuild: Continue with a new checkpoint; the old one, if it is of this lake, is moved aside.

    Raises:
        CheckpointRefused: `rebuild` is set, and the directory has files of something else.
        NotALake: The lake's directory has files of something else.
        NewerLake: A newer version of Onward wrote the lake.
        CheckpointLost: The checkpoint is gone, or is older than the lake.
        LakeLost: The lake is older than the checkpoint.
        CommitsLost: The lake's commits are older than its rows.
        OtherQuery: The checkpoint is of another lake.
        LakeError: One of them cannot be written.
    """
    plain = _identity(lake)
    files = LakeFiles(lake)
    if not rebuild:
        files.check_written()
    state = files.state()
    if rebuild:
        _check_ours(checkpoint, lake, str(plain["id"]))
        _move_aside(checkpoint)
        plain["base"] = state.batch + 1
        _write(lake, MARKER, plain)
    query, base = str(plain["id"]), int(plain["base"])
    theirs = read_json(checkpoint / _CHECKPOINT)
    if theirs is None:
        if _is_used(checkpoint):
            raise OtherQuery(str(checkpoint), str(lake))
        if state.batch != base - 1:
            raise CheckpointLost(str(checkpoint), str(lake), "is gone")
        if not rebuild:
            files.check_commits()
        _write(lake, MARKER, plain)
        _write(checkpoint, _CHECKPOINT, {"lake": query, "base": base})
        return OpenLake(query, base)
    if theirs.get("lake") != query:
        raise OtherQuery(str(checkpoint), str(lake))
    if theirs.get("base") != base:
        raise CheckpointLost(str(checkpoint), str(lake), "is older than its last --rebuild")
    if state.batch >= base and not _is_used(checkpoint):
        raise CheckpointLost(str(checkpoint), str(lake), "is empty")
    # Before the files that do not count are removed.
    ended = base + _last_of(checkpoint)
    if ended > max(state.batch, base - 1):
        raise LakeLost(str(lake), str(checkpoint), state.batch, ended + 1)
    return OpenLake(query, base)


def _last_of(checkpoint: Path) -> int:
    """Return Spark's number of the last batch that it recorded as done; -1 if there is none.

    Spark records a batch after its commit to the lake.
    """
    folder = checkpoint / "commits"
    with refusals(checkpoint):
        names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def check_apart(log: Path, lake: Path, checkpoint: Path) -> None:
    """Check that the directories are no files and do not overlap the checkpoint; write nothing.

    Raises:
        NotALake: The lake is a file or under one, or the directory has files of something else.
        NewerLake: A newer version of Onward wrote the lake.
        CheckpointRefused: The checkpoint is a file, or overlaps another directory.
    """
    if (file := _file_of(lake)) is not None:
        raise NotALake(str(lake), f"{file} is a file")
    if (file := _file_of(checkpoint)) is not None:
        raise CheckpointRefused(str(checkpoint), f"{file} is a file")
    ours = checkpoint.resolve()
    for what, other in (("log", log.resolve()), ("lake", lake.resolve())):
        if ours == other:
            raise CheckpointRefused(str(checkpoint), f"it is the {what} itself")
        if ours.is_relative_to(other):
            raise CheckpointRefused(str(checkpoint), f"it is inside the {what}, {other}")
        if other.is_relative_to(ours):
            raise CheckpointRefused(str(checkpoint), f"the {what} is inside it, {other}")
    # A refused directory must stay unchanged, without a lock in it.
    _identity(lake)


def _file_of(path: Path) -> Path | None:
    """Return the innermost existing one of a path and its parents, if it is no folder."""
    there = next((each for each in (path, *path.parents) if each.exists()), None)
    return None if there is None or there.is_dir() else there


def _check_ours(checkpoint: Path, lake: Path, query: str) -> None:
    if not checkpoint.exists() or not any(checkpoint.iterdir()):
        return
    theirs = read_json(checkpoint / _CHECKPOINT)
    if theirs is None:
        raise CheckpointRefused(
            str(checkpoint), f"there are files in it, and no {_CHECKPOINT} with their query"
        )
    if theirs.get("lake") != query:
        raise OtherQuery(str(checkpoint), str(lake))


def _identity(lake: Path) -> dict[str, Any]:
    plain = read_json(lake / MARKER)
    if plain is None:
        if lake.is_dir() and any(each.name not in _OURS for each in lake.iterdir()):
            raise NotALake(str(lake), "there are files in it, and none says that it is one")
        return {"format": FORMAT, "id": uuid4().hex, "base": 0}
    if not {"format", "id", "base"} <= set(plain):
        raise NotALake(str(lake), f"{MARKER} does not say what it is")
    if plain["format"] != FORMAT:
        raise NewerLake(str(lake), plain["format"])
    return plain


def _write(folder: Path, name: str, plain: Mapping[str, Any]) -> None:
    with refusals(folder):
        write_json(folder / name, plain)


def _is_used(checkpoint: Path) -> bool:
    """Whether Spark has begun a batch with a checkpoint."""
    offsets = checkpoint / "offsets"
    return offsets.is_dir() and any(each.name.isdecimal() for each in offsets.iterdir())


def _move_aside(checkpoint: Path) -> None:
    if not checkpoint.exists():
        return
    number = 1
    while (aside := checkpoint.with_name(f"{checkpoint.name}.before-{number}")).exists():
        number += 1
    with refusals(checkpoint):
        checkpoint.rename(aside)
