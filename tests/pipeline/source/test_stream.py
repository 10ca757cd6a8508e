"""The stream's offsets: what follows what, what is missing, what came late. No Spark runs here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

from onward.pipeline._errors import (
    DuplicateBroker,
    NewerSegment,
    NoEventLog,
    PipelineError,
    SegmentDamaged,
    SegmentGap,
    SegmentGone,
    SegmentLate,
)
from onward.pipeline.source import EventLogStream
from onward.pipeline.source._options import read_options
from onward.pipeline.source._reading import SegmentPaths
from onward.protocol.eventlog import SegmentHeader
from tests.support.eventlogs import START_US, log_id_of, write_log, write_segment


def stream(log: Path, **options: str) -> EventLogStream:
    return EventLogStream(read_options({"path": str(log), "table": "segments", **options}))


def latest(reader: EventLogStream, start: dict[str, Any], limit: int | None = None) -> Any:
    """The next offset, as it comes back from the checkpoint."""
    found = reader.latestOffset(start, ReadMaxFiles(limit) if limit else ReadAllAvailable())
    return json.loads(json.dumps(found))


def names(reader: EventLogStream, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    parts = reader.partitions(start, end)
    return [path for part in parts if isinstance(part, SegmentPaths) for path in part.paths]


def test_what_is_there_is_read_once_and_in_order(tmp_path: Path) -> None:
    one = write_log(tmp_path, segments=3)
    two = write_log(tmp_path, broker="b2", segments=1)
    reader = stream(tmp_path)

    end = latest(reader, reader.initialOffset())

    paths = [str(s.path.relative_to(tmp_path)) for s in (*one.segments, *two.segments)]
    assert names(reader, {}, end) == paths
    assert latest(reader, end) == end
    assert names(reader, end, end) == []


def test_what_is_not_a_sealed_segment_of_a_broker_is_left_alone(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=1)
    folder = truth.segments[0].path.parent
    (folder / "00000001-00000000000000ff.open").write_bytes(b"half")
    (folder / "00000001-00000000000000fe.open.bad").write_bytes(b"none")
    (folder / "log").write_bytes(b"x" * 16)
    (folder / ".acks").mkdir()
    (tmp_path / "a file").write_text("none")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "empty").mkdir()
    reader = stream(tmp_path)

    end = latest(reader, {})

    assert list(end) == ["b1"]
    assert len(names(reader, {}, end)) == 1


def test_no_directory_of_logs_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoEventLog, match="name the one that was given to --event-log"):
        latest(stream(tmp_path / "none"), {})


def test_a_limit_is_shared_between_brokers_and_all_is_read_in_the_end(tmp_path: Path) -> None:
    write_log(tmp_path, segments=7)
    write_log(tmp_path, broker="b2", segments=1)
    write_log(tmp_path, broker="b3", segments=4)
    reader = stream(tmp_path, maxSegments="5")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxFiles)

    start = dict[str, Any]()
    read: list[str] = []
    sizes: list[int] = []
    while (end := latest(reader, start, limit.max_files)) != start:
        found = names(reader, start, end)
        sizes.append(len(found))
        read += found
        start = end

    assert sizes == [5, 5, 2]
    assert len(set(read)) == len(read) == 12
    assert {path.split("/")[0] for path in read[:5]} == {"b1", "b2", "b3"}


def test_a_run_ends_with_what_was_there_when_it_began(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=2)
    reader = stream(tmp_path)
    reader.prepareForTriggerAvailableNow()
    write_log(tmp_path, segments=1, first_seq=truth.segments[-1].last_seq + 1)
    write_log(tmp_path, broker="b2", segments=1)

    end = latest(reader, {})

    assert len(names(reader, {}, end)) == 2
    assert latest(reader, end) == end
    assert len(names(reader, end, latest(stream(tmp_path), end))) == 2


def test_deleting_what_was_read_shifts_nothing(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=3)
    end = latest(stream(tmp_path), {})
    more = write_log(tmp_path, segments=1, first_seq=truth.segments[-1].last_seq + 1)
    for written in truth.segments:
        written.path.unlink()

    reader = stream(tmp_path)

    found = names(reader, end, latest(reader, end))
    assert found == [f"b1/{more.segments[0].path.name}"]


def test_a_broker_that_comes_later_is_read_from_its_start(tmp_path: Path) -> None:
    write_log(tmp_path, segments=1)
    end = latest(stream(tmp_path), {})
    # What was deleted before it was looked at for the first time was not ours to read.
    write_log(tmp_path, broker="b2", segments=2, first_seq=500, epoch=3)

    reader = stream(tmp_path)

    assert len(names(reader, end, latest(reader, end))) == 2


def test_a_segment_deleted_unread_is_told_with_its_numbers(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=4)
    start = latest(stream(tmp_path), {}, 1)
    lost = truth.segments[1]
    lost.path.unlink()
    numbers = f"b1: events {lost.first_seq} to {lost.last_seq} of epoch 1 were deleted"

    with pytest.raises(SegmentGap, match=numbers) as raised:
        latest(stream(tmp_path), start)
    assert "--allow-gaps" in str(raised.value)

    reader = stream(tmp_path, onGap="skip")
    end = latest(reader, start)
    assert len(names(reader, start, end)) == 2
    assert latest(stream(tmp_path), end) == end


def test_the_first_segments_of_an_epoch_deleted_unread_are_told(tmp_path: Path) -> None:
    write_log(tmp_path, segments=1)
    start = latest(stream(tmp_path), {})
    write_log(tmp_path, segments=1, epoch=2, first_seq=31)
    with pytest.raises(SegmentGap, match="events 1 to 30 of epoch 2"):
        latest(stream(tmp_path), start)


def test_the_last_segments_of_an_epoch_may_have_been_deleted_unread(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=2)
    start = latest(stream(tmp_path), {}, 1)
    write_log(tmp_path, segments=1, epoch=2)
    last = truth.segments[0].last_seq
    for written in truth.segments:
        written.path.unlink()
    with pytest.raises(SegmentGap, match=f"if epoch 1 had events from {last + 1} on"):
        latest(stream(tmp_path), start)
    assert latest(stream(tmp_path, onGap="skip"), start)


def test_an_epoch_without_a_segment_is_no_gap(tmp_path: Path) -> None:
    write_log(tmp_path, segments=1)
    start = latest(stream(tmp_path), {})
    write_log(tmp_path, segments=1, epoch=5)
    reader = stream(tmp_path)
    assert len(names(reader, start, latest(reader, start))) == 1


def test_a_segment_deleted_between_plan_and_reading_is_told(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=3)
    end = latest(stream(tmp_path), {})
    truth.segments[-1].path.unlink()
    with pytest.raises(SegmentGone, match="was deleted after it was listed") as raised:
        stream(tmp_path).partitions({}, end)
    assert "go on without it (--allow-gaps)" in str(raised.value)
    assert len(names(stream(tmp_path, onGap="skip"), {}, end)) == 2
    truth.segments[1].path.unlink()
    write_log(tmp_path, segments=3)
    truth.segments[1].path.unlink()
    with pytest.raises(SegmentGap):
        stream(tmp_path).partitions({}, end)


def test_what_is_sealed_behind_the_offset_is_never_skipped(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=2)
    late = truth.segments[1]
    aside = late.path.rename(tmp_path / "aside")
    write_log(tmp_path, segments=1, epoch=2)
    end = latest(stream(tmp_path), {})

    shutil.move(aside, late.path)

    with pytest.raises(SegmentLate, match=late.path.name) as raised:
        latest(stream(tmp_path), end)
    assert "--rebuild" in str(raised.value)


def test_what_was_read_may_be_copied_back(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=3)
    end = latest(stream(tmp_path), {})
    truth.segments[0].path.unlink()
    write_log(tmp_path, segments=3)
    assert latest(stream(tmp_path), end) == end


def test_an_empty_segment_behind_the_offset_is_no_loss(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=1)
    write_log(tmp_path, segments=1, epoch=2)
    end = latest(stream(tmp_path), {})
    behind = truth.segments[0].last_seq + 1
    write_segment(tmp_path, SegmentHeader("b1", log_id_of("b1"), 1, behind, START_US, 1.0))
    assert latest(stream(tmp_path), end) == end


def test_a_log_that_was_begun_anew_under_the_same_name_is_told(tmp_path: Path) -> None:
    write_log(tmp_path, segments=2)
    end = latest(stream(tmp_path), {})
    shutil.rmtree(tmp_path / "b1")
    write_log(tmp_path, segments=2, log_id=log_id_of("another"))
    with pytest.raises(DuplicateBroker, match="two event logs are called b1") as raised:
        latest(stream(tmp_path), end)
    for log_id in (log_id_of("b1"), log_id_of("another")):
        assert log_id.hex() in str(raised.value)


def test_two_logs_in_one_folder_are_told(tmp_path: Path) -> None:
    write_log(tmp_path, segments=1)
    write_log(tmp_path, segments=1, epoch=2, log_id=log_id_of("another"))
    with pytest.raises(DuplicateBroker, match="two event logs are called b1"):
        latest(stream(tmp_path), {})


def test_a_copy_of_a_folder_is_not_another_broker(tmp_path: Path) -> None:
    write_log(tmp_path, segments=1)
    shutil.copytree(tmp_path / "b1", tmp_path / "b1-copy")
    with pytest.raises(DuplicateBroker, match="b1-copy"):
        latest(stream(tmp_path), {})


def test_a_file_under_another_name_is_damage(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=1)
    path = truth.segments[0].path
    path.rename(path.with_name("00000001-0000000000000002.seg"))
    with pytest.raises(SegmentDamaged, match="not the one that its header has"):
        latest(stream(tmp_path), {})


def test_events_that_come_again_with_others_are_damage(tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=1)
    write_log(tmp_path, segments=1, first_seq=truth.segments[0].last_seq)
    with pytest.raises(SegmentDamaged, match="were read before"):
        latest(stream(tmp_path), {})


@pytest.mark.parametrize("where", [0, 20, -1])
def test_a_damaged_end_is_told_or_skipped_and_counted(where: int, tmp_path: Path) -> None:
    truth = write_log(tmp_path, segments=3)
    path = truth.segments[1].path
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)

    with pytest.raises(SegmentDamaged, match=path.name) as raised:
        latest(stream(tmp_path), {})
    assert "onward events --check" in str(raised.value)

    reader = stream(tmp_path, skipCorrupt="true")
    end = latest(reader, {})
    assert len(names(reader, {}, end)) == 3
    assert latest(stream(tmp_path), end) == end


def test_a_segment_of_a_later_format_asks_for_an_upgrade(tmp_path: Path) -> None:
    header = SegmentHeader("b1", log_id_of("b1"), 1, 1, START_US, 1.0, version=2)
    write_segment(tmp_path, header)
    for options in ({}, {"skipCorrupt": "true"}):
        with pytest.raises(NewerSegment, match="version 2 of the format: upgrade Onward"):
            latest(stream(tmp_path, **options), {})


def test_what_was_skipped_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    truth = write_log(log, segments=3)
    path = truth.segments[1].path
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    told = tmp_path / "skipped.json"
    options = {"skipCorrupt": "true", "again": str(told)}
    start = latest(stream(log, **options), {})

    def skip() -> None:
        status = path.stat()
        told.write_text(json.dumps({"b1": {path.name: [status.st_size, status.st_mtime_ns]}}))

    skip()
    assert latest(stream(log, **options), start) == start
    path.write_bytes(good[:-2])
    still = latest(stream(log, **options), start)
    assert names(stream(log, **options), start, still) == [f"b1/{path.name}"]
    # As long as nobody has said what became of it, and afterwards.
    assert latest(stream(log, **options), still) == still
    skip()
    assert latest(stream(log, **options), still) == still

    path.write_bytes(good)
    mended = latest(stream(log, again=str(told)), still)
    assert names(stream(log), still, mended) == [f"b1/{path.name}"]
    told.write_text("{}")
    assert latest(stream(log, again=str(told)), mended) == mended
    path.unlink()
    skipped = {"b1": {path.name: [0, 0]}}
    told.write_text(json.dumps(skipped))
    assert latest(stream(log, again=str(told)), mended) == mended


@pytest.mark.parametrize(("begun", "sealed"), [(2**62, START_US), (START_US, 2**62), (-1, 0)])
def test_a_segment_of_an_impossible_time_is_damage(begun: int, sealed: int, tmp_path: Path) -> None:
    header = SegmentHeader("b1", log_id_of("b1"), 1, 1, begun, 1.0)
    path = write_segment(tmp_path, header, ended_us=sealed).path
    with pytest.raises(SegmentDamaged, match=f"{path.name}: .*outside 1970 to 2200"):
        latest(stream(tmp_path), {})
    reader = stream(tmp_path, skipCorrupt="true")
    assert len(names(reader, {}, latest(reader, {}))) == 1


def test_every_error_is_one_line(tmp_path: Path) -> None:
    # Spark hands errors on as text; the line of ours must be whole.
    assert "\n" not in str(PipelineError("two\n  lines"))
