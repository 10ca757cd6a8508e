"""Sockets that systemd has opened, passed to a process as systemd does."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from onward.transports.streams._passed_sockets import passed_socket
from tests.support.commands import TIMEOUT


def test_other_uris_stay_as_they_are() -> None:
    for uri in ("rsocket+tcp://127.0.0.1:8001", "rsocket+unix:///run/sd:web", "tcp://[::1]:1"):
        assert passed_socket(uri) == (uri, None)


@pytest.mark.parametrize(
    ("environment", "there"),
    [
        ({}, "none"),
        ({"LISTEN_FDS": "1", "LISTEN_PID": "1", "LISTEN_FDNAMES": "web"}, "none"),
        ({"LISTEN_FDS": "many", "LISTEN_PID": "own"}, "none"),
        ({"LISTEN_FDS": "2", "LISTEN_PID": "own", "LISTEN_FDNAMES": "a:b"}, "a, b"),
        ({"LISTEN_FDS": "2", "LISTEN_PID": "own"}, "unknown, unknown"),
    ],
)
def test_a_socket_that_was_not_passed(environment: dict[str, str], there: str) -> None:
    if "LISTEN_PID" in environment:
        own = environment["LISTEN_PID"].replace("own", str(os.getpid()))
        environment = {**environment, "LISTEN_PID": own}
    with pytest.raises(ValueError, match=f"no socket named 'web'; there are: {there}$"):
        passed_socket("rsocket+tcp://sd:web", environment)


LAUNCH = """
import os, sys
count = int(sys.argv[1])
for number in range(count):
    os.dup2(int(sys.argv[2 + number]), 3 + number)
os.environ.update(
    LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(count), LISTEN_FDNAMES=sys.argv[2 + count]
)
os.execv(sys.executable, [sys.executable, "-m", "onward.cli", *sys.argv[3 + count:]])
"""


def test_a_broker_listens_at_sockets_of_systemd(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
    ):
        unix.bind(str(path))
        unix.listen()
        passed = [os.dup(each.fileno()) for each in (tcp, unix)]
        # High numbers, so that none is in the way of another.
        files = [fd_above(fd, 50 + at) for at, fd in enumerate(passed)]
        words = ["--listen", "rsocket+ws://sd:web/rsocket", "--listen", "rsocket+unix://sd:local"]
        command = [sys.executable, "-c", LAUNCH, "2", *map(str, files), "web:local"]
        with subprocess.Popen(
            [*command, "broker", *words], stdout=subprocess.PIPE, text=True, pass_fds=files
        ) as process:
            try:
                assert process.stdout is not None
                lines = [process.stdout.readline().strip() for _ in range(2)]
                assert lines == [
                    f"listening rsocket+ws://127.0.0.1:{tcp.getsockname()[1]}/rsocket",
                    f"listening rsocket+unix://{path}",
                ]
                with socket.create_connection(tcp.getsockname()):
                    pass
                process.terminate()
                assert process.wait(TIMEOUT) == 0
            finally:
                process.kill()
        for fd in files:
            os.close(fd)
        assert path.exists()  # it is systemd's
        # Clients may connect while the broker restarts: they wait.
        with socket.create_connection(tcp.getsockname()):
            pass


def fd_above(fd: int, at: int) -> int:
    """Move a file to a number."""
    os.dup2(fd, at)
    os.close(fd)
    return at


def test_a_socket_that_is_inherited() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        uri, passed = passed_socket(f"rsocket+ws://fd:{tcp.fileno()}/path")
        assert passed is not None
        with passed:
            assert uri == f"rsocket+ws://127.0.0.1:{tcp.getsockname()[1]}/path"
            assert passed.getsockname() == tcp.getsockname()
    with pytest.raises(ValueError, match="fd:65000 is no socket: Bad file descriptor"):
        passed_socket("rsocket+tcp://fd:65000")
