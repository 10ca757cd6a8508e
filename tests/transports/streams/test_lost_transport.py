"""The transport of a connection that is lost already."""

from __future__ import annotations

import asyncio

from onward.transports.streams._lost_transport import LostTransport

ERROR = ConnectionResetError("reset")


class Protocol(asyncio.Protocol):
    """A protocol that keeps the losses it is told of."""

    def __init__(self) -> None:
        self.lost: list[Exception | None] = []

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


async def test_the_loss_is_told_once_and_soon() -> None:
    protocol = Protocol()
    transport = LostTransport(protocol, asyncio.get_running_loop(), ERROR)
    assert not transport.is_closing()
    transport.close()
    assert transport.is_closing()
    assert protocol.lost == []
    transport.abort()
    await asyncio.sleep(0)
    transport.close()
    await asyncio.sleep(0)
    assert protocol.lost == [ERROR]


async def test_the_last_protocol_is_told() -> None:
    before, after = Protocol(), Protocol()
    transport = LostTransport(before, asyncio.get_running_loop())
    assert transport.get_protocol() is before
    transport.abort()
    transport.set_protocol(after)
    assert transport.get_protocol() is after
    await asyncio.sleep(0)
    assert (before.lost, after.lost) == ([], [None])


async def test_nothing_is_read_or_written() -> None:
    protocol = Protocol()
    extra = {"cipher": ("A", "TLSv1.3", 256)}
    transport = LostTransport(protocol, asyncio.get_running_loop(), extra=extra)
    transport.set_write_buffer_limits(1, 1)
    transport.write(b"x" * 100)
    transport.pause_reading()
    transport.resume_reading()
    assert transport.get_write_buffer_size() == 0
    assert transport.get_extra_info("cipher") == extra["cipher"]
    assert transport.get_extra_info("socket", "none") == "none"
    await asyncio.sleep(0)
    assert protocol.lost == []
