"""What authentication and rules cost a request and a connection, and what guesses of passwords do.

Four measurements, all with processes of `onward broker` and raw frames (`_rawload.py`):

- The CPU time of a request through a broker that asks for tokens, has rules and the admin interface
  with its metrics, against one without all of it, in turns. Target: at most 1.05. The requests
  name no origin: one that is claimed is replaced where there are rules, which costs a third of a
  request.
- The CPU time of a client that connects, shows its credentials and leaves (`_comers.py`): with a
  token, and with a password that is remembered, against one without. Target: at most 1.5.
- The time until 10,000 clients with a token that come back at once, from 1,000 addresses, are
  accepted: at most 20 decisions are in progress for one address.
- The time of single requests while other clients guess passwords, each a wrong one, from 20
  addresses: the slowest hundredth, against the same while as many clients come with a token.
  Target: at most 2. The broker verifies ten guesses a minute of an address, and closes its further
  connections before it reads them.

On two busy cores the last repeats to within 30 %, the others to within 5 %.
"""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from _harness import parse_arguments
from _rawload import (
    DATA,
    SERVICE,
    TIMEOUT,
    Load,
    Shape,
    cpu_seconds,
    exchange_keepalive,
    open_load,
    rsocket_shape,
)
from _report import Report
from _rivals import ONWARD, command_of, raise_file_limit, running
from _wire import request_frame, setup_frame

from onward.protocol.security import (
    BearerToken,
    UserPassword,
    format_credentials,
    hash_password,
    make_token,
    token_digest,
)

HERE = Path(__file__).parent
PORT = re.compile(r"listening \S+:(\d+)$")
TOKEN = make_token(secrets.token_bytes(32))
BEARER = format_credentials(BearerToken(TOKEN.encode()))
RIGHT = format_credentials(UserPassword("ann", "right"))
WRONG_ONES = format_credentials(UserPassword("ann", "wrong")).hex() + "*"
PRINCIPALS = f"""
[[tokens]]
name = "bench"
sha256 = "{token_digest(TOKEN.encode()).hex()}"
roles = ["all"]
[[users]]
name = "ann"
password = "{hash_password("right", secrets.token_bytes(16)).text}"
roles = ["all"]
"""
RULES = """
[[rule]]
roles = ["all"]
register = "*"
request = ["service=bench"]
"""


SOURCES = 20


class Size(NamedTuple):
    """The windows, the requests of each, the clients that come, and the guesses."""

    windows: int
    requests: int
    clients: int
    guesses: int


FULL, QUICK = Size(9, 30_000, 10_000, 100_000), Size(1, 2_000, 100, 200)


class Broker(NamedTuple):
    """A broker's process and port, and the entry that its load shows."""

    pid: int
    port: int
    entry: bytes


