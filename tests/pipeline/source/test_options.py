"""The options of the data source: what each may be, and what is said of the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.pipeline import EVENT_TABLES
from onward.pipeline._errors import BadOption
from onward.pipeline.source._options import columns_of, read_options


def test_every_table_has_the_columns_of_its_schema() -> None:
    for table, ddl in EVENT_TABLES.items():
        options = read_options({"path": "/log", "table": table})
        assert options.ddl == ddl
        assert ", ".join(f"{name} {kind}" for name, kind in columns_of(ddl).items()) == ddl


def test_options_are_read_whatever_their_case() -> None:
    options = read_options(
        {
            "PATH": "file:///log",
            "Table": "flows",
            "columns": "frames, broker",
            "brokers": "b1,b2",
            "since": "2026-11-20",
            "until": "2026-11-20T08:30:00+01:00",
            "segments": "b1/a.seg\nb2/b.seg\n",
            "maxSegments": "3",
            "onGap": "skip",
            "skipCorrupt": "TRUE",
            "check": "true",
        }
    )

    assert options.path == Path("/log")
    assert options.ddl == "frames bigint, broker string"
    assert options.brokers == frozenset({"b1", "b2"})
    assert options.since == 1_795_132_800_000_000
    assert options.until == options.since + 27_000_000_000
    assert options.segments == ("b1/a.seg", "b2/b.seg")
    assert (options.max_segments, options.skip_gaps) == (3, True)
    assert (options.skip_damaged, options.check) == (True, True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": ""}, "no path"),
        ({"table": "hop"}, "no table 'hop'; those there are: hops, flows"),
        ({"columns": "tss"}, "no column 'tss' in the table hops"),
        ({"columns": "ts,ts"}, "twice"),
        ({"since": "2026-13-40"}, "since='2026-13-40' is no time"),
        ({"until": "yesterday"}, "until='yesterday' is no time"),
        ({"segments": "../b1/x.seg"}, "is no segment"),
        ({"segments": "x.seg"}, "is no segment"),
        ({"maxSegments": "0"}, "no number from 1 on"),
        ({"maxSegments": "-1"}, "no number from 1 on"),
        ({"onGap": "maybe"}, "give fail or skip"),
        ({"skipCorrupt": "yes"}, "give false or true"),
        ({"colums": "ts"}, "no option 'colums'"),
    ],
)
def test_what_cannot_be_read_is_told(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        read_options({"path": "/log", **given})
