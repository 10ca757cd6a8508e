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
from tests.support.class_bases import ClassTable, Inherits
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


FOLDERS = ("actors", "cli", "examples", "package", "pipeline", "protocol", "transports")


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    # "interpreted classes cannot inherit from compiled", mypyc says of each use of such a class.
    assert list(ClassTable.of_files(ROOT, FOLDERS, MODULES).inheritances()) == []


BASES = """
from abc import ABC
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering
from typing import Generic, NamedTuple, Protocol, TypedDict

from mypy_extensions import mypyc_attr

class Closed: ...
class Below(Closed): ...
class Abstract(ABC): ...
class Structural(Protocol): ...
class Typed(Generic[T]): ...
@dataclass(frozen=True)
class Record: ...
@mypyc_attr(allow_interpreted_subclasses=True)
class Allowed: ...
@mypyc_attr(native_class=False)
class Plain: ...
@total_ordering
class Ordered: ...
class Failure(Exception): ...
class Later(Failure): ...
class Table(dict[str, int]): ...
class Kind(Enum): ...
class Pair(NamedTuple): ...
class Keys(TypedDict): ...
"""


@pytest.mark.parametrize(
    ("text", "base"),
    [
        *[
            (f"from ..low._bases import {name}\nclass Made({name}): ...", name)
            for name in ("Closed", "Below", "Abstract", "Structural", "Record")
        ],
        *[
            (f"from ..low._bases import {name}\nclass Made({name}): ...", "")
            for name in ("Allowed", "Plain", "Ordered", "Failure", "Later", "Table", "Kind")
        ],
        ("from ..low._bases import Typed\nclass Made(Typed[int]): ...", "Typed"),
        ("from ..low import Closed\nclass Made(Closed): ...", "Closed"),
        ("from ..low import Other\nclass Made(Other): ...", "Closed"),
        ("from ..low import Closed as Same\nclass Made(Same): ...", "Closed"),
        ("from .. import low\nclass Made(low.Closed): ...", "Closed"),
        ("import onward.low._bases\nclass Made(onward.low._bases.Closed): ...", "Closed"),
        ("import onward.low._bases as b\ndef make():\n    class Made(A, b.Closed): ...", "Closed"),
        ("from ..low import Pair, Closed\nclass Made(Pair): ...\nclass Closed(Pair): ...", ""),
        ("from elsewhere import Closed\nclass Made(Closed): ...", ""),
        ("from .._loop import Closed\nclass Made(Closed): ...", ""),
        ("from ..low._bases import Closed\ndef made() -> Closed: ...", ""),
    ],
)
def test_such_a_class_is_found(text: str, base: str) -> None:
    modules = {
        "onward.__init__": "",
        "onward._loop": "from ._loop import Closed",
        "onward.low.__init__": "from ._bases import Closed, Closed as Other, Pair",
        "onward.low._bases": BASES,
        "onward.high._made": text,
    }
    found = list(ClassTable(modules, ["onward.low._bases"]).inheritances())
    line = next((at for at, each in enumerate(text.split("\n"), 1) if "class Made" in each), 0)
    wanted = Inherits("onward.high._made", line, "Made", f"onward.low._bases.{base}")
    assert found == ([wanted] if base else [])


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
