"""The steps of a refused message of a link: what another node could find out by their time."""

from __future__ import annotations

import pytest

from onward.actors import Node
from onward.actors.identity._carriage import ENGINE
from onward.actors.identity._outgoing import ONWARD
from onward.protocol import Message
from onward.protocol.identity import (
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    EngineOrigin,
    Identity,
    P2PMessage,
    Protocol,
    SigningKey,
    derived_engine,
    serialize_p2p_message,
    sign_engine_message,
)
from onward.protocol.ockam import encode_message
from onward.transports.identity import Identities
from tests.support.identities import StrangeNode, attached, key_of
from tests.support.steps import Steps
from tests.support.transports import Recorder, eventually

STRANGE, KNOWN, UNKNOWN, BANNED = map(key_of, ("strange", "known", "unknown", "banned"))
BODY = encode_message(Message((ENGINE,), (), b"hi"))


class Link:
    """The link of a node with another one, which says what a test wants; and what that takes."""

    def __init__(self, ours: Identities, steps: Steps) -> None:
        self.ours = ours
        self._steps = steps
        self._numbers = 0

    def message(
        self,
        to: Identity,
        key: SigningKey = STRANGE,
        *,
        expires: int = 60_000,
        protocol: Protocol = ONWARD,
        body: bytes = BODY,
        origin: EngineOrigin | None = None,
    ) -> bytes:
        """Return the signed message of an engine."""
        now = self.ours._router.milliseconds()
        self._numbers += 1
        message = EngineMessage(
            key.identity if origin is None else derived_engine(origin.node, origin.name),
            Destination(DestinationKind.ENGINE, to),
            (now + 30_000 << 20) + self._numbers,
            protocol,
            body,
            expiry=now + expires,
            origin=origin,
        )
        return sign_engine_message(message, key)

    def takes(self, envelope: bytes) -> tuple[dict[str, int], str]:
        """Return the steps that a message takes, and the reason for which it is refused."""
        router = self.ours._router
        session = router.peers.sessions[STRANGE.identity]
        record = serialize_p2p_message(
            P2PMessage(STRANGE.identity, self.ours.own, EngineContent(envelope))
        )
        router.counts.clear()
        taken, _ = self._steps.of(lambda: router.incoming.receive(session, record))
        return taken, next(iter(router.counts), "")


@pytest.fixture
async def link(a: Node, c: Node, monkeypatch: pytest.MonkeyPatch) -> Link:
    steps = Steps(monkeypatch)
    ours = await attached(c)
    await StrangeNode.on(a, c, STRANGE)
    session = ours._router.peers.sessions[STRANGE.identity]
    await eventually(lambda: session.is_greeted)
    await Recorder.on(c, "engine")
    for key in (KNOWN, BANNED):
        assert ours._router.verifiers.is_signed_by(key.identity, key.sign(b"before"), b"before")
    ours._router.standing.ban(BANNED.identity)
    return Link(ours, steps)


def wrong(envelope: bytes) -> bytes:
    return envelope[:-40] + bytes((envelope[-40] ^ 1,)) + envelope[-39:]


async def test_threat_10_a_wrong_signature_tells_nothing_of_what_the_node_knows(link: Link) -> None:
    here, nowhere = link.ours.engine("engine"), key_of("nowhere").identity
    reason = "messages with a wrong signature"
    for to in (here, nowhere, BANNED.identity):
        for key in (STRANGE, KNOWN, UNKNOWN, BANNED):
            found = link.takes(wrong(link.message(to, key)))
            assert found == ({"key": 1, "verify": 1}, reason), (to, key)
        origin = EngineOrigin(STRANGE.identity, b"printer")
        assert link.takes(wrong(link.message(to, origin=origin)))[1] == reason
    again = link.message(here)
    assert link.takes(again) == ({"verify": 1}, "")
    assert link.takes(wrong(again)) == ({"key": 1, "verify": 1}, reason)


async def test_threat_10_what_is_refused_has_taken_the_steps_of_what_is_delivered(
    link: Link,
) -> None:
    here, nowhere = link.ours.engine("engine"), key_of("nowhere").identity
    good = link.message(here)
    taken = {"verify": 1}
    assert link.takes(good) == (taken, "")
    refused = {
        "messages that are not fresh: it was received before": good,
        "messages that are not fresh: it has expired": link.message(here, expires=-60_000),
        "messages that the router refuses: not-here": link.message(nowhere),
        "messages that the router refuses: banned": link.message(BANNED.identity),
        "messages of another protocol": link.message(here, protocol=Protocol("other", 1)),
        "messages that cannot be read": link.message(here, body=b""),
        "messages of an engine that has not said to be at the node": link.message(here, KNOWN),
    }
    for reason, envelope in refused.items():
        found, why = link.takes(envelope)
        # What it answers is sealed, as each record of the link is.
        assert ({**found, "seal": 0}, why) == ({**taken, "seal": 0}, reason)
