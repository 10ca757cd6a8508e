"""The method `callout`."""

from __future__ import annotations

import pytest

from onward.actors import Node, Worker
from onward.actors.security import Authentication, AuthenticationOptions, CalloutAuthenticator
from onward.protocol import Message
from onward.protocol.security import (
    BearerToken,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    UserPassword,
    format_callout_answer,
    parse_callout,
)

PEER = PeerIdentity(source="10.0.0.1")
ANN = Principal("ann", "callout", frozenset({"orders"}))


class Register(Worker):
    """A worker that knows one user."""

    def handle_message(self, message: Message) -> None:
        credentials, peer = parse_callout(message.payload)
        known = credentials == UserPassword("ann", "right") or peer.user_id == 1000
        self.reply(message, format_callout_answer(ANN if known else None))


class Broken(Worker):
    def handle_message(self, message: Message) -> None:
        self.reply(message, b"nonsense")


class Silent(Worker):
    def handle_message(self, message: Message) -> None:
        """Answer nothing."""


@pytest.mark.parametrize(
    ("credentials", "peer", "found"),
    [
        (UserPassword("ann", "right"), PEER, ANN),
        (None, PeerIdentity(user_id=1000), ANN),
        (None, PEER, None),
    ],
)
async def test_the_worker_decides(
    node: Node, credentials: Credentials | None, peer: PeerIdentity, found: Principal | None
) -> None:
    await node.start(Register, address="register")
    method = CalloutAuthenticator(lambda: node, "register")
    assert await method.authenticate(credentials, peer) == found


@pytest.mark.parametrize("peer", [PEER, PeerIdentity(names=("DNS:a",))])
async def test_the_worker_refuses(node: Node, peer: PeerIdentity) -> None:
    await node.start(Register, address="register")
    method = CalloutAuthenticator(node, "register")
    with pytest.raises(NotAuthenticated) as caught:
        await method.authenticate(BearerToken(b"x"), peer)
    assert caught.value.cause == "refused"


@pytest.mark.parametrize("route", ["broken", "silent", "gone"])
async def test_without_an_answer_the_peer_is_refused_and_not_blamed(
    node: Node, route: str, caplog: pytest.LogCaptureFixture
) -> None:
    await node.start(Broken, address="broken")
    await node.start(Silent, address="silent")
    method = CalloutAuthenticator(node, route, timeout=1.0)
    authentication = Authentication([method], AuthenticationOptions(max_failures=1))
    for _ in range(3):
        with pytest.raises(NotAuthenticated) as caught:
            await authentication.authenticate(UserPassword("ann", "secret"), PEER)
        assert caught.value.cause == "failure"
    assert authentication.admits(PEER.source)
    # One line, however many peers are refused, and no credentials in it.
    assert caplog.text.count("the authentication method callout has failed") == 1
    assert "secret" not in caplog.text
