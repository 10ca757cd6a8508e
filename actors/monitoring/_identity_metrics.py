"""The metrics of a node's router of identities, by the row that it has for operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ...protocol.metrics import Metric
from ._metrics import counter, gauge

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["IDENTITY_FAMILIES", "identity_metrics"]

_FIGURES: Final = {
    "engines": gauge("identity_engines", "Engines of the node."),
    "nodes": gauge("identity_nodes", "Other nodes that have joined it."),
    "links": gauge("identity_links", "Identities elsewhere that messages are exchanged with."),
    "parked": gauge("identity_parked", "Messages that wait until it is known where they go."),
    "known": gauge("identity_known", "Identities in the directory."),
    "joined": counter("identity_joined", "Nodes that have joined."),
    "lost": counter("identity_lost", "Links to joined nodes that have ended."),
    "bans": counter("identity_bans", "Identities that were banned."),
    "file_trouble": gauge(
        "identity_file_trouble",
        "Whether the file of the directory cannot be written, or requests in it not be read: 1.",
    ),
    "file_failures": counter(
        "identity_file_failures", "Times that the file of the directory could not be written."
    ),
    "file_bad_requests": counter(
        "identity_file_bad_requests",
        "Requests in the file of the directory that have no identity or no trust.",
    ),
    "lookups": gauge("identity_lookups", "Look-ups of identities at other nodes, under way."),
    "missing": gauge("identity_missing", "Identities that were not found a moment ago."),
    "lookups_asked": counter(
        "identity_lookups_asked", "Nodes that were asked for an identity, each time."
    ),
    "lookups_found": counter("identity_lookups_found", "Look-ups that were answered."),
    "dialling": gauge("identity_dialling", "Nodes that are dialled at the moment."),
    "unreached": gauge(
        "identity_unreached", "Nodes that could not be reached when they were dialled last."
    ),
    "topics": gauge("identity_topics", "Topics of the node, with that of its router."),
    "topics_followed": gauge("identity_topics_followed", "Topics of other nodes."),
    "topic_subscribers": gauge(
        "identity_topic_subscribers", "Subscriptions of engines of the node."
    ),
    "topic_nodes": gauge("identity_topic_nodes", "Subscriptions of other nodes here."),
    "topics_waiting": gauge(
        "identity_topics_waiting", "Subscriptions that wait until their topic is found."
    ),
    "domains": gauge("identity_domains", "Domains that workers of the node serve."),
    "domain_pending": gauge(
        "identity_domain_pending", "Requests to domains that wait for a response."
    ),
    "sealed": counter("identity_sealed", "Messages that were sealed and sent over relays."),
    "relayed": counter(
        "identity_relayed", "Messages and answers of other nodes that links have taken."
    ),
    "relayed_bytes": counter(
        "identity_relayed_bytes", "Bytes of other nodes that links have taken."
    ),
    "held": gauge("identity_relay_held", "Messages to relay that wait for a link."),
    "held_bytes": gauge("identity_relay_held_bytes", "Bytes to relay that wait for a link."),
    "reservations": gauge("identity_relay_reservations", "Reservations of other nodes here."),
    "reserved": gauge("identity_relay_reserved", "Reservations of this node at relays."),
    # Gauges, as what was not carried in the end is refunded.
    "charged": gauge(
        "identity_relay_charged",
        "Messages and answers charged to reservations since the start, and not refunded.",
    ),
    "charged_bytes": gauge(
        "identity_relay_charged_bytes",
        "Bytes charged to reservations since the start, and not refunded.",
    ),
    "handles": gauge("identity_relay_handles", "Answers of others that may come back this way."),
    "layers": gauge("identity_relay_layers", "Layers that are remembered until they expire."),
    "expected": gauge("identity_expected", "Answers over relays that this node waits for."),
    "relay_rate_refused": counter(
        "identity_relay_rate_refused", "Messages that came faster than a node may send."
    ),
}
_REFUSED: Final = counter(
    "identity_refused", "What was refused or dropped, by the reason.", "reason"
)
_LOOKUP_WISHES: Final = counter(
    "identity_lookup_wishes", "Wishes to look up an identity, by the outcome.", "outcome"
)
_LOOKUPS_ENDED: Final = counter(
    "identity_lookups_ended", "Look-ups that ended without an answer, by the reason.", "reason"
)
_DIALS: Final = counter(
    "identity_dials", "Links to nodes that were dialled for messages, by the outcome.", "outcome"
)
_TOPIC_EVENTS: Final = counter(
    "identity_topic_events", "Publications and events of topics, by what became of them.", "what"
)
_DOMAIN_REQUESTS: Final = counter(
    "identity_domain_requests", "Requests to domains, by what came of them.", "outcome"
)
_RELAY_REFUSED: Final = counter(
    "identity_relay_refused", "Messages that were not relayed, by the status.", "status"
)
_HELD_REFUSED: Final = counter(
    "identity_relay_held_refused", "Messages that a relay could not hold, by the limit.", "limit"
)

_BY_REASON: Final = {
    # Reasons, outcomes and statuses are those that the code has.
    "refused": _REFUSED,
    "lookup_wishes": _LOOKUP_WISHES,
    "lookups_ended": _LOOKUPS_ENDED,
    "dials": _DIALS,
    "topic_events": _TOPIC_EVENTS,
    "domain_requests": _DOMAIN_REQUESTS,
    "relay_refused": _RELAY_REFUSED,
    "relay_held_refused": _HELD_REFUSED,
}

IDENTITY_FAMILIES: Final = (*_FIGURES.values(), *_BY_REASON.values())


def identity_metrics(node: Node) -> Iterator[Metric | None]:
    """Yield the metrics of a node's router of identities; none if it has no identity."""
    report = node.parts.reports.get("identity")
    if report is None:
        return
    (row,) = report()
    for name, family in _FIGURES.items():
        yield Metric(family, (((), row.get(name, 0)),))
    for name, family in _BY_REASON.items():
        found = sorted(cast("Mapping[str, Any]", row.get(name, {})).items())
        yield Metric(family, tuple(((label,), count) for label, count in found))
