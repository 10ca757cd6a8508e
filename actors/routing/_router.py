"""The router: the delivery of messages by the address table and the rules."""

from __future__ import annotations

from asyncio import gather
from collections.abc import Callable
from math import inf
from threading import get_ident
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol import (
    ERROR_SOURCE,
    HANDLED,
    LOCAL,
    MAX_ROUTE_LENGTH,
    Address,
    AddressError,
    Context,
    EmptyRoute,
    MailboxFull,
    Message,
    OnwardError,
    Route,
    RouteLike,
    RouteTooLong,
    UnknownAddress,
    UnknownAddressType,
    UnreadableAddress,
    counted,
)
from .._errors import RoutingLoop, Unresolved
from ..runtime._lost import note_lost
from ..runtime._mailbox import Target
from ..runtime._room import Room, put_when_room
from ..runtime._run_queue import Phase, RunQueue
from ._given import as_route, check_payload
from ._pending import Pending, PendingTable
from ._reply import LATE_ANSWER
from ._rules import Rule, Rules
from ._table import AddressTable
from ._undeliverable import Undeliverable

if TYPE_CHECKING:
    from ..instruments._composite import Instruments

__all__ = ["Passage", "Router"]

# A member of an enumeration takes as long to look up as to resolve an address.
_NOT_STARTED: Final = Phase.NOT_STARTED
_CLOSED: Final = Phase.CLOSED

ANSWERED_ERROR: Final = "answer to an error reply"
"""The reason of a dead letter that is an answer to an error reply."""

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


class Passage:
    """The checks of messages from outside that workers and rules pass on; here there are none."""

    __slots__ = ()

    def guard(self, first: Address) -> None:
        """Check from now on the messages that the worker of an address passes on."""

    def pass_on(self, message: Message) -> Message:
        """Return a message with its permissions for the next hop, if it is from outside.

        Raises:
            NotExposed: It is from outside and may not be sent to its first address.
        """
        return message


