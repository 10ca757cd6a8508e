from __future__ import annotations

import logging

import pytest

from onward.actors._log import LONGEST, MAX_KINDS, PRUNE_INTERVAL, Repeats, SeldomLogger, shown
from tests.support.fixtures import Caplog, Patch


@pytest.fixture
def times() -> list[float]:
    return [1000.0]


@pytest.fixture
def seldom(times: list[float], caplog: Caplog) -> SeldomLogger:
    caplog.set_level(logging.DEBUG)
    return SeldomLogger(logging.getLogger("onward.transports"), lambda: times[-1])


def test_one_of_a_kind_a_minute(seldom: SeldomLogger, times: list[float], caplog: Caplog) -> None:
    for _ in range(5):
        seldom.log(logging.WARNING, "broken", "broken: %s", "x")
    seldom.log(logging.INFO, "closed", "closed")
    times.append(1059.9)
    seldom.log(logging.WARNING, "broken", "broken: %s", "x")
    times.append(1060.0)
    for _ in range(2):
        seldom.log(logging.WARNING, "broken", "broken: %s", "y")
    times.append(1120.0)
    seldom.log(logging.WARNING, "broken", "broken: %s", "z")
    assert [record.getMessage() for record in caplog.records] == [
        "broken: x",
        "closed",
        "broken: y (and 5 like it since the last such line)",
        "broken: z (and 1 like it since the last such line)",
    ]
    assert [record.levelname for record in caplog.records][:2] == ["WARNING", "INFO"]


def test_kinds_have_a_limit(seldom: SeldomLogger, monkeypatch: Patch, caplog: Caplog) -> None:
    monkeypatch.setattr("onward.actors._log.MAX_KINDS", 2)
    for kind in ("a", "b", "c", "d", "a"):
        seldom.log(logging.INFO, kind, kind)
    assert [record.getMessage() for record in caplog.records] == ["a", "b", "c"]


def test_old_kinds_make_room(seldom: SeldomLogger, times: list[float], caplog: Caplog) -> None:
    for number in range(MAX_KINDS + 100):
        seldom.log(logging.INFO, f"old {number}", "old")
    assert len(seldom._repeats._kinds) == MAX_KINDS + 1  # and what is not told apart
    times.append(1060.0)
    caplog.clear()
    for _ in range(2):
        for number in range(MAX_KINDS):
            seldom.log(logging.INFO, f"new {number}", f"new {number}")
    assert [record.getMessage() for record in caplog.records] == [
        f"new {number}" for number in range(MAX_KINDS)
    ]
    assert len(seldom._repeats._kinds) == MAX_KINDS


def test_recent_kinds_stay(
    seldom: SeldomLogger, times: list[float], monkeypatch: Patch, caplog: Caplog
) -> None:
    monkeypatch.setattr("onward.actors._log.MAX_KINDS", 2)
    seldom.log(logging.INFO, "past", "past")
    times.append(1030.0)
    seldom.log(logging.INFO, "young", "young")
    times.append(1060.0)
    for kind in ("new", "young"):
        seldom.log(logging.INFO, kind, kind)
    assert [record.getMessage() for record in caplog.records] == ["past", "young", "new"]


def test_texts_are_one_short_line() -> None:
    assert shown("plain, and ü") == "plain, and ü"
    assert shown("two\nlines \x1b[31m") == r"'two\nlines \x1b[31m'"
    assert shown("x" * LONGEST) == "x" * LONGEST
    assert shown("x" * 1000) == "x" * (LONGEST - 1) + "…"
    assert len(shown("\n" * 1000)) == LONGEST


def test_old_kinds_are_dropped_at_most_once_a_second(times: list[float]) -> None:
    repeats = Repeats(lambda: times[-1])
    for number in range(MAX_KINDS + 1):
        repeats.take(f"{number}")
    kinds = repeats._kinds
    for later, same in (PRUNE_INTERVAL / 2, True), (PRUNE_INTERVAL, False):
        times.append(times[0] + later)
        repeats.take("new")
        assert (repeats._kinds is kinds) is same
