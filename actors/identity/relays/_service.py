"""What a node does with messages for relays: those for itself, and those that it passes on.

Whatever is refused is dropped and counted here; nothing is sent to any node for it, so a peer
cannot tell the reasons apart.
"""

from __future__ import annotations

import secrets
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from ....protocol.identity import (
    NO_REPLY,
    REPLY_KEY_SIZE,
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
    Reservations,
    SealingKeys,
    Security,
    SigningKey,
    build_onion,
)
from ._admission import named_in
from ._clear import ClearRelay
from ._queues import Going, RelayQueues
from ._reports import RelayStatistics
from ._returns import RelayReturns

if TYPE_CHECKING:
    from ..._worker import Worker
    from .._router import Router
    from ..links._session import Session
    from ._admission import RelayAdmission
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
        clear: What goes on in the clear.
        returns: The ways of answers.
    """

    __slots__ = (
        "_key",
        "_paths",
        "_peeler",
        "_router",
        "_tags",
        "admission",
        "clear",
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
        self.clear: Final = ClearRelay(router, admission, self.queues)

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
        if not self.admission.is_ok(self.queues.send(following, going)) and handle:
            self.handles.forget(handle)

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

    def clock_set(self, *, back: bool) -> None:
        """Go on by a clock that was set."""
        if back:
            now = self._router.milliseconds()
            self._tags.clock_set_back(now)
            self.handles.clock_set_back(now)
        self.queues.clock_set()

    def node_lost(self, node: Identity) -> None:
        """End the reservation of a node, as the link to it has ended."""
        self.reservations.end(node)

    def banned(self, identity: Identity) -> None:
        """Forget what is of an identity."""
        self.reservations.end(identity)
        self.handles.forget_banned(identity)
        self.queues.drop(identity)
