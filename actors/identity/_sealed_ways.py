"""What goes out over relays: a layer of encryption for each, and the answers that come back.

The relays stand in the route, before the destination; or none does, and the node of the destination
has said that it is reached through one. Both become the same: the address of the link, and behind
it the `Carriage` with the relays.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Awaitable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ...protocol import (
    IDENTITY,
    Address,
    LinkDown,
    Message,
    OnwardError,
    PayloadTooBig,
    UnreadableAddress,
)
from ...protocol.identity import (
    HANDLE_SIZE,
    MAX_HOPS,
    OLD_KEY_TIME,
    REPLY_KEY_SIZE,
    SEED_SIZE,
    Answer,
    AtNode,
    DeliverLocally,
    Destination,
    DestinationKind,
    EngineAdvert,
    ExpectedAnswer,
    ExpectedAnswers,
    HandleRefusal,
    Hop,
    Identity,
    IdentityError,
    LookUp,
    MessageTooBig,
    NodeAdvert,
    Refuse,
    RelayContent,
    ReplyContent,
    SigningKey,
    Target,
    ViaRelay,
    build_onion,
    one_time_signers,
    parse_target,
    read_advert,
    short_text,
)
from ...protocol.ockam import decode_message
from .._errors import Unresolved
from ..routing._pending import Pending
from ._carriage import ENGINE, Carriage, is_reserved

if TYPE_CHECKING:
    from ...protocol import Route
    from ._outgoing import Undelivered
    from ._router import Router

__all__ = ["SealedWays"]


class SealedWays:
    """The messages of this node that go over relays, and the answers to them.

    Args:
        router: The router.
        key: The key of the node.
        anonymous: Whether each layer is signed by a key of its own, so that relays do not learn the
            node; else its key signs all of them.

    Attributes:
        expected: The answers that are waited for.
        sent: The messages that were sealed and given to a link.
    """

    __slots__ = ("_anonymous", "_asked", "_key", "_remembered", "_router", "expected", "sent")

    def __init__(self, router: Router, key: SigningKey, anonymous: bool) -> None:
        self._router: Final = router
        self._key: Final = key
        self._anonymous: Final = anonymous
        # The identities at a node which is reached through a relay that no route names, of which
        # the links remember what their addresses are replaced by; and that relay.
        self._remembered: Final[dict[Identity, tuple[Identity, dict[Identity, None]]]] = {}
        # When others were asked for the advert of a relay that there is no link to.
        self._asked: Final[OrderedDict[Identity, int]] = OrderedDict()
        self.expected: Final = ExpectedAnswers()
        self.sent = 0

    # --- to resolve -------------------------------------------------------------------------

    def resolve(self, message: Message, target: Target) -> Message | Pending:
        """Resolve the relays that a route begins with, and the destination behind them.

        Raises:
            UnreadableAddress: An address among them is none, or says what may not be there.
            Unresolved: The router refuses it, or as many messages wait as may.
        """
        relays, target, used = _read(message[0], target)
        router, to, destination = self._router, message[0][0], target.destination
        if destination.kind not in {DestinationKind.ENGINE, DestinationKind.NODE}:
            raise Unresolved(to, "relays lead to engines and to nodes alone")
        own = router.own_of(message[3])
        home = self.home(destination)
        if home is None:
            return router.park(destination.identity, message, target)
        if home == router.own:
            raise Unresolved(to, "it is of this node")
        if not relays:
            return self._resolve_unnamed(message, target, home)
        missing = self._missing(to, _hops(relays, home), target, own)
        if missing is not None:
            return router.park(missing, message, target)
        carriage = Carriage(destination.kind, relays, target.rprefs, target.tprefs)
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
                return router.park(wanted.identity, message, target)
            case Refuse(reason):
                raise Unresolved(to, f"the router refuses it: {reason.value}")
            case _:
                raise Unresolved(to, "it asks for relays, and its way has none")
        missing = self._missing(to, (relay, home), target, own)
        if missing is not None:
            return router.park(missing, message, target)
        # It is remembered, as any address that is resolved by itself.
        self._remember(home, relay, destination.identity)
        carriage = Carriage(destination.kind, (relay,), target.rprefs, target.tprefs)
        return message.redirect(*router.route_to(target, message[3], to[1], carriage))

    def _missing(
        self, to: Address, hops: tuple[Identity, ...], target: Target, own: Identity
    ) -> Identity | None:
        """Return the identity of which more has to be known first, if there is one.

        Raises:
            Unresolved: The router refuses a hop, or so many.
        """
        _check_number(to, hops, target)
        for hop in hops:
            kind = DestinationKind.RELAY if hop == hops[0] else DestinationKind.NODE
            match self._router.decide(Destination(kind, hop), target.scope, own):
                case DeliverLocally():
                    raise Unresolved(to, "this node is no relay of its own messages")
                case Refuse(reason):
                    raise Unresolved(to, f"the router refuses it: {reason.value}")
                case LookUp(wanted) if wanted.kind is DestinationKind.DOMAIN:
                    return wanted.identity
                case LookUp() | ViaRelay(link=None) if hop == hops[0]:
                    return hop
                case _:
                    if self._sealing_key(hop) is None:
                        return hop
        return None

    def home(self, destination: Destination) -> Identity | None:
        """Return the node of a destination, as far as it is known here."""
        identity = destination.identity
        if destination.kind is DestinationKind.NODE:
            return identity
        if self._router.engines.of(identity) is not None:
            return self._router.own
        route = self._router.table.route(destination)
        if isinstance(route, AtNode):
            return route.node
        record = self._router.directory.lookup(identity)
        advert = None if record is None or record.advert is None else read_advert(record.advert)
        if advert is not None and isinstance(advert.advert, EngineAdvert):
            return advert.advert.node
        return None

    def _sealing_key(self, node: Identity) -> bytes | None:
        """Return the key that is sealed to for a node, by its advert."""
        record = self._router.directory.lookup(node)
        if record is None or record.advert is None:
            return None
        advert = read_advert(record.advert).advert
        return advert.kx if isinstance(advert, NodeAdvert) else None

    def _remember(self, home: Identity, relay: Identity, identity: Identity) -> None:
        found = self._remembered.get(home)
        if found is None or found[0] != relay or len(found[1]) >= _MAX_REMEMBERED:
            self.forget(home)
            if len(self._remembered) >= _MAX_REMEMBERED:
                self.forget(next(iter(self._remembered)))
            found = self._remembered[home] = relay, {}
        found[1][identity] = None

    def forget(self, home: Identity) -> None:
        """Resolve anew what leads to a node through a relay: there may be another way to it now."""
        _, identities = self._remembered.pop(home, (home, {}))
        for identity in identities:
            self._router.links.forget(identity)

    def forget_all(self) -> None:
        """Resolve anew all that leads through relays, as changes of the directory were lost."""
        for home in tuple(self._remembered):
            self.forget(home)

    def relay_lost(self, relay: Identity) -> None:
        """Resolve anew what leads to any node through a relay, as the link to that has ended."""
        for home in [home for home, (via, _) in self._remembered.items() if via == relay]:
            self.forget(home)

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
        home = self.home(destination)
        if home is None:
            undelivered(message, LinkDown(short_text(to), "no way to it is known"))
            return None
        path = self._path(_hops(carriage.relays, home))
        if isinstance(path, LinkDown):
            undelivered(message, path)
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
                path, inner, expiry=expiry, signers=signers, reply_keys=reply_keys
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

        def failed(error: OnwardError) -> None:
            if handle is not None:
                self.expected.forget(handle)
            undelivered(message, error)

        self.sent += 1
        return router.outgoing.tell(first, RelayContent(envelope, handle), failed, expiry)

    def _path(self, nodes: tuple[Identity, ...]) -> list[Hop] | LinkDown:
        """Return the nodes with the keys to seal to, or why there is no path over them."""
        path: list[Hop] = []
        for node in nodes:
            key = self._sealing_key(node)
            if self._router.table.is_banned(node):
                return LinkDown(short_text(node), "it is banned")
            if key is None:
                return LinkDown(short_text(node), "the key to seal to is not known")
            path.append(Hop(node, key))
            if node != nodes[-1]:
                self._refresh(node)
        return path

    def _refresh(self, node: Identity) -> None:
        """Ask for the advert of a relay from time to time, as its key may be another one by now.

        A node that there is a link to tells it by itself.
        """
        router, now = self._router, self._router.milliseconds()
        if node in router.peers.sessions or self._asked.get(node, -_REFRESH) > now - _REFRESH:
            return
        self._asked[node] = now
        self._asked.move_to_end(node)
        if len(self._asked) > _MAX_REMEMBERED:
            self._asked.popitem(last=False)
        router.lookups.ask(node)

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
        home = self.home(Destination(DestinationKind.ENGINE, identity))
        return home is not None and self._router.table.is_banned(home)


_REFRESH: Final = OLD_KEY_TIME // 2
"""Time after which others are asked for the advert of a relay again, in milliseconds: a key that
was replaced opens for twice as long."""
_MAX_REMEMBERED: Final = 1024
"""Most nodes behind relays of which the links remember addresses, and most identities at each.
Beyond: some are resolved anew. Of so many relays it is remembered when their adverts were asked
for. Beyond: some are asked for earlier."""


def _hops(relays: tuple[Identity, ...], home: Identity) -> tuple[Identity, ...]:
    """Return the nodes that a message is sealed for."""
    return relays if relays and relays[-1] == home else (*relays, home)


def _check_number(to: Address, hops: tuple[Identity, ...], target: Target) -> None:
    """Check how many hops there are.

    Raises:
        Unresolved: There are more than may be, fewer relays than are asked for, or two of the same
            node in a row.
    """
    if len(hops) > MAX_HOPS:
        raise Unresolved(to, f"a path has at most {MAX_HOPS} hops, with the last node, not more")
    asked, relays = 0 if target.tprefs is None else target.tprefs.hops, len(hops) - 1
    if relays < asked:
        raise Unresolved(to, f"it asks for {asked} relays or more, and its way has {relays}")
    if any(hop == following for hop, following in pairwise(hops)):
        raise Unresolved(to, "a relay follows itself")


def _read(route: Route, target: Target) -> tuple[tuple[Identity, ...], Target, int]:
    """Return the relays that a route begins with, what is behind them, and how many addresses.

    A plain address behind a relay is one of the node of that relay, as is the end of the route.

    Raises:
        UnreadableAddress: An address among them is no destination, or says what may not be there.
    """
    relays: list[Identity] = []
    while target.destination.kind is DestinationKind.RELAY:
        relays.append(target.destination.identity)
        following = route[len(relays)] if len(relays) < len(route) else None
        if following is None or following[0] != IDENTITY:
            node = Destination(DestinationKind.NODE, relays[-1])
            return tuple(relays), Target(node, target.rprefs, target.tprefs), len(relays)
        if target.rprefs is not None or target.tprefs is not None:
            raise UnreadableAddress(route[len(relays) - 1], "wishes stand at the destination")
        try:
            target = parse_target(following[1].decode())
        except (IdentityError, UnicodeDecodeError) as error:
            raise UnreadableAddress(following, str(error)) from None
    used = len(relays) + 1
    if any(map(is_reserved, route[used : used + 1])):
        raise UnreadableAddress(route[used], "the router alone writes it")
    return tuple(relays), target, used
