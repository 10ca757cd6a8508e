"""What is wrong, found in figures of two moments."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from onward.actors.broker import LimitUse
from onward.actors.monitoring import Observation, Problem, Severity, find_problems
from onward.actors.monitoring._problems import _COUNTED
from onward.protocol.metrics import BUCKETS

NOW = 1_800_000_000.0
DAY = 86_400.0
WELL = Observation(NOW, lags=(0,) * (len(BUCKETS) + 1))


def one(now: Observation, before: Observation | None = None) -> Problem:
    (found,) = find_problems(now, before)
    return found


def test_a_broker_that_is_well_has_no_problem() -> None:
    busy = replace(
        WELL,
        certificates={"a": NOW + 60 * DAY},
        limits=(("", LimitUse("max_routes", 80, 100, 0)),),
        ended=1000,
        rejected=10,
        oldest_wait=10.0,
        counts={(kind, ""): 0 for kind in _COUNTED},
    )
    assert find_problems(WELL) == ()
    assert find_problems(busy) == ()


def test_a_failed_check_is_critical_and_a_refused_reload_is_not() -> None:
    found = find_problems(
        replace(WELL, failed_checks={"ready: listeners": "1 of 2 listeners closed"})
    )
    assert [(each.severity, each.kind, each.subject) for each in found] == [
        (Severity.CRITICAL, "not-ready", "ready: listeners")
    ]
    assert "1 of 2 listeners closed" in found[0].text
    refused = one(replace(WELL, reload_error="rules.toml: line 3"))
    assert (refused.severity, refused.kind) == (Severity.WARNING, "reload-failed")
    assert "rules.toml: line 3" in refused.text


@pytest.mark.parametrize(
    ("days", "severity", "text"),
    [
        (21.0, Severity.WARNING, "The certificate expires in 21 days."),
        (1.5, Severity.CRITICAL, "The certificate expires in 1 day."),
        (0.5, Severity.CRITICAL, "The certificate expires in less than a day."),
        (0.0, Severity.CRITICAL, "The certificate has expired: clients refuse it."),
    ],
)
def test_a_certificate_that_ends_soon(days: float, severity: Severity, text: str) -> None:
    found = one(replace(WELL, certificates={"rsocket+tls://a:1": NOW + days * DAY}))
    assert (found.severity, found.text) == (severity, text)
    assert (found.kind, found.subject) == ("certificate", "rsocket+tls://a:1")


def test_limits_that_are_nearly_or_wholly_used() -> None:
    uses = (("", LimitUse("max_routes", 81, 100, 0)), ("b", LimitUse("max_connections", 5, 5, 0)))
    full, nearly = find_problems(replace(WELL, limits=uses))
    assert (full.severity, full.subject) == (Severity.CRITICAL, "max_connections of b")
    assert full.text == "100 % of max_connections are used: 5 of 5."
    assert full.advice.startswith("More is refused. ")
    assert (nearly.severity, nearly.subject) == (Severity.WARNING, "max_routes")
    assert not nearly.advice.startswith("More")
    assert find_problems(replace(WELL, limits=(("", LimitUse("none", 0, 0, 0)),))) == ()


def test_requests_without_a_destination_count_within_the_time() -> None:
    before = replace(WELL, at=NOW - 300, ended=1000, rejected=900)
    assert find_problems(replace(WELL, ended=2000, rejected=910), before) == ()
    some = one(replace(WELL, ended=2000, rejected=911), before)
    assert (some.severity, some.kind) == (Severity.WARNING, "rejected")
    assert "1.1 %" in some.text
    assert some.text.endswith("11 of 1000 in the last 5 minutes.")
    many = one(replace(WELL, ended=2000, rejected=1001), before)
    assert many.severity is Severity.CRITICAL
    assert one(replace(WELL, ended=2, rejected=1)).text.endswith("1 of 2 since the start.")


def test_errors_of_destinations() -> None:
    assert find_problems(replace(WELL, ended=100, failed=5)) == ()
    found = one(replace(WELL, ended=100, failed=6))
    assert (found.severity, found.kind) == (Severity.WARNING, "errors")
    assert found.text.startswith("6.0 % of the requests")


def test_a_request_that_waits_long() -> None:
    assert one(replace(WELL, oldest_wait=10.1)).kind == "oldest-wait"


def test_a_loop_that_was_held() -> None:
    lags = [0] * (len(BUCKETS) + 1)
    bound = next(at for at, each in enumerate(BUCKETS) if each >= 0.25)
    lags[bound] = 7  # at most as long as the bound
    assert find_problems(replace(WELL, lags=tuple(lags))) == ()
    lags[bound + 1], lags[-1] = 1, 1
    before = replace(WELL, at=NOW - 30)
    found = one(replace(WELL, lags=tuple(lags)), before)
    assert found.kind == "loop-lag"
    assert found.text == "The event loop was held for more than 0.26 s 2 times in the last 30 s."


@pytest.mark.parametrize("kind", _COUNTED)
def test_counts_that_have_grown(kind: str) -> None:
    before = replace(WELL, at=NOW - 60, counts={(kind, "a"): 5, (kind, "b"): 1})
    now = replace(WELL, counts={(kind, "a"): 5, (kind, "b"): 2, (kind, "c"): 2})
    one_more, new = find_problems(now, before)
    assert (one_more.kind, one_more.subject, new.subject) == (kind, "b", "c")
    assert one_more.text.startswith("1 ")
    assert new.text.startswith("2 ")
    assert new.text.endswith(" in the last 60 s.")


def test_critical_problems_come_first_and_each_says_what_to_do() -> None:
    chance = random.Random(7)
    whole = replace(
        WELL,
        failed_checks={"live: loop": "held"},
        reload_error="bad",
        certificates={"a": NOW, "b": NOW + 10 * DAY},
        limits=(("", LimitUse("x", 9, 10, 0)), ("", LimitUse("y", 10, 10, 0))),
        lags=(0,) * len(BUCKETS) + (1,),
        ended=10,
        failed=1,
        rejected=chance.randint(1, 9),
        oldest_wait=60.0,
        counts={(kind, ""): chance.randint(1, 9) for kind in _COUNTED},
    )
    found = find_problems(whole)
    assert [each.severity.value for each in found] == sorted(each.severity.value for each in found)
    assert {each.kind for each in found} == {
        *(
            "not-ready",
            "reload-failed",
            "certificate",
            "limit",
            "rejected",
            "errors",
            "oldest-wait",
        ),
        *("loop-lag", *_COUNTED),
    }
    for each in found:
        assert each.text.endswith(".")
        assert each.advice.endswith(".")
