"""What the router of identities has done, for operators: figures, rows, and lines of the log.

There is no payload in them, and of what is relayed no sender and no receiver.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ...protocol.identity import DestinationKind, Identity, identity_text, short_text
from ._router_part import RouterPart
from .relays._part import Relays

if TYPE_CHECKING:
    from ._router import Router
    from .domains._part import DomainsPart
    from .topics._part import Topics

__all__ = ["IDENTITIES", "IDENTITY_FIGURES", "Figures"]

IDENTITY_FIGURES: Final = "identity"
"""The question to a node for the figures of its router, as one row."""

IDENTITIES: Final = "identities"
"""The question to a node for the other nodes that have joined it."""

_logger: Final = logging.getLogger("onward.actors.identity")


class Figures(RouterPart):
    """The figures of a router.

    Args:
        router: The router.
        topics: Its topics.
        domains: Its domains.

    Attributes:
        joined: Nodes that have joined, since the start.
        lost: Links to joined nodes that have ended.
        bans: Identities that were banned.
    """

    def __init__(self, router: Router, topics: Topics, domains: DomainsPart) -> None:
        self._router: Final = router
        self._topics: Final = topics
        self._domains: Final = domains
        self._present: Final[set[Identity]] = set()
        self.joined = 0
        self.lost = 0
        self.bans = 0

    def node_joined(self, node: Identity) -> None:
        """Count a node that takes messages."""
        self._present.add(node)
        self.joined += 1
        _logger.info("%s has joined", short_text(node), extra={"event": "identity.joined"})

    def node_lost(self, node: Identity) -> None:
        """Count the end of the link to a node that had joined."""
        if node in self._present:
            self._present.remove(node)
            self.lost += 1
            _logger.info("%s is lost", short_text(node), extra={"event": "identity.lost"})

    def banned(self, identity: Identity) -> None:
        """Count a ban."""
        self.bans += 1
        _logger.warning("%s is banned", short_text(identity), extra={"event": "identity.banned"})

    def row(self) -> dict[str, Any]:
        """Return the figures. What was refused or dropped is by its reason."""
        router = self._router
        known = router.directory.statistics()
        return {
            "identity": identity_text(router.own),
            "engines": len(router.engines),
            "nodes": len(self._present),
            "links": len(tuple(router.links.identities())),
            "parked": router.awaited.messages,
            "known": known.held + known.used + known.unknown,
            "joined": self.joined,
            "lost": self.lost,
            "bans": self.bans,
            "refused": dict(router.counts + router.peers.counts),
            **self._file_row(),
            **self._way_row(),
            **self._topic_row(),
            **self._domain_row(),
            **self._relay_row(),
        }

    def _file_row(self) -> dict[str, Any]:
        """Return whether the file of the directory can be used, and what has failed."""
        saver = self._router.directory.saver
        if saver is None:
            return {}
        return {
            "file_trouble": int(bool(saver.trouble or saver.requests.trouble)),
            "file_failures": saver.failures,
            "file_bad_requests": saver.requests.bad,
        }

    def _way_row(self) -> dict[str, Any]:
        """Return what is looked up at other nodes, and which nodes are dialled."""
        found, dialling = self._router.lookups.table.statistics(), self._router.dialling
        return {
            "lookups": found.lookups,
            "missing": found.missing,
            "lookups_asked": found.asked,
            "lookups_found": found.found,
            "lookup_wishes": {_word(each.name): number for each, number in found.outcomes},
            "lookups_ended": {_word(each.name): number for each, number in found.ended},
            "dialling": dialling.under_way,
            "unreached": dialling.unreached,
            "dials": dict(dialling.counts),
        }

    def _topic_row(self) -> dict[str, Any]:
        """Return the topics, and what became of publications and events."""
        found = self._topics.statistics()
        return {
            "topics": found.created,
            "topics_followed": found.followed,
            "topic_subscribers": found.subscribers,
            "topic_nodes": found.nodes,
            "topics_waiting": found.waiting,
            "topic_events": dict(found.events),
        }

    def _domain_row(self) -> dict[str, Any]:
        """Return what is asked of domains, and what the node serves and passes on."""
        found = self._domains.statistics()
        return {
            "domains": found.served,
            "domain_pending": found.pending,
            "domain_requests": asdict(found.counters),
        }

    def _relay_row(self) -> dict[str, Any]:
        """Return what goes over relays, and what the node relays itself."""
        part = self._router.find_part(DestinationKind.RELAY)
        if not isinstance(part, Relays):
            return {}
        found = part.statistics()
        return {
            "sealed": found.sealed,
            "relayed": found.relayed,
            "relayed_bytes": found.relayed_size,
            "held": found.held,
            "held_bytes": found.held_size,
            "reservations": found.reservations,
            "reserved": found.reserved,
            "charged": found.charged,
            "charged_bytes": found.charged_size,
            "handles": found.handles,
            "layers": found.layers,
            "expected": found.expected,
            "relay_refused": {each.name.lower(): n for each, n in found.refused.items()},
            "relay_rate_refused": found.rate_refused,
            "relay_held_refused": {each.name.lower(): n for each, n in found.held_refused.items()},
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the nodes that have joined."""
        router = self._router
        engines = Counter(
            node
            for each in router.table.destinations()
            if each.kind is DestinationKind.ENGINE and (node := router.home(each.identity))
        )
        return [
            {
                "identity": identity_text(node),
                "dialled": session.dialled,
                "engines": engines[node],
                "waiting": len(session.waiting),
            }
            for node, session in router.peers.sessions.items()
            if session.is_greeted
        ]


def _word(name: str) -> str:
    return name.lower()
