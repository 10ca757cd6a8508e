"""`onward broker --processes`: several brokers as processes that are one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from onward.actors.broker import Handlers, Request
from onward.cli._admin import Admin
from onward.cli._client import ask_broker
from onward.cli._process import Place, Process
from onward.cli._processes import MAX_ENDS, WINDOW, _Slot, folder_of
from onward.cli._service import Service
from onward.cli._status import CommandError, Status
from onward.protocol import DeliveryError, OnwardError
from onward.transports.client import ClientOptions, RetryOptions, connect
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Patch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

TCP = "rsocket+tcp://127.0.0.1:0"
ONCE = ClientOptions(request_timeout=20.0, retry=RetryOptions(max_tries=1))


class Brokers:
    """A broker as several processes.

    Attributes:
        process: The process that has started them.
        uris: The URIs that it listens at.
        own: The URI of each process.
    """

    def __init__(self, process: Popen[str], count: int) -> None:
        self.process = process
        self.uris: list[str] = []
        self.own: list[str] = []
        while len(self.own) < count:
            words = self.line().split()
            assert words, self.errors()
            (self.uris if words[0] == "listening" else self.own).append(words[-1])

    @property
    def uri(self) -> str:
        """The URI of its listener."""
        (found,) = self.uris
        return found

    def line(self) -> str:
        """Read a line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def errors(self) -> str:
        """Read all that it has said on stderr, after its end."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    def pids(self) -> dict[int, int]:
        """Return the process id of each process by its number."""
        return children(self.process.pid)

    async def peers(self, index: int) -> Counter[str]:
        """Return the states of the peer brokers of a process."""
        found = await ask_broker(self.own[index], "/api/v1/peers?kind=broker", TIMEOUT)
        return Counter(row["state"] for row in found["rows"])

    async def joined(self) -> None:
        """Wait until each process knows all others."""
        for index in range(len(self.own)):

            async def up(index: int = index) -> bool:
                return (await self.peers(index))["up"] == len(self.own) - 1

            await until(up)

    async def services(self, index: int) -> list[str]:
        """Return the services of all destinations that a process knows."""
        rows = await ask_broker(self.own[index], "routes", TIMEOUT)
        return sorted(row["service"] for row in rows if not row["service"].startswith("onward."))

    async def ended(self) -> int:
        """Wait for its end, and return its status."""
        return await asyncio.to_thread(self.process.wait, TIMEOUT)


def children(pid: int) -> dict[int, int]:
    """Return the processes that one has started, by their numbers."""
    found: dict[int, int] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            entries = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            for entry in entries:
                name, _, value = entry.partition(b"=")
                if name == b"ONWARD_PROCESS":
                    found[json.loads(value)["index"]] = int(child)
    return found


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds; what cannot be asked yet does not."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            with suppress(CommandError):
                if await holds():
                    return
            await asyncio.sleep(0.05)


@contextmanager
def brokers(count: int, *words: str, listen: str = TCP) -> Generator[Brokers]:
    with onward("broker", "--listen", listen, "--processes", str(count), *words) as process:
        yield Brokers(process, count)


def served_by(name: str) -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        return name.encode() + request.data

    del answer
    return handlers


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.exhaustive)])
async def test_clients_land_on_all_and_each_reaches_all(count: int) -> None:
    with brokers(count) as made:
        async with AsyncExitStack() as stack:
            await made.joined()
            names = [f"s{number:02}" for number in range(12 * count)]
            for name in names:
                client = connect(made.uri, service=name, handlers=served_by(name))
                await stack.enter_async_context(client)
            for index, uri in enumerate(made.own):

                async def known(index: int = index) -> bool:
                    return await made.services(index) == names

                await until(known)
                found = await ask_broker(uri, "statistics", TIMEOUT)
                assert found["listeners"][0]["connections"] > 0
                requester = await stack.enter_async_context(connect(uri, options=ONCE))
                for name in names:
                    answer = await requester.request(f"@no-route=reject service={name}", b"!")
                    assert answer.data == f"{name}!".encode()
        made.process.send_signal(signal.SIGTERM)
        assert made.line().startswith(f"stopped: {len(names)} connections taken, 0 dest")
        assert await made.ended() == 0


async def test_a_process_that_is_killed_under_load() -> None:
    with brokers(2) as made:
        async with AsyncExitStack() as stack:
            await made.joined()
            # The destinations that are at the process that is killed come back at either.
            for number in range(12):
                served = connect(made.uri, service="orders", handlers=served_by(f"{number}."))
                await stack.enter_async_context(served)
            requesters = [
                await stack.enter_async_context(connect(made.uri, options=ONCE)) for _ in range(8)
            ]

            async def known() -> bool:
                return [len(await made.services(index)) for index in (0, 1)] == [12, 12]

            await until(known)
            seen: Counter[str] = Counter()
            sent = 0
            killed = asyncio.Event()
            back = asyncio.Event()

            async def load(number: int) -> None:
                nonlocal sent
                while not back.is_set():
                    sent += 1
                    try:
                        await requesters[number].request("service=orders", b"")
                        seen["answer"] += 1
                    except (DeliveryError, OnwardError) as error:
                        seen[type(error).__name__] += 1
                        await asyncio.sleep(0.01)
                    if seen["answer"] == 200:
                        killed.set()

            tasks = [asyncio.create_task(load(number)) for number in range(len(requesters))]
            await asyncio.wait_for(killed.wait(), TIMEOUT)
            before = made.pids()
            os.kill(before[1], signal.SIGKILL)
            await until(known)
            await made.joined()
            answered = seen["answer"]

            async def goes_on() -> bool:
                return seen["answer"] >= answered + 100

            await until(goes_on)
            back.set()
            await asyncio.gather(*tasks)
            assert sent == seen.total()
            after = made.pids()
            assert after[0] == before[0]
            assert after[1] != before[1]
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0
        assert "process 1 was killed by signal 9; it is started anew" in made.errors()


async def test_reload_and_drain_as_one(tmp_path: Path) -> None:
    config = tmp_path / "onward.toml"
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nnames = ["*"]\nread = true\noperate = true\nrequest = "service=*"\n'
    )
    text = f'[broker]\nno_route_timeout = "9s"\n[authorization]\nrules_file = "{rules}"\n'
    config.write_text(text)
    with brokers(2, "--config", str(config)) as made:
        # They are peer brokers of one another without a rule: they are of one user.
        await made.joined()

        async def asked(question: str) -> Any:
            return await ask_broker(made.uri, question, TIMEOUT)

        config.write_text(text.replace("9s", "7s"))
        said = await asked("reload")
        assert "configuration" in said["reloaded"]
        assert "rules" in said["reloaded"]
        config.write_text(text.replace("9s", "7s").replace("[broker]", "[broker]\nmethod='random'"))
        assert "these need a restart: broker.method" in (await asked("reload"))["error"]
        config.write_text(text.replace("9s", "5s"))
        rules.write_text("[[rule")
        refused = (await asked("reload"))["error"]
        assert refused.startswith("rules: ")
        assert refused.count("rules: ") == 1
        rules.write_text('[[rule]]\nnames = ["*"]\nread = true\nrequest = "service=*"\n')
        made.process.send_signal(signal.SIGHUP)

        async def reloaded() -> bool:
            found = [ask_broker(uri, "undo-drain", TIMEOUT) for uri in made.own]
            said = await asyncio.gather(*found, return_exceptions=True)
            return all("not allowed: operate" in str(each) for each in said)

        await until(reloaded)
        await made.joined()
        made.process.send_signal(signal.SIGUSR2)
        assert made.line().startswith("stopped: ")
        assert await made.ended() == 0
        errors = made.errors()
    assert errors.count("configuration.changed") == 0
    assert errors.count("reload refused") >= 2


async def test_an_operator_at_any_process_drains_all(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rule]]\nnames = ["*"]\nread = true\noperate = true\nrequest = "service=*"\n'
    )
    folder = tmp_path / "run"
    words = ("--rules", str(rules), "--process-folder", str(folder), "--drain-grace", "60")
    with brokers(2, *words) as made:
        assert made.own == [f"rsocket+unix://{folder}/{index}.sock" for index in (0, 1)]
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "1.peer").stat().st_mode & 0o777 == 0o600
        async with AsyncExitStack() as stack:
            for uri in made.own:  # a process without a connection drains at once
                await stack.enter_async_context(connect(uri))
            assert await ask_broker(made.own[1], "drain", TIMEOUT) == {"draining": True}

            async def draining() -> bool:
                said = [await ask_broker(uri, "statistics", TIMEOUT) for uri in made.own]
                return all(each["draining"] for each in said)

            await until(draining)
            assert await ask_broker(made.own[0], "undo-drain", TIMEOUT) == {"draining": False}

            async def serving() -> bool:
                return not await draining()

            await until(serving)
            said = await ask_broker(made.own[0], "undo-drain", TIMEOUT)
            assert said == {"error": "the broker does not drain"}
        made.process.send_signal(signal.SIGINT)
        assert await made.ended() == 0


async def test_each_process_has_its_admin_interface(tmp_path: Path) -> None:
    admin = f"unix://{tmp_path}/admin"
    with brokers(2, "--admin", admin) as made:
        assert [made.line(), made.line()] == [f"admin {admin}\n", f"admin {admin}.1\n"]
        for path in (tmp_path / "admin", tmp_path / "admin.1"):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert (await reader.read()).endswith(b"ok\n")
            writer.close()
            await writer.wait_closed()


def test_the_ports_of_admin_interfaces() -> None:
    found = list[str]()
    for uri in ("http://127.0.0.1:8601", "http://127.0.0.1:0"):
        place = Place(2, 3, "", "/run", (), 0)
        admin = Process(place, Service()).admin(Admin(uri))
        assert admin is not None
        found.append(admin.uri)
    assert found == ["http://127.0.0.1:8603", "http://127.0.0.1:0"]


async def test_a_unix_socket_that_processes_share(tmp_path: Path) -> None:
    path = tmp_path / "broker"
    with brokers(2, listen=f"rsocket+unix://{path}") as made:
        assert made.uri == f"rsocket+unix://{path}"
        async with connect(made.uri, service="a", handlers=served_by("a")), connect(made.uri) as on:
            answer = await on.request("service=a", b"")
            assert answer.data == b"a"
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0
    assert not path.exists()


def test_a_port_that_is_taken_is_one_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ("--listen", f"rsocket+tcp://127.0.0.1:{port}", "--processes", "3")
        with onward("broker", *words) as process:
            out, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == Status.FAILED
    assert out == ""
    where = f"rsocket+tcp://127.0.0.1:{port}"
    assert errors == f"onward broker: cannot listen at {where}: Address already in use\n"


async def test_a_port_of_another_broker_of_this_user_is_taken() -> None:
    with brokers(2) as made:
        with onward("broker", "--listen", made.uri, "--processes", "2") as process:
            _, errors = await asyncio.to_thread(process.communicate, timeout=TIMEOUT)
        assert "Address already in use" in errors


async def test_a_stop_in_the_start() -> None:
    words = ("--listen", TCP, "--processes", "2")
    with onward("broker", *words) as process:

        async def started() -> bool:
            return len(children(process.pid)) == 2

        await until(started)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, TIMEOUT) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""


async def test_a_process_that_cannot_start(tmp_path: Path) -> None:
    words = ("--listen", TCP, "--processes", "2", "--expose", "0#nothing")
    with onward("broker", *words) as process:
        out, errors = await asyncio.to_thread(process.communicate, timeout=TIMEOUT)
    assert process.returncode == Status.USAGE
    assert out == ""
    assert errors == "onward broker: there is no worker 0#nothing to expose\n"


async def test_no_process_outlives_the_one_that_has_started_it() -> None:
    with brokers(2) as made:
        pids = made.pids()
        assert sorted(pids) == [0, 1]
        made.process.kill()

        async def gone() -> bool:
            return not any(Path(f"/proc/{pid}/cwd").exists() for pid in pids.values())

        await until(gone)


async def test_the_log_has_the_number_of_the_process() -> None:
    with brokers(2, "--log", "info", "--log-format", "json") as made:
        made.process.send_signal(signal.SIGTERM)
        assert await made.ended() == 0
        records = [json.loads(line) for line in made.errors().splitlines()]
    assert {0, 1} <= {each.get("process") for each in records}
    assert sum(each["event"] == "process.started" for each in records) == 2


@pytest.mark.parametrize(
    "words", [("--cluster-seed", "rsocket+tcp://a:1"), ("--cluster-advertise", "rsocket+tcp://a:0")]
)
def test_brokers_elsewhere_need_a_port_for_each_process(words: tuple[str, ...]) -> None:
    with onward("broker", "--listen", TCP, "--processes", "2", *words) as process:
        _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == Status.USAGE
    assert "needs --cluster-advertise with a port" in errors


# --- parts --------------------------------------------------------------------------------------


class _Ended:
    def obituary(self) -> str:
        return "was killed by signal 9"


def test_a_process_that_ends_again_and_again() -> None:
    slot: Any = _Slot(1)
    due: list[float] = []
    for number in range(MAX_ENDS):
        slot.child = _Ended()
        slot.ended(float(number))
        due.append(slot.due - number)
    assert due == [pytest.approx(0.1 * 2**number) for number in range(MAX_ENDS)]
    slot.child = _Ended()
    with pytest.raises(CommandError, match=re.escape("more than 5 times within 60 s")):
        slot.ended(WINDOW - 1)


def test_ends_long_ago_do_not_count() -> None:
    slot: Any = _Slot(0)
    for number in range(3 * MAX_ENDS):
        slot.child = _Ended()
        slot.ended(number * WINDOW)
        assert slot.due - number * WINDOW == pytest.approx(0.1)


def test_a_folder_that_others_may_write_to(tmp_path: Path, monkeypatch: Patch) -> None:
    tmp_path.chmod(0o777)
    arguments: Any = type("Arguments", (), {"process_folder": str(tmp_path)})
    with (
        pytest.raises(CommandError, match="other users may write to"),
        folder_of(arguments),
    ):
        pass
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "own"))
    arguments.process_folder = None
    with folder_of(arguments) as folder:
        assert folder == tmp_path / "own" / "processes"
    (tmp_path / "file").touch()
    arguments.process_folder = str(tmp_path / "file" / "folder")
    with pytest.raises(CommandError, match="Not a directory"), folder_of(arguments):
        pass
