"""The transport that the documentation shows ends its links however the other end goes."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any, cast

import pytest

from onward.actors import Node
from tests.support.transports import eventually

FILE = Path(__file__).resolve().parents[2] / "examples" / "tutorial" / "own_transport.py"


def shown() -> Any:
    """Load the example, which is no package."""
    spec = importlib.util.spec_from_file_location("tutorial_own_transport", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Writer:
    """The writing half of a connection of which only the reading one matters."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes) -> None:
        assert data

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("error", [None, ConnectionResetError("reset"), OSError("gone")])
async def test_a_link_stops_with_its_connection(error: OSError | None) -> None:
    reader, writer = asyncio.StreamReader(), Writer()
    async with Node() as node:
        link = await node.start(
            lambda: shown().UnixLink(reader, cast("asyncio.StreamWriter", writer), frozenset())
        )
        if error is None:
            reader.feed_eof()
        else:
            reader.set_exception(error)
        await eventually(lambda: not node.has(link))
        assert writer.closed
        # It went by itself, and not for a failure.
        assert node.dead_letters.total == 0
