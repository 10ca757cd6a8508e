"""What the requester of a channel sends to several destinations.

Each destination asks for elements at its own pace. The requester is allowed as many as the
fastest wants, but no more than a window ahead of the slowest, for which they are kept. Those
that hold the others up for too long are done without.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import TYPE_CHECKING, Final

from ...protocol.rsocket import CLOSED, COMPLETE, MAX_REQUEST_N, Frame, FrameType
from ._request import FRAME_COST

if TYPE_CHECKING:
    from ._branch import Branch
    from ._merge import Merge

__all__ = ["ChannelInput"]

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)


class ChannelInput:
    """The elements of a channel's requester, and its credit; nothing for other requests.

    Args:
        merge: The request.
        ended: Whether the request itself is the last element.

    Attributes:
        ended: Whether no more elements will come.
    """

    __slots__ = ("_granted", "_low", "_merge", "_timer", "ended")

    def __init__(self, merge: Merge, *, ended: bool) -> None:
        self._merge = merge
        self._granted = 0  # elements the requester was allowed so far
        self._low = 0  # elements the slowest has asked for
        self._timer: TimerHandle | None = None
        self.ended = ended

    def take(self, frame: Frame) -> None:
        """Pass on an element, or the end of them."""
        merge = self._merge
        if frame.word & COMPLETE:
            self.ended = True
        for branch in tuple(merge.branches):
            branch.put(frame)
        self.balance()

    def balance(self) -> None:
        """Let the requester send what the destinations want, and see who holds it up."""
        merge = self._merge
        stream = merge.stream
        if merge.kind != _CHANNEL or stream is None or not merge.begun or merge.exchange.ended:
            return
        takers = [branch for branch in merge.branches if branch.input_open]
        if self.ended:
            self._watch(0, slow=False)  # nobody is held up any more
            return
        if not takers:
            self.ended = True
            self._watch(0, slow=False)
            if stream.state != CLOSED:
                merge.link.core.send_cancel(stream)
                merge.link.flush_soon()
            return
        low = min(branch.wanted for branch in takers)
        high = max(branch.wanted for branch in takers)
        goal = min(high, low + merge.rules.window)
        if goal > self._granted and stream.state != CLOSED:
            merge.link.core.send_request_n(stream, min(goal - self._granted, MAX_REQUEST_N))
            merge.link.flush_soon()
            self._granted = goal
        self._watch(low, slow=goal < high and not stream.receive_credit)

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

    def keep_for(self, branch: Branch, frame: Frame) -> None:
        """Keep an element that a destination has not asked for yet."""
        merge = self._merge
        branch.queue.append(frame.detached())
        merge.held += frame.end - frame.start + FRAME_COST
        if merge.held > merge.rules.max_held:
            slowest = max(merge.branches, key=lambda each: len(each.queue))
            merge.on_left(slowest)

    def take_for(self, branch: Branch) -> Frame:
        """Take back the element that was kept first."""
        frame = branch.queue.popleft()
        self._merge.release(frame)
        return frame

    def let_go(self, branch: Branch) -> None:
        """Forget what a destination will not take any more."""
        while branch.queue:
            self.take_for(branch)

    def close(self) -> None:
        """Stop the timer: the request is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
