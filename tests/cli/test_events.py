"""`onward events`: what it prints of an event log, and what it finds wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from onward.actors.eventlog import LogOptions, LogWriter, Recorder
from onward.cli import _events, main
from onward.cli._event_logs import find_logs
from onward.cli._status import Status
from onward.protocol.broker import RoutingType, TagList
from onward.protocol.eventlog import (
    Asked,
    EventName,
    Flag,
    Flow,
    Hop,
    Kind,
    Outcome,
    RouteEvent,
    SegmentFooter,
    SegmentHeader,
    events_block,
    flows_block,
    hops_block,
    names_block,
    routes_block,
    segment_name,
    tagsets_block,
)
from tests.support.fixtures import Capsys, Patch

STARTED = 1_700_000_000_000_000
HEADER = SegmentHeader("shop", bytes(16), 1, 1, STARTED, 0.5)
TAGS: TagList = ((1, "orders"),)


def segment(header: SegmentHeader, *, count: int = 3, **wrong: int) -> bytes:
    """A flow, a hop and an event, and how many numbers were given."""
    seq = header.first_seq
    flow = Flow(seq, STARTED, 10_000, 1, 2, 1, 1, Kind.RESPONSE, Outcome.FORWARD, 12, 3400)
    hop = Hop(
        seq + 1,
        STARTED + 1,
        0xBEEF,
        0xF00D,
        Kind.FIRE_AND_FORGET,
        Outcome.DELIVER,
        0,
        Flag.SHARD,
        1,
        2,
        1,
        1,
        250,
        64,
        2,
    )
    event = RouteEvent(
        seq + 2, STARTED + 2, EventName.DOWN, bytes(16), "orders", TAGS, "it\x1bwent"
    )
    return b"".join(
        [
            header.serialize(),
            names_block(["web", "orders"]),
            routes_block([bytes(16)]),
            tagsets_block([Asked(TAGS, RoutingType.SHARD, "jump")]),
            flows_block([flow]),
            hops_block([replace(hop, **wrong)]),
            events_block([event]),
            SegmentFooter(1, 1, 1, seq + count - 1, STARTED + 60_000_000).serialize(),
        ]
    )


def put(folder: Path, header: SegmentHeader, **options: int) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    path = folder / segment_name(header.epoch, header.first_seq)
    path.write_bytes(segment(header, **options))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two segments of one epoch and one of another."""
    folder = tmp_path / "shop"
    put(folder, HEADER)
    put(folder, replace(HEADER, first_seq=4))
    put(folder, replace(HEADER, epoch=2))
    return folder


def test_it_prints_what_was_recorded_in_its_order(log: Path, capsys: Capsys) -> None:
    assert main(["events", str(log)]) == Status.OK
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 9
    asked = "[@shard @method=jump service=orders]"
    assert lines[:3] == [
        (
            f"2023-11-14T22:13:20.000000Z shop 1:1 flow response forward web -> orders {asked} "
            "12 frames, 3400 bytes in 10000 ms"
        ),
        (
            "2023-11-14T22:13:20.000001Z shop 1:2 hop fire-and-forget deliver web -> orders "
            f"{asked} 250 us, 64 bytes, trace 000000000000beef"
        ),
        (
            "2023-11-14T22:13:20.000002Z shop 1:3 event down 00000000-0000-0000-0000-000000000000 "
            "orders service=orders (it\\x1bwent)"
        ),
    ]


def test_it_prints_json(log: Path, capsys: Capsys) -> None:
    assert main(["events", str(log), "--json", "--limit", "3"]) == Status.OK
    told = capsys.readouterr()
    assert "there are more" in told.err
    flow, hop, event = map(json.loads, told.out.splitlines())
    assert (flow["type"], flow["frames"], flow["window_ms"]) == ("flow", 12, 10_000)
    assert (hop["type"], hop["flags"], hop["weight"]) == ("hop", ["shard"], 2)
    assert (hop["trace"], hop["shard_hash"]) == ("000000000000beef", "000000000000f00d")
    assert (event["event"], event["tags"]) == ("down", ["service=orders"])


