"""The proxy of tests: no task of it is left at its end."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.support.proxy import CuttingProxy


@pytest.mark.real_time
async def test_the_tasks_of_a_proxy_end_with_it() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    far = await asyncio.start_server(echo, "127.0.0.1", 0)
    port: int = far.sockets[0].getsockname()[1]
    own = asyncio.current_task()
    async with CuttingProxy(port).running() as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"through")
        assert await reader.readexactly(7) == b"through"
        assert {"CuttingProxy" in repr(each) for each in asyncio.all_tasks()} == {True, False}
    left = asyncio.all_tasks() - {own}
    assert not [each for each in left if "CuttingProxy" in repr(each)]
    with contextlib.suppress(OSError):
        assert await reader.read() == b""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    far.close()
    await asyncio.gather(*left)
