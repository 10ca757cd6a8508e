"""`onward connections`, `waiting` and `limits`, asked of a running broker."""

from __future__ import annotations

import json

import pytest

from onward.cli import main
from onward.cli._broker_tables import CLOSED, CONNECTIONS, SERVICES
from onward.cli._status import Status
from onward.cli._tables import show
from tests.support.commands import broker_process
from tests.support.fixtures import Capsys


def test_connections_open_and_closed_of_a_process(capsys: Capsys) -> None:
    with broker_process() as uri:
        by = ("--broker", uri)
        assert main(["connections", *by]) == Status.OK
        headings, own = capsys.readouterr().out.splitlines()
        assert headings.split()[:3] == ["ID", "PEER", "SERVICE"]
        number = int(own.split()[0])
        assert main(["connections", "--closed", *by, "--json"]) == Status.OK
        closed = json.loads(capsys.readouterr().out)["rows"][0]
        assert (closed["id"], closed["reason"]) == (number, "by the peer")
        assert main(["connections", "--closed", "--sort", "closed", "--top", "1", *by]) == Status.OK
        assert "by the peer" in capsys.readouterr().out
        assert main(["waiting", *by]) == Status.OK
        assert capsys.readouterr().out == "no request waits\n"
        assert main(["limits", *by, "--filter", "name=max_connections"]) == Status.OK
        assert capsys.readouterr().out.split()[-4:] == [uri, "1", "10000", "0"]
        assert main(["links", *by]) == Status.OK
        assert capsys.readouterr().out == "no links\n"
        assert main(["peers", *by]) == Status.OK
        assert capsys.readouterr().out == "no peers\n"
        assert main(["connections", *by, "--filter", "x=1"]) == Status.FAILED
        assert "unknown field 'x'" in capsys.readouterr().err


def test_a_broker_in_a_program_has_no_admin_interface(broker: str, capsys: Capsys) -> None:
    assert main(["connections", "--broker", broker]) == Status.FAILED
    assert "onward connections: the answer is: ask for" in capsys.readouterr().err


def test_a_column_must_exist(capsys: Capsys) -> None:
    assert main(["connections", "--sort", "reason"]) == Status.USAGE
    assert "there is no column 'reason'" in capsys.readouterr().err


@pytest.mark.parametrize("look", [CONNECTIONS, CLOSED])
def test_a_connection_names_its_principal(look: object) -> None:
    row = {"id": 3, "peer": "10.0.0.7:1", "principal": "ida\x1b", "idle": 0.5, "opened": 0}
    printed = show(CONNECTIONS if look is CONNECTIONS else CLOSED, {"total": 1, "rows": [row]})
    assert "10.0.0.7:1 as ida\\x1b" in printed


def test_a_service_has_its_success() -> None:
    row = {"service": "orders", "success": 0.98765, "p50": 0.001, "p99": 1.5}
    printed = show(SERVICES, {"total": 2, "rows": [row, {"service": "mail", "success": None}]})
    assert "98.77 %" in printed
    assert printed.splitlines()[2].split()[:6] == ["mail", "0", "0", "0", "0", "-"]