@pytest.mark.parametrize("sort", ["hops", "flows", "events"])
def test_it_prints_one_sort(log: Path, sort: str, capsys: Capsys) -> None:
    assert main(["events", str(log), "--only", sort, "--json"]) == Status.OK
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["type"] for line in lines] == [sort[:-1]] * 3


def test_records_with_unknown_references_are_printed(tmp_path: Path, capsys: Capsys) -> None:
    nobody = {"origin": 0, "dest": 0, "route": 0, "tagset": 0, "kind": 99, "flags": 0}
    path = put(tmp_path / "shop", HEADER, **nobody, ts_us=(1 << 63) - 1)
    assert main(["events", str(path), "--only", "hops"]) == Status.OK
    assert capsys.readouterr().out == (
        "9223372036854775807 us shop 1:2 hop 99 deliver - -> - 250 us, 64 bytes, "
        "trace 000000000000beef\n"
    )
    assert main(["events", str(path), "--only", "hops", "--json"]) == Status.OK
    assert json.loads(capsys.readouterr().out)["shard_hash"] is None


def test_it_prints_a_line_for_each_segment(log: Path, capsys: Capsys) -> None:
    assert main(["events", str(log.parent), "--segments", "--limit", "2"]) == Status.OK
    told = capsys.readouterr()
    headings, first, _ = told.out.splitlines()
    assert headings.split()[0] == "SEGMENT"
    assert first.split() == [
        "00000001-0000000000000001.seg",
        "shop",
        "2023-11-14T22:13:20.000000Z",
        "1",
        "1",
        "1",
        "0",
        "0.5",
    ]
    assert "there are more" in told.err
    assert main(["events", str(log), "--segments", "--json"]) == Status.OK
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["epoch"], row["first_seq"], row["last_seq"]) for row in rows] == [
        (1, 1, 3),
        (1, 4, 6),
        (2, 1, 3),
    ]


# --- checks -------------------------------------------------------------------------------
def test_a_log_that_is_whole_passes(log: Path, capsys: Capsys) -> None:
    put(log, replace(HEADER, epoch=2, first_seq=4), count=10)
    (log / "notes.seg").write_bytes(b"not of ours")
    (log / "00000001-0000000000000009.open.bad").touch()
    (log / "00000003-0000000000000001.open").touch()
    assert main(["events", str(log.parent), "--check"]) == Status.OK
    assert capsys.readouterr().out.splitlines() == [
        "shop: 4 segments of 2 epochs: 4 hops, 4 flows, 4 events; 7 not recorded",
        "  note: 00000001-0000000000000009.open.bad was set aside, as it could not be read",
        "  note: 00000003-0000000000000001.open is being written, or was left open",
    ]


def test_a_log_whose_oldest_segments_were_deleted_passes(log: Path) -> None:
    (log / "00000001-0000000000000001.seg").unlink()
    assert main(["events", str(log), "--check"]) == Status.OK


def problems_of(path: Path, capsys: Capsys) -> list[str]:
    assert main(["events", str(path), "--check"]) == Status.FAILED
    told = capsys.readouterr()
    found = [line for line in told.out.splitlines() if "WRONG" in line]
    assert told.err == f"onward events: {len(found)} wrong; see above\n"
    return [line.removeprefix("  WRONG: ") for line in found]


def test_a_segment_that_is_not_there_is_told(log: Path, capsys: Capsys) -> None:
    put(log, replace(HEADER, first_seq=10))
    put(log, replace(HEADER, epoch=3, first_seq=5))
    assert problems_of(log, capsys) == [
        "00000001-000000000000000a.seg: the events 7 to 9 before it are missing",
        "00000003-0000000000000005.seg: the events 1 to 4 before it are missing",
    ]


def test_a_segment_that_is_there_twice_is_told(log: Path, capsys: Capsys) -> None:
    put(log, replace(HEADER, first_seq=6))
    assert problems_of(log, capsys) == [
        "00000001-0000000000000006.seg: the events 6 to 6 are there twice"
    ]


NOT_THERE = "deleted, or its disk failed and kept nothing"


