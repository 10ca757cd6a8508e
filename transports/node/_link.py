"""The worker at one end of a connection between two nodes.

As in the specification's session example: a link removes its own address from the front of the
onward route of a message that it sends, and puts it in front of the return route of a message
that it receives. So a reply finds the same link, and the two link addresses identify the session.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, cast

from ...actors import MailboxOptions, Overflow, Worker
from ...protocol import (
    ERROR_SOURCE,
    MAX_ROUTE_LENGTH,
    Address,
    Context,
    EmptyRoute,
    InDoubt,
    LinkLost,
    MailboxFull,
    Message,
    NotDelivered,
    NotExposed,
    OnwardError,
    Outside,
    Route,
    RouteTooLong,
    check_bytes,
    counted,
)
from ._arrivals import Arrivals
from ._gate import MAX_RETURNS, Gate

if TYPE_CHECKING:
    from ...actors.runtime._cell import Cell
    from ...actors.runtime._room import Room

__all__ = ["MAX_CROSSINGS", "MAX_WORK", "Link", "TooMuchWork"]

_Fields: TypeAlias = "tuple[Route, Route, bytes, Address | None, Context | None]"
# The call that a NamedTuple's constructor makes, without its overhead.
_new_message: Final = cast("Callable[[type[Message], _Fields], Message]", tuple.__new__)

MAX_CROSSINGS: Final = 4
"""How often a link's address may be on the return route of a message that comes over it, this time
included. A message that crosses the link more often becomes a dead letter."""

MAX_WORK: Final = 256 * 1024 * 1024
"""The maximum of payload bytes times onward addresses for a message from outside. A message above
it becomes a dead letter. Other work of the workers along the route is not counted."""

LIGHT: Final = MAX_WORK // MAX_ROUTE_LENGTH
"""The largest payload that is within `MAX_WORK` for every route."""

KEPT_IN: Final = "error replies are off"
"""The dead-letter reason of an error reply that may not be sent over a link."""

UNUSABLE: Final = "unusable route"
"""The dead-letter reason of a message with an invalid address, or with more addresses than a route
may have."""

READ_ON: Final = 64
READ_ON_BYTES: Final = 256 * 1024
"""The number and bytes of messages for full mailboxes above which a link stops reading its socket.
A few messages for a slow worker do not delay those for others."""

SWEEP: Final = 64
"""The number of joined links at which a link removes those that have stopped. The next sweep is at
twice the number that remains."""


_NO_STAMP: Final = Context()
"""The placeholder for a stamp that is not made yet: no message has it."""

LINK_MAILBOX: Final = MailboxOptions(overflow=Overflow.WAIT, max_bytes=32 * 1024 * 1024)
"""The default mailbox of a link."""


def _work(size: int, addresses: int) -> str:
    return f"{counted(size, 'byte')} for {counted(addresses, 'address')}"


class TooMuchWork(NotDelivered):
    """The error for a message from outside that would cause more work than one message may."""

    reason = "too much work"


class Link(Worker):
    """One end of a connection to another node; the base class of a transport's links.

    A subclass implements `transmit`, and calls `arrive` with the messages that the other end
    transmitted. It does not override `handle_message`.

    Messages that arrive for a full mailbox are kept in order; messages for others are delivered.
    When too many are kept `hold` is called: the subclass should stop reading until `release` is
    called. Messages that came over the link and were passed on to a full mailbox, such as that of
    another link, count too. So a slow receiver pushes back to the socket that the messages came
    from. A mailbox that accepts none for `stall_timeout` is given up: its messages become dead
    letters, later ones at once, until its worker has handled a message.

    Args:
        expose: The addresses that the other end may send to; see `Gate`.
        max_returns: The maximum number of addresses in remembered return routes; see `Gate`.
        arrivals: The maximum number of messages kept for full mailboxes; more become dead letters.
        max_arrival_bytes: The bytes of kept messages, routes included, above which more become
            dead letters.
        stall_timeout: The seconds for which a full mailbox may accept none of them.
        max_inside: The bytes above which `hold` is called, of payloads larger than 16 KiB that
            came over the link and wait in mailboxes of the node.

    Attributes:
        taken: Messages accepted for the other end.
        arrived: Messages that came from the other end, refused ones included.
        refused: Messages that came for an address that is not exposed.
        dropped: Accepted messages that could not be sent.
        scheme: The scheme of the transport; part of the link's name in the event log.
        stamp: The context of the last message admitted. Most messages get the same context, so
            readers construct messages with it.
    """

    # Slots, as CPython 3.11 finds methods more slowly in an instance with 30 or more attributes in
    # its dictionary, and transports add attributes of their own.
    __slots__ = (
        "_at",
        "_contexts",
        "_ending",
        "_gate",
        "_holding",
        "_joined",
        "_kept",
        "_limits",
        "_max_inside",
        "_sweep_at",
        "_then",
        "arrived",
        "dropped",
        "refused",
        "stamp",
        "taken",
    )

    leaves_node: ClassVar[bool] = True
    default_mailbox: ClassVar[MailboxOptions] = LINK_MAILBOX
    scheme: str = "link"

    def __init__(
        self,
        *,
        expose: frozenset[Address] = frozenset(),
        max_returns: int = MAX_RETURNS,
        arrivals: int = 10_000,
        max_arrival_bytes: int = 16 * 1024 * 1024,
        stall_timeout: float = 30.0,
        max_inside: int = 16 * 1024 * 1024,
    ) -> None:
        super().__init__()
        self.taken = 0
        self.arrived = 0
        self.refused = 0
        self.dropped = 0
        self._gate = Gate(expose, max_returns=max_returns, more=self._is_exposed, lives=self._lives)
        self._contexts: dict[int, Context] = {}  # by the number of addresses that the peer chose
        self.stamp: Context | None = None
        self._ending = False
        self._joined: dict[Address, None] = {}  # other links that return routes go on over
        self._sweep_at = SWEEP
        self._at: tuple[Address, ...] = ()  # the link's addresses, for exposure at run time
        self._limits = arrivals, max_arrival_bytes, stall_timeout
        self._kept: Arrivals | None = None
        self._max_inside = max_inside
        self._holding = False
        self._then: Callable[[], object] | None = None

    def _join(self, cell: Cell) -> None:
        super()._join(cell)
        parent = cell.parent  # the listener, if a listener accepted the connection
        self._at = (cell.address,) if parent is None else (cell.address, parent.address)
        self._kept = Arrivals(self.node, *self._limits, self._look_at_kept)
        instruments = self.node.instruments
        if instruments is not None:
            instruments.link_opened(self)

    def _is_exposed(self, address: Address) -> bool:
        return self.node.parts.guards.is_exposed(address, self._at)

    def _lives(self, address: Address) -> bool:
        return self.node.has(address)

    # --- towards the other end ----------------------------------------------------------

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Send a message to the other end. Do not override."""
        onward, back, payload, _, context = message
        if len(onward) < 2:
            self.node.lose(message, EmptyRoute())
            return None
        gate = self._gate
        if back and back != gate.noted:
            if back[-1] != ERROR_SOURCE:
                gate.note(back, self.node.parts.table.is_request, self.node.parts.table.link_on)
                if gate.over is not None:
                    self._join_ways(gate.over)
                    gate.over = None
            elif not self.node.parts.guards.lets_error_replies(self._at):
                self.node.dead_letter(message, KEPT_IN)
                return None
        self.taken += 1
        if type(payload) is not bytes:
            try:
                check_bytes(payload)
            except OnwardError as error:
                self.undelivered(message, error)
                return None
        try:
            # Routing protocol, Network architecture: the workers of a transport "act like a single
            # worker from a routing point of view". This one removes itself from the onward route.
            return self.transmit(_new_message(Message, (onward[1:], back, payload, None, context)))
        except Exception:
            self.dropped += 1  # the node makes it a dead letter, as with any worker
            raise

    @abstractmethod
    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Move a message to the other end, which passes it to `arrive`.

        Called on the node's loop, one message at a time. Of the context only `trace` may leave the
        node. Messages that cannot be sent are passed to `undelivered`.

        Returns:
            `None`, or an awaitable for the worker to wait for before its next message, which slows
            senders down.
        """

    def _join_ways(self, other: Address) -> None:
        """Record another link that sends messages over this one and expects their replies."""
        worker = self.node.parts.table.worker_at(other)
        if isinstance(worker, Link) and worker is not self:
            self._note_joined(other)
            worker._note_joined(self.address)

    def _note_joined(self, other: Address) -> None:
        joined = self._joined
        joined[other] = None
        # Links that end leave their entries here. A sweep at each doubling costs little in all.
        if len(joined) >= self._sweep_at:
            self._sweep_joined()
            self._sweep_at = max(SWEEP, 2 * len(joined))

    def _sweep_joined(self) -> None:
        """Forget the other links that have stopped."""
        for other in [each for each in self._joined if not self.node.has(each)]:
            del self._joined[other]

    def in_use(self) -> bool:
        """Whether the link is needed, apart from the messages it has moved.

        That is: a worker of the node watches it, as a registration over the link does, or return
        routes go on over another link that has not stopped. A channel or a subscription between the
        outer ends is not visible from here.
        """
        self._sweep_joined()
        return bool(self._joined) or self.node.parts.workers.is_watched(self.address)

    def undelivered(self, message: Message, error: OnwardError) -> None:
        """Drop an accepted message that cannot be delivered to the other end.

        It becomes a dead letter. A request of this node ends with the error; another sender may
        receive an error reply.
        """
        self.dropped += 1
        self.node.lose(message, error)

    def failed_to_send(self, message: Message, error: Exception) -> None:
        """Drop a message that could not be sent because of an error other than routing.

        For sending outside of `transmit`, where an exception would end more than this message.
        """
        self.node.parts.run_queue.fault("sending a message over a link", error)
        self.undelivered(message, InDoubt(self.address, type(error).__name__))

    # --- for the event log ----------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Accepted messages that wait for a connection."""
        return 0

    @property
    def ends(self) -> tuple[str, str]:
        """The names of this end and of the other end, the same two at both ends."""
        return str(self.address), ""

    @property
    def ways(self) -> tuple[str, str]:
        """The names in the event log of the two directions, outward first."""
        near, far = self.ends
        return f"{self.scheme} {near}>{far}", f"{self.scheme} {far}>{near}"

    @property
    def over(self) -> bool:
        """Whether the link has stopped."""
        return not self.node.has(self.address)

    # --- from the other end -------------------------------------------------------------

    def arrive(self, messages: Iterable[Message]) -> None:
        """Deliver messages from the other end, in order. Call it on the node's loop."""
        own, stamp = self.address, self.stamp
        self.deliver(
            [
                # Routing protocol, Network architecture: a message "Should be received on a node B
                # as if it was forwarded".
                _new_message(Message, (onward, (own, *back), payload, own, context or stamp))
                for onward, back, payload, _, context in messages
            ]
        )

    def deliver(self, messages: Sequence[Message]) -> None:
        """Deliver messages that have this link's address on the return route and as source.

        Otherwise the same as `arrive`.
        """
        self.arrived += len(messages)
        instruments = self.node.instruments
        if instruments is not None and instruments.arrives:
            messages = instruments.messages_arrived(messages, self.node.parts.table.is_request)
        node, gate, contexts = self.node, self._gate, self._contexts
        carry, let_in = node.parts.router.dispatch, node.parts.guards.let_in
        admitted: Route | None = None
        stamp = _NO_STAMP
        given = 0
        for message in messages:
            onward = message[0]
            try:
                if onward is not admitted:
                    admitted = None
                    if onward != gate.admitted and not gate.admits(onward):
                        self._refuse(message)
                        continue
                    admitted, given = gate.admitted, gate.given
                    stamp = contexts.get(given, _NO_STAMP)
                # Usually the reader has given the message this same context.
                if (
                    message[4] is not stamp
                    or len(message[1]) > MAX_CROSSINGS
                    or len(message[2]) > LIGHT
                ):
                    message = self._checked(message)
                    stamp = contexts.get(given, _NO_STAMP)
                if given > 0:
                    let_in(message)
                else:
                    carry(message)
            except MailboxFull as error:
                self._wait_or_lose(message, error)
            except OnwardError as error:
                self.node.lose(message, error)
            except Exception as error:  # noqa: BLE001 - raised by a rule, which is user code
                self._lose_in_doubt(message, error)
        cell = self._cell
        if cell is not None and cell.inside > self._max_inside:
            self._look_at_kept()

    @property
    def kept(self) -> int:
        """Messages from the other end that wait for room in mailboxes."""
        return 0 if self._kept is None else self._kept.count

    def _wait_for_room(self, room: Room) -> bool:
        if self._kept is None or self._ending:  # the kept messages have been given up already
            return False
        self._kept.keep(room)
        self._look_at_kept()
        return True

    def _until_moved(self, room: Room) -> asyncio.Future[None] | None:
        return self._kept.until_moved(room) if self._kept and self._holding else None

    def _inside_shrunk(self, size: int) -> None:
        if self._holding and 2 * size <= self._max_inside:
            self._look_at_kept()

    def _look_at_kept(self) -> None:
        """Call `hold` above the limits on waiting messages, and `release` below half of them."""
        kept = self._kept
        if kept is None:
            return
        then = self._then
        if then is not None and not kept.count:
            self._then = None
            then()
            return
        part = 2 if self._holding else 1
        too_much = (
            part * kept.count > READ_ON
            or part * kept.bytes > READ_ON_BYTES
            or part * self._placed.inside > self._max_inside
        )
        if too_much is not self._holding:
            self._holding = too_much
            try:
                if too_much:
                    self.hold()
                else:
                    self.release()
            except Exception as error:  # noqa: BLE001 - what still comes is bounded
                self.node.parts.run_queue.fault("holding or releasing a link", error)

    def _wait_or_lose(self, message: Message, full: MailboxFull) -> None:
        """Keep a message until there is room, or drop it."""
        try:
            if full.room is None or not self._wait_for_room(full.room):
                self.node.lose(message, full)
        except Exception as error:  # noqa: BLE001 - the messages behind it are still delivered
            self._lose_in_doubt(message, error)

    def _lose_in_doubt(self, message: Message, error: Exception) -> None:
        """Drop a message that failed with an error other than one of routing."""
        self.node.parts.run_queue.fault("delivering a message that came over a link", error)
        target = message[0][0] if message[0] else ""
        self.node.lose(message, InDoubt(target, type(error).__name__))

    def passed_over(self, count: int) -> None:
        """Count messages that came with an unusable route, and make each a dead letter."""
        self.arrived += count
        for _ in range(count):
            self.node.dead_letter(Message((), (self.address,), b"", self.address), UNUSABLE)

    def hold(self) -> None:
        """Stop reading from the other end, if the transport can: too much waits for mailboxes."""

    def release(self) -> None:
        """Resume reading from the other end."""

    def _checked(self, message: Message) -> Message:
        """Return an admitted message with the context that limits what it may do on this node.

        Raises:
            RouteTooLong: The return route is longer than a route may be.
            TooMuchWork: The message would cause more work than one message may.
        """
        onward, back, payload, source, context = message
        length = len(back)
        if length > MAX_CROSSINGS:
            if length > MAX_ROUTE_LENGTH:
                raise RouteTooLong(length, MAX_ROUTE_LENGTH)
            if back.count(back[0]) > MAX_CROSSINGS:
                raise TooMuchWork(onward[0], f"{MAX_CROSSINGS} times over one link")
        if len(payload) * len(onward) > MAX_WORK:
            raise TooMuchWork(onward[0], _work(len(payload), len(onward)))
        given = self._gate.given
        stamp = self._contexts.get(given)
        if stamp is None:
            stamp = self._contexts[given] = Context(outside=Outside(given, self._gate.allows))
        self.stamp = stamp
        # Of a peer's context only the tracing text is used.
        may = (
            stamp
            if context is None or context.trace is None
            else stamp._replace(trace=context.trace)
        )
        return _new_message(Message, (onward, back, payload, source, may))

    def _refuse(self, message: Message) -> None:
        self.refused += 1
        self.node.lose(message, NotExposed(message[0][0]))

    # --- the end ------------------------------------------------------------------------

    def finish(self) -> None:
        """Stop once every message from the other end is in a mailbox or given up.

        A subclass calls it instead of `stop` when the other end has closed.
        """
        self.when_delivered(self.stop)

    def when_delivered(self, action: Callable[[], object]) -> None:
        """Call the action once no message from the other end waits for room."""
        if self.kept:
            self._then = action
        else:
            action()

    def on_stop(self) -> Awaitable[None] | None:
        """Give up the kept messages. A subclass that overrides this calls it."""
        self._ending = True
        self._holding = True  # no message is to come any more
        self._then = None
        if self._kept is not None:
            self._kept.close()
        self.lost("the link was closed")
        return None

    def is_waiting(self) -> bool:
        """Whether a request of this node that went over the link waits for its response."""
        return self._gate.is_waiting()

    def lost(self, detail: str) -> None:
        """End the unanswered requests that went over the link with `LinkLost`.

        A subclass calls it when the connection is lost, so that no request waits in vain.
        """
        for mailbox in self._gate.take_waiting():
            self.node.fail_request(mailbox, LinkLost(self.address, detail))
        if not self._ending:  # else the watchers are notified of the end
            self.node.parts.workers.tell_loss(self.address, reconnects=self.reconnects)

    @property
    def reconnects(self) -> bool:
        """Whether it makes another connection for one that is lost, and tells of it."""
        return False
