"""The reading of a JVM's lines: what one command meets is not the end of those that follow.

The program is a script here, which no JVM would be as unhelpful as.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.peers.clients import Java
from tests.peers.programs import Program

LATE_AND_TWICE = """
import json, sys
first, second, third = (json.loads(sys.stdin.readline())["id"] for _ in range(3))
for number in (first, second, second, third):
    print(json.dumps({"id": number}), flush=True)
sys.stdin.read()
"""

NO_REPORT = """
import sys
sys.stdin.readline()
print("Exception in thread main", flush=True)
sys.stdin.read()
"""

THE_END = """
import sys
sys.stdin.readline()
"""


@asynccontextmanager
async def running(script: str) -> AsyncGenerator[Java]:
    """A script in the place of the JVM."""
    async with Program.running(sys.executable, "-c", script) as program:
        yield Java(program)


async def test_an_answer_that_nobody_waits_for_is_passed_over() -> None:
    async with running(LATE_AND_TWICE) as java:
        given_up = asyncio.ensure_future(java.do(do="request"))
        await asyncio.sleep(0)
        given_up.cancel()
        close, connect = await asyncio.gather(java.do(do="close"), java.do(do="connect"))
        await java.kill()
    assert given_up.cancelled()
    assert (close, connect) == ({"id": 2}, {"id": 3})


async def test_a_line_that_is_no_report_fails_who_waits_and_who_comes_after() -> None:
    async with running(NO_REPORT) as java:
        for _ in range(2):
            with pytest.raises(EOFError):
                await java.do(do="connect")
        with pytest.raises(ValueError, match="Expecting value"):
            await java.kill()


async def test_the_end_of_the_program_fails_who_waits_and_who_comes_after() -> None:
    async with running(THE_END) as java:
        for _ in range(2):
            with pytest.raises(EOFError):
                await java.do(do="connect")
        await java.kill()
