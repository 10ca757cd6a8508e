"""`onward node`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from onward.actors import Node
from onward.actors.security import CalloutAuthenticator
from onward.cli import main
from onward.cli._main import parser_of
from onward.cli._node import KINDS, serve
from onward.cli._run import StopRequest
from onward.cli._status import CommandError, Status
from onward.protocol import address
from tests.support.commands import TIMEOUT, Output, printed


def arguments(
    *expose: str, verbose: bool = False, quiet: bool = False, **workers: str
) -> argparse.Namespace:
    given = parser_of("node").parse_args([])
    given.listen = "tcp://127.0.0.1:0"
    given.worker = [(address(name), kind) for name, kind in workers.items()]
    given.expose = [address(name) for name in expose]
    given.allow = [address("*")]
    given.verbose, given.quiet = verbose, quiet
    return given


@asynccontextmanager
async def served(given: argparse.Namespace) -> AsyncGenerator[tuple[str, Output]]:
    """Run a node; yield its host:port and what it prints."""
    stop = StopRequest()
    with printed() as output:
        serving = asyncio.create_task(serve(stop, given))
        where = (await output.line()).removeprefix("listening tcp://")
        try:
            yield where, output
        finally:
            stop.wish()
            await asyncio.wait_for(serving, TIMEOUT)


async def test_its_workers_echo_and_forward() -> None:
    given = arguments("relay", "hop", relay="forward", hop="hop", echo="echo")
    async with served(given) as (where, output), Node() as near:
        answer = await near.request(f"1#{where} => relay => hop => echo", b"hi", timeout=TIMEOUT)
    assert answer.payload == b"hi"
    assert [str(step) for step in answer.return_route[1:]] == ["0#relay", "0#hop", "0#echo"]
    assert output.getvalue().splitlines()[-1].startswith("stopped: ")


async def test_its_workers_print() -> None:
    async with served(arguments("out", out="print")) as (where, output), Node() as near:
        near.send(f"1#{where} => out", b"one\xff")
        assert await output.line() == "one\\xff"
        near.send(f"1#{where} => out", b"\x1b[2Jgone\n0#out  forged")
        assert await output.line() == "\\x1b[2Jgone\\n0#out  forged"


async def test_nothing_is_reachable_that_is_not_exposed() -> None:
    async with served(arguments(echo="echo", verbose=True)) as (where, output), Node() as near:
        near.send(f"1#{where} => echo", b"hi")
        assert (await output.line()).startswith("dropped (not exposed)  onward 0#echo  return 0#")
    totals = "stopped: 0 messages handled, dead letters: 1 not exposed"
    assert output.getvalue().splitlines()[-1] == totals


async def test_it_shows_the_routes_of_each_message() -> None:
    given = arguments("relay", relay="forward", out="print", verbose=True)
    async with served(given) as (where, output), Node() as near:
        near.send(f"1#{where} => relay => out", b"hi", return_route="back")
        lines = [await output.line() for _ in range(3)]
    relayed, handled, payload = lines
    assert relayed.startswith("0#relay  onward 0#relay => 0#out  return 0#")
    assert relayed.endswith(" => 0#back  2 bytes")
    assert handled.startswith("0#out  onward 0#out  return 0#relay => 0#")
    assert payload == "hi"


@pytest.mark.parametrize(
    ("kind", "route", "reason"),
    [("forward", "worker", "empty route"), ("forward", "worker => nobody", "no such worker")],
)
async def test_what_a_worker_cannot_do_is_a_dead_letter(kind: str, route: str, reason: str) -> None:
    given = arguments("worker", worker=kind, verbose=True, quiet=True)
    async with served(given) as (where, output), Node() as near:
        near.send(f"1#{where} => {route}", b"")
        assert (await output.line()).startswith("0#worker  ")
        assert (await output.line()).startswith(f"dropped ({reason})")
    assert "stopped" not in output.getvalue()


async def test_an_echo_without_a_way_back_is_a_dead_letter() -> None:
    lines: list[str] = []
    async with Node() as node:
        await node.start(partial(KINDS["echo"], lines.append), address="echo")
        node.send("echo", b"hi")
        await node.stop_worker("echo")
    assert node.dead_letters.by_reason == {"empty route": 1}
    assert lines == ["0#echo  onward 0#echo  return (none)  2 bytes"]


async def test_it_stops_while_it_starts() -> None:
    stop = StopRequest()
    stop.wish()
    with printed() as output:
        await asyncio.wait_for(serve(stop, arguments(echo="echo")), TIMEOUT)
    assert "stopped" not in output.getvalue()


@pytest.mark.parametrize("how", ["serves", "starts", "fails"])
async def test_its_methods_of_authentication_are_closed_at_its_end(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[CalloutAuthenticator] = []

    async def close(method: CalloutAuthenticator) -> None:
        closed.append(method)

    monkeypatch.setattr(CalloutAuthenticator, "close", close)
    given = arguments("unknown") if how == "fails" else arguments(echo="echo")
    given.callout = "1#127.0.0.1:1 => directory"
    if how == "serves":
        async with served(given):
            assert closed == []
    elif how == "starts":
        stop = StopRequest()
        stop.wish()
        await asyncio.wait_for(serve(stop, given), TIMEOUT)
    else:
        with pytest.raises(CommandError):
            await serve(StopRequest(), given)
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("--expose", "echo"), Status.USAGE, "there is no worker 0#echo to expose"),
        (("--worker", "a=echo", "--worker", "a=print"), Status.FAILED, "address in use: 0#a"),
        (("--listen", "rsocket+tcp://127.0.0.1:0"), Status.USAGE, "does not start with tcp:"),
    ],
)
def test_what_cannot_be_served(
    words: tuple[str, ...], status: Status, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["node", "--listen", "tcp://127.0.0.1:0", *words]) == status
    printed = capsys.readouterr().err
    assert told in printed
    assert printed.count("\n") == 1
