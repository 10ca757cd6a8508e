"""The advert of a topic that is to be created: whether it is one for this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....protocol.identity import (
    AdvertEnvelope,
    AdvertKind,
    BadRecord,
    Identity,
    RoutingScope,
    ScopeKind,
    TopicAdvert,
    open_advert,
)

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["read_topic_advert"]


def read_topic_advert(
    router: Router, topic: Identity, scope: RoutingScope, envelope: bytes
) -> TopicAdvert | str:
    """Return the advert of a topic, or why it is not one for a topic of this node.

    Args:
        router: The router.
        topic: The topic, which has to sign it.
        scope: Its scope, which the advert names as well. Beyond the node the first publisher says
            where the topic is: an engine of this node, or the node.
        envelope: The signed advert.
    """
    try:
        advert = open_advert(AdvertEnvelope(AdvertKind.TOPIC, envelope), router.verifiers)
    except BadRecord:
        return "the advert cannot be read"
    if not isinstance(advert, TopicAdvert) or advert.identity != topic:
        return "the advert is not signed by the topic"
    if advert.scope != scope:
        return "the advert has another scope"
    if scope.kind is ScopeKind.LOCAL:
        return advert
    first = advert.publishers[0] if advert.publishers else None
    if first is None or (first != router.own and router.engines.of(first) is None):
        return "the first publisher of the advert is no engine of this node"
    return advert
