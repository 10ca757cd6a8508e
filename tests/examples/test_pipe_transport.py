"""The link over pipes of the guide passes the suite, with a listener made for it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

from onward.actors import Node, Worker
from onward.protocol import Address, LinkDown
from onward.transports import Listener, Transport
from onward.transports.testing import Claims, conformance

FILE = Path(__file__).resolve().parents[2] / "examples" / "pipe_transport.py"


def load() -> Any:
    """Load the example, which is no package."""
    spec = importlib.util.spec_from_file_location("pipe_transport", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PipeLink = load().PipeLink


class Door(Worker):
    """The parent of the links of one listener."""

    def __init__(self, expose: frozenset[Address]) -> None:
        super().__init__()
        self.expose = expose

    async def accept(self, source: IO[bytes], sink: IO[bytes]) -> None:
        await self.start_child(partial(PipeLink, source, sink, self.expose))


DOORS: dict[str, Door] = {}


class PipeListener(Listener):
    def __init__(self, door: Door, uri: str) -> None:
        self.door, self._uri = door, uri

    @property
    def uri(self) -> str:
        return self._uri

    @property
    def address(self) -> Address:
        return self.door.address

    async def close(self) -> None:
        if DOORS.get(self.uri) is self.door:
            del DOORS[self.uri]
        if self.door.node.has(self.address):
            await self.door.node.stop_worker(self.address)


class PipeTransport(Transport):
    """A transport of os.pipe between nodes of this process."""

    scheme: ClassVar[str] = "pipe"

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.opened: list[str] = []

    async def listen(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Listener:
        check(uri, options)
        if uri in DOORS:
            raise OSError("in use")
        DOORS[uri] = door = Door(expose)
        self.opened.append(uri)
        await self.node.start(lambda: door)
        return PipeListener(door, uri)

    async def connect(self, uri: str, *, expose: frozenset[Address], **options: Any) -> Address:
        check(uri, options)
        source, sink = await accepted(uri)
        return await self.node.start(partial(PipeLink, source, sink, expose))

    async def stop(self) -> None:
        for uri in self.opened:
            if uri in DOORS and DOORS[uri].node is self.node:
                del DOORS[uri]


async def accepted(uri: str) -> tuple[IO[bytes], IO[bytes]]:
    """Return the near ends of two pipes; the listener has the far ends."""
    if uri not in DOORS:
        raise LinkDown(uri, "no listener")
    door = DOORS[uri]
    (source, far_sink), (far_source, sink) = os.pipe(), os.pipe()
    files = [os.fdopen(each, "rb", 0) for each in (source, far_source)]
    files += [os.fdopen(each, "wb", 0) for each in (sink, far_sink)]
    work = asyncio.run_coroutine_threadsafe(door.accept(files[1], files[3]), door.node.loop)
    try:
        await asyncio.wrap_future(work)
    except Exception as error:
        for each in files:
            each.close()
        raise LinkDown(uri, "the listener has stopped") from error
    return files[0], files[2]


def check(uri: str, options: dict[str, Any]) -> None:
    if options:
        raise TypeError(f"no such option: {', '.join(options)}")
    if not uri.removeprefix("pipe://"):
        raise ValueError(f"{uri!r} is not pipe://name")


async def junk(uri: str, data: bytes) -> None:
    """Write bytes to the link of a listener, and close it."""
    source, sink = await accepted(uri)
    sink.write(data[: 32 * 1024])  # as much as fits a pipe in any case
    sink.close()
    source.close()


test_the_link_of_the_guide = conformance("pipe://{n}", Claims(raw=junk), transport=PipeTransport)
