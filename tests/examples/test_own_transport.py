"""The transport of the guide passes the suite, and is as bounded as it says."""

from __future__ import annotations

import importlib.util
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from onward.actors import Node
from onward.actors.testing import Probe
from onward.protocol import LinkDown, LinkLost
from onward.transports.testing import Claims, conformance, run_suite
from tests.support.fixtures import Patch
from tests.support.transports import Echo, Stuck, eventually
from tests.support.workers import start_worker

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples" / "own_transport.py"
URI = "folder://{tmp}/{n}"


def load() -> Any:
    """Load the example, which is no package."""
    spec = importlib.util.spec_from_file_location("own_transport", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SHOWN = load()


async def _junk(uri: str, data: bytes) -> None:
    """Put a file where a stranger who can write to the folder could."""
    folder = Path(uri.removeprefix("folder://"))
    for link in folder.glob("*.link"):
        with suppress(OSError):
            (link / "forth" / f"{0:020}").write_bytes(data)


CLAIMS = Claims(raw=_junk)

test_the_transport_of_the_guide = conformance(URI, CLAIMS, transport=SHOWN.FolderTransport)


def folder_node(name: str) -> Node:
    node = Node(name)
    node.add_transport(SHOWN.FolderTransport)
    return node


async def test_an_end_that_is_silent_is_gone(tmp_path: Path, monkeypatch: Patch) -> None:
    # As a process that was killed: nobody says anything, and the signs of life grow old.
    async with folder_node("a") as a, folder_node("c") as c:
        stuck = await start_worker(c, Stuck(), "stuck")
        listener = await c.listen(f"folder://{tmp_path}/post", expose=["stuck"])
        link = await a.connect(listener.uri)
        a.send([link, "stuck"], b"x")
        (folder,) = (tmp_path / "post").glob("*.link")

        def be_silent(folder: Path) -> None:
            assert folder

        monkeypatch.setattr(SHOWN, "sign_of_life", be_silent)
        for end in ("forth", "back"):
            os.utime(folder / end / "alive", (0, 0))
        with pytest.raises(LinkLost, match="the other end is silent"):
            await a.request([link, "stuck"], b"?", timeout=5)
        await eventually(lambda: not a.has(link))
        await eventually(lambda: not folder.exists())
        stuck.go_on.set()


async def test_who_listens_anew_begins_with_an_empty_folder(tmp_path: Path) -> None:
    async with folder_node("c") as c:
        left = tmp_path / "post" / "old.link" / "forth"
        left.mkdir(parents=True)
        (tmp_path / "post" / "alive").touch()
        os.utime(tmp_path / "post" / "alive", (0, 0))
        await c.listen(f"folder://{tmp_path}/post")
        assert not left.exists()


async def test_a_peer_beyond_the_last_link_gets_no_answer(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(SHOWN, "MAX_LINKS", 1)
    monkeypatch.setattr(SHOWN, "CONNECT", 0.05)
    async with folder_node("a") as a, folder_node("c") as c:
        await c.start(Echo, address="echo")
        listener = await c.listen(f"folder://{tmp_path}/post", expose=["echo"])
        link = await a.connect(listener.uri)
        with pytest.raises(LinkDown, match="no answer"):
            await a.connect(listener.uri)
        assert (await a.request([link, "echo"], b"hi")).payload == b"hi"
        await a.stop_worker(link)
        await eventually(lambda: not list((tmp_path / "post").glob("*.link")))
        await a.connect(listener.uri)


async def test_a_file_that_is_too_large_is_thrown_away(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(SHOWN, "MAX_BYTES", 1000)
    async with folder_node("a") as a, folder_node("c") as c:
        probe = await Probe.on(c, "probe")
        listener = await c.listen(f"folder://{tmp_path}/post", expose=["probe"])
        link = await a.connect(listener.uri)
        a.send([link, "probe"], bytes(2000))
        a.send([link, "probe"], b"small")
        assert (await probe.next()).payload == b"small"
        assert len(probe.messages) == 1


async def test_a_folder_that_is_taken_away(tmp_path: Path) -> None:
    async with folder_node("a") as a, folder_node("c") as c:
        listener = await c.listen(f"folder://{tmp_path}/post", expose=["probe"])
        link = await a.connect(listener.uri)
        (folder,) = (tmp_path / "post").glob("*.link")
        folder.rename(tmp_path / "elsewhere")
        with pytest.raises((LinkDown, LinkLost)):
            await a.request([link, "probe"], b"", timeout=5)
        await eventually(lambda: not a.has(link))


def test_the_guide_ends_with_what_the_suite_prints() -> None:
    page = (ROOT / "docs" / "how-to" / "write-a-transport.md").read_text()
    printed = str(run_suite(URI, transport=SHOWN.FolderTransport))
    assert printed in page
