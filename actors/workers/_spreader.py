"""`Spreader`: one address for several equivalent routes."""

from __future__ import annotations

from abc import abstractmethod
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

__all__ = ["Spread", "Spreader", "SpreaderOptions", "Spreading"]


class Spread(Enum):
    """The method by which a spreader chooses a route."""

    ROUND_ROBIN = auto()
    """Each in turn."""

    LEAST_OUTSTANDING = auto()
    """The route with the fewest outstanding answers; among equals, each in turn. For a pool, the
    worker with the fewest messages waiting or in hand."""


@dataclass(frozen=True, slots=True)
class SpreaderOptions:
    """The limits of a spreader's memory of outstanding answers.

    Attributes:
        max_outstanding: Outstanding answers remembered for one route; with one more, the oldest
            is forgotten.
        patience: Time an outstanding answer is remembered, in seconds.
    """

    max_outstanding: Count = 10_000
    patience: Seconds = 30.0

    def __post_init__(self) -> None:
        check_options(self)


_OPTIONS = SpreaderOptions()


class Spreading(Worker):
    """The base class of workers that pass each message on to one of several places.

    Args:
        spread: The method of choice.
        key: Function that returns the key of a message, used in place of `spread`.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(self, spread: Spread, key: Callable[[Message], bytes] | None) -> None:
        super().__init__()
        self._least = check_value("spread", spread, Spread) is Spread.LEAST_OUTSTANDING
        self._key = key
        self._next = 0

    @abstractmethod
    def _places(self) -> int:
        """Return the number of places."""

    @abstractmethod
    def _owed(self, index: int) -> int:
        """Return the number of messages at a place that are not done."""

    @abstractmethod
    def _place_of(self, digest: int, count: int) -> int:
        """Return the place of a key, of which the digest is given."""

    @abstractmethod
    def _send_by(self, index: int, message: Message, *, waits: bool) -> None:
        """Pass a message on to a place, and wait for room there if it may.

        Raises:
            NotDelivered: The place did not accept it.
        """

    def _send_on(self, message: Message) -> None:
        """Pass a message on to the best place that accepts it."""
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

    def _choose(self, message: Message) -> list[int]:
        """Return the places to try, the best first."""
        count = self._places()
        if self._key is not None:
            digest = blake2b(self._key(message), digest_size=8).digest()
            return [self._place_of(int.from_bytes(digest), count)]
        in_turn = [(self._next + number) % count for number in range(count)]
        self._next = in_turn[0] + 1
        return sorted(in_turn, key=self._owed) if self._least else in_turn


class Spreader(Spreading):
    """A worker that passes each message on along one of several routes.

    ```
    [spreader, rest…] <- [back…]         becomes   [route 2…, rest…] <- [inner 2, back…]
    [inner 2, back…] <- [other…]         becomes   [back…] <- [inner 2, other…]
    ```

    Each route has its own inner address. So an answer identifies its route, and a requester that
    replies to an answer reaches the worker that sent it.

    If a route certainly did not accept the message (`NotDelivered`), the next one is tried; a
    message with a key has one route only. If all others are full, the spreader waits for the
    first that lets senders wait. A message that no route accepts becomes a dead letter.

    An answer is outstanding from the time a message is sent until an answer comes, or `patience`
    is over. So `LEAST_OUTSTANDING` is for routes on which each message is answered once.

    Args:
        routes: The routes, put in front of the rest of a message's onward route.
        spread: The method of choice.
        key: Function that returns the key of a message, used in place of `spread`. Messages with
            the same key take the same route, in any process with the same number of routes. If
            it raises an `OnwardError`, the message is lost with that error.
        options: The limits of its memory.

    Raises:
        ValueError: There is no route, or one is empty.
    """

    def __init__(
        self,
        routes: Iterable[RouteLike],
        spread: Spread = Spread.ROUND_ROBIN,
        *,
        key: Callable[[Message], bytes] | None = None,
        options: SpreaderOptions = _OPTIONS,
    ) -> None:
        check_value("options", options, SpreaderOptions)
        super().__init__(spread, key)
        self._routes: tuple[Route, ...] = tuple(map(route_of, routes))
        if not self._routes or not all(self._routes):
            raise ValueError("a spreader needs routes, none of them empty")
        self._patience = options.patience
        # The times of the messages without an answer, oldest first.
        self._outstanding: list[deque[float]] = [
            deque(maxlen=options.max_outstanding) for _ in self._routes
        ]
        self._inner: dict[Address, int] = {}

    def _join(self, cell: Cell) -> None:
        add_addresses(self.node, cell, len(self._routes))
        super()._join(cell)
        inner = cell.addresses[1 : len(self._routes) + 1]
        self._inner = {address: index for index, address in enumerate(inner)}

    def outstanding(self) -> tuple[int, ...]:
        """Return the number of outstanding answers of each route."""
        return tuple(map(self._owed, range(len(self._routes))))

    def handle_message(self, message: Message) -> None:
        """Pass a message on along a route, or an answer back."""
        index = self._inner.get(message[0][0])
        if index is None:
            try:
                self._send_on(message)
            except OnwardError as error:
                self.node.lose(message, error)
            return
        onward = message[0]
        if len(onward) > 1 and onward[1] == self._routes[index][0]:
            self._outstanding[index].append(self.node.loop.time())  # a reply to an answer
        elif self._outstanding[index]:
            self._outstanding[index].popleft()
        self.forward(message)

    def _places(self) -> int:
        return len(self._routes)

    def _place_of(self, digest: int, count: int) -> int:
        return digest % count

    def _send_by(self, index: int, message: Message, *, waits: bool) -> None:
        way, own = self._routes[index], self.addresses[index + 1]
        if waits:
            self.redirect(message, way, own)
        else:
            onward, back, payload, _, context = message
            onward, back = (*way, *onward[1:]), (own, *back)
            if max(len(onward), len(back)) > MAX_ROUTE_LENGTH:
                raise RouteTooLong(max(len(onward), len(back)), MAX_ROUTE_LENGTH)
            self._out.dispatch(Message(onward, back, payload, self.address, context))
        self._outstanding[index].append(self.node.loop.time())

    def _owed(self, index: int) -> int:
        since = self._outstanding[index]
        oldest = self.node.loop.time() - self._patience
        while since and since[0] <= oldest:
            since.popleft()
        return len(since)
