"""The load between two nats-servers, over a stand-in for the two that joins them late."""

from __future__ import annotations

import socket
import threading
from importlib import import_module
from typing import Any

import pytest

from tests.support.fixtures import Patch

nats: Any = import_module("_nats")
route: Any = import_module("_nats_route")
rivals: Any = import_module("_rivals")


def carry(came_from: socket.socket, to: socket.socket, dropped: int, log: list[bytes]) -> None:
    """Pass on the content of what is published, but for the first."""
    with came_from.makefile("rb") as lines:
        while line := lines.readline():
            content = lines.readline()
            log.append(line)
            if len(log) > dropped:
                to.sendall(b"MSG any 1 8\r\n" + content)


@pytest.mark.parametrize("dropped", [0, 2])
def test_the_load_begins_when_each_server_knows_the_interest_at_the_other(
    monkeypatch: Patch, dropped: int
) -> None:
    monkeypatch.setattr(route, "PROBED", 0.05 if dropped else 20.0)
    requester, near = socket.socketpair()
    destination, far = socket.socketpair()
    sent: list[list[bytes]] = [[], []]
    with requester, near, destination, far:
        threads = [
            threading.Thread(target=carry, args=(near, far, dropped, sent[0])),
            threading.Thread(target=carry, args=(far, near, 0, sent[1])),
        ]
        for thread in threads:
            thread.start()
        route._await_interest(requester, destination)
        assert len(sent[0]) > dropped
        assert set(sent[0]) == {b"PUB bench _INBOX.load.ffffffff 8\r\n"}
        assert set(sent[1]) == {b"PUB _INBOX.load.ffffffff 8\r\n"}
        # Nothing is underway that the load would take for its own.
        for each in (requester, destination):
            each.setblocking(False)
            with pytest.raises(BlockingIOError):
                each.recv(1)
            each.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def test_a_route_that_takes_no_message_is_told(monkeypatch: Patch) -> None:
    monkeypatch.setattr(route, "PROBED", 0.01)
    monkeypatch.setattr(route, "TIMEOUT", 0.1)
    ours, lost = socket.socketpair()
    silent, theirs = socket.socketpair()
    with ours, lost, silent, theirs, pytest.raises(RuntimeError, match="no message by the route"):
        route._await_interest(ours, silent)


def test_servers_that_are_not_there_are_left_out(monkeypatch: Patch) -> None:
    monkeypatch.setenv("NATS_SERVER", "/nowhere/nats-server")
    with (
        pytest.raises(rivals.Missing, match="/nowhere/nats-server"),
        route.routed_servers(),
    ):
        pass


def test_requests_by_a_route() -> None:
    rawload: Any = import_module("_rawload")
    try:
        rivals.nats_program()
    except rivals.Missing as missing:
        pytest.skip(str(missing))
    with (
        route.routed_servers() as (_, near, far),
        rawload.open_load(near, requesters=1, in_flight=8, shape=route.routed_shape(far)) as load,
    ):
        assert load.run(1000).requests == 1000
