"""The part of the router for relays: what goes over them, and what this node relays itself."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, ClassVar, Final

from ....protocol import Message
from ....protocol.identity import (
    RESERVATION_ANSWER,
    RESERVATION_REQUEST,
    ControlContent,
    DestinationKind,
    Identity,
    IdentityUpdated,
    P2PContent,
    RelayContent,
    RelayLoadLimits,
    RelayPolicy,
    ReplyContent,
    ReservationLimits,
    SealingKey,
    SealingKeys,
    SigningKey,
    Target,
)
from ...routing._pending import Pending
from .._router_part import RouterPart
from ._admission import RelayAdmission
from ._reports import RelayLog, RelayStatistics
from ._reserved import ReservedRelays
from ._sealed_ways import SealedWays
from ._service import RelayService

if TYPE_CHECKING:
    from ..._worker import Worker
    from .._carriage import Carriage
    from .._key_file import IdentityKeys
    from .._outgoing import Undelivered
    from .._router import Router
    from ..links._session import Session

__all__ = ["Relays"]


class Relays(RouterPart):
    """The relays of a router.

    Args:
        router: The router.
        worker: Its worker, for timers.
        key: The key of the node.
        sealing: The keys that others seal to.
        anonymous: Whether relays are not to learn which node has sent what goes over them.
        tells_wishes: Whether relays are told what a message asks of its carriage.
        policy: What the node relays; by default nothing.
        limits: The limits of what it spends on that.
        reservations: The limits of reservations.

    Attributes:
        sealing: The keys that others seal to; the present one is for the advert of the node.
        ways: What goes out over relays.
        service: What comes for this node as a relay.
        reserved: The reservations of this node at other relays.
    """

    kinds: ClassVar[tuple[DestinationKind, ...]] = (DestinationKind.RELAY,)
    contents: ClassVar[tuple[type[P2PContent], ...]] = (RelayContent, ReplyContent)
    controls: ClassVar[range] = range(RESERVATION_REQUEST, RESERVATION_ANSWER + 1)

    def __init__(
        self,
        router: Router,
        worker: Worker,
        key: SigningKey,
        sealing: SealingKeys,
        *,
        anonymous: bool = False,
        tells_wishes: bool = False,
        policy: RelayPolicy | None = None,
        limits: RelayLoadLimits | None = None,
        reservations: ReservationLimits | None = None,
    ) -> None:
        self.sealing: Final = sealing
        self.ways: Final = SealedWays(router, key, anonymous, tells_wishes=tells_wishes)
        self.service: Final = RelayService(
            router,
            worker,
            key,
            sealing,
            RelayAdmission(
                router,
                self.ways.paths,
                key,
                policy or RelayPolicy(),
                limits or RelayLoadLimits(),
                reservations or ReservationLimits(),
            ),
            limits or RelayLoadLimits(),
            self.ways.paths,
        )
        self.reserved: Final = ReservedRelays(router, worker)
        log = RelayLog(worker.node, anonymous=anonymous)
        self.service.queues.on_passed.append(log.passed)
        self.service.admission.on_refused.append(log.refused)
        self._router: Final = router
        router.own_adverts.reserved = self.reserved.relays
        self.reserved.on_change.append(router.own_adverts.changed)
        router.directory.on_update.append(self._updated)
        router.directory.on_lost.append(self._updates_lost)

    def rotate(self, keys: IdentityKeys) -> bool:
        """Use another sealing key from now on; see `Identities.reload`.

        Returns:
            Whether it is another one.

        Raises:
            ValueError: The keys are of another identity.
        """
        if keys.identity != self._router.own:
            raise ValueError("the keys are of another identity")
        if SealingKey(keys.sealing_seed).public == self.sealing.public:
            return False
        self.sealing.rotate(keys.sealing_seed, self._router.milliseconds())
        self._router.own_adverts.changed()
        return True

    def statistics(self) -> RelayStatistics:
        """Return what was relayed and what is held."""
        ways, reserved = self.ways, len(self.reserved.relays())
        return self.service.statistics(ways.sent, reserved, len(ways.expected))

    def resolve(self, message: Message, target: Target) -> Message | Pending | None:
        """Resolve relays and what is behind them; see `SealedWays.resolve`."""
        return self.ways.resolve(message, target)

    def carry(
        self,
        own: Identity,
        to: Identity,
        message: Message,
        carriage: Carriage,
        undelivered: Undelivered,
    ) -> Awaitable[None] | None:
        """Seal a message for the relays that its carriage has."""
        return self.ways.carry(own, to, message, carriage, undelivered)

    def answer(
        self, token: bytes, message: Message, undelivered: Undelivered
    ) -> Awaitable[None] | None:
        """Seal an answer, and send it back over the relays."""
        return self.service.returns.answer(token, message, undelivered)

    def receive(self, session: Session, content: P2PContent) -> None:
        """Receive a message for a relay, an answer, or what is said about a reservation."""
        if isinstance(content, RelayContent):
            self.service.receive(session, content)
        elif isinstance(content, ReplyContent):
            if not self.ways.open(session.node, content):
                self.service.returns.pass_back(session.node, content)
        elif isinstance(content, ControlContent):
            if content.number == RESERVATION_REQUEST:
                self.service.admission.reserve(session.node, content.record)
            else:
                self.reserved.receive(session.node, content.record)

    def node_joined(self, node: Identity) -> None:
        """Send what is held for a node, and reserve there again."""
        self.service.queues.flush(node)
        self.reserved.node_joined(node)
        self.ways.remembered.forget(node)

    def node_began(self, node: Identity) -> None:
        """Reserve at a node again, which may have ended the reservation with its session."""
        self.reserved.node_joined(node)

    def needs(self, node: Identity) -> bool:
        """Whether there is a reservation at a node."""
        return self.reserved.holds(node)

    def node_lost(self, node: Identity) -> None:
        """End what the node has reserved here, and what is reserved there."""
        self.service.node_lost(node)
        self.reserved.node_lost(node)
        self.ways.remembered.relay_lost(node)

    def clock_set(self, *, back: bool) -> None:
        """Drop what is of a time to come; open layers again that expire before those of that."""
        self.service.clock_set(back=back)
        if back:
            self.ways.expected.clock_set_back(self._router.milliseconds())

    def banned(self, identity: Identity) -> None:
        """Forget what is of an identity that has no trust any more."""
        self.ways.expected.forget_peer(identity)
        self.service.banned(identity)

    def close(self) -> None:
        """End, as the node does."""
        self.reserved.close()
        self.service.queues.close()

    def _updated(self, update: IdentityUpdated) -> None:
        """Resolve anew what leads to a node, as its advert may say another way to it."""
        self.ways.remembered.forget(update.identity)
        self.service.queues.dial(update.identity)

    def _updates_lost(self, _: int) -> None:
        self.ways.remembered.forget_all()
        self.service.queues.dial_all()
