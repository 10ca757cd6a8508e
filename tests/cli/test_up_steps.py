"""The lines that lead a node, and what becomes of a node that nobody leads any more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from onward.cli._run import Stop
from onward.cli._up import read_file
from onward.cli._up_node import lead
from onward.cli._up_steps import Said, Steps, decode, encode
from tests.support.commands import TIMEOUT, Output, printed

BLOCKED = """
import asyncio, time
from onward.cli._up_steps import Steps

async def main():
    steps = Steps(grace=0.05)
    print("blocks", flush=True)
    time.sleep(60)

asyncio.run(main())
"""

TWO = """
[nodes.near]
[nodes.far.workers]
echo = "echo"
[nodes.far.listeners]
main = { uri = "uds://{dir}/far", expose = ["echo"] }
[[links]]
from = "near"
to = "far"
[[requests]]
from = "near"
route = "far => echo"
payload = "x"
"""


@contextmanager
def pipe() -> Generator[tuple[int, int]]:
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            with suppress(OSError):
                os.close(end)


class Leader:
    """Leads one node on this loop."""

    def __init__(self, path: Path, name: str, output: Output) -> None:
        self.stop = Stop()
        self._output = output
        self._from, self._to = os.pipe()
        self.over = asyncio.create_task(lead(self.stop, read_file(str(path)), name, self._from))

    def tell(self, **step: object) -> None:
        os.write(self._to, f"{encode(step)}\n".encode())

    async def answer(self) -> Said:
        while True:
            line = await self._output.line()
            if line.startswith("token "):
                return decode(line.removeprefix("token "))

    async def do(self, **step: object) -> Said:
        self.tell(**step)
        return await self.answer()

    async def end(self) -> None:
        os.close(self._to)
        await asyncio.wait_for(self.over, TIMEOUT)
        os.close(self._from)


async def test_a_node_does_one_step_after_the_other(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(TWO)
    listen = {"do": "listen", "token": "token", "directory": str(tmp_path)}
    with printed() as output:
        far = Leader(file, "far", output)
        near = Leader(file, "near", output)
        uris = {"far.main": f"uds://{tmp_path}/far"}
        assert await far.do(**listen) == {"uris": uris}
        assert await near.do(**listen) == {"uris": {}}
        for leader in (far, near):
            assert await leader.do(do="link", uris=uris) == {}
        for leader in (far, near):
            assert await leader.do(do="start") == {}
        said = await near.do(do="ask", index=0)
        assert (said["ok"], said["told"]) == (True, "'x'")
        await near.end()
        await far.end()
    assert f"listening uds://{tmp_path}/far\n" in output.getvalue()


async def test_a_step_that_fails_is_the_last(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(TWO)
    with printed() as output:
        far = Leader(file, "far", output)
        said = await far.do(do="listen", token="token", directory="/no/such/folder")
        assert "cannot listen at uds:///no/such/folder/far" in said["failed"]
        await asyncio.wait_for(far.over, TIMEOUT)
        await far.end()


async def test_a_class_that_is_not_there_fails_the_first_step(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('[nodes.a.workers]\nx.class = "no.such:Thing"')
    with printed() as output:
        leader = Leader(file, "a", output)
        said = await leader.do(do="listen", token="token", directory="")
        assert "cannot import no.such" in said["failed"]
        await leader.end()


async def test_a_node_that_is_to_stop_does(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(TWO)
    with printed() as output:
        near = Leader(file, "near", output)
        await near.do(do="listen", token="token", directory="")
        near.stop.wish()
        await asyncio.wait_for(near.over, TIMEOUT)
        await near.end()


@pytest.mark.parametrize("first", [{"do": "link", "uris": {}}, None])
async def test_steps_that_nobody_sends(tmp_path: Path, first: Said | None) -> None:
    file = tmp_path / "t.toml"
    file.write_text(TWO)
    with printed() as output:
        near = Leader(file, "near", output)
        if first is None:
            await near.do(do="listen", token="token", directory="")
            first = {"do": "dance"}
        near.tell(**first)
        with pytest.raises(AssertionError, match="unexpected step"):
            await asyncio.wait_for(near.over, TIMEOUT)
        with pytest.raises(AssertionError):
            await near.end()


async def test_lines_come_whole_whatever_they_are_read_in() -> None:
    with pipe() as (source, sink):
        steps = Steps(source)
        for part in (b'{"a"', b": 1}\n{", b'"b": 2}\n'):
            os.write(sink, part)
        assert await steps.next() == {"a": 1}
        assert await steps.next() == {"b": 2}
        steps.close()
        os.close(sink)
        assert await steps.next() is None


async def test_a_file_that_cannot_be_read_is_the_end(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        steps = Steps(folder)
        steps.close()
        assert await steps.next() is None
    finally:
        os.close(folder)


def test_a_node_that_blocks_ends_all_the_same() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "blocks\n"
        process.stdin.close()
        try:
            assert process.wait(TIMEOUT) == 1
        finally:
            process.kill()


def test_a_loop_that_is_closed_wants_no_lines() -> None:
    with pipe() as (source, sink):

        async def begin() -> Steps:
            return Steps(source)

        steps = asyncio.run(begin())
        os.write(sink, b"{}\n")
        os.close(sink)
        assert steps._over.wait(TIMEOUT)
