"""What the hostile soak looks at, it sees: answers that do not come, and what is left behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.counts import UNMEASURED, exhaustive
from tests.support.fixtures import Patch

hostile: Any = import_module("hostile")
attacks: Any = import_module("_hostile_attacks")
reports: Any = import_module("_report")
lags: Any = import_module("_loop_lag")

BENCHMARKS = Path(hostile.__file__).parent
NOTHING: dict[str, Any] = {"closed": {}, "turned away": 0, "dead letters": {}}


def missed(report: Any) -> list[str]:
    return [target.name for target in report.targets if not target.met]


async def asked(answers: list[bytes | Exception]) -> Any:
    """Return what becomes of as many requests as there are answers."""
    honest, over = hostile.Honest("requests"), asyncio.Event()
    left = list(answers)

    async def ask(data: bytes) -> bytes:
        answer = left.pop(0)
        if not left:
            over.set()
        if isinstance(answer, Exception):
            raise answer
        return answer or data

    await honest.keep_asking(ask, over)
    report = reports.Report("hostile")
    honest.report(report)
    return report


@pytest.mark.parametrize(
    ("answers", "which"),
    [
        ([b"", b""], []),
        ([b"", b"other"], ["requests: not answered"]),
        ([b"", ConnectionError("closed")], ["requests: not answered"]),
    ],
)
async def test_requests_that_are_not_answered_are_seen(
    answers: list[bytes | Exception], which: list[str], monkeypatch: Patch
) -> None:
    monkeypatch.setattr(hostile, "EVERY", 0.001)
    assert missed(await asked(answers)) == which


def test_slow_answers_are_seen() -> None:
    honest, report = hostile.Honest("requests"), reports.Report("hostile")
    honest.times.extend([0.01, 0.02, hostile.WORST + 0.01])
    honest.report(report)
    assert missed(report) == ["requests: worst"]


@pytest.mark.parametrize("what", hostile.COUNTED)
def test_what_is_left_is_seen(what: str) -> None:
    before: dict[str, Any] = {**dict.fromkeys(hostile.COUNTED, 3), **NOTHING}
    report = reports.Report("hostile")
    hostile.summarize(report, before, before, {**before, what: 4})
    assert missed(report) == [f"{what}, left"]


def test_the_part_of_a_lag_that_the_loop_computed_is_told_apart(monkeypatch: Patch) -> None:
    clock, computed = iter([10.0, 10.11, 20.0]), iter([1.0, 1.04, 2.0])
    monkeypatch.setattr(lags.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(lags.time, "thread_time", lambda: next(computed))
    loop = Mock()
    lag = lags.LoopLag(loop)
    _, look = loop.call_later.call_args.args
    look()
    assert [round(each) for each in lag.taken().values()] == [100, 100, 40, 40]


@UNMEASURED
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*list(attacks.ATTACKS)[:1], *exhaustive(*list(attacks.ATTACKS)[1:])]
)
def test_each_attack_is_withstood_for_a_moment(name: str) -> None:
    program = str(BENCHMARKS / "hostile.py")
    done = subprocess.run(
        [sys.executable, program, "--minutes", "0.03", "--attack", name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "connections made for a peer" in done.stdout, done.stderr
    # How long answers take says nothing on a machine that has other things to do.
    lines = [line for line in done.stdout.splitlines() if "MISSED" in line]
    assert not [line for line in lines if "ms" not in line], done.stdout
