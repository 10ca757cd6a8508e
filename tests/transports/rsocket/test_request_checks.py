"""Credentials in the metadata of requests, at listeners that check them or pass them on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from onward.actors.broker import BrokerOptions, Handlers, Request, WaitingOptions
from onward.protocol.broker import parse_query
from onward.protocol.security import BearerToken, Credentials, Principal, UserPassword
from onward.transports.rsocket import GatheringOptions, LinkOptions
from tests.support.rsocket_peer import *
from tests.support.security import AUTHENTICATION, Gate, gated

REJECTED, INVALID = 0x202, 0x204
NOT_AUTHENTICATED = (INVALID, "not authenticated")
ROUTE = b"message/x.onward.route.v0"
ROUTING = b"message/x.rsocket.routing.v0"
GATEWAY = bytes.fromhex("fc 000004 81677779")
ANN = bytes.fromhex("fc 000004 81616e6e")
BOB = bytes.fromhex("fc 000004 81626f62")
OLD = bytes.fromhex("fc 000004 816f6c64")
WRONG = bytes.fromhex("fc 000004 817a7a7a")
ANN_BY_NAME = composite((AUTHENTICATION, b"\x81ann"))
AT_ONCE: Final = BrokerOptions(waiting=WaitingOptions(no_route_timeout=0))

RULES = """
[[rule]]
roles = ["gateway"]
register = "*"
request = ["service=a", "service=open"]

[[rule]]
roles = ["user"]
request = ["service=a", "service=mail"]

