"""A wall clock that jumps, forward or back, amid what takes time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from onward.actors import Node
from onward.actors.broker import Broker, DrainOptions, DrainPart
from onward.actors.security import Authentication, TokenAuthenticator
from onward.protocol.security import (
    BearerToken,
    NotAuthenticated,
    PeerIdentity,
    make_token,
    token_digest,
)
from onward.transports.streams._tls import server_context
from onward.transports.streams._tls_context import TlsContext
from tests.support.certificates import Certificates
from tests.support.fixtures import Patch
from tests.support.virtual import virtual_time

TOKEN = make_token(b"t" * 32)
PEER = PeerIdentity(source="192.0.2.1")
BEGIN = 1_800_000_000.0
DAY = 86_400.0

jumps = pytest.mark.parametrize("jump", [DAY, -DAY, 3650 * DAY, -3650 * DAY])


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = BEGIN) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def authentication(folder: Path, wall: Clock, ticks: Clock) -> Authentication:
    """Return one that admits a token until an hour after the begin."""
    file = folder / "principals.toml"
    digest = token_digest(TOKEN.encode()).hex()
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN + 3600))
    file.write_text(f'[[tokens]]\nname = "a"\nsha256 = "{digest}"\nexpires = {expires}\n')
    return Authentication([TokenAuthenticator(file)], clock=wall, ticks=ticks)


async def cause(methods: Authentication, token: str = TOKEN) -> str:
    """Return why a token is refused; empty if it is admitted."""
    try:
        await methods.authenticate(BearerToken(token.encode()), PEER)
    except NotAuthenticated as error:
        return error.cause
    return ""


async def test_a_token_expires_by_the_clock_as_it_is(tmp_path: Path) -> None:
    wall = Clock()
    methods = authentication(tmp_path, wall, Clock(0.0))
    assert await cause(methods) == ""
    wall.now = BEGIN + DAY
    assert await cause(methods) == "expired"
    # The clock was wrong, and is set right.
    wall.now = BEGIN - DAY
    assert await cause(methods) == ""


@jumps
async def test_a_ban_lasts_as_long_whatever_the_clock_says(tmp_path: Path, jump: float) -> None:
    wall, ticks = Clock(), Clock(0.0)
    methods = authentication(tmp_path, wall, ticks)
    wrong = make_token(b"w" * 32)
    for _ in range(methods.options.max_failures):
        assert await cause(methods, wrong) == "unknown"
    wall.now += jump
    assert not methods.admits(PEER.source)
    ticks.now += methods.options.failure_window + 1
    assert methods.admits(PEER.source)


@jumps
async def test_credentials_of_requests_are_remembered_by_ticks_and_expire_by_the_clock(
    tmp_path: Path, jump: float
) -> None:
    wall, ticks = Clock(), Clock(0.0)
    methods = authentication(tmp_path, wall, ticks)
    await methods.authenticate_request(BearerToken(TOKEN.encode()), PEER, b"digest")
    wall.now += jump
    assert (methods.remembered(b"digest") is None) == (jump > 0)
    wall.now = BEGIN
    assert methods.remembered(b"digest") is not None
    ticks.now += methods.options.remember_time + 1
    assert methods.remembered(b"digest") is None


class Lasting(DrainPart):
    """A listener with a connection that does not end by itself."""

    def __init__(self) -> None:
        self.left = 1
        self.progress = list[float]()

    @property
    def connections_left(self) -> int:
        return self.left

    async def stop_accepting(self) -> None:
        pass

    def begin_to_drain(self, random: Callable[[], float]) -> None:
        pass

    def drain_to(self, progress: float) -> None:
        self.progress.append(progress)

    def cut(self) -> None:
        self.left = 0


@jumps
@virtual_time
async def test_a_drain_takes_its_time_whatever_the_clock_says(
    jump: float, monkeypatch: Patch
) -> None:
    wall = Clock()
    monkeypatch.setattr(time, "time", wall)
    async with Node("edge") as node:
        broker, part = await Broker.attach(node), Lasting()
        broker.add_part(part)
        began = node.loop.time()
        draining = asyncio.create_task(broker.drain(DrainOptions(grace=5, spread=20, timeout=60)))
        for _ in range(40):
            await asyncio.sleep(1)
            wall.now += jump
        assert part.left == 1
        assert part.progress[-1] == pytest.approx(1.0)
        assert await draining
        assert node.loop.time() - began == pytest.approx(60, abs=1)


@jumps
def test_files_with_times_of_another_clock_are_read(tmp_path: Path, jump: float) -> None:
    certificates = Certificates.make(tmp_path)
    context = TlsContext(certificates.listener, server_context)
    first = context.current
    context.refresh()
    assert context.current is first
    # Another certificate, written by a machine with another clock.
    certificates.server.write_bytes(certificates.stranger.read_bytes())
    os.utime(certificates.server, (BEGIN + jump, BEGIN + jump))
    context.refresh()
    assert context.current is not first
