"""`--callout`: a broker and a node that ask a worker about their peers."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from onward.actors import Node, Worker
from onward.actors.broker import Answer, Handlers, Request
from onward.actors.security import CalloutAuthenticator
from onward.cli import main
from onward.cli._access import Access
from onward.cli._callout import callout_of, check_callout
from onward.cli._client import ask_broker
from onward.cli._main import parser_of
from onward.cli._status import CommandError, Status
from onward.protocol import Message
from onward.protocol.security import (
    BearerToken,
    Principal,
    UserPassword,
    format_callout_answer,
    hash_password,
    make_token,
    parse_callout,
    token_digest,
)
from onward.transports.client import ClientOptions, CredentialsRefused, connect
from tests.support.commands import TIMEOUT, onward
from tests.support.fixtures import Capsys, Patch

ANY = ("--listen", "rsocket+tcp://127.0.0.1:0")
REFUSED = "the broker says: REJECTED_SETUP: not authenticated"
SECRET = "planted-in-a-password"
RULES = """\
[[rule]]
names = ["directory"]
register = "service=directory"

[[rule]]
names = ["ann"]
read = true
request = ["service=onward.management"]
"""
TOKEN = make_token(b"1" * 32)


def answer_to(payload: bytes) -> bytes | None:
    """Return what a directory with the user ann answers; `None` for no answer at all."""
    credentials, _ = parse_callout(payload)
    assert isinstance(credentials, UserPassword)
    if credentials.username == "slow":
        return None
    if credentials.username == "rubbish":
        return b"nonsense"
    known = credentials == UserPassword("ann", SECRET)
    return format_callout_answer(Principal("ann", "callout") if known else None)


class Directory(Worker):
    def handle_message(self, message: Message) -> None:
        answer = answer_to(message.payload)
        if answer is not None:
            self.reply(message, answer)


@asynccontextmanager
async def directory() -> AsyncGenerator[str]:
    """Run a node with a directory; yield the route to it."""
    async with Node("directory") as node:
        await node.start(Directory, address="directory")
        listener = await node.listen("tcp://127.0.0.1:0", expose=["directory"])
        yield f"1#{listener.uri.removeprefix('tcp://')} => directory"


async def uri_of(process: Popen[str]) -> str:
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).removeprefix("listening ").strip()


async def refusal(uri: str, user: str, password: str = SECRET) -> str:
    """Return the text by which a broker refuses a user."""
    access = Access(credentials=UserPassword(user, password))
    with pytest.raises(CommandError) as caught:
        await ask_broker(uri, "statistics", TIMEOUT, access)
    refused = caught.value.__cause__
    assert isinstance(refused, CredentialsRefused)
    return refused.detail


async def figures(uri: str, access: Access) -> dict[str, Any]:
    found = await ask_broker(uri, "statistics", TIMEOUT, access)
    (listener,) = found["listeners"]
    counts: dict[str, Any] = listener["authentication"]
    return counts


async def test_a_worker_behind_a_link_decides_on_the_clients_of_a_broker() -> None:
    ann = Access(credentials=UserPassword("ann", SECRET))
    with onward("broker", *ANY, "--callout", "1#127.0.0.1:1 => directory") as process:
        absent = await refusal(await uri_of(process), "ann")
        process.terminate()
        _, absent_log = await asyncio.to_thread(process.communicate)
    async with directory() as route:
        with onward("broker", *ANY, "--callout", route) as process:
            uri = await uri_of(process)
            counts = await figures(uri, ann)
            assert counts["accepted"] == {"callout": 1}
            refused = await asyncio.gather(
                refusal(uri, "ann", "wrong"),
                refusal(uri, "bob"),
                refusal(uri, "rubbish"),
                refusal(uri, "slow"),
            )
            counts = await figures(uri, ann)
            process.terminate()
            _, log = await asyncio.to_thread(process.communicate)
    # One text for all: none says what has failed.
    assert {absent, *refused} == {REFUSED}
    assert counts["refused"] == {"refused": 2, "failure": 1, "timeout": 1}
    assert "the authentication method callout has failed: PayloadError" in log
    assert "the authentication method callout has failed: " in absent_log
    assert SECRET not in log + absent_log


def handlers() -> Handlers:
    made = Handlers()

    @made.response
    async def answer(request: Request) -> Answer:
        found = answer_to(request.data)
        if found is None:
            await asyncio.Event().wait()
            raise AssertionError("unexpected end of a wait")
        return Answer(found)

    return made


async def test_a_destination_decides_on_the_other_clients(tmp_path: Path) -> None:
    file = tmp_path / "principals.toml"
    file.write_text(
        f'[[tokens]]\nname = "directory"\nsha256 = "{token_digest(TOKEN.encode()).hex()}"\n'
        f'[[users]]\nname = "ida"\npassword = "{hash_password(SECRET, b"1" * 16).text}"\n'
    )
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    words = ("--principals", str(file), "--callout", "32#service=directory", "--rules", str(rules))
    methods = ("--authenticate", "token", "--authenticate", "callout")
    ann = Access(credentials=UserPassword("ann", SECRET))
    with onward("broker", *ANY, *words, *methods) as process:
        uri = await uri_of(process)
        assert await refusal(uri, "ann") == REFUSED
        async with connect(
            uri,
            service="directory",
            handlers=handlers(),
            credentials=BearerToken(TOKEN.encode()),
            options=ClientOptions(connect_timeout=TIMEOUT),
        ):
            counts = await figures(uri, ann)
            assert counts["accepted"] == {"token": 1, "callout": 1}
            await asyncio.gather(
                refusal(uri, "ann", "wrong"), refusal(uri, "rubbish"), refusal(uri, "slow")
            )
            counts = await figures(uri, ann)
            # In front of the directory: it was not there.
            assert counts["refused"].pop("timeout") == 2
            assert counts["refused"] == {"refused": 1, "failure": 1}
        assert await refusal(uri, "ann") == REFUSED


async def test_a_worker_decides_on_the_peers_of_a_node(tmp_path: Path, capsys: Capsys) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(SECRET)
    wrong.write_text("wrong")
    words = ["--listen", "tcp://127.0.0.1:0", "--worker", "echo=echo", "--expose", "echo"]
    async with directory() as route:
        with onward("node", *words, "--callout", route) as process:
            uri = await uri_of(process)
            ask = ["request", "echo", "hi", "--connect", uri, "--timeout", str(TIMEOUT)]

            async def asked(user: str, file: Path) -> tuple[int, str]:
                given = ["--user", user, "--password-file", str(file)]
                status = await asyncio.to_thread(main, [*ask, *given])
                printed = capsys.readouterr()
                return status, printed.out + printed.err

            assert await asked("ann", right) == (0, "hi\n")
            for user, file in (("ann", wrong), ("bob", right), ("rubbish", right)):
                status, told = await asked(user, file)
                assert status != 0
                assert "refuses the credentials: not authenticated" in told


@pytest.mark.parametrize(
    ("command", "route", "told"),
    [
        ("broker", "", "the route is empty"),
        ("broker", "300#a", "300"),
        ("broker", "directory", "the broker has no worker 0#directory to ask: begin with a node"),
        ("broker", "127.0.0.1:4000 => a", "write `1#127.0.0.1:4000 => a`"),
        ("broker", "32#@service", "bad address '@service'"),
        ("broker", "99#a", "no transport has addresses like 99#a"),
        ("broker", "1#10.0.0.7:4000 => a", "no TLS protects the credentials on the way"),
        ("broker", "3#directory.example:80 => a", "ask it by tags"),
        ("broker", "1#[::1 => a", "is not on this machine"),
        ("broker", "1#127.0.0.1:4000 => 1#10.0.0.7:4000 => a", "1#10.0.0.7:4000 is not on this"),
        ("broker", "32#service=a => 2#10.0.0.7:4000 => a", "2#10.0.0.7:4000 is not on this"),
        ("node", "1#10.0.0.7:4000 => a", "reach it by a Unix socket"),
        ("node", "relay => 1#10.0.0.7:4000 => a", "1#10.0.0.7:4000 is not on this"),
        ("node", "32#service=a", "no transport has addresses like 32#service=a"),
    ],
)
def test_a_route_of_no_use(
    command: str, route: str, told: str, tmp_path: Path, capsys: Capsys
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--callout", route])
    assert ended.value.code == Status.USAGE
    assert told in capsys.readouterr().err
    # The same in a file, with its place.
    file = tmp_path / "onward.toml"
    file.write_text(f'[authentication]\ncallout = "{route}"\n')
    more = ["--node"] if command == "node" else []
    assert main(["config", "check", str(file), *more]) == Status.USAGE
    error = capsys.readouterr().err
    assert f"{file}:2: authentication.callout: " in error
    assert told in error


@pytest.mark.parametrize(
    "route",
    [
        "1#127.0.0.1:4000 => a",
        "1#localhost:4000 => a",
        "3#[::1]:80 => a",
        "5#/run/a => a",
        "5#/run/a => 1#127.0.0.1:4000 => a",
    ],
)
def test_a_route_on_this_machine_is_of_use(route: str) -> None:
    for command in ("broker", "node"):
        arguments = parser_of(command).parse_args(["--callout", route])
        assert isinstance(callout_of(arguments, Node), CalloutAuthenticator)
    assert callout_of(argparse.Namespace(callout=None), Node) is None


async def test_a_worker_of_the_node_itself_has_to_exist(capsys: Capsys) -> None:
    words = ["node", "--listen", "tcp://127.0.0.1:0", "--callout", "directory"]
    assert await asyncio.to_thread(main, words) == Status.USAGE
    assert "--callout: there is no worker 0#directory to ask" in capsys.readouterr().err
    async with Node() as node:
        await node.start(Directory, address="directory")
        check_callout(node, parser_of("node").parse_args(words[1:]))


def test_a_destination_is_asked_only_where_rules_say_which(capsys: Capsys) -> None:
    assert main(["broker", *ANY, "--callout", "32#service=directory"]) == Status.USAGE
    assert "--callout by tags needs --rules" in capsys.readouterr().err


def test_its_place_in_the_configuration(tmp_path: Path, capsys: Capsys, monkeypatch: Patch) -> None:
    file = tmp_path / "onward.toml"
    file.write_text(
        '[authentication]\ncallout = "32#service=directory"\nanonymous = true\n'
        '[[rule]]\nnames = ["directory"]\nregister = "service=directory"\n'
        '[[listener]]\nuri = "rsocket+tcp://127.0.0.1:0"\nauthenticate = "callout"\n'
    )
    assert main(["config", "check", str(file)]) == 0
    assert main(["config", "show", "--origins", str(file)]) == 0
    shown = capsys.readouterr().out
    assert f'callout = "32#service=directory"  # {file}:2' in shown
    monkeypatch.setenv("ONWARD_AUTHENTICATION__CALLOUT", "1#127.0.0.1:4000 => directory")
    assert main(["config", "show", "--origins", str(file)]) == 0
    shown = capsys.readouterr().out
    origin = "# ONWARD_AUTHENTICATION__CALLOUT"
    assert f'callout = "1#127.0.0.1:4000 => directory"  {origin}' in shown
