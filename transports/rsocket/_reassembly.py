"""Reassembly of fragmented payloads for a user of this node, with a bound for each connection.

Relayed frames are passed on as they are. Only an end of this node needs whole payloads: a handler,
a worker that waits for an answer, or a request of a client.
"""

from __future__ import annotations

from typing import Protocol

from ...protocol import PayloadTooBig, counted
from ...protocol.rsocket import Frame, Reassembler, ReassemblyLimit
from ._request import FRAME_COST, more_follow

__all__ = ["Budget", "FragmentStore", "Keeper", "Reassembly", "TooMuchKept"]


class TooMuchKept(PayloadTooBig):
    """The unfinished payloads of a connection are over their common limit."""

    def __str__(self) -> str:
        return f"{counted(self.limit, 'byte')} of the peer are held already"


class Keeper(Protocol):
    """An object that keeps frames of a peer."""

    @property
    def kept(self) -> int:
        """The bytes it keeps, with the cost of its objects."""
        ...


class FragmentStore(Protocol):
    """The bound on the bytes that are kept of one peer."""

    @property
    def limit(self) -> int:
        """The most bytes kept, with the cost of their objects."""
        ...

    def keep(self, keeper: Keeper, size: int) -> bool:
        """Count a frame that a keeper has been given to keep, until `let_go`.

        Returns:
            Whether there is room for it. If not, it is not counted, and the caller has to drop it.
        """
        ...

    def let_go(self, keeper: Keeper) -> None:
        """Remove a keeper, before it drops what it keeps."""
        ...


class Budget:
    """A `FragmentStore` that is exact, for a connection that relays nothing.

    Attributes:
        held: Bytes kept now, with the cost of their objects.
        limit: The limit on them.
    """

    __slots__ = ("held", "limit")

    def __init__(self, limit: int) -> None:
        self.held = 0
        self.limit = limit

    def keep(self, keeper: Keeper, size: int) -> bool:
        """Count a frame of a keeper; return whether there is room for it."""
        held = self.held + size + FRAME_COST
        if held > self.limit:
            return False
        self.held = held
        return True

    def let_go(self, keeper: Keeper) -> None:
        """Remove what a keeper keeps."""
        self.held -= keeper.kept


class Reassembly:
    """The reassembly of the payloads of one direction of a stream.

    Attributes:
        kept: Bytes kept of the unfinished payload, with the cost of its objects.

    Args:
        store: The bound of the connection.
        limit: Most bytes of data and metadata of one payload.
    """

    __slots__ = ("_limit", "_payload", "_store", "kept")

    def __init__(self, store: FragmentStore, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._payload: Reassembler | None = None
        self.kept = 0

    def add(self, frame: Frame) -> Reassembler | None:
        """Add a request frame or PAYLOAD; return the payload if it is whole now.

        Raises:
            PayloadTooBig: It is over the limit. Its fragments are dropped.
            TooMuchKept: The unfinished payloads of the connection are over theirs; likewise.
        """
        payload = self._payload or Reassembler(self._limit)
        # Copied, so that a kept fragment does not keep its chunk of input.
        part = self._payload is not None or more_follow(frame)
        try:
            whole = payload.add(frame.detached() if part else frame)
        except ReassemblyLimit as error:
            self.drop()
            raise PayloadTooBig(error.size, error.limit) from None
        if whole:
            self.drop()
            return payload
        self._payload = payload
        self._keep(frame.end - frame.start)
        return None

    def _keep(self, size: int) -> None:
        cost = size + FRAME_COST
        self.kept += cost
        if not self._store.keep(self, size):
            self.kept -= cost
            self.drop()
            raise TooMuchKept(cost, self._store.limit)

    def drop(self) -> None:
        """Drop the fragments of the unfinished payload."""
        if self._payload is not None:
            self._store.let_go(self)
            self._payload = None
            self.kept = 0
