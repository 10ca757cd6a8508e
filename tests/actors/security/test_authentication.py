"""The methods of authentication in order, their time, and what is counted."""

from __future__ import annotations

import asyncio
import logging

import pytest

from onward.actors.security import (
    AnonymousAuthenticator,
    Authentication,
    AuthenticationOptions,
    AuthenticationStatistics,
    Authenticator,
)
from onward.protocol.security import (
    BearerToken,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    UserPassword,
)

PEER = PeerIdentity("rsocket+tcp://127.0.0.1:8001", "127.0.0.1")
ANN = Principal("ann", "known", frozenset({"orders"}))


class Known(Authenticator):
    """A method that knows one token."""

    method = "known"

    def __init__(self, principal: Principal = ANN) -> None:
        self.principal = principal
        self.closed = False

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        if not isinstance(credentials, BearerToken):
            return None
        if credentials.token != b"right":
            raise NotAuthenticated("wrong token")
        return self.principal

    async def close(self) -> None:
        self.closed = True


class Silent(Known):
    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        await asyncio.Event().wait()
        raise AssertionError("never set")


class Broken(Known):
    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        raise RuntimeError("a fault of the method")


async def cause(authentication: Authentication, credentials: Credentials | None) -> str:
    with pytest.raises(NotAuthenticated) as caught:
        await authentication.authenticate(credentials, PEER)
    assert str(caught.value) == "not authenticated"
    return caught.value.cause


async def test_the_first_method_that_decides_counts() -> None:
    authentication = Authentication([Known(), AnonymousAuthenticator(frozenset({"guest"}))])
    assert await authentication.authenticate(BearerToken(b"right"), PEER) == ANN
    guest = await authentication.authenticate(None, PEER)
    assert (guest.name, guest.method, guest.roles) == (
        "anonymous",
        "anonymous",
        frozenset({"guest"}),
    )
    assert await cause(authentication, BearerToken(b"wrong")) == "wrong token"
    assert await cause(authentication, UserPassword("ann", "?")) == "unknown"
    assert authentication.statistics() == AuthenticationStatistics(
        0, {"known": 1, "anonymous": 1}, {"wrong token": 1, "unknown": 1}, sources=1
    )


async def test_without_credentials_nothing_but_anonymous_accepts() -> None:
    assert await cause(Authentication([Known()]), None) == "no credentials"


async def test_a_decision_has_its_time() -> None:
    authentication = Authentication([Silent()], AuthenticationOptions(timeout=2.0))
    deciding = asyncio.ensure_future(cause(authentication, BearerToken(b"right")))
    await asyncio.sleep(0)
    assert authentication.statistics().undecided == 1
    assert await deciding == "timeout"
    assert authentication.statistics().undecided == 0


async def test_a_method_that_fails_lets_no_peer_in(caplog: pytest.LogCaptureFixture) -> None:
    authentication = Authentication([Broken(), AnonymousAuthenticator()])
    assert await cause(authentication, None) == "failure"
    assert "the authentication method known has failed: RuntimeError" in caplog.text


async def test_the_error_of_a_method_is_in_the_log_for_debugging_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Its text may have credentials in it.
    with caplog.at_level(logging.INFO, "onward"):
        assert await cause(Authentication([Broken()]), None) == "failure"
    assert "a fault of the method" not in caplog.text
    with caplog.at_level(logging.DEBUG, "onward"):
        assert await cause(Authentication([Broken()]), None) == "failure"
    assert "RuntimeError: a fault of the method" in caplog.text


async def test_expired_credentials_are_refused() -> None:
    expired = Known(Principal("ann", "known", expires=100.0))
    authentication = Authentication([expired], clock=lambda: 100.0)
    assert await cause(authentication, BearerToken(b"right")) == "expired"
    earlier = Authentication([expired], clock=lambda: 99.0)
    assert (await earlier.authenticate(BearerToken(b"right"), PEER)).expires == 100.0


async def test_it_closes_its_methods() -> None:
    method = Known()
    await Authentication([method, AnonymousAuthenticator()]).close()
    assert method.closed


def test_methods_are_one_or_more_and_each_once() -> None:
    for methods in ([], [Known(), Known()]):
        with pytest.raises(ValueError, match="one or more"):
            Authentication(methods)


def peer_of(source: str) -> PeerIdentity:
    return PeerIdentity("rsocket+tcp://127.0.0.1:8001", source)


async def test_a_source_with_too_many_failures_is_banned_for_a_time() -> None:
    now = [0.0]
    options = AuthenticationOptions(max_failures=2, failure_window=60.0)
    authentication = Authentication([Known()], options, ticks=lambda: now[0])
    for _ in range(2):
        assert authentication.admits("127.0.0.1")
        assert await cause(authentication, BearerToken(b"wrong")) == "wrong token"
    assert not authentication.admits("127.0.0.1")
    assert authentication.admits("127.0.0.2")
    assert await cause(authentication, BearerToken(b"right")) == "attempts"
    found = authentication.statistics()
    assert (found.banned, found.sources) == (1, 1)
    assert found.refused == {"wrong token": 2, "attempts": 1}
    now[0] = 60.0
    assert authentication.admits("127.0.0.1")
    assert await authentication.authenticate(BearerToken(b"right"), PEER) == ANN


@pytest.mark.parametrize("source", ["", "10.0.0.1 #7"])
async def test_a_source_that_is_no_peer_of_its_own_is_not_limited(source: str) -> None:
    authentication = Authentication([Known()], AuthenticationOptions(max_failures=1))
    for _ in range(3):
        with pytest.raises(NotAuthenticated, match="not authenticated"):
            await authentication.authenticate(None, peer_of(source))
    assert authentication.admits(source)
    assert authentication.statistics().sources == 0


@pytest.mark.parametrize("method", [Silent(), Broken()])
async def test_a_fault_of_ours_is_no_failure_of_the_source(method: Authenticator) -> None:
    authentication = Authentication([method], AuthenticationOptions(max_failures=1))
    for _ in range(2):
        assert await cause(authentication, None) in ("timeout", "failure")
    assert authentication.admits(PEER.source)


async def test_decisions_in_progress_are_limited_for_each_source() -> None:
    authentication = Authentication([Silent()], AuthenticationOptions(max_undecided=1))
    deciding = asyncio.ensure_future(cause(authentication, None))
    await asyncio.sleep(0)
    assert await cause(authentication, None) == "attempts"
    other = asyncio.ensure_future(authentication.authenticate(None, peer_of("127.0.0.2")))
    await asyncio.sleep(0)
    other.cancel()
    with pytest.raises(asyncio.CancelledError):
        await other
    assert await deciding == "timeout"
    assert authentication.admits(PEER.source)
