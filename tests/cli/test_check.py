"""`onward check`: its results, its formats, and its exit statuses."""

from __future__ import annotations

import json
import signal
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onward.cli import _check, main
from onward.cli._access import Access
from onward.cli._check import (
    DAY,
    Health,
    Result,
    Thresholds,
    _certificate,
    _readiness,
    checked,
    formatted,
    worst,
)
from onward.cli._run import Interrupted
from onward.transports.client import Client
from tests.support.certificates import Certificates
from tests.support.commands import TIMEOUT, broker_process, onward
from tests.support.counts import exhaustive
from tests.support.fixtures import Capsys, Patch

EVIL = "bad | rtt=0\x1b[2J\nOK"
GOOD = Result("connect", Health.OK, "connected", 0.25, (1.0, 3.0))
BAD = Result("ready", Health.CRITICAL, EVIL)
LEFT = Result("certificate", Health.WARNING, "ends in 5 days", 5 * DAY, (14 * DAY, 3 * DAY))
ALWAYS = Thresholds((60.0, 60.0), (60.0, 60.0), (0.0, 0.0))


def told(capsys: Capsys, *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["check", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().out


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"))


def test_a_broker_that_is_well_and_one_that_drains(capsys: Capsys) -> None:
    with onward(
        "broker", "--listen", "rsocket+tcp://127.0.0.1:0", "--drain-grace", "60"
    ) as process:
        assert process.stdout is not None
        uri = process.stdout.readline().removeprefix("listening ").strip()
        status, out = told(capsys, "--broker", uri, "--format", "json")
        assert (status, json.loads(out)["status"]) == (0, "ok")
        assert [each["check"] for each in json.loads(out)["checks"]] == ["connect", "rtt", "ready"]
        status, out = told(capsys, "--broker", uri, "--rtt-warn", "0")
        assert (status, out.splitlines()[0]) == (1, f"warning: {uri}")
        status, out = told(
            capsys, "--broker", uri, "--connect-warn", "0", "--connect-critical", "0"
        )
        assert (status, out.splitlines()[0]) == (2, f"critical: {uri}")
        process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + TIMEOUT
        while (found := told(capsys, "--broker", uri, "--format", "nagios"))[0] == 0:
            assert time.monotonic() < deadline
        assert found[0] in (1, 2)  # without connections it ends at once


def test_no_broker_and_wrong_options(capsys: Capsys) -> None:
    status, out = told(capsys, "--broker", "rsocket+tcp://127.0.0.1:1", "--format", "nagios")
    assert status == 2
    assert out.startswith("ONWARD CRITICAL: rsocket+tcp://127.0.0.1:1: cannot connect: ")
    for words in (
        ("--rtt-warn", "5"),
        ("--certificate-warn", "1"),
        ("--broker", "http://a"),
        ("--token-file", "/nowhere"),
    ):
        assert told(capsys, *words)[0] == 3
    with pytest.raises(SystemExit) as ended:
        main(["check", "--nonsense"])
    assert ended.value.code == 3


@pytest.mark.parametrize("scheme", ["rsocket+tls", *exhaustive("rsocket+wss")])
def test_the_certificate_that_the_broker_shows(
    scheme: str, certificates: Certificates, capsys: Capsys
) -> None:
    listen = ("--listen", f"{scheme}://localhost:0", "--certificate", str(certificates.server))
    with broker_process(*listen) as uri:
        by = ("--broker", uri, "--authority", str(certificates.authority))
        status, out = told(capsys, *by, "--format", "json")
        assert status == 0
        (found,) = (each for each in json.loads(out)["checks"] if each["check"] == "certificate")
        assert found["seconds"] > DAY
        status, out = told(capsys, *by, "--certificate-warn", "1000000")
        assert (status, "certificate  warning" in out) == (1, True)
        # Not trusted: no connection.
        status, out = told(capsys, "--broker", uri)
        assert (status, "certificate" in out) == (2, True)


async def test_a_program_that_does_not_say(broker: str) -> None:
    found = [each async for each in checked(broker, TIMEOUT, Access(), ALWAYS, 1)]
    assert [(each.name, each.health) for each in found] == [
        ("connect", Health.OK),
        ("rtt", Health.OK),
        ("ready", Health.UNKNOWN),
    ]


class Shown(Client):
    """A client that is connected to a broker with some certificate."""

    def __init__(self, certificate: bytes | None) -> None:
        self._certificate = certificate

    def peer_certificate(self) -> bytes | None:
        return self._certificate


def test_the_end_of_a_certificate(certificates: Certificates) -> None:
    text = certificates.expired.read_text()
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
    expired = _certificate(Shown(ssl.PEM_cert_to_DER_cert(text[begin:end])), (DAY, DAY / 2))
    assert expired is not None
    assert (expired.health, expired.text) == (Health.CRITICAL, "it has expired")
    odd = _certificate(Shown(b"odd"), (DAY, DAY / 2))
    assert odd is not None
    assert odd.health is Health.UNKNOWN
    assert _certificate(Shown(None), (DAY, DAY / 2)) is None


def checks(*problems: tuple[str, str]) -> dict[str, Any]:
    rows = [{"name": name, "passed": not text, "problem": text} for name, text in problems]
    return {"passed": not any(text for _, text in problems), "checks": rows}


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (checks(("listeners", ""), ("draining", "")), Health.OK),
        (checks(("listeners", ""), ("draining", "it drains")), Health.WARNING),
        (checks(("listeners", "1 closed"), ("draining", "it drains")), Health.CRITICAL),
        (
            {"passed": True, "checks": [{"name": "x", "passed": False, "problem": 5}]},
            Health.CRITICAL,
        ),
        # To a client that may not read the texts of checks.
        ({"passed": False, "checks": [{"name": "x", "passed": False}]}, Health.CRITICAL),
        ({"error": "?"}, Health.UNKNOWN),
        ([], Health.UNKNOWN),
        ({"passed": True, "checks": 5}, Health.UNKNOWN),
    ],
)
def test_what_a_broker_says_of_itself(answer: Any, health: Health) -> None:
    assert _readiness(answer).health is health
    assert len(_readiness(checks(("x", "y" * 10_000))).text) < 300


