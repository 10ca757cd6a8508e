"""The part of the router that looks up identities: in the directory, and at other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from ....protocol.identity import (
    AdvertEnvelope,
    AdvertRequest,
    AdvertResponse,
    AskNode,
    BadRecord,
    ControlContent,
    DestinationKind,
    EngineAdvert,
    EngineMessage,
    Identity,
    LookupEnd,
    LookupEvent,
    LookupFailure,
    LookupOutcome,
    LookupTable,
    P2PContent,
    RateLimiter,
    RelayLoadLimits,
    RelayStatus,
    ResultCode,
    parse_control,
    read_advert,
    serialize_control,
)
from ..._worker import Worker
from ...runtime._timer import Timer
from .._router_part import RouterPart

if TYPE_CHECKING:
    from .._router import Router
    from ..links._session import Session

__all__ = ["LookupStep", "LookupsPart"]


class LookupStep(NamedTuple):
    """A step of a look-up of this node: another node is asked, or has answered.

    Attributes:
        identity: The identity that is looked up.
        node: The other node.
        answered: Whether that node has answered with an advert of it; else it is asked now.
    """

    identity: Identity
    node: Identity
    answered: bool


class LookupsPart(RouterPart):
    """The look-ups of a node, and its answers to those of others.

    Nodes ask each other for adverts. All other requests to a router or a directory are for engines
    of the same node, and those of the network are refused.

    Args:
        router: The router.
        worker: Its worker, for timers.

    Attributes:
        table: The look-ups under way.
        on_step: Each receives the steps of all look-ups. It neither waits nor raises.
    """

    controls: ClassVar[range] = range(32)

    def __init__(self, router: Router, worker: Worker) -> None:
        self.table: Final = LookupTable()
        self.on_step: Final[list[Callable[[LookupStep], object]]] = []
        self._router: Final = router
        self._worker: Final = worker
        self._rates: Final = RateLimiter(RelayLoadLimits(rate=_RATE, burst=_BURST))
        self._ended: Final[dict[Identity, asyncio.Future[None]]] = {}
        self._timer: Timer | None = None
        self._due = 0.0

    # --- to ask -------------------------------------------------------------------------------

    def wanted(self, identity: Identity) -> str | None:
        """Look up an identity that messages wait for; return why not, if it is not."""
        outcome, events = self.table.start(identity, self._now())
        self._act(events)
        if outcome in {LookupOutcome.STARTED, LookupOutcome.UNDER_WAY}:
            return None
        return outcome.value

    def ask(self, identity: Identity) -> None:
        """Look up an identity, unless that is under way or none has known it a moment ago."""
        self.wanted(identity)

    def lookup(self, identity: Identity) -> asyncio.Future[None] | None:
        """Look up an identity; return what to wait for, or `None` if it is not looked up."""
        ended = self._ended.get(identity)
        if ended is None and self.wanted(identity) is None:
            ended = self._ended[identity] = self._worker.node.loop.create_future()
        return ended

    def found(self, identity: Identity) -> None:
        """End the look-up of an identity, as more is known of it."""
        self.table.found(identity)
        self._tell(identity)

    def node_joined(self, node: Identity) -> None:
        """Ask a node for all that waits."""
        self._act(self.table.node_joined(node, self._now()))
        self._router.awaited.want_all()

    def node_lost(self, node: Identity) -> None:
        """Ask others for what a node was asked for."""
        self._act(self.table.node_lost(node, self._now()))

    def close(self) -> None:
        """End all look-ups."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for identity in tuple(self._ended):
            self._tell(identity)

    def _act(self, events: Iterable[LookupEvent]) -> None:
        router = self._router
        for event in events:
            match event:
                case AskNode(identity, node):
                    content = ControlContent(serialize_control(AdvertRequest(identity)))
                    # If it is not handed over, the node is lost, or does not answer.
                    router.outgoing.say(node, content)
                    self._step(LookupStep(identity, node, answered=False))
                case LookupEnd(identity, reason):
                    self._tell(identity)
                    # What is looked up again meanwhile waits for the link that is opened.
                    dials = router.dialling.is_dialling(identity)
                    if reason is not LookupFailure.NONE_ASKED and not dials:
                        is_known = self._is_known(identity)
                        router.awaited.not_found(identity, _UNREACHED if is_known else reason.value)
        self._arm()

    def _step(self, step: LookupStep) -> None:
        for on_step in tuple(self.on_step):
            on_step(step)

    def _tell(self, identity: Identity) -> None:
        ended = self._ended.pop(identity, None)
        if ended is not None and not ended.done():
            ended.set_result(None)

    def _arm(self) -> None:
        """Set the timer for what is due first."""
        due = self.table.get_timer()
        if self._timer is not None:
            if due is not None and due >= self._due:
                return  # it runs out early, and is set again
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._due = due
            self._timer = self._worker.after(max(0.0, due - self._now()), self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._act(self.table.handle_timer(max(self._due, self._now())))

    def _now(self) -> float:
        return self._router.loop_time()

    # --- to answer ----------------------------------------------------------------------------

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
            case AdvertResponse(identity, adverts):
                self._answered(session.node, identity, adverts)
            case _:
                counts[f"requests that are refused: {ResultCode.DENIED.name}"] += 1

    def ask_at(self, node: Identity, identity: Identity) -> None:
        """Ask one node for an identity, as it should have told of it; nothing waits for that."""
        if not self._router.table.is_banned(identity):
            content = ControlContent(serialize_control(AdvertRequest(identity)))
            self._router.outgoing.say(node, content)

    def say_if_not_here(self, node: Identity, message: EngineMessage) -> None:
        """Answer a node that an engine which it has sent to is not here, and where it is, if known.

        It sends here as long as it does not know. A node that is banned is told nothing.

        Args:
            node: The node.
            message: What it has sent, which was refused.
        """
        router, to = self._router, message.dst
        if to.kind is not DestinationKind.ENGINE or router.engines.of(to.identity) is not None:
            return
        if not any(map(router.table.is_banned, (node, message.src, to.identity))):
            self._say(node, to.identity)

    def _answered(
        self, node: Identity, identity: Identity, adverts: tuple[AdvertEnvelope, ...]
    ) -> None:
        if not adverts:
            self._router.heard_adverts.not_there(identity, node)
        is_more = identity in self._router.heard_adverts.hear(node, adverts)
        # What was known may be so still: it was only looked up again.
        if is_more or (adverts and self._is_known(identity) and not self._needs_more(identity)):
            if self.table.is_awaited(identity, node):
                self._step(LookupStep(identity, node, answered=True))
            (self._router.awaited if is_more else self).found(identity)
        else:
            self._act(self.table.knows_nothing(identity, node, self._now()))

    def _needs_more(self, identity: Identity) -> bool:
        """Whether what is known of an identity is not enough, so that other nodes are asked."""
        router = self._router
        return identity in router.awaited or router.dialling.is_unreached(identity)

    def _is_known(self, identity: Identity) -> bool:
        # Adverts of others alone are no answer: it would be that of a node that lies.
        record = self._router.directory.peek(identity)
        return record is not None and record.advert is not None

    def _answer(self, node: Identity, identity: Identity) -> None:
        """Answer with what is known of an identity; other nodes are not asked for it."""
        router = self._router
        if self._rates.spend(node, router.loop_time()) is not RelayStatus.OK:
            router.counts["requests beyond those that a node may make"] += 1
            return
        self._say(node, identity)

    def _say(self, node: Identity, identity: Identity) -> None:
        router = self._router
        adverts = router.directory.adverts_for(identity)
        if adverts and router.engines.of(identity) is None:
            first = read_advert(adverts[0]).advert
            if isinstance(first, EngineAdvert) and first.node == router.own:
                adverts = ()  # it has ended here, and is not known to be elsewhere
        content = ControlContent(serialize_control(AdvertResponse(identity, adverts)))
        router.outgoing.say(node, content)


_UNREACHED: Final = (
    "it is known, and not reached: its node has no link, no relay, and no address that is dialled"
)
"""The reason for which messages are refused to an identity that the directory has."""
_RATE: Final = 100
"""Requests of one node that are answered in each second, in the long run. More are dropped, and
counted."""
_BURST: Final = 1_000
"""Requests of one node that are answered at once. Beyond: as above."""
