"""What a relay admits: by its policy, the rates of the nodes next to it, and reservations.

Each message that is refused is counted here, by its status. Nothing is sent to any node for it. A
node that asks for a reservation is told why it gets none, which the router counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from ....protocol.identity import (
    SCOPE_ANY,
    BadRecord,
    ControlContent,
    Destination,
    DestinationKind,
    EngineMessage,
    Identity,
    RateLimiter,
    RelayLoadLimits,
    RelayPolicy,
    RelayStatus,
    Reservation,
    ReservationAnswer,
    ReservationCharge,
    ReservationLimits,
    ReservationRequest,
    Reservations,
    SigningKey,
    issue_voucher,
    parse_reservation_request,
    serialize_reservation_answer,
)

if TYPE_CHECKING:
    from .._router import Router
    from ._paths import RelayPaths

__all__ = ["EXIT_ASKS", "EXIT_ASKS_OF_PEER", "Charged", "RelayAdmission", "named_in"]

EXIT_ASKS: Final = 20
"""Most look-ups of an exit, for what it lets out, at once and in each second. Beyond: it asks for
nothing, which is counted, and the message is dropped as one of which the node is not known."""
EXIT_ASKS_OF_PEER: Final = EXIT_ASKS // 4
"""Most of these look-ups for the messages of one node next to the exit. Beyond: as with
`EXIT_ASKS`, and others have what is left."""

Charged: TypeAlias = ReservationCharge | None
"""What a message was charged to; `None` if it needs no reservation."""


class RelayAdmission:
    """The decisions of a relay about what others send. They are the rules of its `Peeler`.

    Args:
        router: The router.
        paths: What is known of the ways to nodes.
        key: The key of the node, which signs vouchers.
        policy: What the node relays.
        limits: The limits of what it spends on that.
        reservations: The limits of reservations.

    Attributes:
        policy: What the node relays.
        rates: The rates of the nodes next to it.
        reservations: The reservations that other nodes have here.
        refused: The messages that were not relayed, by their status.
        on_refused: Each receives the status of a message that was not relayed.
    """

    __slots__ = (
        "_asks",
        "_asks_of",
        "_key",
        "_paths",
        "_router",
        "on_refused",
        "policy",
        "rates",
        "refused",
        "reservations",
    )

    def __init__(
        self,
        router: Router,
        paths: RelayPaths,
        key: SigningKey,
        policy: RelayPolicy,
        limits: RelayLoadLimits,
        reservations: ReservationLimits,
    ) -> None:
        self._router: Final = router
        self._paths: Final = paths
        self._key: Final = key
        self.policy = policy
        self.rates: Final = RateLimiter(limits)
        self._asks: Final = RateLimiter(RelayLoadLimits(rate=EXIT_ASKS, burst=EXIT_ASKS))
        share = RelayLoadLimits(rate=EXIT_ASKS_OF_PEER, burst=EXIT_ASKS_OF_PEER)
        self._asks_of: Final = RateLimiter(share)
        self.reservations: Final = Reservations(router.own, reservations)
        self.refused: Final = Counter[RelayStatus]()
        self.on_refused: Final[list[Callable[[RelayStatus], object]]] = []

    # --- the rules of the peeler --------------------------------------------------------------

    def may_open(self, source: Identity, peer: Identity) -> bool:
        """Whether a layer by `source` is opened at all: it may be for this node."""
        table = self._router.table
        return not table.is_banned(source) and not table.is_banned(peer)

    def may_pass(self, source: Identity, following: Identity, size: int) -> bool:
        """Whether `size` bytes by `source` may go on to the node `following`."""
        return self.is_ok(self.allows(source, following))

    def may_exit(
        self, source: Identity, message: EngineMessage, peer: Identity, *, is_asked: bool
    ) -> bool:
        """Whether the message of an engine may go to its destination, which is of another node."""
        # An exit knows no domains: what has a scope may not leave the nodes that its sender knows.
        is_bounded = message.rprefs is not None and message.rprefs.scope != SCOPE_ANY
        is_banned = any(map(self._router.table.is_banned, named_in(message)))
        if not self.policy.exits or not is_asked or is_bounded or is_banned:
            return self.is_ok(RelayStatus.PERMISSION_DENIED)
        home = self._paths.home(message.dst)
        if home is None or home == self._router.own:  # one that was here, and has ended
            self.look_up(message.dst.identity, peer)
            return self.is_ok(RelayStatus.CONNECTION_FAILED)
        return self.is_ok(self.allows(source, home))

    def is_here(self, destination: Destination) -> bool:
        """Whether a destination is of this node."""
        if destination.kind is DestinationKind.NODE:
            return destination.identity == self._router.own
        is_engine = destination.kind is DestinationKind.ENGINE
        return is_engine and self._router.engines.of(destination.identity) is not None

    def look_up(self, identity: Identity, peer: Identity) -> None:
        """Ask others for what an exit needs to know of an identity, for a later message to it.

        Senders choose the identity, so few are asked for: the other look-ups of the node go on.

        Args:
            identity: The identity.
            peer: The node that the message came from, which has a share alone.
        """
        now = self._router.loop_time()
        share = self._asks_of.spend(peer, now)
        if share is RelayStatus.OK and self._asks.spend(self._router.own, now) is RelayStatus.OK:
            self._router.lookups.ask(identity)
        else:
            self._router.counts["look-ups of an exit beyond its rate"] += 1

    # --- what is relayed ----------------------------------------------------------------------

    def admits(self, peer: Identity) -> bool:
        """Count a message of a peer; return whether it is within its rate."""
        return self.is_ok(self.rates.spend(peer, self._router.loop_time()))

    def allows(self, source: Identity, following: Identity) -> RelayStatus:
        """Return whether the policy allows a message, as `OK` or the reason why not."""
        table = self._router.table
        if table.is_banned(source) or table.is_banned(following):
            return RelayStatus.PERMISSION_DENIED
        now = self._router.milliseconds()
        is_reserved = self.reservations.is_reserved(following, now)
        return self.policy.relays(source, following, is_reserved=is_reserved)

    def charge(self, source: Identity, following: Identity, size: int) -> Charged | RelayStatus:
        """Charge a message that is allowed to the reservation of the next node, if it needs that.

        Returns:
            The charge, or why there is none; the refusal is counted.
        """
        without = self.policy.relays(source, following, is_reserved=False)
        return None if without is RelayStatus.OK else self._charge(following, size)

    def charge_answer(self, reserved: Identity | None, size: int) -> Charged | RelayStatus:
        """Charge an answer to the reservation by which its question was carried, if it was."""
        return None if reserved is None else self._charge(reserved, size)

    def _charge(self, node: Identity, size: int) -> Charged | RelayStatus:
        charge = self.reservations.charge(node, size, self._router.milliseconds())
        if isinstance(charge, RelayStatus):
            self.is_ok(charge)
        return charge

    def refund(self, charge: Charged) -> None:
        """Give back what was charged for something that was certainly not carried."""
        if charge is not None:
            self.reservations.refund(charge)

    def is_ok(self, status: RelayStatus) -> bool:
        """Whether a status is `OK`; any other is counted."""
        if status is not RelayStatus.OK:
            self.refused[status] += 1
            for each in self.on_refused:
                each(status)
        return status is RelayStatus.OK

    # --- reservations -------------------------------------------------------------------------

    def reserve(self, node: Identity, record: bytes) -> None:
        """Answer a node that asks for a reservation."""
        router = self._router
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
        found: Reservation | RelayStatus = self.policy.reserves(node)
        if found is RelayStatus.OK:
            found = self.reservations.reserve(node, request, self._router.milliseconds())
        if isinstance(found, RelayStatus):
            reason = found.name.lower().replace("_", " ")
            self._router.counts[f"requests for a reservation: {reason}"] += 1
            return ReservationAnswer(found)
        return ReservationAnswer(RelayStatus.OK, issue_voucher(found, self._key))


def named_in(message: EngineMessage) -> tuple[Identity, ...]:
    """Return the identities that the message of an engine is of and for."""
    return message.src, message.signer, message.dst.identity
