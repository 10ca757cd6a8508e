"""The part of the router that nodes ask each other by for adverts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol.identity import (
    AdvertRequest,
    AdvertResponse,
    BadRecord,
    ControlContent,
    Identity,
    P2PContent,
    RateLimiter,
    RelayLoadLimits,
    RelayStatus,
    ResultCode,
    parse_control,
    serialize_control,
)
from ._router_part import RouterPart

if TYPE_CHECKING:
    from ._router import Router
    from ._session import Session

__all__ = ["LookupsPart"]


class LookupsPart(RouterPart):
    """The look-ups of a node, and its answers to those of others.

    Nodes ask each other for adverts. All other requests to a router or a directory are for engines
    of the same node, and those of the network are refused.

    Args:
        router: The router.
    """

    controls: ClassVar[range] = range(32)

    def __init__(self, router: Router) -> None:
        self._router: Final = router
        self._rates: Final = RateLimiter(RelayLoadLimits(rate=_RATE, burst=_BURST))

    def receive(self, session: Session, content: P2PContent) -> None:
        """Receive a request for adverts, or adverts."""
        counts = self._router.counts
        try:
            control = parse_control(content.record if isinstance(content, ControlContent) else b"")
        except BadRecord:
            counts["records that cannot be read"] += 1
            return
        match control:
            case AdvertRequest(identity):
                self._answer(session.node, identity)
            case AdvertResponse(_, adverts):
                self._router.heard_adverts.hear(session.node, adverts)
            case _:
                counts[f"requests that are refused: {ResultCode.DENIED.name}"] += 1

    def ask(self, identity: Identity) -> None:
        """Ask nodes that there are links to for the adverts of an identity."""
        content = ControlContent(serialize_control(AdvertRequest(identity)))
        sessions = [each for each in self._router.peers.sessions.values() if each.is_greeted]
        for session in sessions[:_MOST_ASKED]:
            self._router.outgoing.tell(session.node, content, lambda _: None)

    def _answer(self, node: Identity, identity: Identity) -> None:
        """Answer with what is known of an identity; other nodes are not asked for it."""
        router = self._router
        if self._rates.spend(node, router.loop_time()) is not RelayStatus.OK:
            router.counts["requests beyond those that a node may make"] += 1
            return
        response = AdvertResponse(identity, router.directory.adverts_for(identity))
        content = ControlContent(serialize_control(response))
        router.outgoing.tell(node, content, lambda _: None)


_RATE: Final = 100
"""Requests of one node that are answered in each second, in the long run. More are dropped, and
counted."""
_BURST: Final = 1_000
"""Requests of one node that are answered at once. Beyond: as above."""
_MOST_ASKED: Final = 8
"""Most nodes that are asked for one identity at a time."""