[[rule]]
names = ["ann"]
read = true
"""


def wanted(tags: dict[int | str, str] | str) -> bytes:
    """Return metadata for some tags, without the origin that the broker would replace."""
    if isinstance(tags, str):
        tags = {SERVICE_NAME: tags}
    return composite((BROKER_FRAME, address(tags, origin=bytes(16))))


def principal(name: str, role: str, tags: str = "", expires: float | None = None) -> Principal:
    forced = parse_query(tags) if tags else frozenset[Any]()
    return Principal(name, "test", frozenset({role}), forced, expires)


@asynccontextmanager
async def checking(
    per_request: str = "check",
    rules: str | None = RULES,
    options: LinkOptions | None = None,
    **limits: Any,
) -> AsyncGenerator[tuple[World, Gate, Peer, Peer]]:
    """A gateway with requests of others, and a destination of the service `mail`, tenant `x`."""
    now = asyncio.get_running_loop().time
    accepted: dict[Credentials | None, Principal] = {
        BearerToken(b"gwy"): principal("gateway", "gateway"),
        BearerToken(b"ann"): principal("ann", "user", "tenant=x"),
        BearerToken(b"bob"): principal("bob", "user", "tenant=y"),
        BearerToken(b"old"): principal("old", "user", expires=now() + 10),
        UserPassword("u", "p"): principal("u", "user"),
    }
    gate, authentication = gated(accepted, clock=now, per_request=per_request, **limits)
    async with world(AT_ONCE, options, authentication=authentication, rules=rules) as w:
        mail = await destination(w, "mail", {"tenant": "x"})
        peer = w.connect()
        assert await peer.ask(setup(GATEWAY, lifetime=1_000_000_000)) == []
        gate.seen.clear()
        yield w, gate, peer, mail


async def destination(w: World, service: str, tags: dict[int | str, str] | None = None) -> Peer:
    peer = w.connect()
    joins = composite((BROKER_FRAME, route_setup(w.new_id(), service, tags)))
    assert await peer.ask(setup(GATEWAY + joins, lifetime=1_000_000_000)) == []
    return peer


async def refused(peer: Peer, *frames: bytes) -> tuple[int, str]:
    ((_, code, text),) = errors(await peer.ask(*frames))
    return code, text


# --- the decision -------------------------------------------------------------------------------
@pytest.mark.parametrize("entry", [ANN, ANN_BY_NAME])
@pytest.mark.parametrize("place", ["before", "after"])
@in_memory
async def test_the_principal_in_a_request_decides_and_its_entry_ends_at_the_broker(
    entry: bytes, place: str
) -> None:
    async with checking() as (w, gate, peer, mail):
        metadata = entry + wanted("mail") if place == "before" else wanted("mail") + entry
        for number, kind in enumerate((RR, FNF, STREAM, CHANNEL)):
            n = 1 if kind in (STREAM, CHANNEL) else None
            asked = request(kind, 1 + 2 * number, metadata, b"x", n=n)
            assert await peer.ask(asked) == []
            (got,) = (raw for raw in await mail.received() if raw != IS_IT_ALIVE)
            assert got == request(kind, stream_of(got), wanted("mail"), b"x", n=n)
        assert len(gate.seen) == 1  # the others were remembered
        figures = w.listener.statistics().authentication
        assert figures is not None
        assert (figures.requests_checked, figures.requests_remembered) == (1, 3)
        assert figures.accepted == {"test": 2}
        assert figures.remembered == 1
        # Without an entry the connection decides.
        text = "not allowed: request service=mail"
        assert await refused(peer, request(RR, 9, wanted("mail"))) == (INVALID, text)


@in_memory
async def test_forced_tags_are_those_of_the_principal_in_the_request() -> None:
    async with checking() as (w, _, peer, mail):
        other = await destination(w, "mail", {"tenant": "y"})
        for stream, entry, reached, missed in ((1, ANN, mail, other), (3, BOB, other, mail)):
            assert await peer.ask(request(FNF, stream, entry + wanted("mail"))) == []
            assert len(await reached.received()) == 1
            assert await missed.received() == []
        code, text = await refused(
            peer, request(RR, 5, ANN + wanted({SERVICE_NAME: "mail", "tenant": "y"}))
        )
        assert (code, text) == (INVALID, "not allowed: request service=mail tenant=y")


@in_memory
async def test_what_the_principal_in_a_request_may_not_do() -> None:
    async with checking() as (w, _, peer, mail):
        text = "not allowed: request service=open"
        assert await refused(peer, request(RR, 1, ANN + wanted("open"))) == (INVALID, text)
        assert await refused(peer, request(RR, 3, ANN + wanted("open"))) == (INVALID, text)
        assert await peer.ask(request(FNF, 5, ANN + wanted("open"))) == []
        assert await mail.received() == []
        assert peer.link.session.refused == 3
        authorization = w.broker.authorization
        assert authorization is not None
        assert authorization.statistics().denied == {"request": 3}


@in_memory
async def test_the_principal_of_a_request_is_given_to_handlers_and_to_the_management() -> None:
    seen: list[str] = []
    handlers = Handlers()

    @handlers.response
    async def whoami(request: Request) -> bytes:
        seen.append(str(request.principal))
        return b""

    async with checking() as (w, _, peer, _mail):
        w.broker.serve(handlers, service="a", tags={"tenant": "x"})
        await peer.ask(request(RR, 1, ANN + wanted("a")), request(RR, 3, wanted("a")))
        await peer.ask(request(RR, 5, BOB + wanted("a")))
        assert seen == ["ann (test)", "gateway (test)"]  # bob's tenant has none
        what = composite((ROUTING, b"\x06routes")) + wanted("onward.management")
        (told,) = await peer.ask(request(RR, 7, ANN + what))
        assert {row["service"] for row in json.loads(told[9:])} >= {"mail", "a"}
        (told,) = await peer.ask(request(RR, 9, BOB + what))
        assert json.loads(told[9:]) == []


@in_memory
async def test_a_route_in_place_of_an_address() -> None:
    async with checking() as (_, _gate, peer, mail):
        named = composite((ROUTE, b"32#service=mail"))
        text = "not allowed: request service=mail"
        assert await refused(peer, request(RR, 1, named)) == (INVALID, text)
        assert await peer.ask(request(FNF, 3, named + ANN)) == []
        (got,) = await mail.received()
        assert got == request(FNF, 2, named)


# --- entries that are wrong ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (ANN + ANN, "more than one authentication entry"),
        (ANN + ANN_BY_NAME, "more than one authentication entry"),
        (bytes.fromhex("fc 000000"), "the entry is empty"),
        (bytes.fromhex("fc 000002 8278"), "type 0x02 is unknown"),
        (bytes.fromhex("fc 000004 80 0004 75"), "the user name is cut short"),
        (composite((AUTHENTICATION, b"\x81" + bytes(8193))), "the token is over 8192 bytes"),
        (composite((AUTHENTICATION, b"\x80\x01\x00" + b"u" * 256)), "user name is over 255 bytes"),
        (composite((AUTHENTICATION, b"\x80\x00\x01u" + bytes(1025))), "password is over 1024"),
        (bytes.fromhex("fc 0000ff 81"), "runs past its"),
    ],
)
@in_memory
async def test_an_ambiguous_broken_or_oversize_entry(entries: bytes, text: str) -> None:
    async with checking() as (w, gate, peer, mail):
        code, said = await refused(peer, request(RR, 1, wanted("a") + entries))
        assert code == INVALID
        assert text in said
        assert await peer.ask(request(FNF, 3, wanted("a") + entries)) == []
        assert gate.seen == []
        assert await mail.received() == []
        assert w.listener.statistics().refused == 2


@in_memory
async def test_credentials_that_are_wrong(caplog: pytest.LogCaptureFixture) -> None:
    async with checking() as (w, _, peer, mail):
        await destination(w, "a")
        for stream in (1, 3):
            asked = request(RR, stream, WRONG + wanted("a"))
            assert await refused(peer, asked) == NOT_AUTHENTICATED
        assert await peer.ask(request(FNF, 5, WRONG + wanted("a"))) == []
        assert await mail.received() == []
        figures = w.listener.statistics()
        assert (figures.refused, peer.closed) == (3, False)
        assert figures.authentication is not None
        assert figures.authentication.requests_refused == {"unknown": 3}
        assert figures.authentication.refused == {}
    assert "a request is not authenticated: unknown" in caplog.text
    assert "zzz" not in caplog.text


@in_memory
async def test_guesses_count_against_the_source_and_expired_credentials_do_not() -> None:
    async with checking(max_failures=3) as (w, gate, peer, _):
        assert await peer.ask(request(FNF, 1, OLD + wanted("a"))) == []
        await asyncio.sleep(11)
        for number in range(4):
            asked = request(RR, 3 + 2 * number, OLD + wanted("a"))
            assert await refused(peer, asked) == NOT_AUTHENTICATED
        assert not w.connect().closed
        gate.seen.clear()
        for number in range(5):
            asked = request(RR, 11 + 2 * number, WRONG + wanted("a"))
            assert await refused(peer, asked) == NOT_AUTHENTICATED
        assert len(gate.seen) == 3  # then they are not looked at
        banned = w.connect()
        assert banned.closed
        w.peers.remove(banned)
        figures = w.listener.statistics().authentication
        assert figures is not None
        assert figures.requests_refused == {"expired": 4, "unknown": 3, "attempts": 2}
        # The connection itself goes on.
        (_, code, _), *_ = errors(await peer.ask(request(RR, 21, wanted("a"))))
        assert code == REJECTED  # no destination


@in_memory
async def test_a_metadata_push_has_no_credentials() -> None:
    async with checking() as (_, gate, peer, mail):
        assert await peer.ask(push(ANN + wanted("mail"))) == []
        assert await mail.received() == []
        assert gate.seen == []
        assert peer.link.session.refused == 1


@in_memory
async def test_metadata_that_are_not_composite_have_no_entry() -> None:
    async with checking() as (w, gate, _, mail):
        peer = w.connect()
        assert await peer.ask(setup(b"\x81ann", mime=AUTHENTICATION)) == []
        gate.seen.clear()
        bare = address("mail", mime=FORWARDING)
        assert await peer.ask(request(FNF, 1, bare)) == []  # as ann, by SETUP
        assert len(await mail.received()) == 1
        code, _ = await refused(peer, request(RR, 3, b"\x81bob"))  # no ADDRESS
        assert code == INVALID
        assert gate.seen == []


# --- memory -------------------------------------------------------------------------------------
@in_memory
async def test_a_principal_is_remembered_for_a_time_and_until_its_expiry() -> None:
    async with checking(remember_time=30) as (_, gate, peer, _mail):
        for after, checks in ((0, 1), (9, 1), (2, 2)):
            await asyncio.sleep(after)
            await peer.ask(request(FNF, peer.link.session.requests * 2 + 101, OLD + wanted("a")))
            assert len(gate.seen) == checks  # it has expired at 10
        gate.seen.clear()
        for number, (after, checks) in enumerate(((0, 1), (29, 1), (2, 2))):
            await asyncio.sleep(after)
            await peer.ask(request(FNF, 201 + 2 * number, ANN + wanted("mail")))
            assert len(gate.seen) == checks


@in_memory
async def test_the_memory_is_bounded_and_cleared_by_a_reload() -> None:
    async with checking(remembered=1) as (w, gate, peer, _):
        for number, entry in enumerate((ANN, BOB, ANN)):
            await peer.ask(request(FNF, 1 + 2 * number, entry + wanted("mail")))
        assert len(gate.seen) == 3
        authentication = w.listener._authentication
        assert authentication is not None
        assert authentication.statistics().remembered == 1
        (await authentication.prepare_reload())()
        assert authentication.statistics().remembered == 0
        await peer.ask(request(FNF, 11, ANN + wanted("mail")))
        assert len(gate.seen) == 4


@in_memory
async def test_a_check_that_a_reload_overtakes_is_not_remembered() -> None:
    async with checking() as (w, gate, peer, mail):
        gate.open.clear()
        await peer.ask(request(FNF, 1, ANN + wanted("mail")))
        authentication = w.listener._authentication
        assert authentication is not None
        (await authentication.prepare_reload())()
        gate.open.set()
        await w.loop.idle()
        assert len(await mail.received()) == 1
        assert authentication.statistics().remembered == 0


@in_memory
async def test_credentials_shown_by_another_source_are_checked_for_it() -> None:
    async with checking() as (w, gate, peer, _):
        await peer.ask(request(FNF, 1, ANN + wanted("mail")))
        other = w.connect("10.0.0.9")
        assert await other.ask(setup(GATEWAY)) == []
        gate.seen.clear()
        await other.ask(request(FNF, 1, ANN + wanted("mail")))
        ((_, identity),) = gate.seen
        assert (identity.source, identity.names, identity.user_id) == ("10.0.0.9", (), None)


# --- while a check is undecided -----------------------------------------------------------------
@pytest.mark.parametrize("fragments", [False, True])
@in_memory
async def test_requests_wait_in_order_behind_one_that_is_undecided(fragments: bool) -> None:
    async with checking() as (w, gate, peer, mail):
        second = await destination(w, "a")
        await peer.ask(request(FNF, 99, wanted("a"), b"known"))
        await second.received()
        gate.open.clear()
        asked = [request(RR, 1, ANN + wanted("mail"), b"onetwo")]
        if fragments:
            asked = [
                request(RR, 1, ANN + wanted("mail"), b"one", flags=F),
                payload(1, b"two", N),
            ]
        later = [
            request(FNF, 3, wanted("a"), b"a"),
            request(FNF, 5, WRONG + wanted("a"), b"b"),
            request(FNF, 7, ANN + wanted("mail"), b"c"),
            request(FNF, 9, wanted("a"), b"d"),
        ]
        ping = frame(0, KEEPALIVE, 0x80, bytes(8))
        assert await peer.ask(*asked, *later, ping) == [frame(0, KEEPALIVE, 0, bytes(8))]
        assert await mail.received() == await second.received() == []
        gate.open.set()
        await w.loop.idle()
        got = await mail.received()
        assert [kind_of(raw) for raw in got] == ([RR, PAYLOAD] if fragments else [RR]) + [FNF]
        assert b"".join(raw[-3:] for raw in got[:-1])[-3:] == b"two"
        assert [raw[-1:] for raw in await second.received()] == [b"a", b"d"]
        await mail.ask(payload(stream_of(got[0]), b"yes", N | C))
        assert elements(await peer.received()) == [b"yes"]


@in_memory
async def test_a_request_that_is_cancelled_while_it_is_held() -> None:
    async with checking() as (w, gate, peer, mail):
        gate.open.clear()
        await peer.ask(request(RR, 1, ANN + wanted("mail")), request(RR, 3, wanted("open")))
        await peer.ask(cancel(1), cancel(3))
        gate.open.set()
        await w.loop.idle()
        assert await mail.received() == await peer.received() == []
        assert peer.link.core.streams == {}


@in_memory
async def test_too_many_requests_that_are_held() -> None:
    async with checking(max_held=2) as (w, gate, peer, mail):
        gate.open.clear()
        asked = [request(RR, 1 + 2 * number, ANN + wanted("mail")) for number in range(4)]
        refused = errors(await peer.ask(*asked))
        text = "not delivered: the request (too many wait for the check of credentials)"
        assert refused == [(5, REJECTED, text), (7, REJECTED, text)]
        gate.open.set()
        await w.loop.idle()
        assert len(await mail.received()) == 2


@in_memory
async def test_the_bytes_of_held_requests_are_bounded() -> None:
    gathering = GatheringOptions(max_gathered=4096, max_gather=4096)
    async with checking(options=LinkOptions(gathering=gathering)) as (w, gate, peer, mail):
        gate.open.clear()
        asked = [
            request(RR, 1 + 2 * number, ANN + wanted("mail"), bytes(1000)) for number in range(9)
        ]
        refused = errors(await peer.ask(*asked))
        assert [code for _, code, _ in refused] == [REJECTED] * len(refused)
        assert 4 < len(refused) < 9
        gate.open.set()
        await w.loop.idle()
        assert len(await mail.received()) == 9 - len(refused)


@in_memory
async def test_a_check_that_takes_too_long() -> None:
    async with checking(timeout=3.0) as (_, gate, peer, _mail):
        gate.open.clear()
        assert await peer.ask(request(RR, 1, ANN + wanted("mail"))) == []
        await asyncio.sleep(2.9)
        assert await peer.received() == []
        await asyncio.sleep(0.2)
        assert errors(await peer.received()) == [(1, *NOT_AUTHENTICATED)]
        assert not peer.closed


@pytest.mark.parametrize("how", ["die", "stop", "drain"])
@in_memory
async def test_an_end_while_requests_are_held(how: str) -> None:
    async with checking() as (w, gate, peer, mail):
        gate.open.clear()
        await peer.ask(request(RR, 1, ANN + wanted("mail")), request(RR, 3, wanted("a")))
        if how == "die":
            peer.die()
        elif how == "stop":
            await w.listener.close()
        else:
            peer.link.end_requests("the broker drains")
            codes = [(stream, code) for stream, code, _ in errors(await peer.received())]
            assert codes == [(1, REJECTED), (3, REJECTED)]
        gate.open.set()
        await w.loop.idle()
        assert [raw for raw in await mail.received() if kind_of(raw) == RR] == []


@in_memory
async def test_later_elements_of_a_stream_are_not_checked() -> None:
    async with checking() as (w, _, peer, mail):
        asked = request(CHANNEL, 1, OLD + wanted("a"), b"1", n=1)
        second = await destination(w, "a")
        assert await peer.ask(asked) == []
        (got,) = await second.received()
        await second.ask(request_n(stream_of(got), 5))
        await asyncio.sleep(20)  # the credentials have expired
        await peer.received()
        assert await peer.ask(payload(1, b"2")) == []
        assert [raw[-1:] for raw in await second.received() if kind_of(raw) == PAYLOAD] == [b"2"]
        assert await mail.received() == []


# --- the connection's own credentials, and requests of others -----------------------------------
@in_memory
async def test_credentials_that_prolong_the_connection_are_its_own() -> None:
    async with checking() as (w, _, peer, _mail):
        question = composite(
            (BROKER_FRAME, address("onward.management")), (ROUTING, b"\x0cauthenticate")
        )
        (told,) = await peer.ask(request(RR, 1, question + GATEWAY))
        assert json.loads(told[9:])["principal"] == "gateway"
        assert await refused(peer, request(RR, 3, question + ANN)) == NOT_AUTHENTICATED
        figures = w.listener.statistics().authentication
        assert figures is not None
        assert figures.requests_checked == 0
        # Of another service the route means nothing to the broker.
        other = composite((ROUTING, b"\x0cauthenticate")) + wanted("open")
        text = "not allowed: request service=open"
        assert await refused(peer, request(RR, 5, ANN + other)) == (INVALID, text)
        named = composite((ROUTING, b"\x0cauthenticate"), (ROUTE, b"32#service=open"))
        assert await refused(peer, request(RR, 7, ANN + named)) == (INVALID, text)


@pytest.mark.parametrize("rules", [None, RULES])
@in_memory
async def test_without_the_option_entries_are_passed_on_untouched(rules: str | None) -> None:
    async with checking("forward", rules) as (w, gate, peer, _):
        second = await destination(w, "a")
        gate.seen.clear()
        entries = ANN, WRONG, ANN + ANN, bytes.fromhex("fc 000002 8278")
        for number, entry in enumerate(entries):
            metadata = entry + wanted("a")
            assert await peer.ask(request(FNF, 1 + 2 * number, metadata)) == []
            (got,) = await second.received()
            assert got == request(FNF, stream_of(got), metadata)
        assert gate.seen == []


@in_memory
async def test_without_rules_the_principal_is_still_checked() -> None:
    async with checking(rules=None) as (_, _gate, peer, mail):
        assert await refused(peer, request(RR, 1, WRONG + wanted("mail"))) == NOT_AUTHENTICATED
        assert await peer.ask(request(FNF, 3, ANN + wanted("mail"))) == []
        (got,) = await mail.received()
        assert got == request(FNF, 2, wanted("mail"))


@in_memory
async def test_the_log_has_no_credentials(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        async with checking() as (_, _gate, peer, _mail):
            secret = composite((AUTHENTICATION, b"\x80\x00\x01uhush"))
            assert await refused(peer, request(RR, 1, secret + wanted("a"))) == NOT_AUTHENTICATED
    assert "hush" not in caplog.text


@in_memory
async def test_the_broker_drops_the_principals_of_a_connection_that_ends() -> None:
    async with checking() as (w, _, peer, _mail):
        first = replace(principal("gateway", "gateway"), roles=frozenset())
        peer.link.session.renew(first)
        await peer.ask(request(FNF, 1, ANN + wanted("mail")))
        peer.eof()
        await w.loop.idle()
        assert peer.link.session._checks is None