def test_a_run_that_is_not_there_is_told(log: Path, capsys: Capsys) -> None:
    put(log, replace(HEADER, epoch=4))
    put(log, replace(HEADER, epoch=7))
    assert problems_of(log, capsys) == [
        f"the epoch 3 is missing: {NOT_THERE}",
        f"the epochs 5 to 6 are missing: {NOT_THERE}",
    ]
    # Of which there is a file that is told of anyway, or that is written, is there.
    (log / "00000003-0000000000000001.open.bad").touch()
    (log / "00000005-0000000000000001.open.2.bad").touch()
    (log / "00000009-0000000000000001.open").touch()
    assert problems_of(log, capsys) == [
        f"the epoch 6 is missing: {NOT_THERE}",
        f"the epoch 8 is missing: {NOT_THERE}",
    ]


def test_runs_before_the_first_were_deleted_for_their_age(tmp_path: Path) -> None:
    put(tmp_path / "shop", replace(HEADER, epoch=9))
    (tmp_path / "shop" / "00000002-0000000000000001.open.bad").touch()
    assert main(["events", str(tmp_path), "--check"]) == Status.OK


def test_a_run_that_wrote_nothing_is_not_missed(tmp_path: Path) -> None:
    options = LogOptions(tmp_path, "shop")
    for writes in (True, False, False, True):
        writer = LogWriter(options)
        writer.open()
        if writes:
            recorder = Recorder(writer, options, "shop")
            recorder.begin()
            recorder.close()
        writer.close(30.0)
    assert len(list((tmp_path / "shop").glob("*.seg"))) == 2
    assert main(["events", str(tmp_path), "--check"]) == Status.OK


def test_a_run_that_is_damaged_is_there(log: Path, capsys: Capsys) -> None:
    put(log, replace(HEADER, epoch=3))
    (log / "00000002-0000000000000001.seg").write_bytes(b"no segment")
    (told,) = problems_of(log, capsys)
    assert told.startswith("00000002-0000000000000001.seg: ")


@pytest.fixture
def late(log: Path, monkeypatch: Patch) -> Path:
    """A log whose second segment, and second run, are deleted after they were found."""
    put(log, replace(HEADER, epoch=3))

    def found(path: Path) -> dict[Path, list[Path]]:
        logs = find_logs(path)
        for gone in ("00000001-0000000000000004.seg", "00000002-0000000000000001.seg"):
            (log / gone).unlink()
        return logs

    monkeypatch.setattr(_events, "find_logs", found)
    return log


def test_what_is_deleted_meanwhile_does_not_end_a_check(late: Path, capsys: Capsys) -> None:
    assert main(["events", str(late), "--check"]) == Status.OK
    assert capsys.readouterr().out.splitlines() == [
        "shop: 2 segments of 3 epochs: 2 hops, 2 flows, 2 events; 0 not recorded",
        "  note: 2 segments were deleted during this check",
    ]


@pytest.mark.parametrize(("words", "lines"), [(("--segments",), 2), ((), 6)])
def test_what_is_deleted_meanwhile_is_not_printed_and_said(
    words: tuple[str, ...], lines: int, late: Path, capsys: Capsys
) -> None:
    assert main(["events", str(late), "--json", *words]) == Status.OK
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == lines
    assert told.err.splitlines() == [
        "00000001-0000000000000004.seg has been deleted since it was found",
        "00000002-0000000000000001.seg has been deleted since it was found",
    ]


def test_a_check_can_be_told_as_json(log: Path, capsys: Capsys) -> None:
    put(log.parent / "other", replace(HEADER, log=b"o" * 16))
    (log / "00000001-0000000000000004.seg").unlink()
    put(log, replace(HEADER, first_seq=10))
    assert main(["events", str(log.parent), "--check", "--json"]) == Status.FAILED
    told = capsys.readouterr()
    other, shop, between = map(json.loads, told.out.splitlines())
    assert told.err == "onward events: 2 wrong; see above\n"
    assert other == {
        "log": "other",
        "segments": 1,
        "epochs": 1,
        "hops": 1,
        "flows": 1,
        "events": 1,
        "missing": 0,
        "lost": 0,
        "deleted": 0,
        "notes": ["segments say that the log is called shop"],
        "problems": [],
    }
    assert (shop["log"], shop["segments"], shop["epochs"]) == ("shop", 3, 2)
    assert shop["problems"] == [
        "00000001-000000000000000a.seg: the events 4 to 9 before it are missing"
    ]
    assert between["log"] is None
    (said,) = between["problems"]
    assert said.startswith("other and shop are two logs of one name, shop")


