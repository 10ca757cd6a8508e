"""Sessions of authenticated peers: owners, expiry, and rules that change meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from onward.actors.broker import BrokerOptions, WaitingOptions
from onward.actors.security import AuthenticationOptions
from onward.protocol.security import BearerToken, Credentials, Principal, read_rules
from tests.support.rsocket_peer import *
from tests.support.rsocket_sessions import *
from tests.support.security import gated

REJECTED_SETUP, REJECTED_RESUME, CANCELED = 0x003, 0x004, 0x203
ANN = bytes.fromhex("fc 000004 81616e6e")
BOB = bytes.fromhex("fc 000004 81626f62")
RULES = """
[[rule]]
names = ["ann"]
register = "*"
request = "*"
"""
OTHER_RULES = RULES.replace("ann", "bob")


@asynccontextmanager
async def guarded(
    expires: float | None = None, rules: str | None = None, **limits: int
) -> AsyncGenerator[World]:
    """A listener that knows the tokens `ann` and `bob`."""
    clock = asyncio.get_running_loop().time
    at = None if expires is None else clock() + expires
    accepted: dict[Credentials | None, Principal] = {
        BearerToken(b"ann"): Principal("ann", "test", expires=at),
        BearerToken(b"bob"): Principal("bob", "test"),
    }
    _, authentication = gated(accepted, clock=clock, **limits)
    options = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0.0, max_wait=5.0))
    async with world(options, resumable(time=600), authentication=authentication, rules=rules) as w:
        yield w


async def joined(w: World, entry: bytes = ANN, service: str = "a", number: int = 7) -> Peer:
    """Return a destination with a session."""
    peer = w.connect()
    route = composite((BROKER_FRAME, route_setup(UUID(int=number), service)))
    assert await peer.ask(begun(entry + route, lifetime=1_000_000_000)) == []
    return peer


@in_memory
async def test_a_resumed_session_has_its_principal() -> None:
    async with guarded() as w:
        await lost(await joined(w))
        again = w.connect()
        assert await again.ask(resume()) == [resume_ok(0)]
        assert row(w)["principal"] == "ann"
        assert w.row().principal == "ann (test)"


@in_memory
async def test_a_short_token_with_credentials() -> None:
    """RESUME does not show them again, so the token alone protects the session."""
    async with guarded() as w:
        answer = await w.connect().ask(begun(ANN, token=bytes(15)))
        assert errors(answer) == [(0, REJECTED_SETUP, "a resume token has at least 16 bytes")]


UNKNOWN = (0, 0x004, "no such session")


@in_memory
async def test_a_source_that_names_unknown_sessions_is_banned() -> None:
    async with guarded(max_failures=AuthenticationOptions().max_failures) as w:
        for number in range(100):
            peer = w.connect()
            assert errors(await peer.ask(resume(token=number.to_bytes(16)))) == [UNKNOWN]
        banned = w.connect()
        assert banned.closed
        w.peers.remove(banned)
        assert errors(await w.connect("10.0.0.7").ask(resume())) == [UNKNOWN]
        figures = w.listener.statistics()
        assert (figures.resumes, figures.closed) == ({"unknown": 101}, {"resume refused": 101})
        assert figures.authentication is not None
        assert figures.authentication.banned == 1
        await asyncio.sleep(61)
        assert await w.connect().ask(begun(ANN)) == []


@in_memory
async def test_unknown_sessions_and_wrong_credentials_count_together() -> None:
    async with guarded(max_failures=AuthenticationOptions().max_failures) as w:
        for number in range(9):
            await w.connect().ask(begun(bytes.fromhex("fc 000004 81746f78")))
            await w.connect().ask(resume(token=number.to_bytes(16)))
        assert await w.connect().ask(begun(ANN)) == []  # takes one of them back
        for number in range(2):
            assert errors(await w.connect().ask(resume(token=number.to_bytes(16)))) == [UNKNOWN]
        banned = w.connect()
        assert banned.closed
        w.peers.remove(banned)


@in_memory
async def test_clients_of_a_broker_that_has_forgotten_them_are_not_banned() -> None:
    """Each names its session, is refused, and begins anew, many of them at the same time."""
    async with guarded(max_failures=AuthenticationOptions().max_failures) as w:
        for wave in range(10):
            tokens = [(99 * wave + each).to_bytes(16) for each in range(99)]
            peers = [w.connect() for _ in tokens]
            for peer, token in zip(peers, tokens, strict=True):
                assert errors(await peer.ask(resume(token=token))) == [UNKNOWN]
            for token in tokens:
                peer = w.connect()
                assert await peer.ask(begun(ANN, token=token)) == []
                peer.link.close("stopped", "enough")
            await asyncio.sleep(61)


@in_memory
async def test_a_client_that_begins_anew_each_time_is_not_banned() -> None:
    async with guarded(max_failures=AuthenticationOptions().max_failures) as w:
        for _ in range(300):
            assert errors(await w.connect().ask(resume())) == [UNKNOWN]
            peer = w.connect()
            assert await peer.ask(begun(ANN)) == []
            peer.link.close("stopped", "enough")
            await w.loop.idle()


@in_memory
async def test_a_token_of_another_principal() -> None:
    """It is in use, also while its session is suspended or silent."""
    async with guarded() as w:
        await lost(await joined(w))
        answer = await w.connect().ask(begun(BOB))
        assert errors(answer) == [(0, REJECTED_SETUP, "the resume token is in use")]
        assert await w.connect().ask(resume()) == [resume_ok(0)]


@in_memory
async def test_expired_credentials() -> None:
    async with guarded(expires=100) as w:
        await lost(await joined(w))
        await asyncio.sleep(101)
        answer = await w.connect().ask(resume())
        assert errors(answer) == [(0, REJECTED_RESUME, "the credentials have expired")]
        await w.loop.idle()
        statistics = w.listener.statistics()
        assert statistics.closed == {"resume refused": 1, "credentials expired": 1}
        assert statistics.resumes == {"expired": 1}


@in_memory
async def test_credentials_that_expire_while_it_is_suspended() -> None:
    async with guarded(expires=100) as w:
        await lost(await joined(w))
        await asyncio.sleep(131)
        assert w.listener.statistics().closed == {"credentials expired": 1}
        assert errors(await w.connect().ask(resume()))[0][2] == "no such session"


@in_memory
async def test_credentials_that_expire_after_it_was_resumed() -> None:
    async with guarded(expires=100) as w:
        await lost(await joined(w))
        again = w.connect()
        await again.ask(resume())
        await asyncio.sleep(131)
        assert errors(await again.received()) == [(0, 0x101, "credentials expired")]
        assert again.closed


@in_memory
async def test_rules_that_change_while_it_is_suspended() -> None:
    async with guarded(rules=RULES) as w:
        await lost(await joined(w))
        authorization = w.broker.authorization
        assert authorization is not None
        authorization.replace(read_rules(OTHER_RULES))
        await w.loop.idle()
        assert w.listener.statistics().closed == {"not allowed": 1}
        assert errors(await w.connect().ask(resume()))[0][2] == "no such session"
        assert w.broker.expected() == ()


@in_memory
async def test_rules_hold_for_a_resumed_session() -> None:
    """What a requester may ask is decided by the rules of now."""
    async with guarded(rules=RULES) as w:
        destination = await joined(w)
        peer = w.connect()
        assert await peer.ask(begun(ANN, token=bytes(16), lifetime=1_000_000_000)) == []
        await peer.ask(request(FNF, 1, asked_for("a")))
        await lost(peer)
        authorization = w.broker.authorization
        assert authorization is not None
        authorization.replace(read_rules(RULES.replace('request = "*"', "")))
        again = w.connect()
        await again.ask(resume(token=bytes(16)))
        assert [stream for stream, _, _ in errors(await again.ask(request(RR, 3, asked_for("a"))))]
        assert [kind_of(raw) for raw in await destination.received()] == [FNF]


@pytest.mark.parametrize("suspended", [True, False])
@in_memory
async def test_the_route_id_of_another_principal(suspended: bool) -> None:
    """It cannot be taken over, be its session suspended or not."""
    rules = RULES + OTHER_RULES
    async with guarded(rules=rules) as w:
        peer = await joined(w)
        if suspended:
            await lost(peer)
        thief = w.connect()
        route = composite((BROKER_FRAME, route_setup(UUID(int=7), "a")))
        answer = await thief.ask(setup(BOB + route))
        assert [code for _, code, _ in errors(answer)] == [REJECTED_SETUP]
        assert w.listener.statistics().sessions == 1
