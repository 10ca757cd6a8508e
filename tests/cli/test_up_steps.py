"""The lines that lead a node, and what becomes of a node that nobody leads any more."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onward.cli._run import StopRequest
from onward.cli._up import read_file
from onward.cli._up_node import lead
from onward.cli._up_steps import FOLDER, Said, Steps, decode, encode
from tests.support.commands import TIMEOUT, Output, printed

BLOCKED = """
import asyncio, sys, time
from onward.cli._up_steps import Steps

async def main():
    steps = Steps(grace=0.05)
    steps.folder = sys.argv[1]
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


class Fed:
    """Steps that come by a pipe. Each end of it is closed once, the reading one after its thread.

    A number that is closed twice, or while somebody reads it, may be another file's by then.
    """

    def __init__(self) -> None:
        self._from, to = os.pipe()
        self._to: int | None = to
        self.steps = Steps(self._from)

    def write(self, data: bytes) -> None:
        assert self._to is not None
        os.write(self._to, data)

    def end(self) -> None:
        """Close the writing end. Idempotent."""
        if self._to is not None:
            to, self._to = self._to, None
            os.close(to)

    def close(self) -> None:
        """Have the thread end, and close the rest."""
        self.steps.close()
        self.end()
        assert self.steps.join(TIMEOUT)
        os.close(self._from)


@contextmanager
def fed() -> Generator[Fed]:
    made = Fed()
    try:
        yield made
    finally:
        made.close()


class Leader:
    """Leads one node on this loop."""

    def __init__(self, path: Path, name: str, output: Output) -> None:
        self.stop = StopRequest()
        self._output = output
        self.fed = Fed()
        self.over = asyncio.create_task(lead(self.stop, read_file(str(path)), name, self.fed.steps))

    def tell(self, **step: object) -> None:
        self.fed.write(f"{encode(step)}\n".encode())

    async def answer(self) -> Said:
        while True:
            line = await self._output.line()
            if line.startswith("token "):
                return decode(line.removeprefix("token "))

    async def do(self, **step: object) -> Said:
        self.tell(**step)
        return await self.answer()

    async def end(self) -> None:
        """Be killed, as it were."""
        self.fed.end()
        try:
            await asyncio.wait_for(self.over, TIMEOUT)
        finally:
            self.fed.close()


async def test_a_node_does_one_step_after_the_other(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(TWO)
    listen = {"do": "listen", "token": "token", "directory": str(tmp_path)}
    with printed() as output:
        far = Leader(file, "far", output)
        near = Leader(file, "near", output)
        uris = {"far.main": f"uds://{tmp_path}/far"}
        assert await far.do(**listen) == {"uris": uris, "identities": {}}
        assert await near.do(**listen) == {"uris": {}, "identities": {}}
        for leader in (far, near):
            assert await leader.do(do="link", uris=uris, identities={}) == {}
        for leader in (far, near):
            assert await leader.do(do="start") == {}
        for leader in (far, near):
            assert await leader.do(do="subscribe") == {}
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


@pytest.mark.parametrize("left", [True, False])
async def test_the_last_to_know_a_folder_removes_it(left: bool, tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(TWO)
    folder = tmp_path / f"{FOLDER}x"
    folder.mkdir()
    with printed() as output:
        far = Leader(file, "far", output)
        await far.do(do="listen", token="token", directory=str(folder))
        assert (folder / "far").exists()
        if not left:
            # The command lives, and removes it itself.
            far.tell(do="end")
            await asyncio.wait_for(far.over, TIMEOUT)
            assert not (folder / "far").exists()
        await far.end()
    assert folder.exists() is not left


async def test_no_other_folder_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(TWO)
    with printed() as output:
        far = Leader(file, "far", output)
        await far.do(do="listen", token="token", directory=str(tmp_path))
        await far.end()
    assert file.exists()


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
    with fed() as made:
        for part in (b'{"a"', b": 1}\n{", b'"b": 2}\n'):
            made.write(part)
        assert await made.steps.next() == {"a": 1}
        assert await made.steps.next() == {"b": 2}
        made.steps.close()
        made.end()
        assert await made.steps.next() is None


async def test_a_file_that_cannot_be_read_is_the_end(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        steps = Steps(folder)
        steps.close()
        assert await steps.next() is None
        assert steps.join(TIMEOUT)
    finally:
        os.close(folder)


def test_a_node_that_blocks_ends_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / f"{FOLDER}x"
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED, str(folder)],
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
            assert not folder.exists()
        finally:
            process.kill()


def test_a_loop_that_is_closed_wants_no_lines() -> None:
    async def begin() -> Fed:
        return Fed()

    made = asyncio.run(begin())
    try:
        made.write(b"{}\n")
        made.end()
        assert made.steps._over.wait(TIMEOUT)
    finally:
        made.close()
