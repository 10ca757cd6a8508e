"""The worker at one end of a connection between two nodes.

As in the specification's session example: what a link is sent goes to the other end without
the link's own address at the front of the onward route; what comes from the other end gets
it at the front of the return route. So an answer finds the same link again, and the two
links are the identity of the session.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, cast

from ..actors import Worker
from ..protocol import (
    ERROR_SOURCE,
    MAX_ROUTE_LENGTH,
    Address,
    Context,
    EmptyRoute,
    LinkLost,
    MailboxFull,
    Message,
    NotDelivered,
    NotExposed,
    OnwardError,
    Outside,
    Route,
    RouteTooLong,
)
from ._gate import MAX_RETURNS, Gate

if TYPE_CHECKING:
    from ..actors._cell import Cell

__all__ = ["Link", "TooMuchWork", "size_of"]

_Fields: TypeAlias = "tuple[Route, Route, bytes, Address | None, Context | None]"
# What a NamedTuple's own constructor calls, without the detour.
_new_message: Final = cast("Callable[[type[Message], _Fields], Message]", tuple.__new__)

MAX_CROSSINGS: Final = 4
"""Times the address of a link may be on the return route of what comes over it, the new one
included: a message that goes to and fro between two nodes ends there."""

MAX_WORK: Final = 256 * 1024 * 1024
"""Most bytes that a message from outside may have moved: those of its payload, once for each
address of its onward route."""

KEPT_IN: Final = "error replies are off"
"""The reason of the dead letter that an error reply becomes that may not go over a link."""

UNUSABLE: Final = "unusable route"
"""The reason of the dead letter that a message becomes which has an address that nobody can have,
or more than a route may have."""

MAX_GIVEN_UP: Final = 1000
"""Most full mailboxes a link has lost patience with and remembers; the first forgotten gets
time again."""

FIRST_RETRY: Final = 0.001
LONGEST_RETRY: Final = 0.05
"""How soon, in seconds, a full mailbox is tried again: doubling, between these two."""


class TooMuchWork(NotDelivered):
    """One message from outside would have the node do more than one may."""

    reason = "too much work"


class Link(Worker):
    """One end of a connection to another node; derive from it to make a transport.

    A subclass implements `transmit`, and calls `arrive` with what the other end transmitted.
    It does not override `handle_message`.

    When a local mailbox is full, what arrives is kept, in order, and `hold` is called: the
    subclass should stop taking from the other end until `release` is called. A mailbox that
    takes none for `stall_timeout` is given up: the messages for it become dead letters, those
    that come later at once, until there is room for one. Each mailbox has its own time, so the
    longest that one peer's messages wait is `stall_timeout` for each mailbox that is stuck.

    Args:
        expose: What the other end may send to; see `Gate`.
        max_returns: Most addresses of ways back remembered; see `Gate`.
        arrivals: Messages kept while a mailbox is full; more become dead letters.
        max_arrival_bytes: Most bytes they have together, routes included, the first of them
            aside; more become dead letters.
        stall_timeout: How long a full mailbox that takes none may hold the link up, in seconds.

    Attributes:
        taken: Messages taken for the other end.
        arrived: Messages that came from the other end, those refused included.
        refused: Messages of them for an address that is not exposed.
        dropped: Messages of those taken that could not be sent.
        scheme: By which transport it goes; part of what the event log calls it.
    """

    leaves_node: ClassVar[bool] = True
    scheme: str = "link"

    def __init__(
        self,
        *,
        expose: frozenset[Address] = frozenset(),
        max_returns: int = MAX_RETURNS,
        arrivals: int = 10_000,
        max_arrival_bytes: int = 16 * 1024 * 1024,
        stall_timeout: float = 5.0,
    ) -> None:
        super().__init__()
        self.taken = 0
        self.arrived = 0
        self.refused = 0
        self.dropped = 0
        self._gate = Gate(expose, max_returns=max_returns, more=self._is_exposed, lives=self._lives)
        self._contexts: dict[int, Context] = {}  # by how many addresses were given
        self._at: tuple[Address, ...] = ()  # where it is, for what is exposed at run time
        self._arrivals: deque[Message] = deque()
        self._max_arrivals = arrivals
        self._arrival_bytes = 0  # of those behind the first
        self._max_arrival_bytes = max_arrival_bytes
        self._stall_timeout = stall_timeout
        self._stalled: Address | None = None  # whose mailbox is waited for
        self._stalled_at = 0.0
        self._given_up: dict[Address, None] = {}
        self._retry: asyncio.TimerHandle | None = None

    def _join(self, cell: Cell) -> None:
        super()._join(cell)
        parent = cell.parent  # the listener, if it has come to one
        self._at = (cell.address,) if parent is None else (cell.address, parent.address)
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
            elif not self.node.lets_error_replies(self._at):
                self.node.dead_letter(message, KEPT_IN)
                return None
        self.taken += 1
        return self.transmit(_new_message(Message, (onward[1:], back, payload, None, context)))

    @abstractmethod
    def transmit(self, message: Message) -> Awaitable[None] | None:
        """Move a message to the other end, where it goes into `arrive`.

        Called on the node's loop, one message at a time. Of the context only `trace` may
        leave the node. What cannot be sent goes to `undelivered`.

        Returns:
            `None`, or what to await before the worker takes the next message: the way to
            slow senders down.
        """

    def undelivered(self, message: Message, error: OnwardError) -> None:
        """Say that a message taken for the other end cannot be delivered.

        It becomes a dead letter; if it is a request of this node, the request ends with
        the error. Anybody else may be sent an error reply.
        """
        self.dropped += 1
        self.node.lose(message, error)

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
        own = self.address
        self.deliver(
            [
                _new_message(Message, (onward, (own, *back), payload, own, context))
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
            messages = recorder.messages.arrive(messages, self.node.is_ephemeral)
        if self._arrivals:
            self._keep(messages)
            return
        let_in, gate, given_up = self.node.let_in, self._gate, self._given_up
        for index, message in enumerate(messages):
            onward = message[0]
            if onward is not gate.admitted and not gate.admits(onward):
                self._refuse(message)
                continue
            try:
                message = self._checked(message)
                let_in(message)
                if given_up:
                    given_up.pop(onward[0], None)
            except MailboxFull as error:
                if onward[0] in given_up:
                    self.node.lose(message, error)
                    continue
                self._stall(message)
                self._keep(messages[index + 1 :])
                return
            except OnwardError as error:
                self.node.lose(message, error)

    def passed_over(self, count: int) -> None:
        """Note messages that came and have a route no node can use. Each is a dead letter."""
        self.arrived += count
        for _ in range(count):
            self.node.dead_letter(Message((), (self.address,), b"", self.address), UNUSABLE)

    def hold(self) -> None:
        """Stop taking from the other end, if that can be done: a mailbox is full."""

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
            raise TooMuchWork(onward[0], f"{len(payload)} bytes for {len(onward)} addresses")
        gate = self._gate
        may = self._contexts.get(gate.given)
        if may is None:
            may = Context(outside=Outside(gate.given, gate.allows))
            self._contexts[gate.given] = may
        if context is not None:
            may = context._replace(outside=may.outside)
        return _new_message(Message, (onward, back, payload, source, may))

    def _refuse(self, message: Message) -> None:
        self.refused += 1
        self.node.lose(message, NotExposed(message[0][0]))

    def _keep(self, messages: Sequence[Message]) -> None:
        """Keep messages behind one that waits for room in a mailbox."""
        for message in messages:
            if not self._gate.admits(message[0]):
                self._refuse(message)
                continue
            try:
                message = self._checked(message)
            except OnwardError as error:
                self.node.lose(message, error)
                continue
            if (
                len(self._arrivals) >= self._max_arrivals
                or self._arrival_bytes + size_of(message) > self._max_arrival_bytes
            ):
                self.node.lose(message, MailboxFull(message[0][0]))
            else:
                self._arrivals.append(message)
                self._arrival_bytes += size_of(message)

    def _stall(self, message: Message) -> None:
        self._arrivals.append(message)
        self._has_patience(message[0][0])
        self._retry = self.node.loop.call_later(FIRST_RETRY, self._try_again, FIRST_RETRY)
        self.hold()

    def _try_again(self, waited: float) -> None:
        """Deliver what was kept, as far as there is room or patience is at an end."""
        arrivals = self._arrivals
        while arrivals:
            message = arrivals[0]
            first = message[0][0]
            try:
                self.node.let_in(message)
                self._given_up.pop(first, None)
            except MailboxFull as error:
                if self._has_patience(first):
                    self._retry_later(waited)
                    return
                self.node.lose(message, error)
            except OnwardError as error:
                self.node.lose(message, error)
            arrivals.popleft()
            if arrivals:
                self._arrival_bytes -= size_of(arrivals[0])
            waited = 0.0
            self._stalled = None  # the next in line has its own time
        self._retry = None
        self.release()

    def _has_patience(self, first: Address) -> bool:
        """Tell whether to wait for a full mailbox; its time runs from the first call."""
        if first in self._given_up:
            return False
        now = self.node.loop.time()
        if self._stalled != first:
            self._stalled, self._stalled_at = first, now
            return True
        if now - self._stalled_at < self._stall_timeout:
            return True
        if len(self._given_up) >= MAX_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]
        self._given_up[first] = None
        return False

    def _retry_later(self, waited: float) -> None:
        wait = min(2 * waited, LONGEST_RETRY) or FIRST_RETRY
        self._retry = self.node.loop.call_later(wait, self._try_again, wait)

    # --- the end ------------------------------------------------------------------------

    def on_stop(self) -> Awaitable[None] | None:
        """Give up what is kept. A subclass that overrides this calls it."""
        if self._retry is not None:
            self._retry.cancel()
        while self._arrivals:
            message = self._arrivals.popleft()
            self.node.lose(message, MailboxFull(message[0][0]))
        self._arrival_bytes = 0
        self.lost("the link was closed")
        return None

    def lost(self, detail: str) -> None:
        """End the requests that went over the link and have had no answer: `LinkLost`.

        A subclass calls it when the connection goes; so nobody waits for nothing.
        """
        for mailbox in self._gate.take_waiting():
            self.node.fail_request(mailbox, LinkLost(self.address, detail))


def size_of(message: Message) -> int:
    """Return how many bytes of a peer's a message keeps."""
    onward, back, payload, _, _ = message
    return len(payload) + sum(len(value) for route in (onward, back) for _, value in route)