class Router:
    """The delivery of messages, by the table and the rules.

    Args:
        run_queue: The run queue of the targets.
        addresses: The address table.
        undeliverable: For messages that cannot be delivered, where no sender gets the error.
        passage: The checks of messages from outside.

    Attributes:
        run_queue: As given.
        addresses: As given.
        undeliverable: As given.
        passage: As given.
        rules: The rules for other types of addresses.
        pending: The messages that wait for a rule.
        table: The targets of `addresses`, at hand for each hop.
        schedule: `RunQueue.schedule`, at hand for each hop.
    """

    __slots__ = (
        "_made",
        "_ready",
        "addresses",
        "passage",
        "pending",
        "rules",
        "run_queue",
        "schedule",
        "table",
        "undeliverable",
    )

    def __init__(
        self,
        run_queue: RunQueue,
        addresses: AddressTable,
        undeliverable: Undeliverable,
        passage: Passage,
    ) -> None:
        self.run_queue: Final = run_queue
        self.addresses: Final = addresses
        self.undeliverable: Final = undeliverable
        self.passage: Final = passage
        self.rules: Final = Rules()
        self._made: Final = self.rules.made
        self.pending: Final = PendingTable(run_queue, addresses, undeliverable, self.resolve_again)
        self.table: Final[dict[Address, Target]] = addresses.targets
        self.schedule: Final[Callable[[Target], None]] = run_queue.schedule
        self._ready: Final = run_queue.ready

    # --- dispatch: for the parts of a node --------------------------------------------

    def dispatch(self, message: Message) -> None:
        """Deliver a message to the mailbox at its first onward address, with its source as it is.

        The one path of all messages. The variants below add one thing each: what a guard has to
        know (`dispatch_from`, `dispatch_answer`), a wait for room (`dispatch_wait`), a dead
        letter in place of an error (`dispatch_or_lose`), and a turn at once (`dispatch_now`).

        Raises:
            DeliveryError: As `Node.route`.
        """
        onward = message[0]
        # Routing protocol, Message format: "When routing a message, the router MUST send it to the
        # FIRST address in the onward route."
        target = self.table.get(onward[0]) if onward else None
        if target is None:
            self._ask(message)
            return
        queue = target.queue
        if queue is None or len(queue) >= target.limit or len(message[2]) > target.heavy:
            target.put(message)
            return
        queue.append(message)
        if not target.scheduled:
            target.scheduled = True
            self._ready.append(target)
            if not self.run_queue.awake:
                self.run_queue.wake()

    def dispatch_from(self, _own: Address | None, message: Message) -> None:
        """Deliver a message as `dispatch`, whichever of its addresses the worker sends from.

        For a worker with outgoing access controls, `OutboundGuard` replaces the router.
        """
        self.dispatch(message)

    def dispatch_answer(self, message: Message) -> None:
        """Deliver an answer as `dispatch`, if its first address is not in the table.

        For a worker with checks on what it passes on, `OutboundGuard` replaces the router.
        """
        self._ask(message)

    async def dispatch_wait(self, message: Message, _own: Address | None = None) -> None:
        """Deliver a message as `dispatch`, but wait for room where the mailbox's policy is to.

        Of the messages that a rule has made of one, each waits for its own receiver. One that
        cannot be delivered after its wait is a dead letter.
        """
        onward = message[0]
        rooms: list[Room] = []
        room: Room | None = None
        try:
            if onward and onward[0] in self.table:
                self.dispatch(message)
            else:
                self._resolve(message, rooms=rooms)
        except MailboxFull as full:
            room = full.room
            if room is None or not room.may_wait:
                raise
        if room is not None:
            await self.run_queue.on_loop(put_when_room(room))
        if rooms:
            await self.run_queue.on_loop(self._put_copies(rooms))

    def dispatch_or_lose(self, message: Message) -> bool:
        """Deliver a message as `dispatch`, or make it a dead letter instead of raising.

        For messages from outside and answers, where no sender could handle the error.

        Returns:
            Whether it was delivered.
        """
        onward, back = message[0], message[1]
        try:
            if max(len(onward), len(back)) > MAX_ROUTE_LENGTH:
                raise RouteTooLong(max(len(onward), len(back)), MAX_ROUTE_LENGTH)
            if onward and self.addresses.is_late(onward[0]):
                raise _LateAnswer(onward[0])
            context = message[4]
            if context is not None and context[4] is not None:
                message = self.passage.pass_on(message)
            self.dispatch(message)
        except OnwardError as error:
            self.undeliverable.dead_letter(message, error)
            return False
        return True

    def dispatch_now(self, message: Message) -> None:
        """Deliver a message as `dispatch`, and run its worker's turn at once if the node is idle.

        For requests: the requester waits next, and the pass of the event loop that this saves
        is a quarter of a request's cost. Only on the loop's thread and not in a turn.
        """
        run_queue = self.run_queue
        onward = message[0]
        target = self.table.get(onward[0]) if onward and not run_queue.awake else None
        if target is None:
            self.dispatch(message)
            return
        run_queue.awake = True  # so that `schedule` does not wake the loop
        try:
            queue = target.queue
            if queue is None or len(queue) >= target.limit or len(message[2]) > target.heavy:
                target.put(message)
            else:
                queue.append(message)
                if not target.scheduled:
                    target.scheduled = True
                    self._ready.append(target)
        finally:
            run_queue.context.run(run_queue.drain, run_queue.limits.batch)

    async def _put_copies(self, rooms: list[Room]) -> None:
        """Put the messages that a rule has made of one into mailboxes, each once there is room."""
        put = map(put_when_room, rooms)
        for room, end in zip(rooms, await gather(*put, return_exceptions=True), strict=True):
            if isinstance(end, OnwardError):
                self.undeliverable.dead_letter(room.message, end)
            elif end is not None:
                raise end

    def _ask(self, message: Message) -> None:
        """Resolve a message of which the first address is not in the table, or has none.

        Most rules take a message over: such a rule is asked here, and `_resolve` does the rest.
        """
        onward, phase = message[0], self.run_queue.phase
        rule = self._made.get(onward[0][0]) if onward else None
        if rule is None or phase is _NOT_STARTED or phase is _CLOSED:
            self._resolve(message)
            return
        try:
            rewritten = rule(message)
        except AddressError as error:
            raise UnreadableAddress(onward[0], error.reason) from error
        if rewritten is not None:
            self._resolve(message, rewritten)

    def _resolve(
        self,
        message: Message,
        rewritten: Message | list[Message] | Pending | None = None,
        *,
        until: float = inf,
        copied: bool = False,
        rooms: list[Room] | None = None,
    ) -> None:
        phase = self.run_queue.phase
        if phase is _NOT_STARTED or phase is _CLOSED:
            raise self.run_queue.stopped_error()
        if not message[0]:
            empty = EmptyRoute()
            note_lost(empty, message)
            raise empty
        first, limits = message[0][0], self.run_queue.limits
        for _ in range(limits.reroutes + 1):
            if rewritten is None:
                target = self.table.get(first)
                if target is not None:
                    self._put(target, message)
                    return
                # Routing protocol, Destination types: "Address type specifies addressing schema".
                rule = self._made.get(first[0]) or self._rule(first)
                if rule is None:
                    self._unknown(message, first)
                    return
                try:
                    rewritten = rule(message)
                except AddressError as error:
                    raise UnreadableAddress(first, error.reason) from error
                if rewritten is None:
                    return
            if type(rewritten) is not Message:
                rewritten = self._kept_or_copied(message, rewritten, until, copied, rooms)
                if rewritten is None:
                    return
            message, first, rewritten = rewritten, rewritten.to, None
        raise RoutingLoop(first, f"more than {counted(limits.reroutes, 'time')}")

    def _put(self, target: Target, message: Message) -> None:
        """Put a message into the mailbox at its first address, which a rule may have chosen."""
        context = message[4]
        outside = None if context is None else context[4]
        if outside is not None and outside[0]:
            self.passage.guard(message[0][0])
        queue = target.queue
        if queue is None or len(queue) >= target.limit or len(message[2]) > target.heavy:
            target.put(message)
            return
        queue.append(message)
        if not target.scheduled:
            target.scheduled = True
            self.run_queue.schedule(target)

    def _kept_or_copied(
        self,
        message: Message,
        answer: Message | list[Message] | Pending | None,
        until: float,
        copied: bool,
        rooms: list[Room] | None,
    ) -> Message | None:
        """Act on the answer of a rule that is not one message.

        Returns:
            The message to resolve again, if there is one.
        """
        if isinstance(answer, Pending):
            return None if self.pending.keep(message, answer, until) else message
        if isinstance(answer, list):
            if copied:
                raise RoutingLoop(message.to, "copied by a second rule")
            self._send_copies(message.to, answer, rooms)
            return None
        return answer

    def _send_copies(self, first: Address, copies: list[Message], rooms: list[Room] | None) -> None:
        """Deliver the messages that a rule has made of one.

        Args:
            first: The address that the rule has resolved.
            copies: The messages.
            rooms: For those that the sender will wait with, if it can wait with several.

        Raises:
            DeliveryError: None could be delivered. If only some could not, these are dead letters.
        """
        failures: list[tuple[Message, OnwardError]] = []
        waiting = 0
        for each in copies:
            try:
                self._resolve(each, copied=True)
            except OnwardError as error:
                if len(copies) == 1:
                    raise
                room: Room | None = error.room if isinstance(error, MailboxFull) else None
                if rooms is not None and room is not None and room.may_wait:
                    rooms.append(room)
                    waiting += 1
                    continue
                if isinstance(error, MailboxFull):
                    error.room = None  # a sender that waited with one would lose the others
                failures.append((each, error))
        if not waiting and len(failures) == len(copies):
            raise failures[0][1] if failures else Unresolved(first, "its rule names no receiver")
        for each, failure in failures:
            self.undeliverable.dead_letter(each, failure)

    def resolve_again(self, message: Message, until: float) -> None:
        """Ask the rule again for a message that has waited for it. On the loop's thread.

        Args:
            message: The message.
            until: The time until which it may wait.
        """
        try:
            self._resolve(message, until=until)
        except OnwardError as error:
            self.undeliverable.lose(message, error)
        except Exception as fault:  # noqa: BLE001 - a rule is user code; the next must be asked
            self.run_queue.fault("resolving an address", fault)
            self.undeliverable.lose(message, Unresolved(message.to, "its rule failed"))

    def _rule(self, address: Address) -> Rule | None:
        rule = self.rules.find(address.type)
        if rule is None and address.type != LOCAL:
            # Routing protocol, Destination types: "A router MAY drop messages if the address type
            # is unknown." Here the sender is told.
            raise UnknownAddressType(address)
        return rule

    def _unknown(self, message: Message, first: Address) -> None:
        if first == HANDLED:
            onward = message[0]
            while onward and onward[0] == HANDLED:  # a peer may have repeated it
                onward = onward[1:]
            self.dispatch(self.passage.pass_on(message._replace(onward_route=onward)))
            return
        if first == ERROR_SOURCE:
            self.undeliverable.dead_letter(message, ANSWERED_ERROR)
            return
        if not self.addresses.is_late(first):
            raise UnknownAddress(first)
        # A worker that answers cannot know that the request was given up: it gets no error.
        self.undeliverable.dead_letter(message, LATE_ANSWER)

    # --- for code outside of workers ----------------------------------------------------

    def message_of(
        self, route: RouteLike, payload: bytes, return_route: RouteLike, context: Context | None
    ) -> Message:
        """Return a new message of code outside of workers.

        Raises:
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit.
            NodeStopped: The event loop is closed.
        """
        run_queue = self.run_queue
        if type(payload) is not bytes or len(payload) > run_queue.limits.payload:
            check_payload(payload, run_queue.limits)
        loop = run_queue.event_loop
        if loop is not None and loop.is_closed():
            raise run_queue.loop_gone()
        back: Route = () if return_route == () else as_route(return_route)
        sampler = run_queue.sampler
        if sampler is not None:
            # As `entering`; the call would be a tenth of the cost.
            sampler.left = left = sampler.left - 1
            if left <= 0:
                here = get_ident() == run_queue.thread_id
                context = sampler.sampled(context, here=here)
        return _new(Message, (as_route(route), back, payload, None, context))

    def dispatch_outside(self, message: Message) -> None:
        """Deliver a message from outside that a worker passes on by a method of the node."""
        try:
            self.dispatch(self.passage.pass_on(message))
        except OnwardError as error:
            note_lost(error, message)
            raise

    async def dispatch_outside_wait(self, message: Message) -> None:
        """Deliver a message as `dispatch_outside`, but wait for room."""
        try:
            await self.dispatch_wait(self.passage.pass_on(message))
        except OnwardError as error:
            note_lost(error, message)
            raise

    def entering(self, sampler: Instruments, context: Context | None) -> Context | None:
        """Count a message that enters the node; return its context, which a sample may change.

        If two threads count at the same time, one message may be missed.
        """
        sampler.left = left = sampler.left - 1
        if left > 0:
            return context
        return sampler.sampled(context, here=get_ident() == self.run_queue.thread_id)

    # --- rules ------------------------------------------------------------------------

    def remove_rule(self, address_type: int, owner: object = None) -> bool:
        """Remove the rule for a type, and lose the messages that wait for it."""
        removed = self.rules.remove(address_type, owner)
        if removed:
            self.pending.remove_type(address_type)
        return removed


class _LateAnswer(UnknownAddress):
    reason: ClassVar[str] = LATE_ANSWER


def from_code(message: Message) -> Message:
    """Return a message without its source."""
    onward, back, payload, _, context = message
    return _new(Message, (onward, back, payload, None, context))
