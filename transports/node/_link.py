"""The worker at one end of a connection between two nodes.

As in the specification's session example: what a link is sent goes to the other end without
the link's own address at the front of the onward route; what comes from the other end gets
it at the front of the return route. So an answer finds the same link again, and the two
links are the identity of the session.
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
# What a NamedTuple's own constructor calls, without the detour.
_new_message: Final = cast("Callable[[type[Message], _Fields], Message]", tuple.__new__)

MAX_CROSSINGS: Final = 4
"""Times the address of a link may be on the return route of what comes over it, the new one
included. A message that goes to and fro between two nodes more often is a dead letter."""

MAX_WORK: Final = 256 * 1024 * 1024
"""Most bytes that a message from outside may have moved: those of its payload, once for each
address of its onward route. One that would be more is a dead letter. What workers make of the
payload on its way is not counted."""

LIGHT: Final = MAX_WORK // MAX_ROUTE_LENGTH
"""Bytes of a payload that are never too much work, whatever the route."""

KEPT_IN: Final = "error replies are off"
"""The reason of the dead letter that an error reply becomes that may not go over a link."""

UNUSABLE: Final = "unusable route"
"""The reason of the dead letter that a message becomes which has an address that nobody can have,
or more than a route may have."""

READ_ON: Final = 64
READ_ON_BYTES: Final = 256 * 1024
"""Messages, and bytes of them, that a link keeps for full mailboxes before it holds its socket. So
what little comes for a worker that does not keep up does not stop what comes for others."""

SWEEP: Final = 64
"""Other links that ways back go on over, from which on a link looks for those that have stopped:
at this many, and then whenever there are twice as many as were left."""


_NO_STAMP: Final = Context()
"""In the place of a stamp, before there is one: no message has it."""

LINK_MAILBOX: Final = MailboxOptions(overflow=Overflow.WAIT, max_bytes=32 * 1024 * 1024)
"""The mailbox of a link, unless its options say otherwise."""


def _work(size: int, addresses: int) -> str:
    return f"{counted(size, 'byte')} for {counted(addresses, 'address')}"


class TooMuchWork(NotDelivered):
    """One message from outside would have the node do more than one may."""

    reason = "too much work"


class Link(Worker):
    """One end of a connection to another node; derive from it to make a transport.

    A subclass implements `transmit`, and calls `arrive` with what the other end transmitted.
    It does not override `handle_message`.

    When a mailbox of the node is full, what arrives for it is kept, in order, and what arrives
    for others goes on. When too much is kept `hold` is called: the subclass should stop taking
    from the other end until `release` is called. The same holds for what has come over the link and
    was passed on by workers of the node to where there is no room, another link for instance: so
    what is slow pushes back to the socket that the messages came from. A mailbox that takes none
    for `stall_timeout` is given up: the messages for it become dead letters, those that come later
    at once, until its worker has handled something.

    Args:
        expose: What the other end may send to; see `Gate`.
        max_returns: Most addresses of ways back remembered; see `Gate`.
        arrivals: Messages kept for full mailboxes; more become dead letters.
        max_arrival_bytes: Bytes of them, routes included, above which no more are kept; more
            become dead letters.
        stall_timeout: How long a full mailbox may take none of them, in seconds.
        max_inside: Bytes of the payloads larger than 16 KiB that have come over the link and
            wait in mailboxes of the node, above which `hold` is called.

    Attributes:
        taken: Messages taken for the other end.
        arrived: Messages that came from the other end, those refused included.
        refused: Messages of them for an address that is not exposed.
        dropped: Messages of those taken that could not be sent.
        scheme: By which transport it goes; part of what the event log calls it.
        stamp: The context of the message let in last: the next ones usually get the same, so they
            can be made with it.
    """

    # Not in the instance's dictionary: CPython 3.11 finds the methods of one with 30 or more in a
    # slower way, and transports have some of their own.
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
        self._contexts: dict[int, Context] = {}  # by how many addresses were given
        self.stamp: Context | None = None
        self._ending = False
        self._joined: dict[Address, None] = {}  # the other links that ways back go on over
        self._sweep_at = SWEEP
        self._at: tuple[Address, ...] = ()  # where it is, for what is exposed at run time
        self._limits = arrivals, max_arrival_bytes, stall_timeout
        self._kept: Arrivals | None = None
        self._max_inside = max_inside
        self._holding = False
        self._then: Callable[[], object] | None = None

    def _join(self, cell: Cell) -> None:
        super()._join(cell)
        parent = cell.parent  # the listener, if it has come to one
        self._at = (cell.address,) if parent is None else (cell.address, parent.address)
        self._kept = Arrivals(cell.node, *self._limits, self._look_at_kept)
        recorder = cell.node.recorder
        if recorder is not None and recorder.links is not None:
            recorder.links.link(self)

    def _is_exposed(self, address: Address) -> bool:
        return self.node.is_exposed(address, self._at)

    def _lives(self, address: Address) -> bool:
        return self.node.has(address)

    # --- towards the other end ----------------------------------------------------------

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Send a message to the other end. Not to be overridden."""
        onward, back, payload, _, context = message
        if len(onward) < 2:
            self.node.lose(message, EmptyRoute())
            return None
        gate = self._gate
        if back and back != gate.noted:
            if back[-1] != ERROR_SOURCE:
                gate.note(back, self.node.is_ephemeral, self.node.link_on)
                if gate.over is not None:
                    self._join_ways(gate.over)
                    gate.over = None
            elif not self.node.lets_error_replies(self._at):
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
            return self.transmit(_new_message(Message, (onward[1:], back, payload, None, context)))
        except Exception:
            self.dropped += 1  # the node makes a dead letter of it, as with any worker
            raise

    @abstractmethod
    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Move a message to the other end, where it goes into `arrive`.

        Called on the node's loop, one message at a time. Of the context only `trace` may
        leave the node. What cannot be sent goes to `undelivered`.

        Returns:
            `None`, or what to await before the worker takes the next message: the way to
            slow senders down.
        """

    def _join_ways(self, other: Address) -> None:
        """Note that messages go from another link to this one, whose answers go back there."""
        worker = self.node.worker_at(other)
        if isinstance(worker, Link) and worker is not self:
            self._note_joined(other)
            worker._note_joined(self.address)

    def _note_joined(self, other: Address) -> None:
        joined = self._joined
        joined[other] = None
        # Each link that ends leaves one here; a sweep at each doubling costs little in all.
        if len(joined) >= self._sweep_at:
            self._sweep_joined()
            self._sweep_at = max(SWEEP, 2 * len(joined))

    def _sweep_joined(self) -> None:
        """Forget the other links that have stopped."""
        for other in [each for each in self._joined if not self.node.has(each)]:
            del self._joined[other]

    def in_use(self) -> bool:
        """Whether more depends on the link than the messages that have come and gone.

        Something of the node watches it, as what was registered over it does, or ways back go
        from here on over another link that has not stopped: there may be a channel or a
        subscription at their ends, which nobody on the way can see.
        """
        self._sweep_joined()
        return bool(self._joined) or self.node.is_watched(self.address)

    def undelivered(self, message: Message, error: OnwardError) -> None:
        """Say that a message taken for the other end cannot be delivered.

        It becomes a dead letter; if it is a request of this node, the request ends with
        the error. Anybody else may be sent an error reply.
        """
        self.dropped += 1
        self.node.lose(message, error)

    def failed_to_send(self, message: Message, error: Exception) -> None:
        """Lose a message that could not be sent for a reason that is no error of routing.

        For what is sent outside of `transmit`: there an exception would end more than the message.
        """
        self.node.fault("sending a message over a link", error)
        self.undelivered(message, InDoubt(self.address, type(error).__name__))

    # --- for the event log ----------------------------------------------------------------

    @property
    def queued(self) -> int:
        """Messages taken that wait for a connection."""
        return 0

    @property
    def ends(self) -> tuple[str, str]:
        """What this end is called, and what the other: at both ends the same names."""
        return str(self.address), ""

    @property
    def ways(self) -> tuple[str, str]:
        """What the way there is called in the event log, and the way back."""
        near, far = self.ends
        return f"{self.scheme} {near}>{far}", f"{self.scheme} {far}>{near}"

    @property
    def over(self) -> bool:
        """Whether it has stopped: nothing more comes or goes."""
        return not self.node.has(self.address)

    # --- from the other end -------------------------------------------------------------

    def arrive(self, messages: Iterable[Message]) -> None:
        """Deliver what the other end transmitted, in order. Call it on the node's loop."""
        own, stamp = self.address, self.stamp
        self.deliver(
            [
                _new_message(Message, (onward, (own, *back), payload, own, context or stamp))
                for onward, back, payload, _, context in messages
            ]
        )

    def deliver(self, messages: Sequence[Message]) -> None:
        """Do as `arrive` with messages that have this link's address on the return route already.

        It is their source too.
        """
        self.arrived += len(messages)
        recorder = self.node.recorder
        if recorder is not None:
            try:
                messages = recorder.messages.arrive(messages, self.node.is_ephemeral)
            except Exception as fault:  # noqa: BLE001 - they go on, recorded or not
                self.node.fault("recording what arrived", fault)
        node, gate, contexts = self.node, self._gate, self._contexts
        carry, let_in = node.carry, node.let_in
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
                # Usually the reader has stamped the message with the context that it gets here.
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
            except Exception as error:  # noqa: BLE001 - of a rule: user code
                self._lose_in_doubt(message, error)
        cell = self._cell
        if cell is not None and cell.inside > self._max_inside:
            self._look_at_kept()

    @property
    def kept(self) -> int:
        """Messages that have come over the link and wait for room in mailboxes."""
        return 0 if self._kept is None else self._kept.count

    def _wait_for_room(self, room: Room) -> bool:
        if self._kept is None or self._ending:  # what is kept has been given up already
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
        """Hold the other end while too much of what it sent waits; let it go on at half of that."""
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
            except Exception as error:  # noqa: BLE001 - what comes all the same is bounded
                self.node.fault("holding or releasing a link", error)

    def _wait_or_lose(self, message: Message, full: MailboxFull) -> None:
        """Have a message wait for room if it may."""
        try:
            if full.room is None or not self._wait_for_room(full.room):
                self.node.lose(message, full)
        except Exception as error:  # noqa: BLE001 - those behind it are delivered all the same
            self._lose_in_doubt(message, error)

    def _lose_in_doubt(self, message: Message, error: Exception) -> None:
        """Lose a message that could not be delivered for a reason that is no error of routing."""
        self.node.fault("delivering a message that came over a link", error)
        target = message[0][0] if message[0] else ""
        self.node.lose(message, InDoubt(target, type(error).__name__))

    def passed_over(self, count: int) -> None:
        """Note messages that came and have a route no node can use. Each is a dead letter."""
        self.arrived += count
        for _ in range(count):
            self.node.dead_letter(Message((), (self.address,), b"", self.address), UNUSABLE)

    def hold(self) -> None:
        """Stop taking from the other end, if that can be done: too much waits for mailboxes."""

    def release(self) -> None:
        """Take from the other end again."""

    def _checked(self, message: Message) -> Message:
        """Return a message that the gate has just let in with what it may do on this node.

        Raises:
            RouteTooLong: The way back is longer than a route may be.
            TooMuchWork: It would have the node do more than one message may.
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
        # Of a context, only the tracing text comes from another node.
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
        """Stop once all that has come over the link is in mailboxes, or has been given up.

        A subclass calls it in place of `stop` when the other end has gone.
        """
        self.when_delivered(self.stop)

    def when_delivered(self, action: Callable[[], object]) -> None:
        """Do something once nothing that came over the link waits for room any more."""
        if self.kept:
            self._then = action
        else:
            action()

    def on_stop(self) -> Awaitable[None] | None:
        """Give up what is kept. A subclass that overrides this calls it."""
        self._ending = True
        self._holding = True  # nothing more is to come
        self._then = None
        if self._kept is not None:
            self._kept.close()
        self.lost("the link was closed")
        return None

    def lost(self, detail: str) -> None:
        """End the requests that went over the link and have had no answer: `LinkLost`.

        A subclass calls it when the connection goes; so nobody waits for nothing.
        """
        for mailbox in self._gate.take_waiting():
            self.node.fail_request(mailbox, LinkLost(self.address, detail))
        if not self._ending:  # else whoever watches hears of the end
            self.node.tell_loss(self.address)
