"""`onward bench`: loads through a broker, and a destination for them."""

from __future__ import annotations

import json
import signal

import pytest

from onward.cli import main
from onward.cli._status import Status
from tests.support.certificates import Certificates
from tests.support.commands import TIMEOUT, broker_process, onward
from tests.support.fixtures import Capsys


@pytest.mark.parametrize("loop", [("--rate", "2000"), ("--window", "4", "--clients", "2")])
def test_requests_in_both_loops(loop: tuple[str, ...], broker: str, capsys: Capsys) -> None:
    words = ("bench", "request", "service=store", "--broker", broker, "--count", "50", *loop)
    assert main([*words, "--json", "--size", "10"]) == Status.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["sent"], found["ends"]["answered"], found["received_bytes"]) == (50, 50, 500)
    assert found["latency"]["p99.99"] >= found["latency"]["p50"] > 0


def test_what_is_rejected_is_no_answer(broker: str, capsys: Capsys) -> None:
    words = ("bench", "request", "service=nobody", "--broker", broker, "--count", "5", "--json")
    assert main(words) == Status.FAILED
    out, err = capsys.readouterr()
    assert json.loads(out)["ends"]["rejected"] == 5
    assert err == "onward bench: no request was answered\n"


def test_no_broker_is_a_failure(capsys: Capsys) -> None:
    words = ("bench", "request", "--broker", "rsocket+tcp://127.0.0.1:1", "--timeout", "0.2")
    assert main(words) == Status.FAILED
    out, err = capsys.readouterr()
    assert (out, "cannot connect" in err) == ("", True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rate", "1", "--window", "2"), "--rate is an open loop"),
        (("--rate", "0"), "--rate is above 0"),
        (("--rate", "nan"), "--rate is above 0"),
        (("--rate", "1e9"), "at most 1000000"),
        (("--clients", "1001"), "--clients is at most 1000"),
        (("--window", "10001"), "--window is at most 10000"),
        (("--duration", "0"), "more than 0 seconds"),
    ],
)
def test_wrong_options(words: tuple[str, ...], told: str, capsys: Capsys) -> None:
    assert main(["bench", "request", *words]) == Status.USAGE
    assert told in capsys.readouterr().err


def test_a_tag_has_a_value(capsys: Capsys) -> None:
    assert main(["bench", "serve", "--tag", "region"]) == Status.USAGE
    assert "--tag 'region' is not KEY=VALUE" in capsys.readouterr().err


def test_a_destination_for_all_interactions_with_tls(
    tmp_path_factory: pytest.TempPathFactory, capsys: Capsys
) -> None:
    certificates = Certificates.make(tmp_path_factory.mktemp("tls"))
    listen = ("--listen", "rsocket+tls://localhost:0", "--certificate", str(certificates.server))
    with broker_process(*listen) as uri:
        by = ("--broker", uri, "--authority", str(certificates.authority))
        served = ("--tag", "region=eu", "--elements", "5", "--size", "3", "--delay", "0.001")
        with onward("bench", "serve", *by, *served) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"serving bench at {uri}\n"
            to = ("service=bench", "region=eu", *by, "--count", "20")
            assert main(["bench", "stream", *to, "--json"]) == Status.OK
            found = json.loads(capsys.readouterr().out)
            assert (found["elements"], found["received_bytes"]) == (100, 300)
            assert found["latency"]["p50"] >= found["first"]["p50"] > 0
            assert main(["bench", "request", *to, "--rate", "1000"]) == Status.OK
            assert "20 answered" in capsys.readouterr().out
            assert main(["bench", "fnf", *to, "--csv"]) == Status.OK
            assert capsys.readouterr().out.splitlines()[1].startswith("fnf,service=bench region=eu")
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=TIMEOUT)
            # Fire-and-forget may still have been on its way.
            assert 40 <= int(out.split()[0]) <= 60
            assert process.returncode == 0


def test_a_load_that_is_stopped_prints_what_it_has(broker: str) -> None:
    words = ("bench", "request", "service=store", "--broker", broker, "--duration", "600", "--json")
    with onward(*words) as process:
        deadline = 600
        while deadline:  # until it is under way
            deadline -= 1
            if requests_of(broker) > 5:
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=TIMEOUT)
        assert json.loads(out)["ends"]["answered"] > 0
        assert process.returncode == 0


def requests_of(broker: str) -> int:
    """Return the requests that the destination has got."""
    with onward("routes", "--broker", broker, "--json") as process:
        out, _ = process.communicate(timeout=TIMEOUT)
    return sum(row["requests"] for row in json.loads(out) if row["service"] == "store")
