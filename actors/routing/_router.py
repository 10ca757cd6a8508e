"""The router: the delivery of messages by the address table and the rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from functools import lru_cache
from math import inf
from threading import get_ident
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, TypeGuard, cast

from ...protocol import (
    ERROR_SOURCE,
    LOCAL,
    MAX_ROUTE_LENGTH,
    Address,
    AddressError,
    Context,
    EmptyRoute,
    MailboxFull,
    Message,
    OnwardError,
    PayloadTooBig,
    Route,
    RouteLike,
    RouteTooLong,
    UnknownAddress,
    UnknownAddressType,
    UnreadableAddress,
    check_bytes,
    counted,
    route as route_of,
)
from .._errors import RoutingLoop, RuleInUse, Unresolved
from ..runtime._mailbox import Target
from ..runtime._policy import NodeLimits
from ..runtime._room import Room, put_when_room
from ..runtime._run_queue import Phase
from ._pending import Pending, PendingTable
from ._requests import LATE_ANSWER, RandomAddresses
from ._undeliverable import Undeliverable, note_lost

if TYPE_CHECKING:
    from .._worker import Worker
    from ..instruments._instrument import Instruments
    from ..runtime._cell import Cell

__all__ = ["Router", "Rule"]

ANSWERED_ERROR: Final = "answer to an error reply"
"""The reason of a dead letter that is an answer to an error reply."""

_new: Final = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

Rule: TypeAlias = Callable[[Message], Message | list[Message] | Pending | None]
"""A function that resolves the first address of a message; see `Node.add_rule`."""


class Rules:
    """The rules of a node and their owners, by address type, and the messages that wait for one."""

    __slots__ = ("made", "owners", "pending")

    def __init__(self, router: Router) -> None:
        self.made: dict[int, Rule] = {}
        self.owners: dict[int, object] = {}
        self.pending: Final = PendingTable(router)


class Router(Undeliverable):
    """The address table and rules of a node, by which it delivers messages.

    Args:
        name: The name of the node.
        limits: The limits of the node.
        clock: The clock of dead letters, in seconds; the loop's clock by default.

    Attributes:
        table: The target of each address.
        lock: The lock for changes of the table; looking up takes no lock.
        random_address: Function that makes a random address.
        waiting_bytes: Bytes of the counted payloads that wait in all mailboxes.
    """

    def __init__(self, name: str, limits: NodeLimits, clock: Callable[[], float] | None) -> None:
        super().__init__(name, limits, clock)
        self.table: dict[Address, Target] = {}
        self.lock = threading.RLock()
        self.random_address = RandomAddresses().take
        self._rules: Final = Rules(self)
        self.waiting_bytes = 0

    # --- routing ----------------------------------------------------------------------

    def route(self, message: Message) -> None:
        """Deliver a message to the worker at its first onward address.

        Safe from any thread; it never waits. When it returns, the message is in a mailbox,
        or a rule has taken it over, or an overflow policy has dropped it. The message counts as
        sent from outside of workers, whatever its `source`; workers use `Worker.route`.

        Raises:
            EmptyRoute: There is no onward address.
            UnknownAddress: No worker has the address.
            UnknownAddressType: There is no rule for the type of the address.
            MailboxFull: The worker does not keep up.
            AccessDenied: An access control denies it.
            RoutingLoop: Rules rewrote it too often.
            PayloadNotBytes: Its payload is not `bytes`.
            NodeStopped: The node has not started, or has stopped.
        """
        if type(message[2]) is not bytes:
            check_bytes(message[2])
        context = message[4]
        if context is not None and context[4] is not None:
            self._carry_outside(from_code(message))
            return
        if message[3] is not None:
            message = from_code(message)
        # The rest is a copy of `carry`; a call would add a tenth of the cost.
        onward = message[0]
        target = self.table.get(onward[0]) if onward else None
        if target is None:
            self._reroute(message)
            return
        queue = target.queue
        if queue is None or len(queue) >= target.limit or len(message[2]) > target.heavy:
            target.put(message)
            return
        queue.append(message)
        if not target.scheduled:
            target.scheduled = True
            self._ready.append(target)
            if not self._awake:
                self._wake()

    def carry(self, message: Message) -> None:
        """Deliver a message as `route`, and keep its source.

        For the parts of a node: the methods of workers, links and the broker.
        """
        onward = message[0]
        target = self.table.get(onward[0]) if onward else None
        if target is None:
            self._reroute(message)
            return
        queue = target.queue
        if queue is None or len(queue) >= target.limit or len(message[2]) > target.heavy:
            target.put(message)
            return
        queue.append(message)
        if not target.scheduled:
            target.scheduled = True
            self._ready.append(target)
            if not self._awake:
                self._wake()

    def carry_answer(self, message: Message) -> None:
        """Deliver an answer as `carry`.

        For a worker with checks on what it passes on, `OutboundGuard` replaces the node.
        """
        self.carry(message)

    def pass_on(self, message: Message) -> Message:
        """Return a message with its permissions for the next hop; see `Guarding`."""
        raise NotImplementedError

    def guard(self, first: Address) -> None:
        """Check from now on the messages that a worker passes on; see `Guarding`."""
        raise NotImplementedError

    def carry_from(self, _own: Address | None, message: Message) -> None:
        """Deliver a message as `carry`, whichever of its addresses the worker sends from.

        For a worker with outgoing access controls, `OutboundGuard` replaces the node.
        """
        self.carry(message)

    def route_now(self, message: Message) -> None:
        """Deliver a message as `carry`, and run its worker's turn at once if the node is idle.

        For requests: the requester waits next, and the pass of the event loop that this saves
        is a quarter of a request's cost. Only on the loop's thread and not in a turn.
        """
        onward = message[0]
        target = self.table.get(onward[0]) if onward and not self._awake else None
        if target is None:
            self.carry(message)
            return
        self._awake = True  # so that `schedule` does not wake the loop
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
            self.context.run(self._drain, self.limits.batch)

    def _reroute(self, message: Message, *, until: float = inf, copied: bool = False) -> None:
        if self.phase is Phase.NOT_STARTED or self.phase is Phase.CLOSED:
            raise self.stopped_error()
        if not message[0]:
            empty = EmptyRoute()
            note_lost(empty, message)
            raise empty
        first = message[0][0]
        for _ in range(self.limits.reroutes + 1):
            target = self.table.get(first)
            if target is not None:
                context = message[4]
                outside = None if context is None else context[4]
                if outside is not None and outside[0]:
                    self.guard(first)
                queue = target.queue
                if queue is None or len(queue) >= target.limit or len(message[2]) > target.heavy:
                    target.put(message)
                    return
                queue.append(message)
                if not target.scheduled:
                    target.scheduled = True
                    self.schedule(target)
                return
            rule = self._rule(first)
            if rule is None:
                self._unknown(message, first)
                return
            try:
                rewritten = rule(message)
            except AddressError as error:
                raise UnreadableAddress(first, error.reason) from error
            if type(rewritten) is not Message:
                rewritten = self._kept_or_copied(message, rewritten, until, copied)
                if rewritten is None:
                    return
            message, first = rewritten, rewritten.to
        raise RoutingLoop(first, f"more than {counted(self.limits.reroutes, 'time')}")

    def _kept_or_copied(
        self,
        message: Message,
        answer: Message | list[Message] | Pending | None,
        until: float,
        copied: bool,
    ) -> Message | None:
        """Act on the answer of a rule that is not one message.

        Returns:
            The message to resolve again, if there is one.
        """
        if isinstance(answer, Pending):
            return None if self._rules.pending.keep(message, answer, until) else message
        if isinstance(answer, list):
            if copied:
                raise RoutingLoop(message.to, "copied by a second rule")
            self._send_copies(message.to, answer)
            return None
        return answer

    def _send_copies(self, first: Address, copies: list[Message]) -> None:
        """Deliver the messages that a rule has made of one.

        Raises:
            DeliveryError: None could be delivered. If only some could not, these are dead letters.
        """
        failures: list[tuple[Message, OnwardError]] = []
        for each in copies:
            try:
                self._reroute(each, copied=True)
            except OnwardError as error:
                failures.append((each, error))
        if len(failures) == len(copies):
            raise failures[0][1] if failures else Unresolved(first, "its rule names no receiver")
        for each, failure in failures:
            self.dead_letter(each, failure)

    def resolve_again(self, message: Message, until: float) -> None:
        """Ask the rule again for a message that has waited for it. On the loop's thread.

        Args:
            message: The message.
            until: The time until which it may wait.
        """
        try:
            self._reroute(message, until=until)
        except OnwardError as error:
            self.lose(message, error)
        except Exception as fault:  # noqa: BLE001 - a rule is user code; the next must be asked
            self.fault("resolving an address", fault)
            self.lose(message, Unresolved(message.to, "its rule failed"))

    def _rule(self, address: Address) -> Rule | None:
        rule = self._rules.made.get(address.type)
        if rule is None and address.type != LOCAL:
            rule = self._load_rule(address.type)
            if rule is None:
                raise UnknownAddressType(address)
        return rule

    def _load_rule(self, address_type: int) -> Rule | None:
        """Load a rule that is not installed yet; a node asks its transports."""
        raise NotImplementedError

    def link_on(self, back: Route) -> Address | None:
        """Return the address of the first link on a return route, if there is one."""
        raise NotImplementedError

    def share_of(self, message: Message) -> Cell | None:
        """Return the link that a waiting message counts for, if it came over one."""
        raise NotImplementedError

    def origin_of(self, message: Message) -> Worker | None:
        """Return the link that a message came over, if it came over one."""
        raise NotImplementedError

    def _unknown(self, message: Message, first: Address) -> None:
        if first == ERROR_SOURCE:
            self.dead_letter(message, ANSWERED_ERROR)
            return
        if not self._requests.is_late(first):
            raise UnknownAddress(first)
        # A worker that answers cannot know that the request was given up: it gets no error.
        self.dead_letter(message, LATE_ANSWER)

    async def route_wait(self, message: Message) -> None:
        """Deliver a message as `route`, but wait for room where the mailbox's policy is to wait.

        Raises:
            MailboxFull: The policy is another one, or too many senders wait already.
            DeliveryError: As `route`.
        """
        check_bytes(message[2])
        message = from_code(message)
        try:
            await self.carry_wait(self.pass_on(message))
        except OnwardError as error:
            note_lost(error, message)
            raise

    def _carry_outside(self, message: Message) -> None:
        """Deliver a message from outside that a worker passes on by a method of the node."""
        try:
            self.carry(self.pass_on(message))
        except OnwardError as error:
            note_lost(error, message)
            raise

    async def carry_wait(self, message: Message, _own: Address | None = None) -> None:
        """Deliver a message as `route_wait`, and keep its source."""
        try:
            self.carry(message)
        except MailboxFull as full:
            room: Room | None = full.room
            if room is None or not room.may_wait:
                raise
            await self._on_loop(put_when_room(room))

    def deliver(self, message: Message) -> bool:
        """Deliver a message as `route`, or make it a dead letter instead of raising.

        For messages from outside, where no sender could handle the error.

        Returns:
            Whether it was delivered.

        Raises:
            PayloadNotBytes: Its payload is not `bytes`.
        """
        check_bytes(message[2])
        return self.carry_or_bury(message if message[3] is None else from_code(message))

    def carry_or_bury(self, message: Message) -> bool:
        """Deliver a message as `deliver`, and keep its source."""
        onward, back = message[0], message[1]
        try:
            if max(len(onward), len(back)) > MAX_ROUTE_LENGTH:
                raise RouteTooLong(max(len(onward), len(back)), MAX_ROUTE_LENGTH)
            if onward and self._requests.is_late(onward[0]):
                raise _LateAnswer(onward[0])
            context = message[4]
            if context is not None and context[4] is not None:
                message = self.pass_on(message)
            self.carry(message)
        except OnwardError as error:
            self.dead_letter(message, error)
            return False
        return True

    def send(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike = (),
        context: Context | None = None,
    ) -> None:
        """Send a message. Safe from any thread.

        Args:
            route: The onward route.
            payload: The payload.
            return_route: The return route; none by default.
            context: The context of the message inside the node.

        Raises:
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit.
            DeliveryError: As `route`.
        """
        if type(payload) is not bytes or len(payload) > self.limits.payload:
            self.check_payload(payload)
        loop = self._loop
        if loop is not None and loop.is_closed():
            raise self.loop_gone()
        back: Route = () if return_route == () else self.route_of(return_route)
        instruments = self.instruments
        if instruments is not None and instruments.samples:
            # As `entering`; the call would be a tenth of the cost.
            instruments.left = left = instruments.left - 1
            if left <= 0:
                context = instruments.sampled(context, here=get_ident() == self.thread_id)
        message = Message(self.route_of(route), back, payload, None, context)
        if context is not None and context[4] is not None:
            self._carry_outside(message)
        else:
            self.carry(message)

    async def send_wait(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        return_route: RouteLike = (),
        context: Context | None = None,
    ) -> None:
        """Send a message as `send`, but wait for room where the mailbox's policy is to wait."""
        self.check_payload(payload)
        if self._loop is not None and self._loop.is_closed():
            raise self.loop_gone()
        back = self.route_of(return_route)
        instruments = self.instruments
        if instruments is not None and instruments.samples:
            context = self.entering(instruments, context)
        message = Message(self.route_of(route), back, payload, None, context)
        try:
            await self.carry_wait(self.pass_on(message))
        except OnwardError as error:
            note_lost(error, message)
            raise

    def request(
        self,
        route: RouteLike,
        payload: bytes,
        *,
        timeout: float = 30.0,
        context: Context | None = None,
    ) -> Coroutine[Any, Any, Message]:
        """Send a message and wait for the answer.

        The return route is a mailbox of this one request, with a random address.

        Args:
            route: The onward route.
            payload: The payload.
            timeout: Time to wait, in seconds. It becomes the message's deadline, after
                which no worker of the node handles it.
            context: The context of the message inside the node; its deadline is kept, if it has
                one.

        Returns:
            The first answer. A further one is for an unknown address.

        Raises:
            RequestTimeout: No answer came in time; the message may still have been handled.
            MailboxFull: There was no room, or none in time where the policy is to wait.
            TooManyRequests: The node waits for as many answers as it may.
            NodeStopped: The node stopped.
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit.
            Refused: An error reply came; the message was certainly not handed over.
            GivenUp: An error reply came; the message was handed over, or may have been.
            DeliveryError: As `route`.
        """
        if context is None or context[4] is None:
            return self.request_from(None, route, payload, timeout, context)
        return self._request_outside(route, payload, timeout, context)

    async def _request_outside(
        self, route: RouteLike, payload: bytes, timeout: float, context: Context
    ) -> Message:
        """Send a request that a worker makes for another node."""
        onward = self.route_of(route)
        try:
            return await self.request_from(None, onward, payload, timeout, context)
        except OnwardError as error:
            note_lost(error, Message(onward, (), payload, None, context))
            raise

    def request_from(
        self,
        source: Address | None,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        context: Context | None,
    ) -> Coroutine[Any, Any, Message]:
        """Send a request as `request`, from a worker."""
        work = self._requests.request(route, payload, timeout, source, context)
        return work if get_ident() == self.thread_id else self._on_loop(work)

    def entering(self, instruments: Instruments, context: Context | None) -> Context | None:
        """Count a message that enters the node; return its context, which a sample may change.

        If two threads count at the same time, one message may be missed.
        """
        instruments.left = left = instruments.left - 1
        if left > 0:
            return context
        return instruments.sampled(context, here=get_ident() == self.thread_id)

    def check_payload(self, payload: bytes) -> None:
        """Check the type and the size of a payload.

        Raises:
            PayloadNotBytes: The payload is not `bytes`.
            PayloadTooBig: The payload is over the limit.
        """
        if type(payload) is not bytes:
            check_bytes(payload)
        if len(payload) > self.limits.payload:
            raise PayloadTooBig(len(payload), self.limits.payload)

    @staticmethod
    def route_of(given: RouteLike) -> Route:
        """Return a route for any form of one; parsed texts are cached."""
        if isinstance(given, str):
            return _parsed(given)
        return given if _is_route(given) else route_of(given)

    # --- rules ------------------------------------------------------------------------

    def add_rule(self, address_type: int, rule: Rule, *, owner: object = None) -> None:
        """Add a rule that resolves the addresses of a type.

        Args:
            address_type: 1 to 255. A worker at the same address has precedence.
            rule: Function that returns the message with its first address replaced; a list of
                such messages, for several receivers; a `Pending`, so that the node keeps the
                message until the rule can resolve it; or `None` when it has taken the message
                over. It runs on the sender's thread, must not block, and raises its errors to the
                sender. Of several messages, those that cannot be delivered are dead letters; only
                if none can is the first error raised. A rule for one of them may not return
                several again.
            owner: The owner of the rule, by default the rule itself. Only the owner can replace
                its rule.

        Raises:
            ValueError: The type is out of range.
            RuleInUse: The type has a rule of another owner.
        """
        if not LOCAL < address_type <= 255:
            raise ValueError(f"a rule cannot have the address type {address_type}")
        new = rule if owner is None else owner
        with self.lock:
            present = self._rules.owners.setdefault(address_type, new)
            if present is not new and present != new:  # a method is another object each time
                raise RuleInUse(address_type, _owner_text(present))
            self._rules.made[address_type] = rule

    def remove_rule(self, address_type: int, *, owner: object = None) -> bool:
        """Remove the rule for a type of address, if it is the owner's.

        Messages that wait for the rule are lost, with `UnknownAddressType`.

        Args:
            address_type: The type.
            owner: The owner of the rule; by default a rule is removed that was added without
                an owner.

        Returns:
            Whether a rule of the owner was removed.
        """
        with self.lock:
            present = self._rules.owners.get(address_type)
            expected = self._rules.made.get(address_type) if owner is None else owner
            if present is None or (present is not expected and present != expected):
                return False
            del self._rules.owners[address_type]
            del self._rules.made[address_type]
        self._rules.pending.remove_type(address_type)
        return True


def _owner_text(owner: object) -> str:
    """Return the owner of a rule as a text for errors: `the function shop.resolve`."""
    if isinstance(owner, (FunctionType, MethodType)):
        return f"the function {owner.__module__}.{owner.__qualname__}"
    kind = type(owner)
    plain = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return f"the {kind.__name__} of the node" if plain else str(owner)


class _LateAnswer(UnknownAddress):
    reason: ClassVar[str] = LATE_ANSWER


def from_code(message: Message) -> Message:
    """Return a message without its source."""
    onward, back, payload, _, context = message
    return _new(Message, (onward, back, payload, None, context))


def _is_route(given: RouteLike) -> TypeGuard[Route]:
    if type(given) is not tuple:
        return False
    steps = cast("tuple[object, ...]", given)
    for step in steps:
        if type(step) is not Address:
            return False
    return len(steps) <= MAX_ROUTE_LENGTH


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Route:
    return route_of(text)
