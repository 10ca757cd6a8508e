"""Strangers get to every layer of a listener: a flaw at the innermost shows."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from onward.protocol import Context, MalformedMessage, Message
from onward.protocol.ockam import MessageDecoder, WireConnection
from onward.transports.testing import CASES, known_claims, run_case
from tests.support.certificates import Certificates

PLACES = {
    "tcp": "tcp://127.0.0.1:0",
    "tls": "tls://127.0.0.1:0",
    "udp": "udp://127.0.0.1:0",
    "uds": "uds://{tmp}/{n} of %25",
    "ws": "ws://127.0.0.1:0/a/path",
    "wss": "wss://127.0.0.1:0",
}
(BYTES_OF_STRANGERS,) = [each for each in CASES if each.name == "bytes_of_strangers"]


def harmed(scheme: str, folder: Path) -> str:
    """Return what the strangers do to a listener, if they harm it."""
    claims = known_claims(PLACES[scheme])
    if scheme in {"tls", "wss"}:
        certificates = Certificates.make(folder)
        claims = replace(
            claims,
            listen_options={"tls": certificates.listener},
            connect_options={"tls": certificates.anonymous},
        )
    with pytest.raises(AssertionError) as caught:
        run_case(BYTES_OF_STRANGERS, PLACES[scheme], claims)
    return str(caught.value)


@pytest.mark.parametrize("scheme", [each for each in PLACES if each != "udp"])
def test_they_get_to_the_frames(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def receive_data(
        wire: WireConnection, data: bytes, context: Context | None = None
    ) -> list[Message]:
        messages = right(wire, data, context)
        if isinstance(wire.error, MalformedMessage):
            raise KeyError("malformed")
        return messages

    right = WireConnection.receive_data
    monkeypatch.setattr(WireConnection, "receive_data", receive_data)
    assert "KeyError('malformed')" in harmed(scheme, tmp_path)


def test_they_get_to_the_messages_of_datagrams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(decoder: MessageDecoder, body: bytes) -> Message:
        try:
            return right(decoder, body)
        except MalformedMessage:
            raise KeyError("malformed") from None

    right = MessageDecoder.decode
    monkeypatch.setattr(MessageDecoder, "decode", decode)
    assert "KeyError('malformed')" in harmed("udp", tmp_path)


def test_who_answers_a_handshake_in_another_way_is_told_of() -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 404 Not Found\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            raw = known_claims("ws://").raw
            assert raw is not None
            with pytest.raises(AssertionError, match=r"was answered with b'HTTP/1\.1 404"):
                await raw(f"ws://127.0.0.1:{port}", b"")

    asyncio.run(main())


def test_where_no_tls_is_spoken_they_go_away() -> None:
    async def main() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"this is no TLS")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            raw = known_claims("tls://").raw
            assert raw is not None
            await raw(f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}", b"")

    asyncio.run(main())
