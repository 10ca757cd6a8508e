"""Authentication by SETUP: nothing of a peer is looked at before it is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from onward.actors import Node
from onward.actors.broker import Broker
from onward.actors.security import Authentication, AuthenticationOptions
from onward.protocol.security import (
    BearerToken,
    Credentials,
    CustomCredentials,
    Principal,
    UserPassword,
)
from onward.transports.rsocket import LinkOptions
from tests.support.rsocket_answers import refused
from tests.support.rsocket_peer import *
from tests.support.security import AUTHENTICATION, TOKEN, USER, Gate, gated

INVALID_SETUP, REJECTED_SETUP = 1, 3
REFUSED = (REJECTED_SETUP, "not authenticated")
IDA = Principal("ida", "test", frozenset({"staff"}))
BOT = Principal("bot", "test")
ODD = Principal("odd", "test")
ACCEPTED: dict[Credentials | None, Principal] = {
    UserPassword("user", "password"): IDA,
    BearerToken(b"tok"): BOT,
    CustomCredentials("saml", b"\x00x"): ODD,
}
TOKEN_ENTRY = bytes.fromhex("fc 000004 81746f6b")
USER_ENTRY = bytes.fromhex("fc 00000f") + USER
ECHO = frame(0, KEEPALIVE, 0x80, bytes(8) + b"?")
ECHOED = frame(0, KEEPALIVE, 0, bytes(8) + b"?")


@asynccontextmanager
async def guarded(
    options: LinkOptions | None = None,
    timeout: float = 2.0,
    accepted: dict[Credentials | None, Principal] = ACCEPTED,
) -> AsyncGenerator[tuple[World, Gate]]:
    gate, authentication = gated(accepted, timeout)
    async with world(options=options, authentication=authentication) as w:
        yield w, gate


def destination_setup(w: World, credentials: bytes = TOKEN_ENTRY, service: str = "a") -> bytes:
    return setup(credentials + composite((BROKER_FRAME, route_setup(w.new_id(), service))))


# --- credentials that are right ---------------------------------------------------------------
@pytest.mark.parametrize(
    ("metadata", "principal"),
    [
        (TOKEN_ENTRY, BOT),
        (USER_ENTRY, IDA),
        (composite((AUTHENTICATION, TOKEN)), BOT),
        (composite((b"text/plain", b"x")) + USER_ENTRY, IDA),
        (composite((AUTHENTICATION, b"\x03saml\x00x")), ODD),
    ],
)
@in_memory
async def test_an_entry_among_others(metadata: bytes, principal: Principal) -> None:
    async with guarded() as (w, gate):
        peer = w.connect()
        assert await peer.ask(setup(metadata), ECHO) == [ECHOED]
        assert peer.link.session.principal == principal
        assert [peer.source for _, peer in gate.seen] == ["10.0.0.1"]
        assert [peer.listener for _, peer in gate.seen] == [w.listener.uri]


@pytest.mark.parametrize("at_once", [False, True])
@in_memory
async def test_credentials_as_all_of_the_metadata_and_then_a_route_setup(at_once: bool) -> None:
    async with guarded() as (w, _):
        peer = w.connect()
        first, joins = setup(USER, mime=AUTHENTICATION), push(route_setup(w.new_id(), "a"))
        if at_once:
            assert await peer.ask(first, joins) == []
        else:
            assert await peer.ask(first) == []
            assert w.services() == []
            assert await peer.ask(joins) == []
        assert w.services() == ["a"]
        requester = w.connect()
        wanted = composite((FORWARDING, address("a", mime=FORWARDING)))
        assert await requester.ask(setup(TOKEN_ENTRY), request(FNF, 1, wanted)) == []
        assert await peer.received() == [request(FNF, 2, address("a", mime=FORWARDING))]
        assert await peer.ask(request(FNF, 1, address("a", mime=FORWARDING))) == [
            request(FNF, 4, address("a", mime=FORWARDING))
        ]


@in_memory
async def test_a_destination_with_credentials() -> None:
    async with guarded() as (w, _):
        peer = w.connect()
        assert await peer.ask(destination_setup(w)) == []
        assert w.services() == ["a"]
        # Nothing is kept of the credentials.
        assert peer.link.session.setup is not None
        assert peer.link.session.setup.metadata is None


@in_memory
async def test_a_peer_without_credentials_where_that_is_enough() -> None:
    async with guarded(accepted={None: ODD}) as (w, _):
        for first in (setup(), setup(composite((b"text/plain", b"x"))), setup(b"{}", mime=b"a/b")):
            peer = w.connect()
            assert await peer.ask(first, ECHO) == [ECHOED]
            assert peer.link.session.principal == ODD


@in_memory
async def test_a_listener_without_authentication_does_not_look_at_credentials() -> None:
    async with world() as w:
        broken = composite((AUTHENTICATION, b""), (AUTHENTICATION, b"\x81"))
        for first in (setup(broken), setup(b"\x80", mime=AUTHENTICATION), setup(USER_ENTRY)):
            peer = w.connect()
            assert await peer.ask(first, ECHO) == [ECHOED]
            assert peer.link.session.principal is None
        assert w.listener.statistics().authentication is None


@in_memory
async def test_where_the_principal_of_a_destination_is_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        async with guarded() as (w, _):
            with w.broker.events.subscribe() as events:
                peer = w.connect()
                assert await peer.ask(destination_setup(w, USER_ENTRY)) == []
                assert w.row().principal == "ida (test)"
                await peer.ask(bytes.fromhex("00 0006 80000001 0000"))
                assert peer.closed
                joined, left = await anext(events), await anext(events)
            assert (joined.kind, joined.principal) == ("joined", "ida (test)")
            assert (left.kind, left.principal) == ("left", "ida (test)")
    assert "10.0.0.1:5000 as ida (test): closing: " in caplog.text


# --- credentials that are not -------------------------------------------------------------------
@pytest.mark.parametrize(
    "first",
    [
        setup(),
        setup(b""),
        setup(bytes.fromhex("fc 000004 81746f78")),
        setup(USER + b"?", mime=AUTHENTICATION),
        setup(composite((AUTHENTICATION, b"\x03sasl\x00x"))),
    ],
)
@in_memory
async def test_one_text_for_all_that_are_refused(first: bytes) -> None:
    async with guarded() as (w, _):
        assert await refused(w.connect(), first) == REFUSED
        assert w.listener.statistics().closed == {"not authenticated": 1}


@in_memory
async def test_expired_credentials() -> None:
    old = Principal("old", "test", expires=1.0)
    async with guarded(accepted={BearerToken(b"tok"): old}) as (w, _):
        assert await refused(w.connect(), setup(TOKEN_ENTRY)) == REFUSED
        figures = w.listener.statistics().authentication
        assert figures is not None
        assert figures.refused == {"expired": 1}


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (setup(TOKEN_ENTRY + USER_ENTRY), "more than one authentication entry"),
        (setup(TOKEN_ENTRY + composite((AUTHENTICATION, TOKEN))), "more than one"),
        (setup(composite((AUTHENTICATION, b""))), "bad credentials: the entry is empty"),
        (setup(composite((AUTHENTICATION, b"\x82x"))), "type 0x02 is unknown"),
        (setup(USER[:6], mime=AUTHENTICATION), "the user name is cut short"),
        (setup(b"\x81", mime=AUTHENTICATION), "the token is empty"),
        (setup(b"\x81" + bytes(8193), mime=AUTHENTICATION), "the token is over 8192 bytes"),
        (setup(b"\x80\x01\x00" + b"u" * 256, mime=AUTHENTICATION), "user name is over 255 bytes"),
        (setup(b"\x80\x00\x01u" + b"p" * 1025, mime=AUTHENTICATION), "password is over 1024 bytes"),
        (setup(b"\x7f" + b"a" * 127, mime=AUTHENTICATION), "the authentication type is cut short"),
        (setup(TOKEN_ENTRY[:-1]), "runs past its"),
        (setup(TOKEN_ENTRY + b"\x85"), "runs past its"),
        (setup(composite((b"a", bytes(16 * 1024)))), "the metadata of SETUP are over 16384 bytes"),
    ],
)
@in_memory
async def test_an_ambiguous_or_broken_entry_is_an_invalid_setup(first: bytes, text: str) -> None:
    async with guarded() as (w, gate):
        code, said = await refused(w.connect(), first, request(RR, 1, asked_for("a")))
        assert code == INVALID_SETUP
        assert text in said
        assert gate.seen == []
        assert w.listener.statistics().closed == {"setup refused": 1}


@in_memory
async def test_a_setup_of_the_longest_metadata() -> None:
    async with guarded() as (w, _):
        entry = composite((b"a", bytes(16 * 1024 - 5 - len(TOKEN_ENTRY))))
        assert await w.connect().ask(setup(entry + TOKEN_ENTRY), ECHO) == [ECHOED]


@pytest.mark.parametrize(
    ("entry", "credentials"),
    [
        (b"\x81" + b"t" * 8192, BearerToken(b"t" * 8192)),
        (
            b"\x80\x00\xff" + b"u" * 255 + b"p" * 1024,
            UserPassword("u" * 255, "p" * 1024),
        ),
        # The length of a type is written minus one.
        (b"\x00ax", CustomCredentials("a", b"x")),
        (b"\x7f" + b"a" * 128 + b"x", CustomCredentials("a" * 128, b"x")),
    ],
)
@in_memory
async def test_credentials_as_long_as_they_may_be(entry: bytes, credentials: Credentials) -> None:
    async with guarded(accepted={credentials: BOT}) as (w, _):
        assert await w.connect().ask(setup(entry, mime=AUTHENTICATION), ECHO) == [ECHOED]


# --- before the decision ------------------------------------------------------------------------
@in_memory
async def test_frames_of_the_same_read_wait_for_the_decision() -> None:
    async with guarded() as (w, gate):
        gate.open.clear()
        destination = w.connect()
        peer = w.connect()
        destination.send(destination_setup(w))
        asked = request(RR, 1, asked_for("a"), b"x")
        assert await peer.ask(setup(TOKEN_ENTRY), ECHO, asked) == []
        assert w.services() == []
        assert not peer.transport.reading
        assert not peer.link.session.used
        assert peer.link.core.streams == {}
        gate.open.set()
        assert await peer.received() == [ECHOED]
        assert await destination.received() == [restamped(asked, 2)]
        await destination.ask(payload(2, b"y", N | C))
        assert elements(await peer.received()) == [b"y"]
        await w.settled()


@in_memory
async def test_a_request_behind_a_refused_setup_is_not_processed() -> None:
    async with guarded() as (w, gate):
        destination = w.connect()
        assert await destination.ask(destination_setup(w)) == []
        gate.open.clear()
        peer = w.connect()
        late = push(composite((BROKER_FRAME, route_setup(w.new_id(), "b"))))
        wrong = setup(bytes.fromhex("fc 000004 81746f78"))
        asked = request(RR, 1, asked_for("a")), request(FNF, 3, asked_for("a"))
        peer.send(wrong, *asked, late)
        peer.send(*asked, late)
        gate.open.set()
        ((stream, code, text),) = errors(await peer.received())
        assert (stream, code, text) == (0, *REFUSED)
        assert peer.closed
        assert await destination.received() == []
        assert w.services() == ["a"]
        assert w.listener.statistics().requests == w.listener.statistics().refused == 0


@pytest.mark.parametrize("credentials", [TOKEN_ENTRY, bytes.fromhex("fc 000004 81746f78")])
@in_memory
async def test_a_setup_cut_at_each_byte(credentials: bytes) -> None:
    async with guarded() as (w, _):
        first = setup(credentials)
        for at in range(1, len(first) + 1):
            peer = w.connect()
            assert await peer.ask(first[:at]) == [] or at == len(first)
            got = await peer.ask(first[at:] + ECHO)
            if credentials == TOKEN_ENTRY:
                assert got == [ECHOED]
            else:
                assert peer.closed
            peer.eof()
            await w.loop.idle()
        closed = w.listener.statistics().closed
        reason = "by the peer" if credentials == TOKEN_ENTRY else "not authenticated"
        assert closed == {reason: len(first)}


@in_memory
async def test_a_decision_that_takes_too_long() -> None:
    async with guarded(timeout=3.0) as (w, gate):
        gate.open.clear()
        peer = w.connect()
        # Its own times are shorter; its silence is by the broker's choice.
        peer.send(setup(TOKEN_ENTRY, keepalive=100, lifetime=200), ECHO)
        await asyncio.sleep(2.9)
        assert not peer.closed
        await asyncio.sleep(0.2)
        assert errors(await peer.received()) == [(0, *REFUSED)]
        figures = w.listener.statistics()
        assert figures.closed == {"not authenticated": 1}
        assert figures.authentication is not None
        assert figures.authentication.refused == {"timeout": 1}
        assert figures.authentication.undecided == 0


@in_memory
async def test_the_times_of_a_peer_begin_with_the_decision() -> None:
    async with guarded(timeout=60.0) as (w, gate):
        gate.open.clear()
        peer = w.connect()
        peer.send(setup(TOKEN_ENTRY, keepalive=1000, lifetime=2000))
        await asyncio.sleep(30)  # more than the time for SETUP, and than its lifetime
        gate.open.set()
        await w.loop.idle()
        await asyncio.sleep(1.9)
        assert not peer.closed
        await asyncio.sleep(0.2)
        assert peer.closed
        assert w.listener.statistics().closed == {"silent": 1}


@pytest.mark.parametrize("how", ["die", "eof"])
@in_memory
async def test_a_peer_that_leaves_while_undecided(how: str) -> None:
    async with guarded(timeout=60.0) as (w, gate):
        gate.open.clear()
        peer = w.connect()
        peer.send(destination_setup(w), ECHO)
        await w.loop.idle()
        if how == "die":
            peer.die()
        else:
            peer.transport.reading = True  # as where a socket reports the end all the same
            peer.eof()
        await w.loop.idle()
        figures = w.listener.statistics()
        assert (figures.connections, figures.closed) == (1, {})
        assert figures.authentication is not None
        assert figures.authentication.undecided == 1
        gate.open.set()
        await w.loop.idle()
        assert w.services() == []
        figures = w.listener.statistics()
        assert (figures.connections, figures.closed) == (0, {"by the peer": 1})


@in_memory
async def test_a_broker_that_stops_while_undecided() -> None:
    async with guarded(timeout=60.0) as (w, gate):
        gate.open.clear()
        peer = w.connect()
        peer.send(setup(TOKEN_ENTRY))
        await w.loop.idle()
        await w.listener.close()
        ((stream, code, _),) = errors(await peer.received())
        assert (stream, code) == (0, 0x101)
        assert w.listener.statistics().closed == {"stopped": 1}


@in_memory
async def test_an_undecided_peer_is_unused() -> None:
    options = LinkOptions(max_connections=2, max_connections_per_source=2, unused_timeout=5)
    async with guarded(options, timeout=60.0) as (w, gate):
        gate.open.clear()
        first, second = w.connect(), w.connect()
        for peer in (first, second):
            peer.send(setup(TOKEN_ENTRY), request(RR, 1, asked_for("a")))
        await asyncio.sleep(6)
        w.connect("10.0.0.7")
        assert [first.closed, second.closed] == [True, False]


@in_memory
async def test_a_thousand_undecided_peers() -> None:
    async with guarded() as (w, gate):
        gate.open.clear()
        before = len(asyncio.all_tasks())
        made = [w.connect(f"10.0.{number >> 8}.{number & 255}") for number in range(1000)]
        for peer in made:
            peer.send(
                setup(TOKEN_ENTRY), *(request(RR, 1 + 2 * n, asked_for("a")) for n in range(9))
            )
        await w.loop.idle()
        figures = w.listener.statistics()
        assert figures.authentication is not None
        assert figures.authentication.undecided == 1000
        assert figures.streams == figures.requests == 0
        assert len(asyncio.all_tasks()) == before + 1000
        for peer in made:
            peer.send(bytes(100_000))  # stays in the socket
        assert sum(peer.link.core.unfinished for peer in made) < 1000 * 1000
        await asyncio.sleep(2.1)
        assert all(peer.closed for peer in made)
        assert len(asyncio.all_tasks()) == before


@in_memory
async def test_connections_of_a_source_that_is_banned_are_closed_at_once() -> None:
    options = AuthenticationOptions(max_failures=3)
    authentication = Authentication([Gate(ACCEPTED)], options)
    async with world(authentication=authentication) as w:
        for _ in range(3):
            await refused(w.connect(), setup(USER, mime=AUTHENTICATION + b"?"))
        banned = w.connect()
        assert banned.closed
        assert await w.connect("10.0.0.7").ask(setup(TOKEN_ENTRY), ECHO) == [ECHOED]
        figures = w.listener.statistics()
        assert figures.accepted == 4
        assert figures.authentication is not None
        assert figures.authentication.banned == 1
        w.peers.remove(banned)


@pytest.mark.parametrize(
    ("hosts", "other"),
    [(["10.0.0.1"], "10.0.0.2"), (["2001:db8::1", "2001:db8::2"], "2001:db8:0:1::1")],
)
@in_memory
async def test_ten_failures_in_a_minute_ban_an_address_or_a_network(
    hosts: list[str], other: str
) -> None:
    authentication = Authentication([Gate(ACCEPTED)], ticks=asyncio.get_running_loop().time)
    async with world(authentication=authentication) as w:
        for number in range(10):
            peer = w.connect(hosts[number % len(hosts)])
            assert await refused(peer, setup(composite((AUTHENTICATION, b"\x81no")))) == REFUSED
        for host in hosts:
            banned = w.connect(host)
            assert banned.closed
            w.peers.remove(banned)
        assert await w.connect(other).ask(setup(TOKEN_ENTRY), ECHO) == [ECHOED]
        await asyncio.sleep(61)
        assert await w.connect(hosts[0]).ask(setup(TOKEN_ENTRY), ECHO) == [ECHOED]


@in_memory
async def test_twenty_peers_of_a_source_may_be_undecided() -> None:
    gate = Gate(ACCEPTED)
    gate.open.clear()
    async with world(authentication=Authentication([gate])) as w:
        made = [w.connect() for _ in range(20)]
        for peer in made:
            assert await peer.ask(setup(TOKEN_ENTRY)) == []
        late = w.connect()
        assert late.closed
        w.peers.remove(late)
        assert await w.connect("10.0.0.7").ask(setup(TOKEN_ENTRY)) == []
        gate.open.set()
        await w.loop.idle()
        assert await w.connect().ask(setup(TOKEN_ENTRY), ECHO) == [ECHOED]


@in_memory
async def test_leases_are_granted_after_the_decision() -> None:
    async with guarded() as (w, gate):
        gate.open.clear()
        peer = w.connect()
        assert await peer.ask(setup(TOKEN_ENTRY, flags=0x40)) == []
        gate.open.set()
        (lease,) = await peer.received()
        assert kind_of(lease) == LEASE


@in_memory
async def test_the_log_has_the_cause_and_no_credentials(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with guarded() as (w, _):
            await refused(w.connect(), setup(composite((AUTHENTICATION, b"\x81secret"))))
            assert await w.connect().ask(setup(USER_ENTRY)) == []
    assert "closing 10.0.0.1:5000: not authenticated: unknown" in caplog.text
    assert "secret" not in caplog.text
    assert "password" not in caplog.text


@in_memory
async def test_a_wrong_option() -> None:
    async with Node("edge") as node:
        broker = await Broker.attach(node)
        with pytest.raises(ValueError, match="authentication"):
            await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker, authentication="token")
