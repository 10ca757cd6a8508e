"""What a node does with messages for relays: those for itself, and those that it passes on.

Whatever is refused is dropped and counted here; nothing is sent to any node for it, so a peer
cannot tell the reasons apart.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ....protocol import Address
from ....protocol.identity import (
    NO_REPLY,
    REPLY_KEY_SIZE,
    DestinationKind,
    HandleTable,
    Hop,
    Identity,
    IdentityError,
    LayerTags,
    Peeled,
    Peeler,
    PeelOutcome,
    RelayContent,
    RelayLoadLimits,
    RelayStatus,
    Reliability,
    ReplyContent,
    Reservations,
    SealingKeys,
    Security,
    SigningKey,
    build_onion,
    parse_target,
)
from ._admission import named_in
from ._queues import Going, Passed, RelayQueues, size_of
from ._reports import PassedOn, RelayStatistics
from ._returns import RelayReturns

if TYPE_CHECKING:
    from ..._worker import Worker
    from .._router import Router
    from ..links._session import Session
    from ._admission import Charged, RelayAdmission
    from ._paths import RelayPaths

__all__ = ["RelayService"]


class RelayService:
    """The messages for relays that come to a node, and their answers.

    Args:
        router: The router.
        worker: Its worker, for timers.
        key: The key of the node, which signs the layers of what it lets out.
        sealing: The keys that others seal to.
        admission: What it admits.
        limits: The limits of what it holds.
        paths: What is known of the nodes that it lets out to.

    Attributes:
        admission: What it admits.
        queues: What is passed on.
        returns: The ways of answers.
        on_passed: Each receives what was passed on, as far as this node can see it.
    """

    __slots__ = (
        "_key",
        "_paths",
        "_peeler",
        "_router",
        "_tags",
        "admission",
        "on_passed",
        "queues",
        "returns",
    )

    def __init__(
        self,
        router: Router,
        worker: Worker,
        key: SigningKey,
        sealing: SealingKeys,
        admission: RelayAdmission,
        limits: RelayLoadLimits,
        paths: RelayPaths,
    ) -> None:
        self._router: Final = router
        self._key: Final = key
        self._paths: Final = paths
        self._tags: Final = LayerTags()
        self._peeler: Final = Peeler(router.own, sealing, self._tags, admission, router.verifiers)
        self.admission: Final = admission
        handles = HandleTable()
        self.queues: Final = RelayQueues(router, worker, limits, admission, handles)
        self.returns: Final = RelayReturns(router, admission, self.queues, handles)
        self.on_passed: Final[list[Callable[[PassedOn], object]]] = []

    @property
    def handles(self) -> HandleTable:
        """The ways of answers that are kept."""
        return self.returns.handles

    @property
    def reservations(self) -> Reservations:
        """The reservations that other nodes have here."""
        return self.admission.reservations

    @property
    def refused(self) -> Counter[RelayStatus]:
        """The messages that were not relayed, by their status."""
        return self.admission.refused

    # --- messages -----------------------------------------------------------------------------

    def receive(self, session: Session, content: RelayContent) -> None:
        """Receive a message for a relay."""
        router, peer = self._router, session.node
        if not self.admission.admits(peer):
            return
        peeled = self._peeler.peel(content.envelope, peer, router.milliseconds())
        outcome, following, message = peeled.outcome, peeled.following, peeled.message
        if outcome.is_drop:
            router.counts[f"messages for relays: {outcome.value}"] += 1
        elif peeled.tprefs is not None and peeled.tprefs.security is Security.MIXNET:
            self.admission.is_ok(RelayStatus.UNEXPECTED_MESSAGE)
        elif following is not None:
            self._pass(peer, content, peeled, following)
        elif message is not None and outcome is PeelOutcome.DELIVER:
            way_back = partial(self.returns.way_back, peer, content, peeled)
            router.incoming.accept(message, peer, way_back, peeled.envelope)
        elif message is not None:
            home = self._paths.home(message.dst)
            if home is not None:
                self._let_out(peer, content, peeled, home)

    def _pass(
        self, peer: Identity, content: RelayContent, peeled: Peeled, following: Identity
    ) -> None:
        is_wanted = peeled.outcome is PeelOutcome.UNCHANGED or peeled.reply_key != NO_REPLY
        self._send(peer, content, peeled, following, peeled.envelope, is_wanted=is_wanted)

    def _let_out(
        self, peer: Identity, content: RelayContent, peeled: Peeled, home: Identity
    ) -> None:
        """Seal the message of an engine for the node of its destination, as its sender has not.

        So that node believes it by its signature, as whatever comes sealed, and has a way for the
        answer, which is sealed for this node.
        """
        key = self._paths.sealing_key(home)
        if key is None:
            self.admission.look_up(home, peer)
            self.admission.is_ok(RelayStatus.CONNECTION_FAILED)
            return
        is_wanted = content.handle is not None and peeled.reply_key != NO_REPLY
        opens = secrets.token_bytes(REPLY_KEY_SIZE) if is_wanted else NO_REPLY
        try:
            envelope = build_onion(
                [Hop(home, key)],
                peeled.envelope,
                expiry=peeled.expiry,
                signers=[self._key],
                reply_keys=(opens,) if is_wanted else (),
            )
        except IdentityError:  # the advert of that node has a key that is none
            self.admission.is_ok(RelayStatus.CONNECTION_FAILED)
            return
        self._send(peer, content, peeled, home, envelope, is_wanted=is_wanted, opens=opens)

    def _send(
        self,
        peer: Identity,
        content: RelayContent,
        peeled: Peeled,
        following: Identity,
        envelope: bytes,
        *,
        is_wanted: bool,
        opens: bytes = NO_REPLY,
    ) -> None:
        """Pass on what was in a message, with a handle if an answer is wanted."""
        source = peeled.source or peer
        charge = self.admission.charge(source, following, len(envelope))
        if isinstance(charge, RelayStatus):
            return
        # Only an exit has seen what is in a message that goes on.
        engines = () if peeled.message is None else named_in(peeled.message)
        handle = None
        if is_wanted:
            reserved = None if charge is None else charge.node
            handle = self.returns.keep(
                peer,
                content,
                peeled,
                following,
                reserved=reserved,
                opens=opens,
                engines=engines,
            )
        passed = RelayContent(envelope, handle)
        tprefs = peeled.tprefs
        going = Going(
            passed,
            peeled.expiry,
            peer,
            None if source == peer else source,
            charge,
            may_wait=tprefs is None or tprefs.reliability is Reliability.RELIABLE,
            engines=engines,
        )
        if self.admission.is_ok(self.queues.send(following, going)):
            self._tell(peer, following, passed)
        elif handle:
            self.handles.forget(handle)

    def pass_back(self, node: Identity, content: ReplyContent) -> None:
        """Pass an answer of another node back on its way."""
        following = self.returns.pass_back(node, content)
        if following is not None:
            self._tell(node, following, content)

    def _tell(self, previous: Identity, following: Identity, content: Passed) -> None:
        """Give the watchers what this node has seen of something that it passes on."""
        if self.on_passed:
            seen = PassedOn(
                previous, following, size_of(content), isinstance(content, ReplyContent)
            )
            for each in tuple(self.on_passed):
                each(seen)

    # --- in the clear -------------------------------------------------------------------------

    def passes(self, by: Identity, address: Address, size: int) -> bool:
        """Whether an identity elsewhere may have a message sent on from here, as it is.

        Args:
            by: The identity at the other end of the link by which it came.
            address: Where it is to go from here, of type 36.
            size: The bytes of its payload.
        """
        try:
            target = parse_target(address[1].decode())
        except (IdentityError, UnicodeDecodeError):
            return False
        destination, tprefs = target.destination, target.tprefs
        if tprefs is not None and tprefs.security is Security.MIXNET:
            return self.admission.is_ok(RelayStatus.UNEXPECTED_MESSAGE)
        if destination.kind not in {DestinationKind.ENGINE, DestinationKind.NODE}:
            return False
        source, following = self._router.home(by), self._router.home(destination.identity)
        if source is None or following is None:
            return self.admission.is_ok(RelayStatus.CONNECTION_FAILED)
        if not self.admission.admits(source):
            return False
        if not self.admission.is_ok(self.admission.allows(source, following)):
            return False
        return self._counted(self.admission.charge(source, following, size), size)

    def passes_back(self, by: Identity, to: Identity, size: int) -> bool:
        """Whether an answer of an identity elsewhere may be sent on from here, as it is.

        Args:
            by: The identity at the other end of the link by which it came.
            to: The identity elsewhere that has asked.
            size: The bytes of its payload.
        """
        asked, asker = self._router.home(by), self._router.home(to)
        if asked is None or asker is None:
            return True  # the question was not relayed in the clear, or the answer has no way
        if not self.admission.admits(asked):
            return False
        return self._counted(self.admission.charge(asker, asked, size), size)

    def _counted(self, charge: Charged | RelayStatus, size: int) -> bool:
        """Count what is sent on in the clear, unless it cannot be charged."""
        if isinstance(charge, RelayStatus):
            return False
        self.queues.relayed += 1
        self.queues.relayed_size += size
        return True

    # --- for operators ------------------------------------------------------------------------

    def statistics(self, sealed: int, reserved: int, expected: int) -> RelayStatistics:
        """Return what was relayed and what is held.

        Args:
            sealed: Messages of this node that were sealed.
            reserved: Reservations of this node elsewhere.
            expected: Answers that this node waits for.
        """
        queues, reservations = self.queues, self.reservations
        reservations.end_expired(self._router.milliseconds())
        return RelayStatistics(
            queues.relayed,
            queues.relayed_size,
            sealed,
            dict(self.refused),
            {outcome: count for outcome, count in self._peeler.outcomes.items() if count},
            queues.holdings.messages,
            queues.holdings.size,
            len(reservations),
            reserved,
            len(self.handles),
            expected,
            len(self._tags),
            reservations.charged,
            reservations.charged_size,
            self.admission.rates.refused,
            {reason: count for reason, count in queues.holdings.refused.items() if count},
        )

    # --- events -------------------------------------------------------------------------------

    def node_lost(self, node: Identity) -> None:
        """End the reservation of a node, as the link to it has ended."""
        self.reservations.end(node)

    def banned(self, identity: Identity) -> None:
        """Forget what is of an identity."""
        self.reservations.end(identity)
        self.handles.forget_banned(identity)
        self.queues.drop(identity)
