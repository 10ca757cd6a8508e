"""`onward routes`, and the client it asks with."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.broker import MANAGEMENT_SERVICE, Broker, BrokerOptions, WaitingOptions
from onward.cli import _client, _routes, _tables, main
from onward.cli._client import ask_broker
from onward.cli._routes import show, show_groups
from onward.cli._run import StopRequest
from onward.cli._snapshots import load_routes, save_routes
from onward.cli._status import CommandError, Status
from onward.protocol.broker import SnapshotRoute
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys, Patch
from tests.support.workers import Echo


def test_it_prints_the_table(broker: str, capsys: Capsys) -> None:
    assert main(["routes", "--broker", broker]) == Status.OK
    headings, management, store = capsys.readouterr().out.splitlines()
    assert headings.split() == [
        "ROUTE",
        "SERVICE",
        "TAGS",
        "PEER",
        "OUTSTANDING",
        "REQUESTS",
        "LATENCY",
        "STATE",
        "SINCE",
    ]
    assert management.split()[1:4] == [MANAGEMENT_SERVICE, "-", "local"]
    assert store.split()[1:6] == ["store", "region=eu", "local", "0", "0"]


def test_it_prints_json(broker: str, capsys: Capsys) -> None:
    assert main(["routes", "--broker", broker, "--json"]) == Status.OK
    rows = json.loads(capsys.readouterr().out)
    assert [row["service"] for row in rows] == [MANAGEMENT_SERVICE, "store"]
    assert rows[1]["tags"]["region"] == "eu"


def test_it_prints_groups_of_a_zone(broker: str, capsys: Capsys) -> None:
    assert main(["routes", "--broker", broker, "--zone", "north"]) == Status.OK
    headings = capsys.readouterr().out.split()
    assert headings[:3] == ["SERVICE", "TAGS", "ROUTES"]
    group = {
        "zone": "north",
        "broker": "north-1",
        "service": "orders",
        "tags": {"service": "orders", "region": "eu"},
        "routes": 12,
        "outstanding": 1,
        "requests": 7,
        "since": 0,
        "latency": 0.002,
        "busy": False,
        "expected": True,
    }
    cells = show_groups([group]).splitlines()[1].split()
    assert cells[:8] == ["orders", "region=eu", "12", "1", "7", "2.0", "ms", "expected"]
    assert cells[-1] == "north-1"
    shown = show_groups([{**group, "tags": {}, "folded": True}, group]).splitlines()
    assert shown[1].split()[:3] == ["orders", "(any)", "12"]
    assert shown[3] == "1 group with any tags: the zone has more than it tells one by one."
    with pytest.raises(CommandError, match="has no groups"):
        show_groups([{**group, "routes": None}])


def test_a_broker_or_a_zone_without_destinations_is_told(broker: str, capsys: Capsys) -> None:
    assert main(["routes", "--broker", broker, "--at", "nort"]) == Status.OK
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "no destination is at nort; there are some at -"
    assert main(["routes", "--broker", broker, "--zone", "nort"]) == Status.OK
    *_, last = capsys.readouterr().out.splitlines()
    assert last == "no groups of a zone nort are known; `onward peers` has the zones"
    assert main(["routes", "--broker", broker, "--at", "nort", "--json"]) == Status.OK
    assert json.loads(capsys.readouterr().out) == []


def test_brokers_that_have_gone_are_named_no_more(monkeypatch: Patch) -> None:
    answers = [["north", "south"], ["south"], []]
    told: list[str] = []

    def print_answers(_: Any, rows: Callable[[Any], Any], show: Callable[[Any], str]) -> None:
        async def ask(_: str) -> list[dict[str, str]]:
            return [{"broker": name} for name in answers.pop(0)]

        async def watch() -> None:
            while answers:
                told.append(show(await rows(ask)).splitlines()[-1])

        asyncio.run(watch())

    monkeypatch.setattr(_routes, "print_answers", print_answers)
    assert main(["routes", "--at", "nort", "--watch", "1"]) == Status.OK
    assert told == [
        "no destination is at nort; there are some at north, south",
        "no destination is at nort; there are some at south",
        "no destination is at nort; there are some at no broker",
    ]


def test_groups_are_not_at_a_broker_of_the_zone(broker: str, capsys: Capsys) -> None:
    words = ["routes", "--broker", broker, "--zone", "north"]
    assert main([*words, "--at", "b2"]) == Status.USAGE
    assert "--zone goes without --at" in capsys.readouterr().err


@pytest.mark.parametrize(
    "uri", ["tcp://127.0.0.1:1", "rsocket+tcp://127.0.0.1", "rsocket+tcp://x:port", "8001"]
)
def test_a_wrong_uri_has_status_2(uri: str, capsys: Capsys) -> None:
    assert main(["routes", "--broker", uri]) == Status.USAGE
    printed = capsys.readouterr().err
    assert printed.startswith(f"onward routes: {uri!r}")
    assert printed.count("\n") == 1


def test_nobody_there_has_status_1(capsys: Capsys) -> None:
    uri = "rsocket+tcp://127.0.0.1:1"
    assert main(["routes", "--broker", uri]) == Status.FAILED
    told = capsys.readouterr().err
    assert told.startswith(f"onward routes: {uri}: cannot connect: ")
    assert told.count("\n") == 1


def test_a_process_says_it_in_one_line() -> None:
    # In a process of its own, where nobody else takes what is logged.
    with onward("routes", "--broker", "rsocket+unix:///nowhere/socket") as process:
        _, told = process.communicate(timeout=TIMEOUT)
        assert process.returncode == Status.FAILED
    assert told.startswith("onward routes: rsocket+unix:///nowhere/socket: cannot connect: ")
    assert told.count("\n") == 1


def test_a_peer_that_says_nothing(capsys: Capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"rsocket+tcp://127.0.0.1:{server.getsockname()[1]}"
        assert main(["routes", "--broker", uri, "--timeout", "0.1"]) == Status.FAILED
    assert capsys.readouterr().err == f"onward routes: no answer from {uri} in 0.1 s\n"


@pytest.mark.parametrize(
    "greeting",
    [
        pytest.param(b"", id="silent"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="http"),
        pytest.param(b"\x01", id="ockam"),
    ],
)
def test_a_peer_that_is_no_broker(greeting: bytes, capsys: Capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"rsocket+tcp://127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.settimeout(TIMEOUT)
                # SETUP, so that the peer does not close before there is anything to answer.
                assert peer.recv(1024)
                peer.sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        assert main(["routes", "--broker", uri, "--timeout", str(TIMEOUT)]) == Status.FAILED
        thread.join()
    told = capsys.readouterr().err
    assert told.startswith(f"onward routes: {uri}")
    assert told.count("\n") == 1


async def test_a_broker_that_refuses() -> None:
    async with Node() as node:
        # Without its own destination a broker has nobody who can answer.
        options = BrokerOptions(management=False, waiting=WaitingOptions(no_route_timeout=0.0))
        broker = await Broker.attach(node, options)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        with pytest.raises(CommandError, match="does not tell its routes: its management is off"):
            await ask_broker(listener.uri, "routes", TIMEOUT)


async def test_an_answer_that_is_no_json() -> None:
    async with Node() as node:
        broker = await Broker.attach(node, BrokerOptions(management=False))
        await node.start(Echo, address="echo")
        broker.register("echo", service=MANAGEMENT_SERVICE)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        with pytest.raises(CommandError, match="is not a broker that tells its routes"):
            await ask_broker(listener.uri, "routes", TIMEOUT)


class Ticks:
    """Stands in the place of `asyncio.sleep`, and ends the command after so many."""

    def __init__(self, stop: StopRequest, count: int) -> None:
        self.stop = stop
        self.count = count
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if len(self.waits) == self.count:
            self.stop.wish()
            await asyncio.Event().wait()


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_the_table_is_repeated(
    words: list[str], broker: str, capsys: Capsys, monkeypatch: Patch
) -> None:
    made: list[Ticks] = []

    def run_it(command: Callable[[StopRequest], Coroutine[None, None, None]]) -> None:
        async def main() -> None:
            stop = StopRequest()
            ticks = Ticks(stop, 3)
            made.append(ticks)
            monkeypatch.setattr(_tables, "sleep", ticks.sleep)
            await command(stop)

        asyncio.run(main())

    monkeypatch.setattr(_tables, "run", run_it)
    assert main(["routes", "--broker", broker, "--watch", "0.5", *words]) == Status.OK
    printed = capsys.readouterr().out
    if words:
        assert [len(json.loads(line)) for line in printed.splitlines()] == [2, 2, 2]
    else:
        assert printed.count(_tables.CLEAR) == printed.count("ROUTE") == 3
    assert made[0].waits == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("words", "status"), [(["--watch", "1"], Status.OK), ([], Status.IN_DOUBT)]
)
def test_it_is_stopped_during_a_question(
    words: list[str], status: Status, broker: str, capsys: Capsys, monkeypatch: Patch
) -> None:
    def run_it(command: Callable[[StopRequest], Coroutine[None, None, None]]) -> None:
        async def main() -> None:
            stop = StopRequest()

            @asynccontextmanager
            async def never(*_: object) -> AsyncGenerator[None]:
                stop.wish()
                await asyncio.Event().wait()
                yield

            monkeypatch.setattr(_client, "asking", never)
            await command(stop)

        asyncio.run(main())

    monkeypatch.setattr(_tables, "run", run_it)
    assert main(["routes", "--broker", broker, *words]) == status
    assert ("interrupted" in capsys.readouterr().err) == bool(status)


def test_it_cannot_be_printed_all_the_time(capsys: Capsys) -> None:
    assert main(["routes", "--watch", "0"]) == Status.USAGE
    assert "more than 0 seconds" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [{"error": "what?"}, 5, [{}], [{"tags": 5}], None])
def test_an_answer_that_is_no_table(answer: object) -> None:
    with pytest.raises(CommandError, match="is not a routing table"):
        show(answer)


def test_what_destinations_say_of_themselves_cannot_move_the_cursor() -> None:
    row = {
        "route": "r",
        "service": "\x1b[2Jevil",
        "tags": {"a": "b\nc"},
        "peer": "p",
        "outstanding": 1,
        "requests": 2,
        "since": 1_700_000_000.5,
        "latency": 0.0123,
        "busy": True,
    }
    printed = show([row])
    assert "  p  " in printed
    assert "  p as ida (token)  " in show([{**row, "principal": "ida (token)"}])
    assert "\\x1b[2Jevil" in printed
    assert "a=b\\nc" in printed
    assert "12.3 ms  busy" in printed
    assert len(printed.splitlines()) == 2


@pytest.mark.parametrize("name", ["table.onwx", "table.jsonl"])
def test_it_saves_the_table(name: str, broker: str, tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / name
    assert main(["routes", "--broker", broker, "--save", str(file)]) == Status.OK
    assert capsys.readouterr().out == f"1 route saved to {file}\n"
    # Without the broker's own service, and nothing is left beside it.
    (route,) = load_routes(file)
    assert route.service == "store"
    assert (6, "eu") in route.tags
    assert route.timestamp > 0
    assert file.read_bytes().startswith(b"{" if name.endswith("l") else b"ONWX")
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_table_goes_where_it_can_be_written(broker: str, tmp_path: Path, capsys: Capsys) -> None:
    file = tmp_path / "nowhere" / "table"
    assert main(["routes", "--broker", broker, "--save", str(file)]) == Status.FAILED
    assert capsys.readouterr().err == f"onward routes: {file}: No such file or directory\n"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (".", "it is a folder; give the name of a file in it"),
        ("/", "it is a folder"),
        ("folder", "it is a folder"),
        ("file/x", "Not a directory"),
        ("file/x/y", "No such file or directory"),
        ("x" * 300, "File name too long"),
    ],
)
def test_where_no_file_can_be_is_said_before_the_broker_is_asked(
    name: str, told: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"mine")

    async def never(_uri: str, _timeout: float) -> AsyncGenerator[bytes]:
        raise AssertionError("the broker was asked")
        yield b""

    monkeypatch.setattr(_client, "table_of_broker", never)
    assert main(["routes", "--save", name]) == Status.FAILED
    assert capsys.readouterr().err.startswith(f"onward routes: {name}: {told}")
    with pytest.raises(CommandError, match=told):
        save_routes(Path(name), [])
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_what_could_not_be_written_is_said_as_it_is(tmp_path: Path, monkeypatch: Patch) -> None:
    def full(_handle: int) -> None:
        # What was begun is not to be deleted either.
        (partial,) = tmp_path.iterdir()
        partial.unlink()
        partial.mkdir()
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CommandError, match=r"table: No space left on device$"):
        save_routes(tmp_path / "table", [])


def test_what_a_process_of_the_same_number_left_is_in_nobodys_way(tmp_path: Path) -> None:
    left = tmp_path / f".table.{os.getpid()}"
    left.symlink_to(tmp_path / "other")
    save_routes(tmp_path / "table", [])
    assert [each.name for each in tmp_path.iterdir()] == ["table"]


def test_a_name_may_be_as_long_as_the_folder_takes(tmp_path: Path) -> None:
    name = "x" * 255
    save_routes(tmp_path / name, [])
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_link_stays_one_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "table").symlink_to(Path("folder", "real"))
    save_routes(tmp_path / "table", [])
    assert (tmp_path / "table").is_symlink()
    assert load_routes(tmp_path / "folder" / "real") == []
    assert [each.name for each in (tmp_path / "folder").iterdir()] == ["real"]


def test_links_in_a_circle_are_replaced_by_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    save_routes(tmp_path / "a", [])
    assert load_routes(tmp_path / "b") == []


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null")):
        with pytest.raises(CommandError, match="it is not a regular file"):
            save_routes(path, [])
    assert pipe.is_fifo()


def test_a_name_that_is_all_ending_is_of_a_text(tmp_path: Path) -> None:
    save_routes(tmp_path / ".jsonl", [SnapshotRoute(bytes(16), "s")])
    assert (tmp_path / ".jsonl").read_bytes().startswith(b"{")


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o640), (0o077, 0o600), (0, 0o640)])
def test_a_table_is_not_for_everybody_to_read(tmp_path: Path, mask: int, mode: int) -> None:
    file = tmp_path / "table"
    file.touch(0o666)
    before = os.umask(mask)
    try:
        save_routes(file, [])
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("words", [("--json",), ("--watch", "1")])
def test_what_is_saved_is_not_printed(words: tuple[str, ...], capsys: Capsys) -> None:
    assert main(["routes", "--save", "x", *words]) == Status.USAGE
    assert "--save goes without" in capsys.readouterr().err


def test_what_is_no_table_is_not_saved(broker: str, monkeypatch: Patch, capsys: Capsys) -> None:
    async def other(_uri: str, _timeout: float, _tls: None) -> AsyncGenerator[bytes]:
        yield b"no table"

    monkeypatch.setattr(_client, "table_of_broker", other)
    assert main(["routes", "--broker", broker, "--save", "x"]) == Status.FAILED
    assert "sent an invalid table: bad snapshot: line 1" in capsys.readouterr().err


def test_a_route_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    bad = SnapshotRoute(bytes(16), "s", (("k", "\ud800"),))
    with pytest.raises(CommandError, match="not UTF-8"):
        save_routes(tmp_path / "table", [bad])
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_none_is_loaded_as_one(tmp_path: Path) -> None:
    for name in ("table.jsonl", "table.onwx"):
        assert save_routes(tmp_path / name, []) == 0
        assert load_routes(tmp_path / name) == []


def test_a_long_table_is_refused(
    broker: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr(_routes, "MAX_TABLE", 10)
    assert main(["routes", "--broker", broker, "--save", str(tmp_path / "t")]) == Status.FAILED
    assert "has more than 10 bytes: make the file of its event log" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
