"""The input of a multicast: elements from its requester to several destinations.

In a channel, each destination requests elements at its own pace. The requester is granted the
credit of the fastest destination, but no more than a window ahead of the slowest, for which the
elements are kept. Elements are also kept for a destination that does not read. A destination that
delays the others for too long, or does not read kept elements for too long, is given up.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections import deque
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

    def note(self, leg: Leg, takers: Iterable[Leg], count: int) -> None:
        """Add the increased demand of a destination.

        Args:
            leg: The destination.
            takers: All destinations that still accept elements.
            count: Most of them.
        """
        heappush(self._fewest, (leg.wanted, leg.number, leg))
        heappush(self._most, (-leg.wanted, leg.number, leg))
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
        multicast: The request.
        ended: Whether the request itself is the last element.

    Attributes:
        ended: Whether the requester has sent its last element.
        held: Bytes kept for slow destinations.
    """

    __slots__ = (
        "_granted",
        "_low",
        "_multicast",
        "_shared",
        "_stuck",
        "_takers",
        "_timer",
        "_wants",
        "ended",
        "held",
    )

    def __init__(self, multicast: MulticastRequest, *, ended: bool) -> None:
        self._multicast = multicast
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

    def join(self, leg: Leg) -> None:
        """Add a destination that accepts elements."""
        self._takers += 1
        self._note(leg)

    def ask(self, leg: Leg, n: int) -> None:
        """Add `n` elements to the demand of a destination."""
        if leg.input_open and n > 0:
            leg.wanted += n
            self._note(leg)

    def _note(self, leg: Leg) -> None:
        self._wants.note(leg, self._multicast.legs, self._takers)

    def take(self, frame: Frame) -> None:
        """Pass on an element or the completion of the requester."""
        if frame.word & COMPLETE:
            self.ended = True
        if self._multicast.large(frame.end - frame.start):
            frame = frame.detached()  # one copy for all destinations
        for leg in tuple(self._multicast.legs):
            leg.put(frame)
        self.balance()

    def balance(self) -> None:
        """Grant the requester credit by the destinations' demand, and time the slowest."""
        multicast = self._multicast
        stream = multicast.stream
        if (
            multicast.kind != _CHANNEL
            or stream is None
            or not multicast.begun
            or multicast.exchange.ended
        ):
            return
        if not self._takers:
            if not self.ended and stream.state != CLOSED:
                multicast.link.core.send_cancel(stream)
                multicast.link.flush_soon()
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
        goal = min(high, low + multicast.rules.window)
        if goal > self._granted and stream.state != CLOSED:
            # Request Channel: "a Responder MUST respond to an initial REQUEST_CHANNEL frame with a
            # REQUEST_N frame."
            multicast.link.core.send_request_n(stream, min(goal - self._granted, MAX_REQUEST_N))
            multicast.link.flush_soon()
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
            multicast = self._multicast
            self._timer = multicast.link.node.loop.call_later(
                multicast.rules.patience, self._on_patience
            )

    def _on_patience(self) -> None:
        """Give up the destinations that have delayed the others for too long."""
        self._timer = None
        multicast = self._multicast
        low = self._low  # changes as destinations are dropped
        for leg in tuple(multicast.legs):
            if leg.input_open and leg.wanted == low:
                # Multicast Routing: "While multi-cast streaming a routable destination could no
                # long be valid. The broker implementation can either emit an error closing the
                # stream, or quietly handle its removal."
                multicast.on_left(leg)

    def wait_for_socket(self, leg: Leg) -> None:
        """Time a destination that does not read the elements kept for it."""
        if leg not in self._stuck:
            multicast = self._multicast
            patience = multicast.rules.patience
            handle = multicast.link.node.loop.call_later(patience, multicast.on_left, leg)
            self._stuck[leg] = handle

    def reads_again(self, leg: Leg) -> None:
        """Stop timing a destination."""
        handle = self._stuck.pop(leg, None)
        if handle is not None:
            handle.cancel()

    # --- kept frames --------------------------------------------------------------------------

    def keep_for(self, leg: Leg, frame: Frame) -> None:
        """Keep a frame for a destination that cannot be sent it yet."""
        multicast = self._multicast
        frame = frame.detached()
        queue = leg.queue
        if queue is None:
            queue = leg.queue = deque()
        queue.append(frame)
        size = FRAME_COST
        key = id(frame)
        users = self._shared.get(key, 0)
        if users or multicast.large(frame.end - frame.start):
            self._shared[key] = users + 1
        if not users:
            size += frame.end - frame.start
        self.held += size
        multicast.book(size)
        if self.held > multicast.rules.max_held:
            multicast.on_left(max(multicast.legs, key=lambda each: len(each.queue or ())))
        else:
            multicast.exceeds()

    def take_for(self, leg: Leg, queue: deque[Frame]) -> Frame:
        """Return the oldest frame kept for a destination, and keep it no more."""
        frame = queue.popleft()
        if not queue:
            leg.queue = None
        size = FRAME_COST
        key = id(frame)
        users = self._shared.pop(key, 1) - 1
        if users:
            self._shared[key] = users
        else:
            size += frame.end - frame.start
        self.held -= size
        self._multicast.book(-size)
        return frame

    def let_go(self, leg: Leg) -> None:
        """Release the frames kept for a destination that accepts no more."""
        if leg.input_open:
            leg.input_open = False
            self._takers -= 1
        self.reads_again(leg)
        while leg.queue is not None:
            self.take_for(leg, leg.queue)

    def close(self) -> None:
        """Stop the timer at the end of the request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
