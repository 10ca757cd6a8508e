"""The fast path of unsettled messages between dispatchers.

Such a message has an entry at each node, under the token that stands on its return route there. The
acceptance comes back to that token, over the link that the message was sent on or from its
consumer, and goes on along the return route that the message came with. The token of the node
before leads to the entry as well, for what that node tells of the message.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import DELIVERY, ERROR_SOURCE, Address, Message, OnwardError, Route
from ...protocol.dispatch import (
    ACCEPTED,
    RELEASED,
    TOKEN_SIZE,
    Disposition,
    FastLink,
    FastPath,
    LinkTarget,
    Share,
    Target,
    decode_transit,
    disposition_address,
    encode_disposition,
    return_address,
)
from ._arrival import Arrival, TransitPath, without
from ._bundle_parts import Part
from ._consumer_record import Accept, ConsumerRecord

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._fast_path import FastPaths
    from ._fast_transits import Way
    from ._name_state import NameState

__all__ = ["Asked", "FastUnsettled"]

_RETURN, _DISPOSITION = b"r", b"d"
"""The first bytes of the addresses of a reply and of a disposition."""
_ACCEPTED: Final = encode_disposition(Disposition(ACCEPTED))
"""The frame of an acceptance without an answer, which has one spelling."""
_HANDED: Final = Accept.HANDED
_ERRORS: Final = ERROR_SOURCE.value

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Asked(NamedTuple):
    """An unsettled message that has entered here and goes to the next node.

    Attributes:
        message: The message.
        return_route: Its return route, at the same place as in a message.
        id: Its id.
    """

    message: Message
    return_route: Route
    id: bytes


class FastUnsettled:
    """The unsettled messages to and from other dispatchers that are on the fast path.

    Args:
        core: The dispatcher.
        paths: The fast paths of its names.

    Attributes:
        came: The tokens of the messages that came over a link, by the link, and then by the token
            that each came with; with the name of each.
    """

    def __init__(self, core: DispatchCore, paths: FastPaths) -> None:
        self._core: Final = core
        self._own: Final = core.address
        self._totals: Final = core.totals
        self._paths: Final = paths
        self._dispatch: Final = core.node.parts.router.dispatch
        self._time: Final = core.node.loop.time
        self._timeout: Final = core.options.outcome_timeout
        self.came: Final[dict[Address, dict[bytes, tuple[NameState, bytes]]]] = {}

    # --- messages ---------------------------------------------------------------------------

    def ask(self, fast: FastPath[Arrival], way: Way, number: bytes, message: Message) -> bool:
        """Send a message that enters here on; return whether there is room for it.

        Args:
            fast: The fast path of its name.
            way: Its way.
            number: Its id.
            message: The message.
        """
        onward, back, payload, _, _ = message
        to = way[6]
        if to is None:
            return False
        token, end = self._paths.token()
        now = self._time()
        limit = now + self._timeout
        origin = _new(Asked, (message, back, number))
        if not fast.begin_on(token, (to, len(payload), now, limit, origin, None)):
            return False
        self._send(way, to, number, token, end, limit, payload, onward[1:])
        return True

    def pass_on(self, fast: FastPath[Arrival], way: Way, number: bytes, message: Message) -> bool:
        """Send a message of another node on, or hand it to its consumer; return whether it went.

        Args:
            fast: The fast path of its name.
            way: Its way.
            number: Its id.
            message: The message, with its transit address in second place.
        """
        onward, back, payload, source, _ = message
        if source is None or len(back) < 2 or back[0] != source:
            return False
        kind, mark = back[-1]
        if kind != DELIVERY or len(mark) != 1 + TOKEN_SIZE or mark[:1] != _RETURN:
            return False
        return self.pass_one(fast, way, number, mark[1:], message, payload, onward[2:], source)

    def pass_one(
        self,
        fast: FastPath[Arrival],
        way: Way,
        number: bytes,
        mark: bytes,
        origin: Message | Part,
        payload: bytes,
        rest: Route,
        source: Address,
    ) -> bool:
        """Send a message of another node on, or hand it to its consumer; return whether it went.

        Args:
            fast: The fast path of its name.
            way: Its way.
            number: Its id.
            mark: The token of that node.
            origin: The message as it came.
            payload: Its payload.
            rest: What follows its transit address.
            source: The link that it came over.
        """
        state, to, wait, neighbour = way[0], way[6], way[8], way[9]
        came, upstream = self.came.get(source), self._core.copies.upstream
        if came is None:
            came = self.came[source] = {}
        if mark in came or (upstream and mark in upstream.get(neighbour[1], ())):
            return False  # its node has another one with this token
        totals = self._totals
        share = totals.shares.get(neighbour) or totals.share_of(neighbour, neighbour=True)
        token, end = self._paths.token()
        now = self._time()
        limit = now + wait if wait else inf
        if to is not None:
            if not fast.begin_on(token, (to, len(payload), now, limit, origin, share)):
                return False
            came[mark] = state, token
            self._send(way, to, number, token, end, limit, payload, rest)
            return True
        target = fast.only or fast.choose()
        if target is None:
            return False
        record: ConsumerRecord = target.consumer
        limit = min(limit, now + fast.settle_time)
        entry = target, len(payload), now, limit, origin, share
        if record.accept is _HANDED or not fast.begin(token, entry):
            return False
        came[mark] = state, token
        copy = _new(Message, (record.route + rest, (end,), payload, source, None))
        self._paths.open[end[1]] = state, token, copy[0][0]
        scheduled = state.scheduled
        if scheduled is None or scheduled > limit:
            self._core.schedule.arm(state)
        self._carry(state, token, copy, target.target)
        return True

    def _send(
        self,
        way: Way,
        to: FastLink,
        number: bytes,
        token: bytes,
        end: Address,
        limit: float,
        payload: bytes,
        rest: Route,
    ) -> None:
        """Send a message that has its entry to the next node."""
        state, link, bundle = way[0], way[3], way[10]
        if link is None:
            raise AssertionError("a way to another node without a link")
        opened = self._paths.open
        opened[end[1]] = state, token, link
        scheduled = state.scheduled
        if scheduled is None or scheduled > limit:
            self._core.schedule.arm(state)
        if bundle is not None and not rest and bundle.takes(payload):
            bundle.add(number + token, payload)
            return
        self._core.bundles.flush()  # those in front of it go first
        if end[1] not in opened and token not in self._core.copies.tokens:
            return  # it has ended with what became of these
        first = _new(Address, (DELIVERY, way[4] + number + way[5]))
        route = link, self._own, first, *rest
        copy = _new(Message, (route, (self._own, end), payload, None, None))
        self._carry(state, token, copy, to.target)

    def _carry(self, state: NameState, token: bytes, copy: Message, target: Target) -> None:
        """Send the copy of a message that has its entry; release it if it is not taken."""
        try:
            self._dispatch(copy)
        except OnwardError:
            if isinstance(target, LinkTarget):
                self._core.counts["copies that a link did not take"] += 1
            state.disposition(token, RELEASED, target)
            self._core.names.tidy(state)

    # --- outcomes ---------------------------------------------------------------------------

    def receive(self, value: bytes, message: Message) -> bool:
        """Receive what comes to a token over a link; return whether it was an acceptance.

        Args:
            value: The address of the token.
            message: The message, with that address in second place.
        """
        onward, back, payload, source, _ = message
        if len(onward) > 2 or (back and back[-1][1] == _ERRORS):
            return False
        answer: bytes | None = payload
        if value[:1] == _DISPOSITION:
            if payload != _ACCEPTED:
                return False
            value, answer, back = return_address(value[1:]), None, ()
        found = self._paths.open.get(value)
        if found is None or source != found[2]:
            return False
        self._paths.accepted_by(found[0], found[1], value, back, answer)
        return True

    def answer(self, message: Message | Part, back: Route, payload: bytes | None) -> Message | None:
        """Return the acceptance of a message, to be sent to the dispatcher before this one.

        Args:
            message: The message, as it came.
            back: The return route of the answer.
            payload: The answer; `None` if there is none.

        Returns:
            `None` if it goes in a bundle.
        """
        if isinstance(message, Part):
            source, token = message[5], message[2]
            del self.came[source][token]
            if self._core.bundles.accept(source, token, back, payload):
                return None
            end = return_address(token)
            route = *message[4][:-1], Address(DELIVERY, end)
        else:
            route, link = message[1], message[3]
            if link is None:
                raise AssertionError("a message of another node without its link")
            end = route[-1][1]
            token = end[1:]
            del self.came[link][token]
            if len(route) == 3 and self._core.bundles.accept(link, token, back, payload):
                return None
        if payload is not None:
            return _new(Message, (route, back, payload, None, None))
        told = Address(DELIVERY, disposition_address(end))
        return Message((*route[:-1], told), (), _ACCEPTED, None, None)

    # --- full records -----------------------------------------------------------------------

    def promoted(self, message: Message | Part, since: float, share: Share) -> Arrival:
        """Return a message of another node that leaves the fast path.

        Args:
            message: The message, as it came.
            since: When it came, in seconds.
            share: What its source has at this node.
        """
        if isinstance(message, Part):
            message = message.alone(self._own, None)
        onward, back, _, source, _ = message
        if source is None:
            raise AssertionError("a message of another node without its link")
        mark = back[-1][1]
        del self.came[source][mark[1:]]
        transit, link = decode_transit(onward[1][1]), self._core.topology.text_of(source)
        return Arrival(
            without(message, onward[2:]),
            False,
            transit.identity,
            link,
            TransitPath(back, link, mark[1:]),
            transit.path,
            deadline=since + transit.wait / 1000 if transit.wait else None,
            leg=True,
            share=share,
        )

    def recall(self, link: Address, mark: bytes) -> None:
        """Make the full record of a message of another node, if there is one with this token.

        Args:
            link: The link that it came over.
            mark: The token that it came with.
        """
        found = self.came.get(link, {}).get(mark)
        if found is not None:
            found[0].promote(found[1])

    def link_lost(self, link: str) -> None:
        """Make full records of the messages that came over a link."""
        for address in [each for each in self.came if str(each) == link]:
            for mark in list(self.came[address]):
                self.recall(address, mark)
            del self.came[address]
