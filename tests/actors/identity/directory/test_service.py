"""The directory of a node: what it tells of changes, and the adverts that it tells others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from onward.actors.identity import DirectoryService
from onward.protocol.identity import (
    MAX_ADVERT_AGE,
    MAX_ADVERTS_SENT,
    SCOPE_ANY,
    TRUST_BANNED,
    TRUST_DEFAULT,
    AdvertEnvelope,
    AdvertSource,
    DirectoryLimits,
    DomainAdvert,
    EngineAdvert,
    Identity,
    IdentityUpdated,
    LocalMetadata,
    NodeAdvert,
    PutOutcome,
    ResultCode,
    SigningKey,
    TopicAdvert,
    Verifiers,
    sign_advert,
)
from tests.support.identities import key_of

NOW = 2_000_000_000_000
NODE, ENGINE, TOPIC, DOMAIN = map(key_of, ("node", "engine", "topic", "domain"))


def node_advert(key: SigningKey = NODE, version: int = 1) -> AdvertEnvelope:
    return sign_advert(NodeAdvert(key.identity, (), bytes(32), version, NOW), key)


ENGINE_ADVERT = sign_advert(EngineAdvert(ENGINE.identity, NODE.identity, None, 1, NOW), ENGINE)


class Loop:
    """A loop of which a test takes the turns."""

    def __init__(self, limits: DirectoryLimits | None = None) -> None:
        self.now = NOW
        self.waiting: list[Callable[[], object]] = []
        self.service = DirectoryService(Verifiers(), lambda: self.now, self.waiting.append, limits)
        self.said: list[IdentityUpdated | int] = []
        self.service.on_update.append(self.said.append)
        self.service.on_lost.append(self.said.append)

    def turn(self) -> list[Identity | int]:
        """Return what the subscribers are told in the next turn."""
        assert len(self.waiting) <= 1
        for each in [self.waiting.pop() for _ in self.waiting]:
            each()
        said, self.said[:] = list(self.said), []
        return [each.identity if isinstance(each, IdentityUpdated) else each for each in said]

    def put(self, *adverts: AdvertEnvelope) -> None:
        for each in adverts:
            outcome = self.service.put(each, AdvertSource.NETWORK)
            assert outcome in {PutOutcome.STORED, PutOutcome.REPLACED}


def test_changes_are_told_in_the_next_turn_once_for_each_identity() -> None:
    loop = Loop()
    loop.put(node_advert(), ENGINE_ADVERT, node_advert(version=2))
    assert loop.said == []
    assert loop.turn() == [NODE.identity, ENGINE.identity]
    assert loop.turn() == []
    assert loop.service.put(node_advert(), AdvertSource.NETWORK) is PutOutcome.OLDER
    assert loop.service.lookup(NODE.identity) == loop.service.peek(NODE.identity)
    assert loop.turn() == []
    assert not loop.waiting


def test_what_the_node_says_is_told() -> None:
    loop = Loop()
    service = loop.service
    assert service.set_trust(NODE.identity, TRUST_BANNED) is ResultCode.OK
    assert loop.turn() == [NODE.identity]
    assert service.put(node_advert(), AdvertSource.ANSWER) is PutOutcome.BANNED
    assert loop.turn() == []
    assert service.update(NODE.identity, LocalMetadata(200)) is ResultCode.OK
    assert loop.turn() == [NODE.identity]
    assert service.forget(NODE.identity)
    assert not service.forget(NODE.identity)
    assert loop.turn() == [NODE.identity]
    assert service.lookup(NODE.identity) is None
    assert service.statistics().missed == 1


@pytest.mark.parametrize("read", [DirectoryService.lookup, DirectoryService.peek])
def test_an_advert_that_is_found_to_be_too_old_is_a_change(
    read: Callable[[DirectoryService, Identity], object],
) -> None:
    loop = Loop()
    loop.put(node_advert())
    loop.turn()
    loop.now += MAX_ADVERT_AGE + 1
    assert read(loop.service, NODE.identity) is None
    assert loop.turn() == [NODE.identity]


def test_changes_that_are_lost_are_told_as_lost() -> None:
    loop = Loop(DirectoryLimits(max_updates=1))
    loop.put(node_advert(), ENGINE_ADVERT)
    assert loop.turn() == [NODE.identity, 1]
    loop.put(node_advert(version=2))
    assert loop.turn() == [NODE.identity]
    assert loop.service.statistics().lost == 1


def test_what_a_subscriber_changes_is_told_in_a_later_turn() -> None:
    loop = Loop()

    def trust(update: IdentityUpdated) -> None:
        loop.service.set_trust(update.identity, TRUST_DEFAULT + 1)

    loop.service.on_update.append(trust)
    loop.put(node_advert())
    assert loop.turn() == [NODE.identity]
    assert loop.turn() == [NODE.identity]
    assert loop.turn() == []


def test_a_subscriber_that_fails_is_logged_and_the_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = Loop()

    def fail(update: IdentityUpdated) -> None:
        raise ValueError("no")

    loop.service.on_update.insert(0, fail)
    loop.put(node_advert(), ENGINE_ADVERT)
    assert loop.turn() == [NODE.identity, ENGINE.identity]
    assert loop.service.failures == 2
    assert [each.message for each in caplog.records] == ["a subscriber to the directory failed"] * 2


def test_the_adverts_for_others_lead_on() -> None:
    loop = Loop()
    publishers = (ENGINE.identity, key_of("another").identity)
    topic = sign_advert(TopicAdvert(TOPIC.identity, (), publishers, SCOPE_ANY, 1, NOW), TOPIC)
    service = loop.service
    assert service.adverts_for(TOPIC.identity) == ()
    loop.put(topic)
    assert service.adverts_for(TOPIC.identity) == (topic,)
    loop.put(ENGINE_ADVERT, node_advert())
    assert service.adverts_for(NODE.identity) == (node_advert(),)
    assert service.adverts_for(ENGINE.identity) == (ENGINE_ADVERT, node_advert())
    assert service.adverts_for(TOPIC.identity) == (topic, ENGINE_ADVERT, node_advert())
    # To tell others is not to use it.
    assert service.statistics().unknown == 3


def test_a_topic_for_all_leads_nowhere_and_a_domain_to_its_first_nodes() -> None:
    loop = Loop()
    topic = sign_advert(TopicAdvert(TOPIC.identity, (), None, SCOPE_ANY, 1, NOW), TOPIC)
    keys = [key_of(f"member {number}") for number in range(6)]
    nodes = tuple(key.identity for key in keys)
    domain = sign_advert(DomainAdvert(DOMAIN.identity, nodes, 1, NOW), DOMAIN)
    adverts = [node_advert(key) for key in keys]
    loop.put(topic, domain, *adverts)
    assert loop.service.adverts_for(TOPIC.identity) == (topic,)
    assert loop.service.adverts_for(DOMAIN.identity) == (domain, *adverts[: MAX_ADVERTS_SENT - 1])


def test_a_banned_identity_is_not_told_to_others() -> None:
    loop = Loop()
    loop.put(ENGINE_ADVERT, node_advert())
    loop.service.set_trust(NODE.identity, TRUST_BANNED)
    assert loop.service.adverts_for(ENGINE.identity) == (ENGINE_ADVERT,)
    loop.service.set_trust(ENGINE.identity, TRUST_BANNED)
    assert loop.service.adverts_for(ENGINE.identity) == ()


def test_a_node_that_is_its_own_publisher_is_told_once() -> None:
    loop = Loop()
    both = sign_advert(EngineAdvert(NODE.identity, NODE.identity, None, 1, NOW), NODE)
    loop.put(both)
    assert loop.service.adverts_for(NODE.identity) == (both,)
