"""Lakes and checkpoints that belong together, and those that do not. No Spark runs here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest

from onward.pipeline._errors import (
    BadOption,
    CheckpointLost,
    CheckpointRefused,
    DayOpen,
    LakeBusy,
    LakeError,
    NewerLake,
    NoCommit,
    NotALake,
    OtherQuery,
)
from onward.pipeline.ingest import KEPT_COMMITS, SWEPT_BATCHES, Lake, LakeState, _parts, compact
from onward.pipeline.ingest._files import locked, read_json, sync_folders, write_json
from onward.pipeline.ingest._opening import check_apart, open_lake
from onward.pipeline.ingest._parts import LakeFiles, Swept
from tests.support.fixtures import Patch


def use(checkpoint: Path) -> None:
    """Have it look as if Spark had begun a batch."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").write_text("v1")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def begin(lake: Path, checkpoint: Path) -> str:
    """A lake with one batch in it."""
    opened = open_lake(lake, checkpoint, rebuild=False)
    use(checkpoint)
    LakeFiles(lake).commit(LakeState(batch=0))
    return opened.query


def test_a_new_lake_goes_on_with_its_checkpoint(lake: Path, checkpoint: Path) -> None:
    query = begin(lake, checkpoint)
    opened = open_lake(lake, checkpoint, rebuild=False)
    assert (opened.query, opened.base) == (query, 0)


def test_it_may_be_cut_off_before_the_checkpoint_knows(lake: Path, checkpoint: Path) -> None:
    query = open_lake(lake, checkpoint, rebuild=False).query
    shutil.rmtree(checkpoint)
    assert open_lake(lake, checkpoint, rebuild=False).query == query


@pytest.mark.parametrize("how", ["gone", "empty"])
def test_a_lost_checkpoint_is_told_with_what_to_do(how: str, lake: Path, checkpoint: Path) -> None:
    begin(lake, checkpoint)
    shutil.rmtree(checkpoint if how == "gone" else checkpoint / "offsets")
    with pytest.raises(CheckpointLost, match=how) as raised:
        open_lake(lake, checkpoint, rebuild=False)
    assert "--rebuild" in str(raised.value)


def test_rebuilding_goes_on_behind_the_last_batch(lake: Path, checkpoint: Path) -> None:
    query = begin(lake, checkpoint)
    for number in (1, 2):
        opened = open_lake(lake, checkpoint, rebuild=True)
        assert (opened.query, opened.base) == (query, 1)
        aside = checkpoint.with_name(f"checkpoint.before-{number}")
        assert (aside / "onward.json").is_file()
    assert open_lake(lake, checkpoint, rebuild=False).base == 1


def test_the_checkpoint_from_before_a_rebuild_is_refused(lake: Path, checkpoint: Path) -> None:
    begin(lake, checkpoint)
    open_lake(lake, checkpoint, rebuild=True)
    old = checkpoint.with_name("checkpoint.before-1")
    with pytest.raises(CheckpointLost, match="older than its last --rebuild"):
        open_lake(lake, old, rebuild=False)


def test_the_checkpoint_of_another_lake_is_refused(tmp_path: Path, lake: Path) -> None:
    begin(lake, tmp_path / "one")
    begin(tmp_path / "other-lake", tmp_path / "two")
    with pytest.raises(OtherQuery, match="another lake"):
        open_lake(lake, tmp_path / "two", rebuild=False)
    use(tmp_path / "three")
    with pytest.raises(OtherQuery):
        open_lake(lake, tmp_path / "three", rebuild=False)
    with pytest.raises(OtherQuery):
        open_lake(tmp_path / "new-lake", tmp_path / "two", rebuild=False)
    assert not (tmp_path / "new-lake").exists()


