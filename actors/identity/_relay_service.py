"""What a node does with messages for relays: those for itself, and those that it passes on.

Whatever is refused is dropped and counted here; nothing is sent to any node for it, so a peer
cannot tell the reasons apart.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import Address, LinkDown, Message, OnwardError, PayloadTooBig
from ...protocol.identity import (
    HANDLE_SIZE,
    MAX_SKEW,
    NO_REPLY,
    REPLY_NONCE_SIZE,
    BadRecord,
    ControlContent,
    Destination,
    DestinationKind,
    EngineContent,
    EngineMessage,
    HandleRefusal,
    HandleTable,
    Identity,
    IdentityError,
    LayerTags,
    MessageTooBig,
    Peeled,
    Peeler,
    PeelOutcome,
    RateLimiter,
    RelayContent,
    RelayLoadLimits,
    RelayPolicy,
    RelayStatus,
    ReplyContent,
    ReservationAnswer,
    ReservationLimits,
    ReservationRequest,
    Reservations,
    ReturnHandle,
    SealingKeys,
    SigningKey,
    issue_voucher,
    parse_reservation_request,
    parse_target,
    serialize_reservation_answer,
)
from ...protocol.ockam import encode_message
from ._carriage import reply_address
from ._relay_queues import Passed, RelayQueues, size_of
from ._relay_statistics import RelayStatistics

if TYPE_CHECKING:
    from .._worker import Worker
    from ._outgoing import Undelivered
    from ._router import Router
    from ._session import Session

__all__ = ["PassedOn", "RelayService"]


class PassedOn(NamedTuple):
    """A thing that a relay passes on, as far as it can see it, but for its times.

    The rest is sealed: what it says, which engine it is for, and how it goes on behind the next
    node. Two that belong together look alike by their times and sizes alone.

    Attributes:
        previous: The node that it came from, which may be a relay as well.
        following: The node that it goes to, which may be a relay as well.
        size: Its bytes, which are those of one of a few sizes, with a layer for each relay left.
        is_answer: Whether it is an answer.
    """

    previous: Identity
    following: Identity
    size: int
    is_answer: bool


class RelayService:
    """The messages for relays that come to a node, and their answers.

    It is also the rules of its `Peeler`.

    Args:
        router: The router.
        worker: Its worker, for timers.
        key: The key of the node, which signs vouchers.
        sealing: The keys that others seal to.
        policy: What the node relays.
        limits: The limits of what it spends on that.
        reservations: The limits of reservations.

    Attributes:
        handles: The ways of answers.
        queues: What is passed on.
        reservations: The reservations that other nodes have here.
        refused: The messages that were not relayed, by their status.
        on_passed: Each receives what was passed on, as far as this node can see it.
        on_refused: Each receives the status of a message that was not relayed.
    """

    __slots__ = (
        "_key",
        "_on_reservation",
        "_peeler",
        "_policy",
        "_rates",
        "_router",
        "_tags",
        "handles",
        "on_passed",
        "on_refused",
        "queues",
        "refused",
        "reservations",
    )

    def __init__(
        self,
        router: Router,
        worker: Worker,
        key: SigningKey,
        sealing: SealingKeys,
        policy: RelayPolicy,
        limits: RelayLoadLimits,
        reservations: ReservationLimits,
    ) -> None:
        self._router: Final = router
        self._key: Final = key
        self._policy: Final = policy
        self._rates: Final = RateLimiter(limits)
        self._tags: Final = LayerTags()
        self._peeler: Final = Peeler(router.own, sealing, self._tags, self, router.verifiers)
        # Whether what was allowed last is allowed for the reservation alone.
        self._on_reservation = False
        self.handles: Final = HandleTable()
        self.queues: Final = RelayQueues(router, worker, limits)
        self.reservations: Final = Reservations(router.own, reservations)
        self.refused: Final = Counter[RelayStatus]()
        self.on_passed: Final[list[Callable[[PassedOn], object]]] = []
        self.on_refused: Final[list[Callable[[RelayStatus], object]]] = []

    # --- the rules of the peeler --------------------------------------------------------------

    def may_open(self, source: Identity, peer: Identity) -> bool:
        """Whether a layer by `source` is opened at all: it may be for this node."""
        table = self._router.table
        return not table.is_banned(source) and not table.is_banned(peer)

    def may_pass(self, source: Identity, following: Identity, size: int) -> bool:
        """Whether `size` bytes by `source` may go on to the node `following`."""
        return self._is_ok(self.allows(source, following))

    def may_exit(self, source: Identity, destination: Destination, size: int) -> bool:
        """Whether `size` bytes by `source` may go to a destination that is not of this node."""
        home = self._router.home(destination.identity)
        if home is None:
            return self._is_ok(RelayStatus.CONNECTION_FAILED)
        if not self._policy.exits:
            return self._is_ok(RelayStatus.PERMISSION_DENIED)
        return self._is_ok(self.allows(source, home))

    def is_here(self, destination: Destination) -> bool:
        """Whether a destination is of this node."""
        if destination.kind is DestinationKind.NODE:
            return destination.identity == self._router.own
        is_engine = destination.kind is DestinationKind.ENGINE
        return is_engine and self._router.engines.of(destination.identity) is not None

    def allows(self, source: Identity, following: Identity) -> RelayStatus:
        """Return whether the policy allows a message, as `OK` or the reason why not."""
        table = self._router.table
        if table.is_banned(source) or table.is_banned(following):
            return RelayStatus.PERMISSION_DENIED
        status = self._policy.relays(source, following, is_reserved=False)
        self._on_reservation = status is not RelayStatus.OK
        if self._on_reservation:
            now = self._router.milliseconds()
            is_reserved = self.reservations.is_reserved(following, now)
            status = self._policy.relays(source, following, is_reserved=is_reserved)
        return status

    def spend(self, following: Identity, size: int) -> RelayStatus:
        """Count what was allowed last with the reservation of the next node, if it needs that."""
        if not self._on_reservation:
            return RelayStatus.OK
        return self.reservations.spend(following, size, self._router.milliseconds())

    def _is_ok(self, status: RelayStatus) -> bool:
        if status is not RelayStatus.OK:
            self.refused[status] += 1
            for each in self.on_refused:
                each(status)
        return status is RelayStatus.OK

    # --- messages -----------------------------------------------------------------------------

    def receive(self, session: Session, content: RelayContent) -> None:
        """Receive a message for a relay."""
        router, peer = self._router, session.node
        if not self.admits(peer):
            return
        peeled = self._peeler.peel(content.envelope, peer, router.milliseconds())
        outcome, following, message = peeled.outcome, peeled.following, peeled.message
        if outcome.is_drop:
            router.counts[f"messages for relays: {outcome.value}"] += 1
        elif following is not None:
            self._pass(peer, content, peeled, following)
        elif message is not None and outcome is PeelOutcome.DELIVER:
            way_back = partial(self._way_back, peer, content, peeled)
            router.incoming.accept(message, peer, way_back, peeled.envelope)
        elif message is not None:
            self._let_out(peer, message, peeled)

    def admits(self, peer: Identity) -> bool:
        """Count a message of a peer; return whether it is within its rate."""
        return self._is_ok(self._rates.spend(peer, self._router.loop_time()))

    def _tell(self, previous: Identity, following: Identity, content: Passed) -> None:
        """Give the watchers what this node has seen of something that it passes on."""
        if self.on_passed:
            seen = PassedOn(
                previous, following, size_of(content), isinstance(content, ReplyContent)
            )
            for each in tuple(self.on_passed):
                each(seen)

    def _pass(
        self, peer: Identity, content: RelayContent, peeled: Peeled, following: Identity
    ) -> None:
        if not self._is_ok(self.spend(following, len(peeled.envelope))):
            return
        handle = None
        wanted = peeled.outcome is PeelOutcome.UNCHANGED or peeled.reply_key != NO_REPLY
        if content.handle is not None and wanted:
            handle = self._keep(peer, content.handle, peeled, following)
        going = RelayContent(peeled.envelope, handle)
        if self._is_ok(self.queues.send(following, going, peeled.expiry)):
            self._tell(peer, following, going)
        elif handle:
            self.handles.forget(handle)

    def _let_out(self, peer: Identity, message: EngineMessage, peeled: Peeled) -> None:
        """Send the message of an engine on to the node of its destination, as it is."""
        home = self._router.home(message.dst.identity)
        if home is not None and self._is_ok(self.spend(home, len(peeled.envelope))):
            going = EngineContent(peeled.envelope)
            if self._is_ok(self.queues.send(home, going, peeled.expiry)):
                self._tell(peer, home, going)

    # --- in the clear -------------------------------------------------------------------------

    def passes(self, by: Identity, address: Address, size: int) -> bool:
        """Whether an identity elsewhere may have a message sent on from here, as it is.

        Args:
            by: The identity at the other end of the link by which it came.
            address: Where it is to go from here, of type 36.
            size: The bytes of its payload.
        """
        try:
            destination = parse_target(address[1].decode()).destination
        except (IdentityError, UnicodeDecodeError):
            return False
        if destination.kind not in {DestinationKind.ENGINE, DestinationKind.NODE}:
            return False
        source, following = self._router.home(by), self._router.home(destination.identity)
        if source is None or following is None:
            return self._is_ok(RelayStatus.CONNECTION_FAILED)
        passes = (
            self.admits(source)
            and self._is_ok(self.allows(source, following))
            and self._is_ok(self.spend(following, size))
        )
        if passes:
            self.queues.relayed += 1
            self.queues.relayed_size += size
        return passes

    # --- answers ------------------------------------------------------------------------------

    def _keep(
        self, peer: Identity, back: bytes, peeled: Peeled, user: Identity | None
    ) -> bytes | None:
        """Keep the way of an answer; return the handle for it, or `None` if there is no room."""
        handle = secrets.token_bytes(HANDLE_SIZE)
        entry = ReturnHandle(peer, back, peeled.reply_key, peeled.expiry, user)
        if self.handles.add(handle, entry, self._router.milliseconds()) is None:
            return handle
        self._router.counts["messages without a way for their answer, as there is no room"] += 1
        return None

    def _way_back(self, peer: Identity, content: RelayContent, peeled: Peeled) -> Address:
        """Return the address of an answer to a message for this node.

        Without a handle it is one that leads nowhere: an answer over a link, past the relays, would
        show which node has asked.
        """
        handle = None
        if content.handle is not None and peeled.reply_key != NO_REPLY:
            handle = self._keep(peer, content.handle, peeled, None)
        return reply_address(DestinationKind.RELAY, handle or b"")

    def answer(
        self, token: bytes, message: Message, undelivered: Undelivered
    ) -> Awaitable[None] | None:
        """Seal an answer of a worker here, and send it back; see `RouterPart.answer`."""
        router = self._router
        nonce = secrets.token_bytes(REPLY_NONCE_SIZE)
        try:
            back = self.handles.answer(token, encode_message(message), nonce, router.milliseconds())
        except MessageTooBig as error:
            undelivered(message, PayloadTooBig(error.size, error.limit))
            return None
        if isinstance(back, HandleRefusal):
            undelivered(message, LinkDown("the sender, over relays", back.value))
            return None

        def failed(error: OnwardError) -> None:
            undelivered(message, error)

        expiry = router.outgoing.expiry(message)
        return router.outgoing.tell(back.peer, back.content, failed, expiry)

    def pass_back(self, session: Session, content: ReplyContent) -> None:
        """Pass an answer back on its way."""
        now = self._router.milliseconds()
        back = self.handles.pass_back(content.handle, session.node, content.reply, now)
        if isinstance(back, HandleRefusal):
            self._router.counts[f"answers over relays: {back.value}"] += 1
        else:
            # It is held a moment, as its link may be made again.
            if self._is_ok(self.queues.send(back.peer, back.content, now + MAX_SKEW)):
                self._tell(session.node, back.peer, back.content)

    # --- reservations -------------------------------------------------------------------------

    def reserve(self, session: Session, record: bytes) -> None:
        """Answer a node that asks for a reservation."""
        node, router = session.node, self._router
        if not self.admits(node):
            return
        try:
            answer = self._reserve(node, parse_reservation_request(record))
        except BadRecord:
            router.counts["records that cannot be read"] += 1
            answer = ReservationAnswer(RelayStatus.MALFORMED_MESSAGE)
        content = ControlContent(serialize_reservation_answer(answer))
        router.outgoing.say(node, content)

    def _reserve(self, node: Identity, request: ReservationRequest) -> ReservationAnswer:
        status = self._policy.reserves(node)
        if status is not RelayStatus.OK:
            return ReservationAnswer(status)
        found = self.reservations.reserve(node, request, self._router.milliseconds())
        if isinstance(found, RelayStatus):
            return ReservationAnswer(found)
        return ReservationAnswer(RelayStatus.OK, issue_voucher(found, self._key))

    def statistics(self, sealed: int, reserved: int, expected: int) -> RelayStatistics:
        """Return what was relayed and what is held.

        Args:
            sealed: Messages of this node that were sealed.
            reserved: Reservations of this node elsewhere.
            expected: Answers that this node waits for.
        """
        queues = self.queues
        return RelayStatistics(
            queues.relayed,
            queues.relayed_size,
            sealed,
            dict(self.refused),
            {outcome: count for outcome, count in self._peeler.outcomes.items() if count},
            queues.holdings.messages,
            queues.holdings.size,
            len(self.reservations),
            reserved,
            len(self.handles),
            expected,
            len(self._tags),
        )

    # --- events -------------------------------------------------------------------------------

    def node_lost(self, node: Identity) -> None:
        """End the reservation of a node, as the link to it has ended."""
        self.reservations.end(node)

    def banned(self, identity: Identity) -> None:
        """Forget what is of an identity."""
        self.reservations.end(identity)
        self.handles.forget_peer(identity)
        self.queues.drop(identity)
