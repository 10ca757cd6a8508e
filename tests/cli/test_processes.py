"""`onward broker --processes`: several brokers as processes that are one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from onward.cli._client import ask_broker
from onward.cli._process_folder import folder_of
from onward.cli._status import CommandError, Status
from onward.protocol import DeliveryError, OnwardError
from onward.transports.client import connect
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Patch
from tests.support.process_brokers import ONCE, TCP, brokers, children, served_by, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")


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
