"""What goes out over relays: a layer of encryption for each, and the answers that come back.

The relays stand in the route, before the destination; or none does, and the node of the destination
has said that it is reached through one. Both become the same: the address of the link, and behind
it the `Carriage` with the relays.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ....protocol import (
    IDENTITY,
    Address,
    LinkDown,
    Message,
    OnwardError,
    PayloadTooBig,
)
from ....protocol.identity import (
    HANDLE_SIZE,
    REPLY_KEY_SIZE,
    SCOPE_ANY,
    SEED_SIZE,
    Answer,
    Destination,
    DestinationKind,
    ExpectedAnswer,
    ExpectedAnswers,
    HandleRefusal,
    Identity,
    LookUp,
    MessageTooBig,
    Refuse,
    RelayContent,
    ReplyContent,
    SigningKey,
    Target,
    TransportPrefs,
    ViaRelay,
    build_onion,
    one_time_signers,
    short_text,
)
from ....protocol.ockam import decode_message
from ..._errors import Unresolved
from ...routing._pending import Pending
from .._carriage import ENGINE, Carriage, is_reserved
from .._outgoing import check_security, not_to_wait
from ._paths import RelayPaths, RememberedWays, hops_to, read_relays

if TYPE_CHECKING:
    from .._outgoing import Undelivered
    from .._router import Router

__all__ = ["SealedWays"]


class SealedWays:
    """The messages of this node that go over relays, and the answers to them.

    Args:
        router: The router.
        key: The key of the node.
        anonymous: Whether each layer is signed by a key of its own, so that relays do not learn the
            node; else its key signs all of them.
        tells_wishes: Whether what a message asks of its carriage stands in its layers as well.

    Attributes:
        paths: What is known of the nodes on the way.
        remembered: The ways that no route names.
        expected: The answers that are waited for.
        sent: The messages that were sealed and that a link has taken.
    """

    __slots__ = (
        "_anonymous",
        "_key",
        "_router",
        "_tells_wishes",
        "expected",
        "paths",
        "remembered",
        "sent",
    )

    def __init__(
        self, router: Router, key: SigningKey, anonymous: bool, *, tells_wishes: bool = False
    ) -> None:
        self._router: Final = router
        self._key: Final = key
        self._anonymous: Final = anonymous
        self._tells_wishes: Final = tells_wishes
        self.paths: Final = RelayPaths(router)
        self.remembered: Final = RememberedWays(router)
        self.expected: Final = ExpectedAnswers()
        self.sent = 0

    # --- to resolve -------------------------------------------------------------------------

    def resolve(self, message: Message, target: Target) -> Message | Pending:
        """Resolve the relays that a route begins with, and the destination behind them.

        Raises:
            UnreadableAddress: An address among them is none, or says what may not be there.
            Unresolved: The router refuses it, or as many messages wait as may.
        """
        relays, target, used = read_relays(message[0], target)
        router, to, destination = self._router, message[0][0], target.destination
        target = router.standing.with_wishes(target)
        check_security(to, target)
        if destination.kind not in {DestinationKind.ENGINE, DestinationKind.NODE}:
            raise Unresolved(to, "relays lead to engines and to nodes alone")
        own = router.own_of(message[3])
        if target.exit:
            hops = _hops_to_exit(to, relays, target)
        else:
            home = self.paths.home(destination)
            if home is None:
                return router.awaited.park(destination.identity, message, target)
            if home == router.own:
                raise Unresolved(to, "it is of this node")
            if not relays:
                return self._resolve_unnamed(message, target, home)
            hops = hops_to(relays, home)
        missing = self.paths.missing(to, hops, target, own)
        if missing is not None:
            return router.awaited.park(missing, message, target)
        carriage = Carriage(
            destination.kind, relays, target.rprefs, target.tprefs, exit=target.exit
        )
        _, link = router.links.get((own, destination.identity))
        last = (ENGINE,) if destination.kind is DestinationKind.ENGINE else ()
        rest = message._replace(onward_route=message[0][used - 1 :])
        return rest.redirect(link, carriage.address, *last)

    def _resolve_unnamed(
        self, message: Message, target: Target, home: Identity
    ) -> Message | Pending:
        """Resolve a destination of which the node has said that it is reached through a relay.

        Raises:
            Unresolved: It has not, or the router refuses it, or as many messages wait as may.
        """
        router, to, destination = self._router, message[0][0], target.destination
        own = router.own_of(message[3])
        match router.decide(destination, target.scope, own):
            case ViaRelay(relay):
                pass
            case LookUp(wanted):
                return router.awaited.park(wanted.identity, message, target)
            case Refuse(reason):
                raise Unresolved(to, f"the router refuses it: {reason.value}")
            case _:
                raise Unresolved(to, "it asks for relays, and its way has none")
        missing = self.paths.missing(to, (relay, home), target, own)
        if missing is not None:
            return router.awaited.park(missing, message, target)
        # It is remembered, as any address that is resolved by itself.
        self.remembered.remember(home, relay, destination.identity)
        carriage = Carriage(destination.kind, (relay,), target.rprefs, target.tprefs)
        return message.redirect(*router.route_to(target, message[3], to[1], carriage))

    # --- to send ----------------------------------------------------------------------------

    def carry(
        self,
        own: Identity,
        to: Identity,
        message: Message,
        carriage: Carriage,
        undelivered: Undelivered,
    ) -> Awaitable[None] | None:
        """Seal a message for each hop, and send it to the first one; see `RouterPart.carry`."""
        router, destination = self._router, Destination(carriage.kind, to)
        # The node of what is let out is not looked for here: others would learn of it.
        home = None if carriage.exit else self.paths.home(destination)
        if home is None and not carriage.exit:
            undelivered(message, LinkDown(short_text(to), "no way to it is known"))
            return None
        hops = carriage.relays if home is None else hops_to(carriage.relays, home)
        path = self.paths.path(hops)
        if isinstance(path, LinkDown):
            undelivered(message, path)
            return None
        if not router.outgoing.may_go(path[0].node, carriage.tprefs):
            undelivered(message, not_to_wait(path[0].node))
            return None
        # In whole seconds: relays that know each other find a message less easily by it.
        expiry = -(-router.outgoing.expiry(message) // 1000) * 1000
        reply_keys: tuple[bytes, ...] = ()
        if message[1]:
            reply_keys = tuple(secrets.token_bytes(REPLY_KEY_SIZE) for _ in path)
        try:
            inner = router.outgoing.envelope(own, destination, message, home, carriage)
            signers = [self._key] * len(path)
            if self._anonymous:
                signers = one_time_signers(secrets.token_bytes(SEED_SIZE * len(path)))
            envelope = build_onion(
                path,
                inner,
                expiry=expiry,
                signers=signers,
                reply_keys=reply_keys,
                tprefs=_told(carriage.tprefs) if self._tells_wishes else None,
                lets_out=carriage.exit,
            )
        except MessageTooBig as error:
            undelivered(message, PayloadTooBig(error.size, error.limit))
            return None
        except OnwardError as error:
            undelivered(message, error)
            return None
        first, handle = path[0].node, None
        if reply_keys:
            handle = secrets.token_bytes(HANDLE_SIZE)
            way = carriage.address.value
            waited = ExpectedAnswer(first, reply_keys, own, to, expiry, way)
            refusal = self.expected.expect(handle, waited, router.milliseconds())
            if refusal is not None:
                undelivered(message, LinkDown(short_text(to), refusal.value))
                return None

        is_lost = False

        def failed(error: OnwardError) -> None:
            nonlocal is_lost
            is_lost = True
            if handle is not None:
                self.expected.forget(handle)
            undelivered(message, error)

        room = router.outgoing.tell(first, RelayContent(envelope, handle), failed, expiry)
        self.sent += not is_lost
        return room

    # --- answers ----------------------------------------------------------------------------

    def open(self, node: Identity, content: ReplyContent) -> bool:
        """Open an answer and deliver it; return whether it is one that this node has waited for."""
        router, counts = self._router, self._router.counts
        now = router.milliseconds()
        answer = self.expected.open(content.handle, node, content.reply, now)
        if answer is HandleRefusal.UNKNOWN:
            return False
        if isinstance(answer, HandleRefusal):
            counts[f"answers over relays: {answer.value}"] += 1
        else:
            reason = self._deliver(answer)
            if reason:
                counts[reason] += 1
        return True

    def _deliver(self, answer: Answer) -> str:
        """Deliver an answer by the link of those two; return why it is refused, if it is."""
        router = self._router
        try:
            message = decode_message(answer.data)
        except OnwardError:
            return "messages that cannot be read"
        if not message[0]:
            return "messages without a route"
        if any(map(is_reserved, (*message[0][:1], *message[1][:1]))):
            return "messages with an address of the router"
        if router.table.is_banned(answer.asked) or self._is_at_banned(answer.asked):
            return "answers of what is banned"
        if answer.asker != router.own and router.engines.of(answer.asker) is None:
            return "answers for engines that have ended"
        link, _ = router.links.get((answer.asker, answer.asked))
        if message[1]:
            # What follows goes the same way: a link between the nodes would show that they talk.
            back = Address(IDENTITY, answer.way), *message[1]
            message = message._replace(return_route=back)
        link.receive(message)
        return ""

    def _is_at_banned(self, identity: Identity) -> bool:
        home = self.paths.home(Destination(DestinationKind.ENGINE, identity))
        return home is not None and self._router.table.is_banned(home)


def _hops_to_exit(
    to: Address, relays: tuple[Identity, ...], target: Target
) -> tuple[Identity, ...]:
    """Return the nodes that a message is sealed for, the last of which lets it out.

    Raises:
        Unresolved: There is none, or the message may not go that far.
    """
    if not relays:
        raise Unresolved(to, "the last relay of a route lets it out, and there is none")
    if target.scope != SCOPE_ANY:
        raise Unresolved(to, "what is let out has no scope, as the exit chooses its way")
    return relays


def _told(tprefs: TransportPrefs | None) -> TransportPrefs | None:
    """Return what relays are told of the wishes of a message: not how many of them it asks for."""
    if tprefs is None:
        return None
    told = TransportPrefs(tprefs.ordering, tprefs.reliability)
    return None if told == TransportPrefs() else told
