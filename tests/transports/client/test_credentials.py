"""The credentials of a client: in SETUP, refused, renewed, and nowhere in texts."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from onward.actors.security import Authentication
from onward.protocol import LinkDown, NotDelivered
from onward.protocol.rsocket import ErrorCode
from onward.protocol.security import (
    NOT_AUTHENTICATED,
    BadCredentials,
    BearerToken,
    Credentials,
    CustomCredentials,
    Principal,
    UserPassword,
)
from onward.transports import Backoff
from onward.transports._log import SeldomLogger
from onward.transports.client import Client, ClientOptions, CredentialsRefused, connect
from onward.transports.client._brokers import Brokers
from onward.transports.client._dial import BrokerEndpoint
from onward.transports.client._reconnector import Reconnector
from tests.support.security import Gate, gated
from tests.support.transports import eventually
from tests.support.virtual import run_virtual

from .peers import QUICK, SOON, broker, echo_handlers, peers, quick

ECHO = "service=echo"
GOOD = BearerToken(b"s3cret")
ONCE = quick(reconnect=False)


def gate(*accepted: Credentials | None) -> tuple[Gate, Authentication]:
    return gated({each: Principal("ida", "test") for each in accepted})


def cut(client: Client) -> None:
    assert client._pool is not None
    for keeper in client._pool.keepers:
        assert keeper.link is not None
        keeper.link.abort("cut by the test")


@pytest.mark.parametrize("scheme", ["tcp", "ws", "unix"])
@pytest.mark.parametrize(
    "credentials", [GOOD, UserPassword("ida", "pässword"), CustomCredentials("saml", b"\x00")]
)
async def test_a_destination_and_a_requester_with_credentials(
    credentials: Credentials, scheme: str, tmp_path: Path
) -> None:
    where = (
        f"rsocket+unix://{tmp_path}/s" if scheme == "unix" else f"rsocket+{scheme}://127.0.0.1:0"
    )
    opened, authentication = gate(credentials)
    async with (
        broker(where, authentication=authentication) as (uri, _),
        connect(uri, service="echo", handlers=echo_handlers(), credentials=credentials),
        connect(uri, credentials=credentials) as client,
    ):
        assert (await client.request(ECHO, b"hi")).data == b"hi"
    assert [given for given, _ in opened.seen] == [credentials, credentials]


@pytest.mark.parametrize("credentials", [None, BearerToken(b"wrong")])
async def test_a_refusal_has_an_error_of_its_own(credentials: Credentials | None) -> None:
    _, authentication = gate(GOOD)
    async with broker(authentication=authentication) as (uri, _):
        for options in (ONCE, QUICK):
            client = connect(uri, credentials=credentials, options=options)
            with pytest.raises(CredentialsRefused) as caught:
                await client.__aenter__()
            assert isinstance(caught.value, LinkDown | NotDelivered)
            assert str(caught.value) == (
                "credentials refused: the broker "
                "(the broker says: REJECTED_SETUP: not authenticated)"
            )


def test_the_blocking_client_says_so_too() -> None:
    async def serve() -> None:
        _, authentication = gate(GOOD)
        async with broker(authentication=authentication) as (uri, _):
            await asyncio.to_thread(call, uri)

    def call(uri: str) -> None:
        with pytest.raises(CredentialsRefused), connect(uri).in_background():
            pass
        handlers = echo_handlers()
        with connect(
            uri, service="echo", handlers=handlers, credentials=renewed
        ).in_background() as client:
            assert client.request(ECHO, b"hi").data == b"hi"

    async def renewed() -> Credentials:
        return GOOD

    asyncio.run(serve())


async def test_a_client_is_connected_once_the_broker_has_decided() -> None:
    opened, authentication = gate(GOOD)
    opened.open.clear()
    async with broker(authentication=authentication) as (uri, _):
        client = connect(uri, credentials=GOOD, options=QUICK)
        entering = asyncio.ensure_future(client.__aenter__())
        await eventually(lambda: len(opened.seen) == 1)
        assert not entering.done()
        opened.open.set()
        await entering
        await client.close()


async def test_a_function_is_asked_for_each_connection() -> None:
    tokens = [b"one", b"two", b"three"]
    opened, authentication = gate(*map(BearerToken, tokens))
    left = iter(tokens)

    async def next_token() -> Credentials:
        return BearerToken(next(left))

    async with (
        broker(authentication=authentication) as (uri, _),
        connect(uri, credentials=next_token, options=QUICK) as client,
    ):
        cut(client)
        await eventually(lambda: client.statistics().connects == 2)
        cut(client)
        await eventually(lambda: client.statistics().connects == 3)
    assert [given for given, _ in opened.seen] == list(map(BearerToken, tokens))


async def test_a_function_may_return_better_credentials_after_a_refusal() -> None:
    opened, authentication = gate(GOOD)
    given: list[Credentials] = [GOOD, BearerToken(b"old"), BearerToken(b"older"), GOOD]
    left = iter(given)

    async def next_token() -> Credentials:
        return next(left)

    async with (
        broker(authentication=authentication) as (uri, _),
        connect(
            uri, service="echo", handlers=echo_handlers(), credentials=next_token, options=QUICK
        ) as client,
    ):
        cut(client)
        # Meanwhile a request waits, as for any lost connection.
        assert (await client.request(ECHO, b"hi")).data == b"hi"
    assert [each for each, _ in opened.seen] == given


async def test_requests_fail_at_once_while_fixed_credentials_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened, authentication = gate(GOOD)
    async with (
        broker(authentication=authentication) as (uri, _),
        connect(
            uri, service="echo", handlers=echo_handlers(), credentials=GOOD, options=QUICK
        ) as client,
    ):
        accepted = dict(opened.accepted)
        opened.accepted.clear()
        cut(client)
        with pytest.raises(CredentialsRefused):
            await client.request(ECHO, b"hi", timeout=None)
        # The broker gets to know them, and the client is still trying.
        opened.accepted.update(accepted)
        await eventually(lambda: client.statistics().connects == 2)
        assert (await client.request(ECHO, b"hi")).data == b"hi"
    (told,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "the broker refuses the credentials of the client" in told.getMessage()
    assert "s3cret" not in caplog.text


async def test_another_broker_may_accept_what_one_refuses() -> None:
    _, one = gate()
    _, other = gate(GOOD)
    async with (
        broker(authentication=one) as (first, _),
        broker(authentication=other) as (second, _),
    ):
        in_order = quick(backoff=replace(SOON, random=lambda: 0.0))
        for options in (ONCE, in_order):
            async with connect([first, second], credentials=GOOD, options=options) as client:
                assert client.statistics().failures == 1


class _Refused:
    """A connection whose credentials are refused."""

    unauthenticated = refused = True
    unheard = False

    async def prepare(self) -> None: ...

    async def open(self) -> None:
        raise CredentialsRefused("broker", "not authenticated")

    def redial_by(self, _dial: object) -> None: ...

    def abort(self, _reason: str) -> None: ...

    async def drain(self, _timeout: float) -> None: ...


class _Dialler:
    async def open(self, _make: Any) -> None: ...


@pytest.mark.parametrize("fixed", [True, False])
def test_fixed_credentials_that_are_refused_are_tried_again_rarely(fixed: bool) -> None:
    tries: list[float] = []

    def make(_name: str) -> Any:
        tries.append(asyncio.get_running_loop().time())
        return _Refused()

    async def scenario() -> None:
        options = ClientOptions(backoff=Backoff(first=0.1, longest=30, random=lambda: 0.2))
        keeper = Reconnector(
            Brokers([BrokerEndpoint("broker", cast(Any, _Dialler()))], options),
            make,
            options,
            lambda: None,
            SeldomLogger(logging.getLogger("test")),
            fixed_credentials=fixed,
        )
        task = asyncio.ensure_future(keeper.run())
        await asyncio.sleep(100)
        task.cancel()

    run_virtual(scenario())
    waits = [after - before for before, after in pairwise(tries)]
    assert min(waits) == (pytest.approx(15) if fixed else pytest.approx(0.02))


async def test_a_function_that_fails() -> None:
    async def fails() -> Credentials:
        raise KeyError("s3cret")

    async def odd() -> Any:
        return "s3cret"

    async def long() -> Credentials:
        return BearerToken(bytes(10_000))

    async with peers() as made:
        for function, text in (
            (fails, "there are no credentials: KeyError"),
            (odd, "there are no credentials: TypeError"),
            (long, "bad credentials: the token is over 8192 bytes"),
        ):
            with pytest.raises(LinkDown) as caught:
                await connect(made.uri, credentials=function, options=ONCE).__aenter__()
            assert caught.value.detail == text
        assert made.all == []  # nothing was dialled


async def test_a_function_that_takes_too_long() -> None:
    async def never() -> Credentials:
        await asyncio.Event().wait()
        return GOOD

    options = quick(reconnect=False, connect_timeout=0.01)
    async with peers() as made:
        with pytest.raises(LinkDown):
            await connect(made.uri, credentials=never, options=options).__aenter__()
        assert made.all == []


def test_credentials_that_cannot_be_sent() -> None:
    with pytest.raises(BadCredentials):
        connect("rsocket+tcp://127.0.0.1:1", credentials=BearerToken(b""))
    with pytest.raises(ValueError, match="takes UserPassword, BearerToken, CustomCredentials or a"):
        connect("rsocket+tcp://127.0.0.1:1", credentials=cast(Any, "s3cret"))


async def test_only_the_text_of_an_onward_broker_means_the_credentials() -> None:
    async with peers() as made:
        for text, kind in ((NOT_AUTHENTICATED, CredentialsRefused), ("Access Denied", LinkDown)):
            client = connect(made.uri, credentials=GOOD, options=ONCE)
            entering = asyncio.ensure_future(client.__aenter__())
            peer = await made.next()
            assert peer.setup is not None
            assert peer.setup.metadata == bytes.fromhex("fc 000007 81") + b"s3cret"
            peer.core.close(ErrorCode.REJECTED_SETUP, text)
            peer.flush()
            with pytest.raises(LinkDown) as caught:
                await entering
            assert type(caught.value) is kind