@pytest.mark.parametrize(
    ("health", "is_worst"),
    [
        ((Health.OK, Health.OK), Health.OK),
        ((Health.OK, Health.WARNING), Health.WARNING),
        ((Health.UNKNOWN, Health.WARNING), Health.UNKNOWN),
        ((Health.UNKNOWN, Health.CRITICAL), Health.CRITICAL),
    ],
)
def test_the_worst_counts(health: Sequence[Health], is_worst: Health) -> None:
    assert worst([Result("x", each, "") for each in health]) is is_worst


def test_what_the_broker_says_is_text_in_each_format() -> None:
    results, broker = [GOOD, LEFT, BAD], 'rsocket+tcp://a"b:1'
    assert formatted(results, "text", broker).splitlines() == [
        f"critical: {broker}",
        "  connect      ok        connected",
        "  certificate  warning   ends in 5 days",
        "  ready        critical  bad | rtt=0\\x1b[2J\\nOK",
    ]
    line = formatted(results, "nagios", broker)
    assert line == (
        "ONWARD CRITICAL: bad / rtt=0\\x1b[2J\\nOK, ends in 5 days, connected"
        " | connect=0.250000s;1;3 certificate=432000.000000s;1209600:;259200:"
    )
    found = json.loads(formatted(results, "json", broker))
    assert (found["broker"], found["checks"][2]["text"]) == (broker, EVIL)
    families = list(text_string_to_metric_families(formatted(results, "prometheus", broker)))
    assert [each.name for each in families] == ["onward_check_status", "onward_check_seconds"]
    assert [each.value for each in families[0].samples] == [0, 1, 2]
    assert families[1].samples[0].labels == {"broker": broker, "check": "connect"}


def test_one_without_figures() -> None:
    assert formatted([BAD], "nagios", "x") == "ONWARD CRITICAL: bad / rtt=0\\x1b[2J\\nOK"


def test_it_is_stopped(broker: str, capsys: Capsys, monkeypatch: Patch) -> None:
    async def stopped(*_: object) -> Any:
        raise Interrupted
        yield

    monkeypatch.setattr(_check, "checked", stopped)
    status, out = told(capsys, "--broker", broker)
    assert (status, "interrupted" in out) == (3, True)


def test_a_file_of_its_own(tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "token").write_text("")
    status, out = told(capsys, "--token-file", str(tmp_path / "token"))
    assert (status, "usage" in out) == (3, True)
