"""The merge of a multicast's responses into one response for its requester.

Elements are passed on whole, in the order in which they become whole. The requester's credit is
never exceeded, and elements beyond it are held. So a destination is granted credit with care: one
element at first, then twice as many after each, up to a window, to the requester's credit and to
its share of the bytes that may be held, by its largest element so far.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...protocol.rsocket import COMPLETE, FOLLOWS, NEXT, Frame, Stream
from ._leg_stream import LegStream
from ._request import FRAME_COST, more_follow

if TYPE_CHECKING:
    from ._leg import Leg
    from ._multicast import MulticastRequest

__all__ = ["ResponseMerge"]


class ResponseMerge:
    """The elements for the requester of a multicast, and the credit of its destinations.

    Args:
        multicast: The request.

    Attributes:
        held: Bytes of elements that are not whole, or wait for the requester's credit.
    """

    __slots__ = ("_again", "_multicast", "_turns", "_waiting_for_credit", "held")

    def __init__(self, multicast: MulticastRequest) -> None:
        self._multicast = multicast
        self.held = 0
        self._turns: deque[list[Frame]] = deque()
        # Legs that have used half of their window, by the requester's credit that they wait for.
        self._waiting_for_credit: dict[int, dict[Leg, None]] = {}
        self._again = False

    @property
    def waiting(self) -> bool:
        """Whether whole elements wait for the requester."""
        return bool(self._turns)

    # --- elements -----------------------------------------------------------------------------

    def take(self, leg: Leg, frame: Frame) -> None:
        """Pass on or hold a frame of a destination's element; this may end the request."""
        more = more_follow(frame)
        multicast = self._multicast
        leg.said += frame.end - frame.start + FRAME_COST
        if multicast.talking is leg:
            self._pass(frame)
            multicast.talking = leg if more else None
        else:
            begins = leg.part is None
            if begins and leg.to is not None:
                leg.to.ahead -= 1
                if leg.to.ahead < 0 and self._exceeds(leg):
                    return
            # By fragments only for the last leg: other legs would have to wait for the rest.
            if begins and (not more or multicast.last_answers) and self._free():
                self._pass(frame)
                multicast.talking = leg if more else None
            elif not self._hold(leg, frame, more=more):
                return
        if not more:
            self._see_size(leg)

    def _exceeds(self, leg: Leg) -> bool:
        """Give up a destination that exceeds its credit; return whether it does.

        It may use the requester's credit, even beyond its own. But the elements held because of
        that must not end the request for all.
        """
        to, multicast = leg.to, self._multicast
        if not isinstance(to, LegStream):
            return False
        if to.asked - to.ahead <= multicast.granted and self.held <= multicast.rules.max_held // 2:
            return False
        to.link.core.counters["overdrawn"] += 1
        multicast.on_left(leg)
        return True

    def _hold(self, leg: Leg, frame: Frame, *, more: bool) -> bool:
        """Hold a frame for the requester; return whether there was room."""
        multicast = self._multicast
        part = leg.part
        if part is None:
            part = leg.part = []
        part.append(frame.detached())
        size = frame.end - frame.start + FRAME_COST
        self.held += size
        multicast.book(size)
        most = multicast.rules.max_held
        if self.held > most:
            multicast.overflow(f"over {most} bytes of answers wait for the requester")
            return False
        if multicast.exceeds():
            return False
        if not more:
            self._turns.append(part)
            leg.part = None
        return True

    def _release(self, frames: list[Frame]) -> None:
        size = sum(frame.end - frame.start + FRAME_COST for frame in frames)
        self.held -= size
        self._multicast.book(-size)

    def forget_part(self, leg: Leg) -> None:
        """Release the unfinished element of a destination that has ended."""
        if leg.part is not None:
            self._release(leg.part)
            leg.part = None

    def drain(self) -> None:
        """Send the elements held within the requester's credit, then grant more credit."""
        turns = self._turns
        while turns and self._multicast.talking is None:
            # Reactive Streams Semantics: "the Requester grants the Responder credit for the number
            # of PAYLOADs it can send."
            if self._requester.send_credit < 1 or self._full():
                return
            frames = turns.popleft()
            self._release(frames)
            for frame in frames:
                self._pass(frame)
        self._grant()

    def _free(self) -> bool:
        """Return whether an element can be passed on at once."""
        if self._multicast.talking is not None or self._turns or self._requester.send_credit < 1:
            return False
        return not self._full()

    def _full(self) -> bool:
        """Return whether the requester's socket is full; if so, arrange to be resumed."""
        multicast = self._multicast
        link = multicast.link
        if link.write_paused:
            link.blocked_on_write.add(multicast)
            return True
        if link.core.pending <= link.flow.high_water:
            return False
        if not self._again:
            self._again = True
            link.node.loop.call_soon(self._go_on)
        return True

    def _go_on(self) -> None:
        self._again = False
        self._multicast.replenish()

    def _pass(self, frame: Frame) -> None:
        """Send a frame of an element to the requester, without a destination's completion."""
        # Multicast Routing, Request / Channel: "It will combine the responses back to the client in
        # a single stream."
        if frame.word & COMPLETE:  # it completes one destination, not all
            word = frame.word & ~(COMPLETE | FOLLOWS) | NEXT
            raw = bytearray(frame.buffer[frame.start - 3 : frame.end])
            raw[7:9] = word.to_bytes(2)
            frame = Frame.of(bytes(raw), 3, len(raw), frame.stream_id, word)
        self._multicast.relay(frame)

    @property
    def _requester(self) -> Stream:
        stream = self._multicast.stream
        if stream is None:
            raise AssertionError("a request with answers has a stream")
        return stream

    # --- credit -------------------------------------------------------------------------------

    def _see_size(self, leg: Leg) -> None:
        """Update the size and the pace of a destination after an element."""
        leg.largest = max(leg.largest, leg.said)
        leg.said = 0
        leg.pace = min(self._multicast.rules.window * leg.shares, 2 * leg.pace)

    def replenish(self, leg: Leg) -> None:
        """Grant a destination credit when it has used half of its window."""
        to, multicast = leg.to, self._multicast
        self._stop_waiting_for_credit(leg)
        if to is None or leg.answered or multicast.exchange.ended:
            return
        share = multicast.rules.max_held * leg.shares // multicast.shares
        most = max(1, min(leg.pace, share // leg.largest))
        ahead = to.ahead
        needs = max(ahead + 1, 2 * ahead)
        if needs > most:
            return
        credit = self._requester.send_credit
        if credit < needs or self._turns or self._full():
            leg.needs = needs
            self._waiting_for_credit.setdefault(needs, {})[leg] = None
        else:
            to.want(min(most, credit) - ahead)

    def _stop_waiting_for_credit(self, leg: Leg) -> None:
        needs = leg.needs
        if needs:
            leg.needs = 0
            waiting = self._waiting_for_credit[needs]
            del waiting[leg]
            if not waiting:
                del self._waiting_for_credit[needs]

    def _grant(self) -> None:
        """Grant credit to the waiting destinations that the requester's credit suffices for."""
        if not self._waiting_for_credit:
            return
        credit = self._requester.send_credit
        for needs in sorted(self._waiting_for_credit):
            if needs > credit or self._full():
                return
            for leg in tuple(self._waiting_for_credit.get(needs, ())):
                self.replenish(leg)

    def leave(self, leg: Leg) -> None:
        """Remove a destination that has ended; its whole elements are still passed on."""
        self._stop_waiting_for_credit(leg)
        self.forget_part(leg)

    def close(self) -> None:
        """Release all elements at the end of the request."""
        self._multicast.book(-self.held)
        self.held = 0
        self._turns.clear()
        self._waiting_for_credit.clear()
