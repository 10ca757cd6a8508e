"""Credentials that expire: the end of their connections, and credentials that prolong them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from onward.actors.broker import BrokerOptions
from onward.protocol.security import BearerToken, Credentials, Principal
from tests.support.rsocket_answers import answered
from tests.support.rsocket_peer import *
from tests.support.security import AUTHENTICATION, Gate, gated

INVALID, REJECTED = 0x204, 0x202
ROUTING = b"message/x.rsocket.routing.v0"
ENTRY = bytes.fromhex("fc 000004 81746f6b")
NEW = bytes.fromhex("fc 000004 816e6577")
QUESTION = composite((BROKER_FRAME, address("onward.management")), (ROUTING, b"\x0cauthenticate"))
TOKEN, OTHER = BearerToken(b"tok"), BearerToken(b"new")


def bot(expires: float | None, **more: Any) -> Principal:
    if expires is not None:
        expires += asyncio.get_running_loop().time()
    return replace(Principal("bot", "test", expires=expires), **more)


@asynccontextmanager
async def guarded(
    first: Principal,
    then: Principal | None = None,
    options: BrokerOptions | None = None,
    rules: str | None = None,
) -> AsyncGenerator[tuple[World, Gate, Peer]]:
    """A peer that has shown the token `tok`; `new` is that of another principal."""
    accepted: dict[Credentials | None, Principal] = {TOKEN: first, OTHER: then or first}
    clock = asyncio.get_running_loop().time
    gate, authentication = gated(accepted, clock=clock)
    async with world(options, authentication=authentication, rules=rules) as w:
        peer = w.connect()
        joins = composite((BROKER_FRAME, route_setup(w.new_id(), "a")))
        assert await peer.ask(setup(ENTRY + joins, lifetime=1_000_000_000)) == []
        yield w, gate, peer


async def told(peer: Peer, metadata: bytes) -> Any:
    (answer,) = await peer.ask(request(RR, 1, metadata))
    return json.loads(answer[9:])


@in_memory
async def test_the_end_of_a_connection_with_expired_credentials() -> None:
    async with guarded(bot(1000)) as (w, _, peer):
        await asyncio.sleep(1029)
        peer.send(frame(0, KEEPALIVE, 0, bytes(8)))
        await w.loop.idle()
        assert not peer.closed
        await asyncio.sleep(1)
        assert errors(await peer.received()) == [(0, 0x101, "credentials expired")]
        assert peer.closed
        assert w.listener.statistics().closed == {"credentials expired": 1}
        assert w.services() == []


@in_memory
async def test_credentials_without_an_expiry() -> None:
    async with guarded(bot(None)) as (_, _gate, peer):
        answer = {"principal": "bot", "method": "test", "expires": None, "expires_in": None}
        assert await told(peer, QUESTION) == answer
        assert peer.link.session._validity is not None
        assert peer.link.session._validity._timer is None


@pytest.mark.parametrize("management", [False, True])
@in_memory
async def test_new_credentials_prolong_a_connection(management: bool) -> None:
    options = BrokerOptions(management=management)
    async with guarded(bot(1000), bot(2000), options) as (w, _, peer):
        await asyncio.sleep(900)
        answer = await told(peer, QUESTION)
        assert answer["expires_in"] == pytest.approx(100, abs=1)
        answer = await told(peer, QUESTION + NEW)
        assert (answer["principal"], answer["method"]) == ("bot", "test")
        assert answer["expires_in"] == pytest.approx(1100, abs=1)
        assert answer["expires"] == pytest.approx(w.loop.time() + 1100, abs=1)
        await asyncio.sleep(1000)
        assert not peer.closed
        assert w.services() == ["a"]
        await asyncio.sleep(131)
        assert peer.closed


@in_memory
async def test_credentials_that_prolong_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for then in (
        bot(2000, name="rob"),
        bot(2000, method="other"),
        bot(2000, tags=frozenset({(6, "eu")})),
        bot(-1),
    ):
        async with guarded(bot(1000), then) as (_, _gate, peer):
            for _ in range(2):
                got = await answered(peer, request(RR, 1, QUESTION + NEW))
                assert got == (INVALID, "not authenticated")
            answer = await told(peer, QUESTION)
            assert answer["principal"] == "bot"
            assert answer["expires_in"] == pytest.approx(1000, abs=1)
    with caplog.at_level(logging.WARNING):
        async with guarded(bot(1000)) as (_, _gate, peer):
            wrong = composite((AUTHENTICATION, b"\x81secret"))
            got = await answered(peer, request(RR, 1, QUESTION + wrong))
            assert got == (INVALID, "not authenticated")
    assert "10.0.0.1:5000 as bot (test): the credentials are not prolonged: unknown" in caplog.text
    assert "secret" not in caplog.text


RULES = """
[[rule]]
roles = ["old", "new"]
request = "service=b"

