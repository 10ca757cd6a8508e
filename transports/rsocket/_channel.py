"""The input of a multicast: elements from its requester to several destinations.

In a channel, each destination requests elements at its own pace. The requester is granted the
credit of the fastest destination, but no more than a window ahead of the slowest, for which the
elements are kept. Elements are also kept for a destination that does not read. A destination that
delays the others for too long, or does not read kept elements for too long, is given up.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from ...protocol.rsocket import CLOSED, COMPLETE, MAX_REQUEST_N, Frame, FrameType
from ._request import FRAME_COST

if TYPE_CHECKING:
    from ._leg import Leg
    from ._multicast import MulticastRequest

__all__ = ["ChannelInput", "DemandHeap"]

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_SLACK: Final = 64
"""Outdated entries that a heap may have, besides as many as it has valid ones."""


class DemandHeap:
    """The lowest and the highest demand among the destinations of a channel.

    There are two heaps. Outdated entries are dropped at the top, or when they are the majority. So
    the cost of a REQUEST_N does not depend on the number of destinations.
    """

    __slots__ = ("_fewest", "_most")

    def __init__(self) -> None:
        self._fewest: list[tuple[int, int, Leg]] = []
        self._most: list[tuple[int, int, Leg]] = []

    def __len__(self) -> int:
        return max(len(self._fewest), len(self._most))

    def note(self, branch: Leg, takers: Iterable[Leg], count: int) -> None:
        """Add the increased demand of a destination.

        Args:
            branch: The destination.
            takers: All destinations that still accept elements.
            count: Most of them.
        """
        heappush(self._fewest, (branch.wanted, branch.number, branch))
        heappush(self._most, (-branch.wanted, branch.number, branch))
        if len(self) > 2 * count + _SLACK:
            those = [each for each in takers if each.input_open]
            self._fewest = [(each.wanted, each.number, each) for each in those]
            self._most = [(-each.wanted, each.number, each) for each in those]
            heapify(self._fewest)
            heapify(self._most)

    def fewest(self) -> int:
        """Return the lowest demand in elements; the heap is not empty."""
        heap = self._fewest
        while not heap[0][2].input_open or heap[0][2].wanted != heap[0][0]:
            heappop(heap)
        return heap[0][0]

    def most(self) -> int:
        """Return the highest demand in elements; the heap is not empty."""
        heap = self._most
        while not heap[0][2].input_open or heap[0][2].wanted != -heap[0][0]:
            heappop(heap)
        return -heap[0][0]


class ChannelInput:
    """The elements and the credit of a channel's requester, with the backlog of slow destinations.

    Args:
        merge: The request.
        ended: Whether the request itself is the last element.

    Attributes:
        ended: Whether the requester has sent its last element.
        held: Bytes kept for slow destinations.
    """

    __slots__ = (
        "_granted",
        "_low",
        "_merge",
        "_shared",
        "_stuck",
        "_takers",
        "_timer",
        "_wants",
        "ended",
        "held",
    )

    def __init__(self, merge: MulticastRequest, *, ended: bool) -> None:
        self._merge = merge
        self._wants = DemandHeap()
        self._takers = 0
        self._granted = 0  # elements granted to the requester so far
        self._low = 0  # elements requested by the slowest
        self._timer: TimerHandle | None = None
        self._stuck: dict[Leg, TimerHandle] = {}
        # Number of destinations for which a large frame is kept, by its `id`.
        self._shared: dict[int, int] = {}
        self.ended = ended
        self.held = 0

    def join(self, branch: Leg) -> None:
        """Add a destination that accepts elements."""
        self._takers += 1
        self._note(branch)

    def ask(self, branch: Leg, n: int) -> None:
        """Add `n` elements to the demand of a destination."""
        if branch.input_open and n > 0:
            branch.wanted += n
            self._note(branch)

    def _note(self, branch: Leg) -> None:
        self._wants.note(branch, self._merge.branches, self._takers)

    def take(self, frame: Frame) -> None:
        """Pass on an element or the completion of the requester."""
        if frame.word & COMPLETE:
            self.ended = True
        if self._merge.large(frame.end - frame.start):
            frame = frame.detached()  # one copy for all destinations
        for branch in tuple(self._merge.branches):
            branch.put(frame)
        self.balance()

    def balance(self) -> None:
        """Grant the requester credit by the destinations' demand, and time the slowest."""
        merge = self._merge
        stream = merge.stream
        if merge.kind != _CHANNEL or stream is None or not merge.begun or merge.exchange.ended:
            return
        if not self._takers:
            if not self.ended and stream.state != CLOSED:
                merge.link.core.send_cancel(stream)
                merge.link.flush_soon()
            self.ended = True
            self._watch(0, slow=False)
            return
        low = self._wants.fewest()
        if self.ended:
            # No destination delays another now. Once the requester's stream is closed, only the
            # timer can end the request.
            self._watch(low, slow=stream.state == CLOSED)
            return
        high = self._wants.most()
        goal = min(high, low + merge.rules.window)
        if goal > self._granted and stream.state != CLOSED:
            merge.link.core.send_request_n(stream, min(goal - self._granted, MAX_REQUEST_N))
            merge.link.flush_soon()
            self._granted = goal
        self._watch(low, slow=goal < high and not stream.receive_credit)

    # --- slow destinations --------------------------------------------------------------------

    def _watch(self, low: int, slow: bool) -> None:
        """Time the destinations that delay the others, from the last progress."""
        if self._timer is not None and (not slow or low != self._low):
            self._timer.cancel()
            self._timer = None
        self._low = low
        if slow and self._timer is None:
            merge = self._merge
            self._timer = merge.link.node.loop.call_later(merge.rules.patience, self._on_patience)

    def _on_patience(self) -> None:
        """Give up the destinations that have delayed the others for too long."""
        self._timer = None
        merge = self._merge
        low = self._low  # changes as destinations are dropped
        for branch in tuple(merge.branches):
            if branch.input_open and branch.wanted == low:
                merge.on_left(branch)

    def wait_for_socket(self, branch: Leg) -> None:
        """Time a destination that does not read the elements kept for it."""
        if branch not in self._stuck:
            merge = self._merge
            patience = merge.rules.patience
            handle = merge.link.node.loop.call_later(patience, merge.on_left, branch)
            self._stuck[branch] = handle

    def reads_again(self, branch: Leg) -> None:
        """Stop timing a destination."""
        handle = self._stuck.pop(branch, None)
        if handle is not None:
            handle.cancel()

    # --- kept frames --------------------------------------------------------------------------

    def keep_for(self, branch: Leg, frame: Frame) -> None:
        """Keep a frame for a destination that cannot be sent it yet."""
        merge = self._merge
        frame = frame.detached()
        branch.queue.append(frame)
        size = FRAME_COST
        key = id(frame)
        users = self._shared.get(key, 0)
        if users or merge.large(frame.end - frame.start):
            self._shared[key] = users + 1
        if not users:
            size += frame.end - frame.start
        self.held += size
        merge.book(size)
        if self.held > merge.rules.max_held:
            merge.on_left(max(merge.branches, key=lambda each: len(each.queue)))
        else:
            merge.exceeds()

    def take_for(self, branch: Leg) -> Frame:
        """Return the oldest frame kept for a destination, and keep it no more."""
        frame = branch.queue.popleft()
        size = FRAME_COST
        key = id(frame)
        users = self._shared.pop(key, 1) - 1
        if users:
            self._shared[key] = users
        else:
            size += frame.end - frame.start
        self.held -= size
        self._merge.book(-size)
        return frame

    def let_go(self, branch: Leg) -> None:
        """Release the frames kept for a destination that accepts no more."""
        if branch.input_open:
            branch.input_open = False
            self._takers -= 1
        self.reads_again(branch)
        while branch.queue:
            self.take_for(branch)

    def close(self) -> None:
        """Stop the timer at the end of the request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
