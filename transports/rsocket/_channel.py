"""What the requester of a multicast sends to several destinations.

In a channel, each destination asks for elements at its own pace. The requester is allowed as many
as the fastest wants, but no more than a window ahead of the slowest, for which they are kept.
They are kept for a destination that does not read, too. Those that hold the others up for too
long, or do not read for too long what is kept for them, are done without.
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
"""Entries that are no longer true which a heap may have besides as many as there are others."""


class DemandHeap:
    """Who of the destinations of a channel wants the fewest elements, and who the most.

    Two heaps: what is no longer true is dropped when it comes to the top, or when it is most of
    what there is. So one more REQUEST_N costs the same however many destinations there are.
    """

    __slots__ = ("_fewest", "_most")

    def __init__(self) -> None:
        self._fewest: list[tuple[int, int, Leg]] = []
        self._most: list[tuple[int, int, Leg]] = []

    def __len__(self) -> int:
        return max(len(self._fewest), len(self._most))

    def note(self, branch: Leg, takers: Iterable[Leg], count: int) -> None:
        """Note that a destination wants more than before.

        Args:
            branch: The destination.
            takers: All that still take elements.
            count: How many those are at most.
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
        """Return how many elements the one wants that wants the fewest; there is one."""
        heap = self._fewest
        while not heap[0][2].input_open or heap[0][2].wanted != heap[0][0]:
            heappop(heap)
        return heap[0][0]

    def most(self) -> int:
        """Return how many elements the one wants that wants the most; there is one."""
        heap = self._most
        while not heap[0][2].input_open or heap[0][2].wanted != -heap[0][0]:
            heappop(heap)
        return -heap[0][0]


class ChannelInput:
    """The elements of a channel's requester, its credit, and what is kept for the slow.

    Args:
        merge: The request.
        ended: Whether the request itself is the last element.

    Attributes:
        ended: Whether no more elements will come.
        held: Bytes kept for destinations that do not take them yet.
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
        self._granted = 0  # elements the requester was allowed so far
        self._low = 0  # elements the slowest has asked for
        self._timer: TimerHandle | None = None
        self._stuck: dict[Leg, TimerHandle] = {}
        # For how many destinations a large frame is kept, by its `id`.
        self._shared: dict[int, int] = {}
        self.ended = ended
        self.held = 0

    def join(self, branch: Leg) -> None:
        """Take note of a destination that takes elements."""
        self._takers += 1
        self._note(branch)

    def ask(self, branch: Leg, n: int) -> None:
        """Take note that a destination wants so many more elements."""
        if branch.input_open and n > 0:
            branch.wanted += n
            self._note(branch)

    def _note(self, branch: Leg) -> None:
        self._wants.note(branch, self._merge.branches, self._takers)

    def take(self, frame: Frame) -> None:
        """Pass on an element, or the end of them."""
        if frame.word & COMPLETE:
            self.ended = True
        if self._merge.large(frame.end - frame.start):
            frame = frame.detached()  # one for all
        for branch in tuple(self._merge.branches):
            branch.put(frame)
        self.balance()

    def balance(self) -> None:
        """Let the requester send what the destinations want, and see who holds it up."""
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
            # Nobody is held up any more, but nobody is left either who could end this.
            self._watch(low, slow=stream.state == CLOSED)
            return
        high = self._wants.most()
        goal = min(high, low + merge.rules.window)
        if goal > self._granted and stream.state != CLOSED:
            merge.link.core.send_request_n(stream, min(goal - self._granted, MAX_REQUEST_N))
            merge.link.flush_soon()
            self._granted = goal
        self._watch(low, slow=goal < high and not stream.receive_credit)

    # --- the slow -----------------------------------------------------------------------------

    def _watch(self, low: int, slow: bool) -> None:
        """Time those that hold the others up, from the last sign of progress."""
        if self._timer is not None and (not slow or low != self._low):
            self._timer.cancel()
            self._timer = None
        self._low = low
        if slow and self._timer is None:
            merge = self._merge
            self._timer = merge.link.node.loop.call_later(merge.rules.patience, self._on_patience)

    def _on_patience(self) -> None:
        """Go on without those that have held the others up for too long."""
        self._timer = None
        merge = self._merge
        low = self._low  # it changes as they are dropped
        for branch in tuple(merge.branches):
            if branch.input_open and branch.wanted == low:
                merge.on_left(branch)

    def wait_for_socket(self, branch: Leg) -> None:
        """Time a destination that does not read what is kept for it."""
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

    # --- what is kept -------------------------------------------------------------------------

    def keep_for(self, branch: Leg, frame: Frame) -> None:
        """Keep a frame that a destination does not take yet."""
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
        """Take back the frame that was kept first."""
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
        """Forget what a destination will not take any more."""
        if branch.input_open:
            branch.input_open = False
            self._takers -= 1
        self.reads_again(branch)
        while branch.queue:
            self.take_for(branch)

    def close(self) -> None:
        """Stop the timer: the request is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
