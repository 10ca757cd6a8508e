"""Reassembly of the fragmented payloads of one connection, with one bound for all of them.

Defect 19 of the `rsocket` package (0.4.20): it reassembles fragments without a limit.
"""

from __future__ import annotations

from ...protocol import PayloadTooBig
from ...protocol.rsocket import Frame, Reassembler, RSocketError

__all__ = ["Budget", "Gatherer"]


class Budget:
    """The bytes of the unfinished payloads of one connection.

    Attributes:
        held: Bytes of fragments held now, headers included.
        limit: The limit on them.
    """

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.held = 0
        self.limit = limit


class Gatherer:
    """The reassembly of the payloads of one direction of a stream.

    Args:
        budget: The budget of the connection.
        limit: Most bytes of data and metadata of one payload.
    """

    __slots__ = ("_budget", "_held", "_limit", "_payload")

    def __init__(self, budget: Budget, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._payload: Reassembler | None = None
        self._held = 0

    def add(self, frame: Frame) -> Reassembler | None:
        """Add a request frame or PAYLOAD; return the payload if it is whole now.

        Raises:
            PayloadTooBig: It is over the limit, or the connection's fragments are. Its fragments
                are dropped.
        """
        payload = self._payload or Reassembler(self._limit)
        # Copied, so that a kept fragment does not keep its chunk of input.
        frame = frame.detached() if self._payload or frame.word & 0x80 else frame
        try:
            whole = payload.add(frame)
        except RSocketError:
            self.drop()
            raise PayloadTooBig(self._held + len(frame.raw), self._limit) from None
        if whole:
            self.drop()
            return payload
        self._payload = payload
        size = frame.end - frame.start
        self._held += size
        self._budget.held += size
        if self._budget.held > self._budget.limit:
            held = self._budget.held
            self.drop()
            raise PayloadTooBig(held, self._budget.limit)
        return None

    def drop(self) -> None:
        """Drop the fragments of the unfinished payload."""
        self._budget.held -= self._held
        self._held = 0
        self._payload = None
