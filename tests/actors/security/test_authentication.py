"""The methods of authentication in order, their time, and what is counted."""

from __future__ import annotations

import asyncio

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
        0, {"known": 1, "anonymous": 1}, {"wrong token": 1, "unknown": 1}
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
    assert "the authentication method known has failed" in caplog.text


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