def connect(port: int, name: str, *, entry: bytes) -> socket.socket:
    """Open a connection to a broker with credentials, and register a route."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(setup_frame(name, credentials=entry))
    exchange_keepalive(connection)
    return connection


def shape(entry: bytes) -> Shape:
    """Return a load with credentials, of requests without a claim about their origin."""
    made, request = rsocket_shape(), request_frame(SERVICE, DATA, claims=False)
    sent = made.request._replace(written=request, arrived=request)
    return replace(made, request=sent, connect=partial(connect, entry=entry))


@contextmanager
def brokers(folder: Path) -> Generator[tuple[Broker, Broker]]:
    """Start a broker without authentication and one with it."""
    for name, text in (("principals", PRINCIPALS), ("rules", RULES)):
        (folder / f"{name}.toml").write_text(text)
    command, environment = command_of(ONWARD)
    command += ["broker", "--listen", "rsocket+tcp://127.0.0.1:0", "--log", "error"]
    command += ["--max-connections", "20000"]
    asks = [f"--{name}={folder / name}.toml" for name in ("principals", "rules")]
    asks.append(f"--admin=unix://{folder}/admin")
    with ExitStack() as stack:
        plain = stack.enter_context(running(command, PORT, environment))
        asking = stack.enter_context(running([*command, *asks], PORT, environment))
        yield Broker(*plain, b""), Broker(*asking, BEARER)


# --- requests ---------------------------------------------------------------------------------


def measure_requests(pair: tuple[Broker, Broker], size: Size, report: Report) -> None:
    """Add the cost of a request without authentication and rules, and with both."""
    costs: list[list[float]] = [[], []]
    with ExitStack() as stack:
        loads: list[Load] = []
        for each in pair:
            opened = open_load(each.port, requesters=1, in_flight=64, shape=shape(each.entry))
            loads.append(stack.enter_context(opened))
            loads[-1].run(2_000)
        for _ in range(size.windows):
            for each, load, kept in zip(pair, loads, costs, strict=True):
                before = cpu_seconds(each.pid)
                window = load.run(size.requests)
                kept.append(1e6 * (cpu_seconds(each.pid) - before) / window.requests)
    plain, asking = map(median, costs)
    ratios = [high / low for low, high in zip(*costs, strict=True)]
    report.noise = (max(ratios) - min(ratios)) / 2 / median(ratios)
    report.figure("request", plain, "µs")
    report.figure("request, authentication and rules", asking, "µs")
    report.target("authentication and rules / none", median(ratios), "x", at_most=1.05)


# --- clients that come back -------------------------------------------------------------------


def comers(
    broker: Broker, number: int, entry: str, sources: int = 1, at_a_time: int = 20
) -> subprocess.Popen[str]:
    """Start clients, and return when they begin to come."""
    words = [str(broker.port), str(number), str(at_a_time), entry, str(sources)]
    command = [sys.executable, str(HERE / "_comers.py"), *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def finished(process: subprocess.Popen[str]) -> int:
    """Wait for the clients; return how many had an answer."""
    said, _ = process.communicate()
    return int(said.split()[-1])


def measure_clients(pair: tuple[Broker, Broker], size: Size, report: Report) -> None:
    """Add the cost of a client that connects and leaves."""
    plain, asking = pair
    cases = (
        ("client", plain, "-"),
        ("client with a token", asking, BEARER.hex()),
        ("client with a password that is remembered", asking, RIGHT.hex()),
    )
    finished(comers(asking, 1, RIGHT.hex()))
    kept: dict[str, list[float]] = {name: [] for name, _, _ in cases}
    for _ in range(min(3, size.windows)):
        for name, broker, entry in cases:
            before = cpu_seconds(broker.pid)
            if (answered := finished(comers(broker, size.clients, entry, SOURCES))) != size.clients:
                raise RuntimeError(f"{name}: {answered} of {size.clients} were accepted")
            kept[name].append(1e6 * (cpu_seconds(broker.pid) - before) / size.clients)
    none, *others = kept
    report.figure(none, median(kept[none]), "µs")
    for name in others:
        report.figure(name, median(kept[name]), "µs")
        ratio = median(high / low for low, high in zip(kept[none], kept[name], strict=True))
        report.target(f"{name} / {none}", ratio, "x", at_most=1.5)


def measure_return(asking: Broker, size: Size, report: Report) -> None:
    """Add the time in which clients that come back at once are accepted."""
    began = time.perf_counter()
    process = comers(asking, size.clients, BEARER.hex(), min(1000, size.clients), size.clients)
    answered = finished(process)
    report.figure("clients that come back at once", size.clients, "")
    report.figure("until they have come back", time.perf_counter() - began, "s")
    report.figure("accepted at the first attempt", answered, "")


# --- guesses ----------------------------------------------------------------------------------


def slowest_hundredth(load: Load, process: subprocess.Popen[Any]) -> float:
    """Return the time of the slowest hundredth of single requests during a process, in ms."""
    taken: list[float] = []
    while process.poll() is None:
        taken.append(load.run(1).seconds)
        time.sleep(0.001)
    return 1000 * sorted(taken)[len(taken) * 99 // 100]


def measure_guesses(asking: Broker, size: Size, report: Report) -> None:
    """Add what guesses do to the requests of others."""
    with open_load(asking.port, requesters=1, in_flight=1, shape=shape(asking.entry)) as load:
        load.run(100)
        pause = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3)"])
        report.figure("slowest hundredth alone", slowest_hundredth(load, pause), "ms")
        for name, entry in (("clients come", BEARER.hex()), ("passwords are guessed", WRONG_ONES)):
            process = comers(asking, size.guesses, entry, sources=SOURCES)
            report.figure(f"slowest hundredth while {name}", slowest_hundredth(load, process), "ms")
            finished(process)
    calm, guessed = (figure.value for figure in report.figures[-2:])
    report.target("while guessed / while clients come", guessed / calm, "x", at_most=2.0)


def main() -> None:
    arguments = parse_arguments(__doc__)
    size = QUICK if arguments.quick else FULL
    report = Report("authentication")
    raise_file_limit(30_000)
    with TemporaryDirectory() as folder, brokers(Path(folder)) as pair:
        measure_requests(pair, size, report)
        measure_clients(pair, size, report)
        measure_return(pair[1], size, report)
        measure_guesses(pair[1], size, report)
    report.print(as_json=arguments.json)


if __name__ == "__main__":
    main()