def test_rebuilding_moves_only_a_checkpoint(tmp_path: Path, lake: Path, checkpoint: Path) -> None:
    begin(lake, checkpoint)
    begin(tmp_path / "other-lake", tmp_path / "other")
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("much work")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CheckpointRefused, match="there are files in it"):
        open_lake(lake, precious, rebuild=True)
    with pytest.raises(OtherQuery):
        open_lake(lake, tmp_path / "other", rebuild=True)
    assert sorted(tmp_path.iterdir()) == before
    assert open_lake(lake, checkpoint, rebuild=False).base == 0

    (tmp_path / "empty").mkdir()
    assert open_lake(lake, tmp_path / "empty", rebuild=True).base == 1
    assert open_lake(lake, tmp_path / "new", rebuild=True).base == 1


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("log", "it is the log itself"),
        ("log/b1", "it is inside the log"),
        ("data/lake", "it is the lake itself"),
        ("data/lake/checkpoint", "it is inside the lake"),
        ("data", "the lake is inside it"),
        ("link", "it is the lake itself"),
        ("file", "file is a file"),
        ("file/below", "file is a file"),
    ],
)
def test_a_checkpoint_is_apart_from_log_and_lake(where: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "log" / "b1").mkdir(parents=True)
    (tmp_path / "data" / "lake").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data" / "lake")
    (tmp_path / "file").write_text("much work")
    log, lake = tmp_path / "log", tmp_path / "data" / "lake"
    with pytest.raises(CheckpointRefused, match=said):
        check_apart(log, lake, tmp_path / where)
    check_apart(log, lake, tmp_path / "data" / "checkpoint")


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_file_is_no_lake(where: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("much work")
    with pytest.raises(NotALake, match="file is a file"):
        check_apart(tmp_path / "log", tmp_path / where, tmp_path / "checkpoint")
    with pytest.raises(NotALake, match="it is a file"):
        Lake(tmp_path / where).state()


def test_a_directory_with_other_things_is_no_lake(lake: Path, checkpoint: Path) -> None:
    lake.mkdir()
    (lake / "thesis.txt").write_text("much work")
    with pytest.raises(NotALake, match="Name an empty or a new directory"):
        open_lake(lake, checkpoint, rebuild=True)
    (lake / "_lake.json").write_text("[]")
    with pytest.raises(NotALake, match="no JSON object"):
        open_lake(lake, checkpoint, rebuild=False)
    (lake / "_lake.json").write_text("{}")
    with pytest.raises(NotALake, match="does not say"):
        open_lake(lake, checkpoint, rebuild=False)
    with pytest.raises(NotALake):
        Lake(lake).check()


def test_a_directory_with_other_things_is_refused_before_anything_is_made_in_it(
    tmp_path: Path, lake: Path, checkpoint: Path
) -> None:
    lake.mkdir()
    (lake / "thesis.txt").write_text("much work")
    with pytest.raises(NotALake, match="there are files in it"):
        check_apart(tmp_path / "log", lake, checkpoint)
    assert [each.name for each in lake.iterdir()] == ["thesis.txt"]
    (lake / "thesis.txt").unlink()
    check_apart(tmp_path / "log", lake, checkpoint)
    write_json(lake / "_lake.json", {"format": 2, "id": "x", "base": 0})
    with pytest.raises(NewerLake):
        check_apart(tmp_path / "log", lake, checkpoint)


def test_a_lake_of_a_newer_version_asks_for_an_upgrade(lake: Path, checkpoint: Path) -> None:
    begin(lake, checkpoint)
    write_json(lake / "_lake.json", {"format": 2, "id": "x", "base": 0})
    for attempt in (lambda: open_lake(lake, checkpoint, rebuild=True), Lake(lake).check):
        with pytest.raises(NewerLake, match="format 2: upgrade"):
            attempt()


def test_reading_where_there_is_no_lake_says_what_to_run(lake: Path) -> None:
    with pytest.raises(NoCommit, match="onward pipeline ingest"):
        Lake(lake).state()


def test_tables_and_reports_that_there_are_not_are_told(lake: Path) -> None:
    with pytest.raises(BadOption, match="no table 'hop' in a lake; there are hops"):
        Lake(lake).files("hop")
    assert repr(Lake(lake)) == f"Lake('{lake}')"


def test_a_lock_holds_between_processes_and_ends_with_them(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    program = (
        "import sys; from pathlib import Path\n"
        "from onward.pipeline.ingest._files import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LakeBusy, match="another process writes"), locked(lock):
            pass
        other.kill()
    with locked(lock, wait=10.0):
        pass


def test_a_lake_that_cannot_be_written_is_told() -> None:
    said = r"/proc/none cannot be written: .* may write"
    with pytest.raises(LakeError, match=said), locked(Path("/proc/none/lock")):
        pass


def test_small_files_are_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.json"
    assert read_json(path) is None
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert [each.name for each in path.parent.iterdir()] == ["x.json"]


def test_old_commits_are_dropped_and_the_newest_counts(lake: Path) -> None:
    files = LakeFiles(lake)
    for batch in range(KEPT_COMMITS + 5):
        files.commit(LakeState(batch=batch))
    assert files.state().batch == KEPT_COMMITS + 4
    assert len(list((lake / "_commits").iterdir())) == KEPT_COMMITS


def make(lake: Path, *folders: str) -> None:
    for folder in folders:
        (lake / folder).mkdir(parents=True)
        (lake / folder / "part-0.parquet").write_bytes(b"")


def shown(lake: Path, table: str) -> list[str]:
    return [str(part.path.relative_to(lake / table)) for part in LakeFiles(lake).parts(table)]


def test_what_was_not_committed_is_not_read_and_is_swept(lake: Path) -> None:
    make(lake, "hops/date=2026-11-20/hour=3/batch=0", "hops/date=2026-11-20/hour=4/batch=1")
    make(lake, "segments/batch=0", "segments/batch=1", "completeness/batch=0")
    make(lake, "completeness/batch=1")
    files = LakeFiles(lake)
    assert shown(lake, "hops") == []
    files.commit(LakeState(batch=0))
    assert shown(lake, "hops") == ["date=2026-11-20/hour=3/batch=0"]
    assert (shown(lake, "segments"), shown(lake, "completeness")) == (["batch=0"], ["batch=0"])

    assert files.sweep() == Swept(folders=3, files=0)
    assert files.sweep() == Swept(folders=0, files=0)
    assert sorted(path.name for path in (lake / "hops").iterdir()) == ["date=2026-11-20"]


def test_what_a_task_left_that_ended_after_its_batch_is_swept(lake: Path) -> None:
    last = SWEPT_BATCHES + 3
    folders = [
        f"hops/date=2026-11-20/hour=3/batch={last}",
        f"flows/date=2026-11-21/hour=0/batch={last - SWEPT_BATCHES + 1}",
        f"dim_node/batch={last - 1}",
    ]
    old = f"hops/date=2026-11-20/hour=2/batch={last - SWEPT_BATCHES}"
    compacted = "route_events/date=2026-11-20/batch=-1"
    make(lake, *folders, old, compacted)
    strays = [lake / folder / ".part-00000-0.abc.new" for folder in (*folders, old, compacted)]
    for stray in strays:
        stray.write_bytes(b"x")
    LakeFiles(lake).commit(LakeState(batch=last))
    LakeFiles(lake).set_compacted(date(2026, 11, 20), -1, 0)

    assert LakeFiles(lake).sweep() == Swept(folders=0, files=3)

    # Those of older batches, and of what was compacted since, are not looked for.
    assert [stray for stray in strays if stray.exists()] == strays[3:]
    assert len(list(lake.rglob("*.parquet"))) == 5


def no_room(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_an_error_of_the_file_system_has_advice(
    lake: Path, checkpoint: Path, monkeypatch: Patch
) -> None:
    begin(lake, checkpoint)
    files = LakeFiles(lake)
    full = r"cannot be written: No space left on device\. Make room, .* run it again"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", no_room)
        for refused in (
            lambda: files.commit(LakeState(batch=1)),
            lambda: files.set_compacted(None, -1, 0),
            lambda: files.set_dropped(date(2026, 11, 20)),
            lambda: open_lake(lake.with_name("lake-2"), lake.with_name("at-2"), rebuild=False),
            lambda: open_lake(lake, checkpoint, rebuild=True),
        ):
            with pytest.raises(LakeError, match=full):
                refused()
    assert files.state().batch == 0
    assert (files.compacted(None), files.dropped()) == (None, frozenset())


def test_an_error_amid_other_work_has_advice(
    lake: Path, checkpoint: Path, monkeypatch: Patch
) -> None:
    begin(lake, checkpoint)
    day = date(2026, 11, 20)
    LakeFiles(lake).commit(LakeState(batch=1, closed=day))

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", denied)
    monkeypatch.setattr("onward.pipeline.ingest._lake.thin", denied)
    monkeypatch.setattr(LakeFiles, "remove_stale", denied)
    for refused in (
        lambda: open_lake(lake, checkpoint, rebuild=True),
        lambda: Lake(lake).drop(day),
        # It fails before Spark is asked for anything.
        lambda: compact(cast("Any", None), lake, day),
    ):
        with pytest.raises(LakeError, match=r"cannot be written: Permission denied\. Make room"):
            refused()
    assert open_lake(lake, checkpoint, rebuild=False).base == 0


def test_files_that_have_no_name_yet_are_nobodys_business(tmp_path: Path) -> None:
    folder = tmp_path / "hops" / "batch=0"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").touch()
    # Whose attempt was given up on removes it itself, between two looks at the folder.
    (folder / ".part-0.abc.new").symlink_to("gone")
    sync_folders([folder], tmp_path)
    (folder / "part-1.parquet").symlink_to("gone")
    with pytest.raises(FileNotFoundError):
        sync_folders([folder], tmp_path)


def test_a_compacted_day_is_read_instead_of_what_it_was_made_of(lake: Path) -> None:
    day = "hops/date=2026-11-20/hour=3"
    make(lake, *(f"{day}/batch={number}" for number in (0, 1, 2, -1, -2)))
    make(lake, "hops/date=2026-11-21/hour=0/batch=1")
    files = LakeFiles(lake)
    files.commit(LakeState(batch=2))
    assert len(shown(lake, "hops")) == 4
    files.set_compacted(files.days()[0], -2, 1)
    assert shown(lake, "hops") == [
        "date=2026-11-20/hour=3/batch=-2",
        "date=2026-11-20/hour=3/batch=2",
        "date=2026-11-21/hour=0/batch=1",
    ]
    assert files.sweep() == Swept(folders=3, files=0)
    assert len(Lake(lake).files("hops")) == 3
    assert [str(each) for each in Lake(lake).days()] == ["2026-11-20", "2026-11-21"]


def test_a_dropped_day_is_gone_whenever_that_is_cut_off(lake: Path, checkpoint: Path) -> None:
    begin(lake, checkpoint)
    day, next_day = date(2026, 11, 20), date(2026, 11, 21)
    folder = f"hops/date={day}/hour=3/batch=0"
    make(lake, folder, f"late/date={day}/batch=0", f"hops/date={next_day}/hour=0/batch=0")
    make(lake, "segments/batch=0")
    with pytest.raises(DayOpen):
        Lake(lake).drop(day)
    LakeFiles(lake).commit(LakeState(batch=1, closed=day, late={day: (3, 1)}))

    dropped = Lake(lake).drop(day)

    assert (dropped.day, dropped.files) == (day, 2)
    assert Lake(lake).days() == [next_day]
    assert not (lake / folder).exists()
    assert Lake(lake).days_to_rerun() == []
    assert Lake(lake).drop(day).files == 0
    with pytest.raises(DayOpen):
        Lake(lake).drop(next_day)

    # As if it had been cut off when the mark was there: nobody reads it, the next run removes it.
    make(lake, folder)
    assert Lake(lake).days() == [next_day]
    assert LakeFiles(lake).sweep() == Swept(folders=1, files=0)
    assert not (lake / folder).exists()


def test_the_state_on_disk_is_plain_json(lake: Path) -> None:
    LakeFiles(lake).commit(LakeState(batch=3))
    text = (lake / "_commits" / f"{3:016d}.json").read_text()
    assert json.loads(text)["batch"] == 3


def test_what_still_grows_while_it_is_removed_is_removed(lake: Path, monkeypatch: Patch) -> None:
    make(lake, "hops/date=2026-11-20/hour=3/batch=0")
    real = shutil.rmtree
    tries: list[Path] = []

    def rmtree(path: Path) -> None:
        tries.append(path)
        if len(tries) < 4:
            raise OSError(39, "Directory not empty")
        real(path)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    assert LakeFiles(lake).sweep() == Swept(folders=1, files=0)
    assert len(tries) == 4
    assert list((lake / "hops").rglob("batch=*")) == []

    make(lake, "hops/date=2026-11-20/hour=3/batch=0")
    monkeypatch.setattr(_parts, "MAX_TRIES", 3)
    tries.clear()
    with pytest.raises(LakeError, match="not empty"):
        LakeFiles(lake).sweep()
    assert len(tries) == 3
