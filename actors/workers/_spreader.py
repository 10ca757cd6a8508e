"""`Spreader`: one address for several routes that can do the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar

from ...protocol import (
    MAX_ROUTE_LENGTH,
    Address,
    MailboxFull,
    Message,
    NotDelivered,
    OnwardError,
    Route,
    RouteLike,
    RouteTooLong,
    route as route_of,
)
from ...protocol.options import Count, Seconds, check_options, check_value
from .._worker import Worker
from ..runtime._policy import MailboxOptions, Overflow
from ._two_sided import add_addresses

if TYPE_CHECKING:
    from ..runtime._cell import Cell

__all__ = ["Spread", "Spreader", "SpreaderOptions"]


class Spread(Enum):
    """How a spreader chooses a route."""

    ROUND_ROBIN = auto()
    """Each in turn."""

    LEAST_OUTSTANDING = auto()
    """The one that owes the fewest answers; among equals, each in turn."""


@dataclass(frozen=True, slots=True)
class SpreaderOptions:
    """How far a spreader remembers what is outstanding.

    Attributes:
        max_outstanding: Messages of one route that wait for an answer and are remembered; with
            one more, the oldest is forgotten.
        patience: How long one is remembered that gets no answer, in seconds.
    """

    max_outstanding: Count = 10_000
    patience: Seconds = 30.0

    def __post_init__(self) -> None:
        check_options(self)


_OPTIONS = SpreaderOptions()


class Spreader(Worker):
    """Passes each message on along one of several routes.

    ```
    [spreader, rest…] <- [back…]         becomes   [route 2…, rest…] <- [inner 2, back…]
    [inner 2, back…] <- [way…]           becomes   [back…] <- [inner 2, way…]
    ```

    Each route has an inner address of its own. So an answer tells which route it came by, and who
    goes on with a conversation goes on with the one who answered.

    A route that certainly did not take the message (`NotDelivered`) is passed over, and the next
    is tried; a key has one route only. If all that are left are full, it waits for the first of
    them that lets senders wait. What none of them takes becomes a dead letter.

    An answer is outstanding from when a message goes until one comes back, or `patience` is over:
    so `LEAST_OUTSTANDING` is for routes whose ends answer each message once.

    Args:
        routes: The routes; what is left of a message's onward route comes behind.
        spread: How one is chosen.
        key: What is chosen by instead: messages with the same key go the same way, in any
            process, as long as the number of routes is the same. `None` is `spread`. A message
            for which it raises an error of Onward's is lost with that.
        options: How far it remembers.

    Raises:
        ValueError: There is no route, or one is empty.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(
        self,
        routes: Iterable[RouteLike],
        spread: Spread = Spread.ROUND_ROBIN,
        *,
        key: Callable[[Message], bytes] | None = None,
        options: SpreaderOptions = _OPTIONS,
    ) -> None:
        check_value("options", options, SpreaderOptions)
        super().__init__()
        self._routes: tuple[Route, ...] = tuple(map(route_of, routes))
        if not self._routes or not all(self._routes):
            raise ValueError("a spreader needs routes, none of them empty")
        self._least = check_value("spread", spread, Spread) is Spread.LEAST_OUTSTANDING
        self._key = key
        self._patience = options.patience
        # When each message went that has no answer yet, oldest first.
        self._outstanding: list[deque[float]] = [
            deque(maxlen=options.max_outstanding) for _ in self._routes
        ]
        self._next = 0
        self._inner: dict[Address, int] = {}

    def _join(self, cell: Cell) -> None:
        add_addresses(cell, len(self._routes))
        super()._join(cell)
        inner = cell.addresses[1 : len(self._routes) + 1]
        self._inner = {address: index for index, address in enumerate(inner)}

    def outstanding(self) -> tuple[int, ...]:
        """Return how many answers each route owes."""
        return tuple(map(self._owed, range(len(self._routes))))

    def handle_message(self, message: Message) -> None:
        """Pass it on: along a route, or back from one."""
        index = self._inner.get(message[0][0])
        if index is None:
            try:
                self._send_on(message)
            except OnwardError as error:
                self.node.lose(message, error)
            return
        onward = message[0]
        if len(onward) > 1 and onward[1] == self._routes[index][0]:
            self._outstanding[index].append(self.node.loop.time())  # a conversation goes on
        elif self._outstanding[index]:
            self._outstanding[index].popleft()
        self.forward(message)

    def _send_on(self, message: Message) -> None:
        full: list[int] = []
        *others, last = self._choose(message)
        for index in others:
            try:
                self._send_by(index, message, waits=False)
            except MailboxFull:
                full.append(index)
            except NotDelivered:
                pass
            else:
                return
        try:
            self._send_by(last, message, waits=not full)
        except NotDelivered:
            if not full:
                raise
            self._send_by(full[0], message, waits=True)

    def _send_by(self, index: int, message: Message, *, waits: bool) -> None:
        way, own = self._routes[index], self.addresses[index + 1]
        if waits:
            self.redirect(message, way, own)
        else:
            onward, back, payload, _, context = message
            onward, back = (*way, *onward[1:]), (own, *back)
            if max(len(onward), len(back)) > MAX_ROUTE_LENGTH:
                raise RouteTooLong(max(len(onward), len(back)), MAX_ROUTE_LENGTH)
            self._out.carry(Message(onward, back, payload, self.address, context))
        self._outstanding[index].append(self.node.loop.time())

    def _choose(self, message: Message) -> list[int]:
        """Return the routes to try, the best first."""
        count = len(self._routes)
        if self._key is not None:
            digest = blake2b(self._key(message), digest_size=8).digest()
            return [int.from_bytes(digest) % count]
        in_turn = [(self._next + number) % count for number in range(count)]
        self._next = in_turn[0] + 1
        return sorted(in_turn, key=self._owed) if self._least else in_turn

    def _owed(self, index: int) -> int:
        since = self._outstanding[index]
        oldest = self.node.loop.time() - self._patience
        while since and since[0] <= oldest:
            since.popleft()
        return len(since)
