"""A client's WebSocket, where the other end is none, or does not go on as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
from websockets.asyncio.server import ServerConnection, serve

from onward.protocol import LinkDown
from onward.transports.client import connect

from .peers import quick

SOON = quick(connect_timeout=0.1)


@asynccontextmanager
async def answering(text: bytes) -> AsyncGenerator[str]:
    """A server that says one thing and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that is in a hurry leaves before it has asked.
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(text)
            finally:
                writer.close()
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(asyncio.ensure_future(answer(reader, writer)))

    answers: list[asyncio.Future[None]] = []
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"rsocket+ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*answers, return_exceptions=True)


@pytest.mark.parametrize(
    "text", [b"", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", b"?"]
)
async def test_what_is_no_websocket_is_refused(text: bytes) -> None:
    async with answering(text) as uri:
        with pytest.raises(LinkDown):
            await connect(uri, options=SOON).__aenter__()


async def test_a_message_of_text_ends_the_connection() -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.send("text")
        await socket.wait_closed()

    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(LinkDown):
            await connect(f"rsocket+ws://127.0.0.1:{port}", options=SOON).__aenter__()
