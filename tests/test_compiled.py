"""What compiled modules keep clear of, as mypyc makes something else of it than Python does."""

from __future__ import annotations

import ast
import asyncio
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.actors import MailboxOptions, Node, Overflow, Worker
from onward.actors.testing import virtual_time
from onward.protocol import Message
from tools import build_backend

ROOT = Path(__file__).resolve().parent.parent
MODULES: list[str] = build_backend.read_config(ROOT)["tool"]["onward"]["compile"]["modules"]

AT_ONCE = {"asyncio.timeout"}
"""Asynchronous context managers that do not suspend at their end."""


def waits_while_handling(tree: ast.Module) -> Iterator[int]:
    """Yield the lines of coroutines that wait while they handle an exception.

    A coroutine that mypyc compiles does not put the exception aside while it is suspended: it
    stays the current one of the thread, is the context of all later ones, and is never freed. And
    what is awaited in a `finally` may never be resumed.
    """
    for node in ast.walk(tree):
        handled: list[ast.stmt] = []
        if isinstance(node, ast.Try):
            handled = node.finalbody + [each for one in node.handlers for each in one.body]
        for each in handled:
            waiting = (ast.Await, ast.Yield, ast.YieldFrom)
            yield from (one.lineno for one in ast.walk(each) if isinstance(one, waiting))
        if isinstance(node, ast.AsyncFor):
            yield node.lineno
        if isinstance(node, ast.AsyncWith):
            made = (each.context_expr for each in node.items)
            called = {ast.unparse(each.func) for each in made if isinstance(each, ast.Call)}
            if not (called and called <= AT_ONCE):
                yield node.lineno


@pytest.mark.parametrize("module", MODULES)
def test_a_compiled_coroutine_does_not_wait_while_it_handles_an_exception(module: str) -> None:
    file = ROOT / (module.removeprefix("onward.").replace(".", "/") + ".py")
    assert list(waits_while_handling(ast.parse(file.read_text()))) == [], file


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("try:\n    pass\nexcept OSError:\n    await it", [5]),
        ("try:\n    pass\nfinally:\n    await it", [5]),
        ("async with thing():\n    pass", [2]),
        ("async with asyncio.timeout(1):\n    await it", []),
        ("try:\n    await it\nexcept OSError:\n    kept = 1\nawait it", []),
    ],
)
def test_such_a_wait_is_found(body: str, lines: list[int]) -> None:
    text = "async def each():\n" + textwrap.indent(body, "    ")
    assert list(waits_while_handling(ast.parse(text))) == lines


@pytest.mark.parametrize("from_outside", [False, True])
@virtual_time
async def test_a_wait_for_room_leaves_no_exception_behind(from_outside: bool) -> None:
    class Slow(Worker):
        async def handle_message(self, message: Message) -> None:
            await asyncio.sleep(1)
            self.reply(message, message.payload)

    async with Node() as node:
        node.spawn(Slow, address="slow", mailbox=MailboxOptions(1, Overflow.WAIT))
        if from_outside:
            await asyncio.gather(*(node.send_wait("slow", b"x") for _ in range(4)))
        else:
            await asyncio.gather(*(node.request("slow", b"x") for _ in range(4)))
        assert sys.exception() is None
