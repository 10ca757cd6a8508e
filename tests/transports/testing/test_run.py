"""The suite against every transport there is, and what it says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from onward.actors import Node
from onward.transports import MemoryTransport, TcpTransport
from onward.transports.testing import (
    CASES,
    Case,
    CaseOutcome,
    Claims,
    Report,
    conformance,
    known_claims,
    run_suite,
)
from tests.support.certificates import Certificates
from tests.support.counts import exhaustive

test_memory = conformance("memory://suite-{n}")
test_simulated = conformance("sim://suite-{n}")
test_tcp = conformance("tcp://127.0.0.1:0")
test_udp = conformance("udp://127.0.0.1:0")
test_uds = conformance("uds://{tmp}/{n}.socket")
test_ws = conformance("ws://127.0.0.1:0/onward")


@pytest.mark.parametrize("scheme", exhaustive("tls", "wss"))
def test_with_certificates(scheme: str, tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    claims = replace(
        known_claims(f"{scheme}://"),
        listen_options={"tls": certificates.listener},
        connect_options={"tls": certificates.anonymous},
    )
    report = run_suite(f"{scheme}://127.0.0.1:0", claims)
    assert report.passed, str(report)


ALL = frozenset(each.name for each in CASES)
OF_THE_LOOP = frozenset(
    {
        "payloads_of_all_sizes",
        "order_of_all_sizes",
        "a_receiver_that_is_slow_for_a_while",
        "the_last_message",
        "a_link_that_comes_back",
        "nothing_is_left",
    }
)
"""The cases in which an event loop's own transports matter most."""


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("tcp://127.0.0.1:0", OF_THE_LOOP),
        *exhaustive(("tcp://127.0.0.1:0", ALL), ("memory://uvloop-{n}", ALL)),
    ],
)
def test_on_another_event_loop(place: str, names: frozenset[str]) -> None:
    cases = [each for each in CASES if each.name in names]
    assert len(cases) == len(names)
    report = run_suite(place, cases=cases, loop_factory=uvloop.new_event_loop)
    assert report.passed, str(report)


def test_the_event_loop_that_is_asked_for() -> None:
    async def scene(stage: object) -> None:
        assert isinstance(asyncio.get_running_loop(), uvloop.Loop)

    case = Case("loop", "it is the one", (), scene)
    virtual = Claims(virtual=True)
    assert run_suite("sim://x", virtual, cases=[case], loop_factory=uvloop.new_event_loop).passed
    assert not run_suite("sim://x", virtual, cases=[case]).passed


def test_every_case_has_a_name_and_a_claim() -> None:
    assert len({each.name for each in CASES}) == len(CASES) > 40
    for each in CASES:
        assert each.claim
        assert len(each.claim) < 100
        assert set(each.needs) <= set(Claims.__dataclass_fields__)


def test_what_is_not_claimed_is_not_run() -> None:
    ran: list[str] = []

    async def scene(stage: object) -> None:
        ran.append("x")

    needy = Case("needy", "it works", ("address_type", "reconnects"), scene)
    plain = Case("plain", "it works", (), scene)
    report = run_suite("memory://report", cases=[needy, plain])
    assert ran == ["x"]
    assert [each.unclaimed for each in report.outcomes] == ["address_type", ""]
    assert needy.unclaimed(Claims(address_type=0)) == "reconnects"
    assert report.passed
    assert str(report) == (
        "-       needy  not claimed: address_type\n"
        "ok      plain  it works\n"
        "memory://report: 1 ok, 0 failed, 1 not claimed"
    )


def test_what_fails_is_told() -> None:
    async def silent(stage: object) -> None:
        raise AssertionError

    async def broken(stage: object) -> None:
        raise KeyError("x")

    cases = [Case("silent", "it works", (), silent), Case("broken", "it works", (), broken)]
    report = run_suite("memory://report", cases=cases)
    assert [each.failure for each in report.outcomes] == ["it does not hold", "KeyError('x')"]
    assert not report.passed
    assert str(report).splitlines()[1] == "                it does not hold"
    assert str(report).endswith("0 ok, 2 failed, 0 not claimed")
    assert Report("memory://", ()).passed
    assert CaseOutcome(cases[0]).word == "ok"


def test_a_timeout_of_the_transport_is_no_timeout_of_the_case() -> None:
    async def times_out(stage: object) -> None:
        raise TimeoutError("mine")

    report = run_suite("memory://report", cases=[Case("late", "it works", (), times_out)])
    assert report.outcomes[0].failure == "TimeoutError('mine')"


def test_a_class_without_an_entry_point() -> None:
    made: list[MemoryTransport] = []

    class Mine(MemoryTransport):
        def __init__(self, node: Node) -> None:
            super().__init__(node)
            made.append(self)

    (case,) = [each for each in CASES if each.name == "answers_come_back"]
    assert run_suite("memory://x", transport=Mine, cases=[case]).passed
    assert len(made) == 2
    report = run_suite("unheard-of://x", cases=[case])
    assert "UnknownScheme" in report.outcomes[0].failure


def test_claims_of_transports_of_the_package_and_of_others() -> None:
    assert known_claims("tcp://x").address_type == TcpTransport.address_type == 1
    assert known_claims("unheard-of://x") == Claims()
