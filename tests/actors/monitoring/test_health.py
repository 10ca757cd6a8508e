"""Health checks by stage."""

from __future__ import annotations

import logging

import pytest

from onward.actors import LimitReached
from onward.actors.monitoring import CheckResult, HealthChecks, Stage


def test_checks_run_by_stage_in_order() -> None:
    checks = HealthChecks()
    checks.add(Stage.READY, "a", lambda: "")
    remove = checks.add(Stage.READY, "b", lambda: "closed")
    checks.add(Stage.LIVE, "c", lambda: "")
    assert checks.run(Stage.READY) == (CheckResult("a", ""), CheckResult("b", "closed"))
    assert [each.passed for each in checks.run(Stage.READY)] == [True, False]
    assert checks.run(Stage.LIVE) == (CheckResult("c", ""),)
    assert checks.run(Stage.STARTED) == ()
    remove()
    remove()
    assert checks.run(Stage.READY) == (CheckResult("a", ""),)


def test_a_check_that_raises_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    checks = HealthChecks()
    checks.add(Stage.LIVE, "broken", lambda: str(1 // 0))
    with caplog.at_level(logging.ERROR):
        assert checks.run(Stage.LIVE) == (CheckResult("broken", "the check itself has failed"),)
    assert "the health check broken has failed" in caplog.text


def test_the_number_of_checks_is_bounded() -> None:
    checks = HealthChecks()
    removes = [checks.add(Stage.LIVE, str(number), lambda: "") for number in range(100)]
    with pytest.raises(LimitReached, match="health checks"):
        checks.add(Stage.LIVE, "more", lambda: "")
    removes[0]()
    checks.add(Stage.LIVE, "more", lambda: "")
