"""The open copies of deliveries, by token and by target, with their deadlines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

from ._delivery import Delivery
from ._loads import Target

__all__ = ["CopyTable", "OpenCopy"]

M = TypeVar("M")

_SPARE: Final = 64
"""Deadlines of ended copies that may lie in the heap beyond as many as there are open copies."""


@dataclass(slots=True, eq=False)
class OpenCopy(Generic[M]):
    """An open copy of a delivery.

    Attributes:
        token: Its token.
        target: Its target.
        delivery: The delivery.
        sent: When it was sent, in seconds; `None` while it waits.
    """

    token: bytes
    target: Target
    delivery: Delivery[M]
    sent: float | None = None


class CopyTable(Generic[M]):
    """The open copies of a name, a part of `Deliveries`.

    Args:
        make_token: Gives 8 random bytes.
        finished: Tokens of ended copies that are kept.
    """

    __slots__ = (
        "_copies",
        "_deadlines",
        "_finished",
        "_make_token",
        "_most_finished",
        "_of_target",
    )

    def __init__(self, make_token: Callable[[], bytes], finished: int) -> None:
        self._make_token = make_token
        self._most_finished = finished
        self._copies: dict[bytes, OpenCopy[M]] = {}
        self._of_target: dict[Target, dict[bytes, OpenCopy[M]]] = {}
        self._deadlines: list[tuple[float, bytes]] = []
        self._finished: dict[bytes, None] = {}

    def __len__(self) -> int:
        """Return the number of open copies."""
        return len(self._copies)

    def get(self, token: bytes) -> OpenCopy[M] | None:
        """Return an open copy."""
        return self._copies.get(token)

    def __iter__(self) -> Iterator[OpenCopy[M]]:
        """Return an iterator over the open copies, which must not change meanwhile."""
        return iter(self._copies.values())

    def is_finished(self, token: bytes) -> bool:
        """Whether the token is that of a copy that has ended not long ago."""
        return token in self._finished

    def of_target(self, target: Target) -> list[OpenCopy[M]]:
        """Return the open copies of a target, in order."""
        return list(self._of_target.get(target, {}).values())

    def count(self, target: Target) -> int:
        """Return the number of open copies of a target."""
        return len(self._of_target.get(target, ()))

    def add(self, delivery: Delivery[M], target: Target, token: bytes = b"") -> bytes:
        """Make a copy of a delivery, which ends at its limit; return the token.

        Args:
            delivery: The delivery.
            target: Its target.
            token: The token, if it has one already.
        """
        token = token or self._make_token()
        while token in self._copies or token in self._finished:
            token = self._make_token()
        copy = OpenCopy(token, target, delivery)
        self._copies[token] = copy
        self._of_target.setdefault(target, {})[token] = copy
        delivery.copies[token] = target
        delivery.tried.add(target)
        if delivery.limit is not None:
            if len(self._deadlines) > 2 * len(self._copies) + _SPARE:
                self._deadlines = [each for each in self._deadlines if each[1] in self._copies]
                heapify(self._deadlines)
            heappush(self._deadlines, (delivery.limit, token))
        return token

    def drop(self, token: bytes) -> OpenCopy[M]:
        """Remove an open copy."""
        copy = self._copies.pop(token)
        del copy.delivery.copies[token]
        tokens = self._of_target[copy.target]
        del tokens[token]
        if not tokens:
            del self._of_target[copy.target]
        self._finished[token] = None
        if len(self._finished) > self._most_finished:
            del self._finished[next(iter(self._finished))]
        return copy

    def get_timer(self) -> float | None:
        """Return when a copy is overdue, in seconds; `None` if none has a limit."""
        while self._deadlines and self._deadlines[0][1] not in self._copies:
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def overdue(self, now: float) -> Iterator[OpenCopy[M]]:
        """Yield the copies of which the time is over."""
        while (timer := self.get_timer()) is not None and timer <= now:
            yield self._copies[heappop(self._deadlines)[1]]
