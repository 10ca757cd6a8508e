"""The fast path of messages from this node to consumers at this node.

Most messages are sent along `34#name` with nothing else about them, and their consumer accepts
them. Such a message takes no part in what a name does beyond its counts: it is looked up by its
address as it is, put into the mailbox of the consumer, and its one entry ends with the reply. All
others, and all that ends in another way, go the full way: see `protocol/dispatch/_fast_path.py`.
Those to and from other dispatchers: see `_fast_transits.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from itertools import repeat
from struct import Struct
from threading import get_ident
from typing import TYPE_CHECKING, Final, cast

from ...protocol import DELIVERY, ERROR_SOURCE, Address, Message, OnwardError, Route
from ...protocol.dispatch import (
    ALL_NODES,
    RELEASED,
    TOKEN_SIZE,
    FastDelivery,
    FastPath,
    FastTarget,
    LinkTarget,
    Target,
    return_address,
)
from ._arrival import PLAIN, Arrival, PlainPath
from ._consumer_record import Accept, ConsumerRecord
from ._fast_transits import FastTransits
from ._fast_unsettled import Asked
from ._stored import holds_on_disk

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["FastPaths"]

MAX_NAMES: Final = 4096
"""Most names that have a fast path at a time; the oldest has to be looked up in full again."""
_DRAWN: Final = 512
"""Tokens that are drawn at once."""
_HEAD: Final = return_address(b"")
_ENDS: Final = Struct(f"{len(_HEAD) + TOKEN_SIZE}s" * _DRAWN)
_TOKENS: Final = Struct(f"{len(_HEAD)}x{TOKEN_SIZE}s" * _DRAWN)
_HANDED: Final = Accept.HANDED
_ERRORS: Final = ERROR_SOURCE.value
_NOTHING: Final = None, b"", None

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_new_address: Final = cast("Callable[[type[Address], tuple[int, bytes]], Address]", tuple.__new__)


class FastPaths:
    """The fast paths of the names of a node.

    Args:
        core: The dispatcher.
        slow: Receives a message that has none.

    Attributes:
        names: The names that have one, by the value of their address.
        open: The name, the token and the consumer or link of each unsettled message, by the return
            address of its copy.
        accepted: Number of unsettled messages that were accepted.
    """

    def __init__(self, core: DispatchCore, slow: Callable[[Message], object]) -> None:
        self._core: Final = core
        self._slow: Final = slow
        self._thread: Final = get_ident()
        self.names: Final[dict[bytes, NameState]] = {}
        self.open: Final[dict[bytes, tuple[NameState, bytes, Address]]] = {}
        self.accepted = 0
        self._tokens: Final[list[tuple[bytes, Address]]] = []
        self.transits: Final = FastTransits(core, self)
        self.unsettled: Final = self.transits.unsettled
        parts = core.node.parts
        self._is_inside: Final = parts.table.is_inside
        self._run_queue: Final = parts.run_queue
        self._dispatch: Final = parts.router.dispatch
        self._time: Final = core.node.loop.time
        self._timeout: Final = core.options.outcome_timeout

    # --- which names have one ---------------------------------------------------------------

    def learn(self, address: Address, state: NameState) -> None:
        """Open the fast path of a name that a message was sent to, if it has one now."""
        fast, name = state.fast, address[1]
        if fast is not None and fast.is_open and self.transits.knows(name, fast.plans):
            return
        if name == state.name.text.encode() and self.plan(state):
            if len(self.names) >= MAX_NAMES:
                del self.names[oldest := next(iter(self.names))]
                self.transits.forget_way(oldest)
            self.names[name] = state
            self.transits.learn_way(name, state)

    def plan(self, state: NameState) -> bool:
        """Open the fast path of a name, if it has one now; return whether it is open."""
        core, name = self._core, state.name
        if core.provisioning.late or name.node == ALL_NODES:
            return False
        if name.node and not state.consumers:
            return False  # a name of another node: it is forgotten once nothing is under way
        if core.stored is not None and holds_on_disk(core.provisioning.semantics_of(name)):
            return False
        return state.plan_fast_path()

    def forget(self, state: NameState) -> None:
        """Forget the fast path of a name of which the state is forgotten."""
        self.transits.forget(state)
        if self.names:
            name = state.name.text.encode()
            self.names.pop(name, None)
            self.transits.forget_way(name)

    def clear(self) -> None:
        """Look up each name in full again, as names may mean something else now."""
        self.names.clear()
        self.transits.clear()

    # --- messages ---------------------------------------------------------------------------

    def enter(self, message: Message) -> None:
        """Receive a message with a name as its first address: the rule of names."""
        onward, back, payload, source, context = message
        state, instruments = self.names.get(onward[0][1]), self._run_queue.instruments
        if (
            state is None
            or context is not None
            or (source is not None and not self._is_inside(source))
            or (instruments is not None and instruments.names is not None)
            or get_ident() != self._thread
        ):
            self._slow(message)
            return
        fast = state.fast
        if fast is None or not fast.is_open or state.performing:
            self._slow(message)
            return
        target = fast.only or fast.choose()
        if target is None:
            if not self.transits.send_on(state, fast, message):
                self._slow(message)
            return
        record: ConsumerRecord = target.consumer
        onward = record.route if len(onward) == 1 else record.route + onward[1:]
        if not back:
            if not self.hand(state, fast, target, payload, source, onward):
                self._slow(message)
            return
        if record.accept is _HANDED:
            self._slow(message)
            return
        tokens = self._tokens or self._draw()
        token, end = tokens.pop()
        now = self._time()
        limit = now + fast.longest
        entry = target, len(payload), now, limit, message, None
        if not fast.begin(token, entry):
            self._slow(message)
            return
        self.open[end[1]] = state, token, onward[0]
        scheduled = state.scheduled
        if scheduled is None or scheduled > limit:
            self._core.schedule.arm(state)
        try:
            self._dispatch(_new(Message, (onward, (end,), payload, source, None)))
        except OnwardError:
            state.disposition(token, RELEASED, record.target)
            self._core.names.tidy(state)

    def hand(
        self,
        state: NameState,
        fast: FastPath[Arrival],
        target: FastTarget[Arrival],
        payload: bytes,
        source: Address | None,
        onward: Route,
    ) -> bool:
        """Hand a consumer a pre-settled message, if it has credit; return whether it has.

        Args:
            state: The name.
            fast: Its fast path.
            target: The consumer.
            payload: The payload of the message.
            source: Where it comes from.
            onward: Its route from the consumer on.
        """
        queue = target.queue
        if not queue.credit or queue.waiting:
            return False
        record: ConsumerRecord = target.consumer
        if fast.only is None:
            fast.took(target)
        waits = record.worker is not None and record.accept is not _HANDED
        if waits:
            queue.credit -= 1
            target.load.messages += 1
            target.record.handed += 1
        sent = _new(Message, (onward, (), payload, source, None))
        try:
            self._dispatch(sent)
        except OnwardError as error:
            self._core.node.dead_letter(
                sent._replace(onward_route=onward[len(record.route) :]), error
            )
            if waits:
                state.handled(record)
        return True

    def reply(self, message: Message) -> None:
        """Receive a message with a token as its first address: the rule of deliveries."""
        onward, back, payload, source, context = message
        end = onward[0][1]
        state, token, consumer = self.open.get(end, _NOTHING)
        # Most answers come from the address that the message went to, which is the same object.
        if (
            state is None
            or context is not None
            or get_ident() != self._thread
            or (back and back[-1] is not consumer and back[-1][1] == _ERRORS)
            or (
                source is not consumer
                and source is not None
                and source != consumer
                and not self._is_inside(source)
            )
        ):
            self._slow(message)
            return
        self.accepted_by(state, token, end, back, payload)

    def accepted_by(
        self, state: NameState, token: bytes, end: bytes, back: Route, payload: bytes | None
    ) -> None:
        """End a message as accepted, and answer its sender or the dispatcher before this one.

        Args:
            state: The name.
            token: The token of the message.
            end: The return address of its copy.
            back: The return route of the answer.
            payload: The answer; `None` if there is none.
        """
        fast = state.fast
        if fast is None:
            raise AssertionError("an entry without a fast path")
        del self.open[end]
        target, _, _, _, message, share = fast.accept(token)
        self.accepted += 1
        answer: Message | None
        if share is None:
            answer = _new(Message, (message[1], back, payload or b"", None, None))
        else:
            answer = self.unsettled.answer(message, back, payload)
        if answer is not None:
            try:
                self._dispatch(answer)
            except OnwardError as error:
                self._core.counts["outcomes that could not be told"] += 1
                self._core.node.dead_letter(answer, error)
        if isinstance(target, FastTarget) and target.queue.waiting:
            state.serve(target.number)

    def accept(self, token: bytes, target: Target, payload: bytes | None = None) -> bool:
        """Accept a message by a call of its consumer; return whether it was on the fast path.

        Args:
            token: Its token.
            target: The consumer.
            payload: The answer; `None` if there is none.
        """
        end = return_address(token)
        state, _, _ = self.open.get(end, _NOTHING)
        if state is None or state.fast is None:
            return False
        if state.fast.entries[token][0].target != target:
            return False
        self.accepted_by(state, token, end, (), payload)
        return True

    # --- full records -----------------------------------------------------------------------

    def promote(self, token: bytes) -> None:
        """Make the full record of a message, if it is on the fast path."""
        found = self.open.get(return_address(token))
        if found is not None:
            found[0].promote(token)

    def promoted(self, state: NameState, token: bytes, entry: FastDelivery[Arrival]) -> Arrival:
        """Return a message that leaves the fast path as one that goes the full way."""
        core, (target, _, since, _, message, share) = self._core, entry
        self.open.pop(return_address(token), None)
        core.copies.begun(token, state, target.target)
        if share is not None:
            return self.unsettled.promoted(message, since, share)
        identity = core.identity()
        if isinstance(message, Asked):
            identity = (*identity[:2], message.id)
            message = message.message
        onward, back, payload, source, _ = message
        return Arrival(
            Message(onward[1:], (), payload, source, None),
            False,
            identity,
            PLAIN,
            PlainPath(Message(onward, back, b"", source, None)),
            deadline=since + self._timeout,
        )

    def link_lost(self, link: str) -> None:
        """Make full records of the messages that came over a link, or were sent over it."""
        self.unsettled.link_lost(link)
        at = LinkTarget(link)
        for state, token, _ in list(self.open.values()):
            if state.fast is not None and state.fast.entries[token][0].target == at:
                state.promote(token)

    def token(self) -> tuple[bytes, Address]:
        """Return a token, and the address at which the outcome of its copy is awaited."""
        return (self._tokens or self._draw()).pop()

    def _draw(self) -> list[tuple[bytes, Address]]:
        """Draw tokens, each with the address at which the outcome of its copy is awaited."""
        # Read at once, as to make one by itself takes a tenth of the time of its message.
        drawn = bytearray(secrets.token_bytes(_ENDS.size))
        drawn[:: len(_HEAD) + TOKEN_SIZE] = _HEAD * _DRAWN
        values = zip(repeat(DELIVERY), _ENDS.unpack(drawn), strict=False)
        ends = map(_new_address, repeat(Address), values)
        self._tokens.extend(zip(_TOKENS.unpack(drawn), ends, strict=True))
        return self._tokens