[[rule]]
roles = ["old"]
register = "*"
request = "service=c"
"""


@in_memory
async def test_new_credentials_with_other_roles() -> None:
    old, new = frozenset({"old"}), frozenset({"new"})
    async with guarded(bot(1000, roles=old), bot(2000, roles=new), rules=RULES) as (w, gate, peer):
        gate.accepted[OTHER] = bot(2000, roles=old)
        await told(peer, QUESTION + NEW)
        assert w.services() == ["a"]
        requester = w.connect()
        assert await requester.ask(setup(ENTRY), request(FNF, 1, asked_for("c"))) == []
        assert w.listener.statistics().refused == 0
        gate.accepted[OTHER] = bot(2000, roles=new)
        await told(requester, QUESTION + NEW)
        await requester.ask(request(FNF, 3, asked_for("c")))
        assert w.listener.statistics().refused == 1
        assert not requester.closed
        # What it has registered is no longer allowed.
        await peer.ask(request(RR, 3, QUESTION + NEW))
        assert peer.closed
        assert w.services() == []
        assert w.listener.statistics().closed == {"not allowed": 1}
        w.broker.renew(w.new_id(), bot(1))  # of one that has just left


@in_memory
async def test_a_question_that_cannot_be_answered() -> None:
    async with guarded(bot(1000)) as (w, gate, peer):
        broken = composite((AUTHENTICATION, b"\x82"))
        code, text = await answered(peer, request(RR, 1, QUESTION + broken))
        assert (code, text) == (INVALID, "bad credentials: the authentication type 0x02 is unknown")
        code, text = await answered(peer, request(RR, 1, QUESTION + NEW + NEW))
        assert (code, text) == (INVALID, "bad credentials: more than one authentication entry")
        code, text = await answered(peer, request(STREAM, 1, QUESTION, n=1))
        assert (code, text) == (INVALID, "authenticate is a request/response")
        assert await peer.ask(request(FNF, 1, QUESTION + NEW)) == []
        assert len(gate.seen) == 1
        assert w.listener.statistics().closed == {}


@in_memory
async def test_a_question_in_fragments() -> None:
    async with guarded(bot(1000), bot(2000)) as (_, _gate, peer):
        metadata = QUESTION + NEW
        first = request(RR, 1, metadata[:20], flags=F)
        assert await peer.ask(first) == []
        (answer,) = await peer.ask(payload(1, b"", 0, metadata[20:]))
        assert json.loads(answer[9:])["expires_in"] == pytest.approx(2000, abs=1)


@in_memory
async def test_one_check_at_a_time() -> None:
    async with guarded(bot(1000), bot(2000)) as (w, gate, peer):
        gate.open.clear()
        assert await peer.ask(request(RR, 1, QUESTION + NEW)) == []
        ((stream, code, text),) = errors(await peer.ask(request(RR, 3, QUESTION + NEW)))
        assert (stream, code, text) == (3, REJECTED, "other credentials are being checked")
        await peer.ask(cancel(1))
        gate.open.set()
        assert await peer.received() == []
        assert (await told(peer, QUESTION))["expires_in"] == pytest.approx(2000, abs=1)
        gate.open.clear()
        await peer.ask(request(RR, 5, QUESTION + NEW))
        peer.die()
        await w.loop.idle()


@in_memory
async def test_a_clock_that_is_set() -> None:
    now = 0.0
    loop = asyncio.get_running_loop()
    accepted: dict[Credentials | None, Principal] = {TOKEN: bot(1000)}
    _, authentication = gated(accepted, clock=lambda: loop.time() + now)
    async with world(authentication=authentication) as w:
        first, second = w.connect(), w.connect()
        for peer in (first, second):
            assert await peer.ask(setup(ENTRY, lifetime=1_000_000_000)) == []
        now = 5000.0
        await asyncio.sleep(601)  # it is read again from time to time
        assert first.closed
        assert second.closed


@in_memory
async def test_other_requests_to_the_management_service() -> None:
    async with guarded(bot(1000)) as (_, _gate, peer):
        wanted = (BROKER_FRAME, address("onward.management"))
        for metadata in (
            composite(wanted, (ROUTING, b"\x06routes")),
            composite(wanted, (ROUTING, b"\x0cauthenticate"[:5])),
            composite(wanted),
        ):
            (answer,) = await peer.ask(request(RR, 1, metadata, b"resolve service=b"))
            assert "expires_in" not in answer.decode(errors="replace")


@in_memory
async def test_without_authentication_there_is_nothing_to_prolong() -> None:
    async with world() as w:
        peer = await w.requester()
        (answer,) = await peer.ask(request(RR, 1, QUESTION + NEW))
        assert b'"error"' in answer