def test_damage_is_told_with_its_place(log: Path, capsys: Capsys) -> None:
    path = log / "00000001-0000000000000004.seg"
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    (told,) = problems_of(log, capsys)
    assert told.startswith("00000001-0000000000000004.seg: the segment is damaged at byte ")
    assert main(["events", str(log)]) == Status.FAILED
    assert str(path) in capsys.readouterr().err


def test_a_record_that_is_wrong_is_told(tmp_path: Path, capsys: Capsys) -> None:
    path = put(tmp_path / "shop", HEADER, origin=9)
    assert "refers to what has no number yet" in problems_of(path, capsys)[0]
    assert main(["events", str(path)]) == Status.FAILED
    assert "refers to what has no number yet" in capsys.readouterr().err


def test_two_logs_in_one_folder_are_told(log: Path, capsys: Capsys) -> None:
    put(log, replace(HEADER, epoch=3, log=b"x" * 16, broker="other"))
    assert problems_of(log, capsys) == [
        "segments of several logs: two brokers have written under one name"
    ]
    main(["events", str(log), "--check"])
    assert "note: segments say that the log is called other" in capsys.readouterr().out


def test_a_segment_under_another_name_is_told(log: Path, capsys: Capsys) -> None:
    (log / "00000002-0000000000000001.seg").rename(log / "00000004-0000000000000001.seg")
    assert problems_of(log, capsys) == [
        "00000004-0000000000000001.seg: it is another segment, renamed"
    ]


def test_where_there_is_no_log_it_says_so(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    assert main(["events", str(tmp_path)]) == Status.FAILED
    assert f"no sealed segment under {tmp_path}" in capsys.readouterr().err
    assert main(["events", str(tmp_path / "none")]) == Status.FAILED
    assert "there is no " in capsys.readouterr().err


def test_a_copy_of_a_log_beside_it_is_told(log: Path, capsys: Capsys) -> None:
    shutil.copytree(log, log.parent / "copy")
    assert problems_of(log.parent, capsys) == [
        f"copy and shop are one log, {bytes(16).hex()}: leave one of them"
    ]


def test_two_logs_of_one_name_are_told(log: Path, capsys: Capsys) -> None:
    put(log.parent / "other", replace(HEADER, log=b"o" * 16))
    assert problems_of(log.parent, capsys) == [
        "other and shop are two logs of one name, shop: each writer needs its own name"
    ]


def test_what_a_log_says_that_it_lost_is_shown_up_to_a_limit(log: Path, capsys: Capsys) -> None:
    lost = [
        RouteEvent(seq, STARTED, EventName.LOST, reason=f"{seq} events: \x1bfull")
        for seq in range(1, 24)
    ]
    header = replace(HEADER, epoch=3)
    footer = SegmentFooter(0, 0, len(lost), len(lost), STARTED)
    path = log / segment_name(3, 1)
    path.write_bytes(header.serialize() + events_block(lost) + footer.serialize())
    assert main(["events", str(log), "--check"]) == Status.OK
    notes = [line for line in capsys.readouterr().out.splitlines() if "note" in line]
    assert notes[0] == f"  note: {path.name}: lost: 1 events: \\x1bfull"
    assert notes[20:] == ["  note: the log reports 3 more losses"]


def test_a_path_that_is_not_there_is_told(log: Path, capsys: Capsys) -> None:
    nothing = log / "nothing"
    assert main(["events", str(nothing)]) == Status.FAILED
    assert capsys.readouterr().err == (
        f"onward events: there is no {nothing}: give the DIR of --event-log\n"
    )
