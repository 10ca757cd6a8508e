"""The receiver of bundles: their messages go the fast path, or each as if it came by itself."""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from ...protocol import (
    DELIVERY,
    ERROR_SOURCE,
    Address,
    AddressError,
    Message,
    NotExposed,
    OnwardError,
    Route,
)
from ...protocol.dispatch import (
    ACCEPTED,
    ANSWERS,
    MESSAGES,
    SETTLED,
    BadTransit,
    Disposition,
    disposition_address,
    encode_disposition,
    read_bundle,
    read_bundle_number,
    read_tokens,
    return_address,
)
from ._bundle_parts import Part

if TYPE_CHECKING:
    from ._consumer_record import ConsumerRecord
    from ._core import DispatchCore
    from ._fast_path import FastPaths
    from ._fast_transits import FastTransits, Way

__all__ = ["BUNDLE_KINDS", "BundleReceiver"]

MAX_PARTS: Final = 256
"""Messages and acceptances of bundles after which other workers have their turns, and the loop does
other things. They are fewer than a mailbox takes by default: a turn of many bundles would fill that
of a consumer that keeps up."""

BUNDLE_KINDS: Final = frozenset({b"m", b"p", b"a", b"n"})
"""The first bytes of the addresses of bundles."""

_SETTLED, _ANSWERS, _TOKENS = b"p", b"a", b"n"
_ACCEPTANCES: Final = frozenset({_ANSWERS, _TOKENS})
_RETURN: Final = return_address(b"")
_ERRORS: Final = ERROR_SOURCE.value
_ACCEPTED: Final = encode_disposition(Disposition(ACCEPTED))

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class BundleReceiver:
    """The receiver of bundles.

    Args:
        core: The dispatcher.
        paths: The fast paths of its names.
        transits: The ways of messages of other dispatchers.

    Attributes:
        parts: Messages and acceptances of bundles since the last pause.
    """

    def __init__(self, core: DispatchCore, paths: FastPaths, transits: FastTransits) -> None:
        self.parts = 0
        self._core: Final = core
        self._own: Final = core.address
        self._paths: Final = paths
        self._transits: Final = transits
        self._unsettled: Final = transits.unsettled

    def pause(self) -> Coroutine[Any, Any, None] | None:
        """Return what to wait for before the next message; `None` if there is no need for it."""
        if self.parts < MAX_PARTS:
            return None
        self.parts = 0
        return sleep(0)

    def receive(self, value: bytes, message: Message) -> bool:
        """Receive a bundle from a link; return whether it was taken.

        Args:
            value: The value of its address, which begins with one of `BUNDLE_KINDS`.
            message: The message, with that address in second place.
        """
        onward, _, _, source, _ = message
        if source is None or len(onward) > 2:
            return False
        kind = value[:1]
        if kind in _ACCEPTANCES:
            return self._accepted(kind, message, source)
        key = b"t" + value[1:]
        way = self._transits.way(key, source)
        if way is None or way.settled is not (kind == _SETTLED):
            return False
        try:
            parts = self._parts(kind, key, message, source)
        except BadTransit:
            return False  # it is counted where it is read again
        self._pass_on(way, parts, message, source)
        return True

    def receive_alone(self, value: bytes, message: Message) -> None:
        """Receive what is in a bundle as messages that have come by themselves.

        Args:
            value: As of `receive`.
            message: The message, with that address in first place.

        Raises:
            BadTransit: It cannot be read.
        """
        onward, back, payload, source, _ = message
        if source is None or len(onward) > 1:
            raise BadTransit("a bundle of no neighbour, or with a route behind it")
        kind = value[:1]
        if kind in _ACCEPTANCES:
            accepted = _acceptances(kind, payload)
            self.parts += len(accepted)
            for token, answer in accepted:
                given = () if answer is None else back
                self._answer_alone(_RETURN + token, given, answer, message)
            return
        if not self._core.topology.is_joined(message):
            # Here, and not for each: what is told of the bundle is told of all of them.
            self._core.counts["messages of no neighbour"] += 1
            self._core.node.lose(message, NotExposed(self._own))
            return
        key = b"t" + value[1:]
        for part in self._parts(kind, key, message, source):
            self._alone(part, message)

    # --- messages ---------------------------------------------------------------------------

    def _parts(self, kind: bytes, key: bytes, message: Message, source: Address) -> list[Part]:
        """Return the messages in a bundle.

        Raises:
            BadTransit: It cannot be read.
        """
        _, back, payload, _, _ = message
        settled = kind == _SETTLED
        parts: list[Part] = []
        if settled:
            records, at = read_bundle(payload, SETTLED)
            records = [(number, b"", size) for number, size in records]
        else:
            if len(back) < 2 or back[0] != source or back[-1][0] != DELIVERY:
                raise BadTransit("a bundle of unsettled messages without a way back")
            read_bundle_number(back[-1][1])
            records, at = read_bundle(payload, MESSAGES)
        self.parts += len(records)
        for number, token, size in records:
            end = at + size
            parts.append(_new(Part, (key, number, token, payload[at:end], back, source)))
            at = end
        return parts

    def _pass_on(self, way: Way, parts: list[Part], message: Message, source: Address) -> None:
        """Send messages on, or hand them to consumers."""
        state, transits, unsettled, paths = way[0], self._transits, self._unsettled, self._paths
        settled, there = way[7], way[3]
        for part in parts:
            fast = state.fast
            if fast is None or way[1] != fast.plans or state.performing:
                self._alone(part, message)
                continue
            _, number, token, payload, _, _ = part
            if not settled:
                if not unsettled.pass_one(fast, way, number, token, part, payload, (), source):
                    self._alone(part, message)
                continue
            if there is not None:
                transits.send(way, number, payload, source, ())
                continue
            target = fast.only or fast.choose()
            if target is not None:
                record: ConsumerRecord = target.consumer
                if paths.hand(state, fast, target, payload, source, record.route):
                    continue
            self._alone(part, message)

    def _alone(self, part: Part, bundle: Message) -> None:
        """Receive a message of a bundle the full way."""
        self._slow(part.alone(self._own, bundle[4]))

    def _slow(self, message: Message) -> None:
        # An error is one of this message alone: the others of the bundle have been handled.
        try:
            self._core.slow(message._replace(onward_route=message[0][1:]))
        except AddressError:
            self._core.counts["addresses that cannot be read"] += 1
            self._core.node.dead_letter(message, "unreadable address")
        except OnwardError as error:
            self._core.node.lose(message, error)

    # --- acceptances ------------------------------------------------------------------------

    def _accepted(self, kind: bytes, bundle: Message, source: Address) -> bool:
        """Receive acceptances; return whether these can be read as such."""
        opened, accepted_by = self._paths.open, self._paths.accepted_by
        _, back, payload, _, _ = bundle
        if back and back[-1][1] == _ERRORS:
            return False
        try:
            accepted = _acceptances(kind, payload)
        except BadTransit:
            return False
        self.parts += len(accepted)
        if kind == _TOKENS:
            back = ()
        for token, answer in accepted:
            end = _RETURN + token
            found = opened.get(end)
            if found is None or found[2] != source:
                self._answer_alone(end, back, answer, bundle)
            else:
                accepted_by(found[0], found[1], end, back, answer)
        return True

    def _answer_alone(self, end: bytes, back: Route, answer: bytes | None, bundle: Message) -> None:
        """Receive an acceptance of a bundle the full way."""
        payload = _ACCEPTED if answer is None else answer
        value = disposition_address(end) if answer is None else end
        route = self._own, Address(DELIVERY, value)
        self._slow(Message(route, back, payload, bundle[3], bundle[4]))


def _acceptances(kind: bytes, payload: bytes) -> list[tuple[bytes, bytes | None]]:
    """Return the tokens of acceptances, each with its answer, if it has one.

    Raises:
        BadTransit: They cannot be read.
    """
    if kind == _TOKENS:
        return [(token, None) for token in read_tokens(payload)]
    records, at = read_bundle(payload, ANSWERS)
    found: list[tuple[bytes, bytes | None]] = []
    for token, size in records:
        end = at + size
        found.append((token, payload[at:end]))
        at = end
    return found
