"""A request with several destinations: its branches on one side, its requester on the other.

What the branches answer goes to the requester by the rules of the interaction. The first signal
of a request/response wins. The elements of streams and channels go on in the order they come,
element by element: fragments of two are never mixed. An error ends all.

Credit once given cannot be taken back, so each destination is given what the requester wants,
up to a window, and what comes in excess is held. The other way round, in a channel, each
destination asks for elements at its own pace, and the requester may be a window ahead of the
slowest. `Branch` is one destination.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from ...actors.broker import MergeRules
from ...protocol import InDoubt, NotDelivered, OnwardError
from ...protocol.rsocket import (
    CLOSED,
    COMPLETE,
    FOLLOWS,
    NEXT,
    ErrorCode,
    Frame,
    FrameType,
    LocalProtocolError,
    Stream,
)
from ._branch import Branch
from ._channel import ChannelInput
from ._request import FRAME_COST, completes, more_follow

if TYPE_CHECKING:
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = ["Merge"]

_CHANNEL: Final = int(FrameType.REQUEST_CHANNEL)
_ERROR: Final = int(FrameType.ERROR)
_PAYLOAD: Final = int(FrameType.PAYLOAD)
_REQUEST_N: Final = int(FrameType.REQUEST_N)
_RESPONSE: Final = int(FrameType.REQUEST_RESPONSE)

LOST: Final = "the connection to the destination was lost"


class Merge:
    """The branches of one request, and the `peer` of its requester's stream.

    Args:
        exchange: The request.
        rules: The limits, and where what became of branches is counted.

    Attributes:
        exchange: The request.
        rules: The limits.
        link: The requester's connection.
        stream: The requester's stream; `None` for a metadata push.
        input: What a channel's requester sends.
        branches: The destinations that are not done.
        begun: Whether there will be no more branches.
        whole: Whether the request's own frames have all come.
        final: Whether they are all that a channel's requester sends, as the first says.
        held: Bytes held for the requester and for slow destinations.
    """

    __slots__ = (
        "_completed",
        "_due",
        "_finished",
        "_left",
        "_refusal",
        "_said",
        "_talking",
        "_turns",
        "_waiting",
        "begun",
        "branches",
        "exchange",
        "final",
        "held",
        "input",
        "link",
        "rules",
        "stream",
        "whole",
    )

    def __init__(self, exchange: StreamExchange, rules: MergeRules) -> None:
        self.exchange = exchange
        self.rules = rules
        self.link = exchange.link
        self.stream = stream = exchange.stream
        last = exchange.frames[-1]
        self.whole = not more_follow(last)
        first = exchange.frames[0]
        self.final = exchange.kind == _CHANNEL and bool(first.word & COMPLETE)
        self.held = 0
        self.branches: dict[Branch, None] = {}
        self.begun = False
        self._waiting = 0  # branches that nobody has taken
        self._due = 0  # branches that have not answered in full
        # Answers: whose elements are held, one entry for each element; whose goes out just now.
        self._turns: deque[Branch] = deque()
        self._talking: Branch | None = None
        self._said = False
        self._completed = False
        self._finished = False
        self._left = False
        self._refusal: OnwardError = NotDelivered("the destination", "it has just left")
        self.input = ChannelInput(self, ended=self.whole and completes(exchange.frames))
        exchange.withdraw = self.close
        if stream is not None:
            stream.peer = self

    def branch(self) -> Branch:
        """Return a new branch."""
        made = Branch(self)
        self.branches[made] = None
        self._due += 1
        self._waiting += 1
        return made

    def begin(self) -> None:
        """Note that there will be no more branches."""
        self.begun = True
        self._let_go()
        self.settle()

    def on_placed(self) -> None:
        """Note that a branch has been taken, or never will be."""
        self._waiting -= 1
        self._let_go()

    def _let_go(self) -> None:
        """Let go of the request's frames once all have them."""
        if self.begun and self.whole and not self._waiting:
            self.exchange.frames.clear()

    @property
    def kind(self) -> int:
        """The frame type of the request."""
        return self.exchange.kind

    # --- what the requester says --------------------------------------------------------------

    def on_request(self, link: Link, stream: Stream, frame: Frame) -> None:
        """Take a frame of the requester."""
        kind = frame.type
        if kind == _PAYLOAD:
            if self.whole:
                self.input.take(frame)
            else:
                self._on_fragment(frame)
            self.settle()
        elif kind == _REQUEST_N:
            self.refill()
        else:
            if kind == _ERROR:
                for branch in tuple(self.branches):
                    branch.relay_error(frame)
            self._end()

    def on_gone(self, stream: Stream, text: str) -> None:
        """End all: the requester is gone."""
        self._end()

    def _on_fragment(self, frame: Frame) -> None:
        """Pass on one more frame of the request itself, and keep it for who comes late."""
        exchange = self.exchange
        self.whole = not more_follow(frame)
        if self.whole and completes([exchange.frames[0], frame]):
            self.input.ended = True
        late = False
        for branch in tuple(self.branches):
            if branch.to is None:
                late = True
            else:
                branch.relay(frame)
        if late:
            self.link.session.keep(exchange, frame)
        self._let_go()

    def wait_for_rest(self) -> None:
        """Have the branches told that wait for the whole request."""
        self.exchange.resume = self._resume

    def _resume(self) -> None:
        for branch in tuple(self.branches):
            if branch.resume is not None:
                branch.resume()

    # --- what the destinations say ------------------------------------------------------------

    def on_payload(self, branch: Branch, frame: Frame) -> None:
        """Take a PAYLOAD of a destination."""
        if self.kind == _RESPONSE:
            self._on_response(branch, frame)
            return
        begins = not branch.part
        more = more_follow(frame)
        if not begins or frame.word & (NEXT | FOLLOWS):
            if begins and branch.to is not None:
                branch.to.ahead -= 1
            branch.part = branch.part + 1 if more else 0
            self._said = True
            if (branch is self._talking and not branch.held) or (begins and self._free()):
                self._pass(branch, frame)
            else:
                self._hold(branch, frame, begins=begins)
                if self.exchange.ended:
                    return
        if frame.word & COMPLETE:
            self._completed = True
            branch.finish_answer()
        self._drain()
        self._refill(branch)
        self.settle()

    def _on_response(self, branch: Branch, frame: Frame) -> None:
        """Take the answer, or a part of it, of the first that answers."""
        if self._talking is None:
            self._talking = branch
            for other in tuple(self.branches):
                if other is not branch:
                    other.drop()
        self._relay(frame)
        if not more_follow(frame):
            branch.drop(self.link.time(), over=True)
            self._end()

    def on_error(self, branch: Branch, code: int, text: str, frame: Frame | None = None) -> None:
        """End all with the error of one, unless that only did not take the request.

        Args:
            branch: The destination.
            code: Its error code.
            text: Its text.
            frame: The frame that says so, if there is one.
        """
        if code == ErrorCode.REJECTED and not branch.part and branch.silent:
            self.on_skipped(branch, NotDelivered("the destination", text))
            return
        branch.drop(over=True)
        if frame is None:
            self.exchange.refuse(code, text)
        else:
            self._relay(frame)
            self._end()

    def on_taken(self, branch: Branch) -> None:
        """Note that a destination has all of a request that has no answer."""
        self._completed = True
        branch.drop(over=True)
        self.settle()

    def on_skipped(self, branch: Branch, error: OnwardError) -> None:
        """Go on without a destination that could not take the request."""
        self.rules.skipped += 1
        self._refusal = error
        branch.drop()
        self._go_on()

    def on_left(self, branch: Branch) -> None:
        """Go on without a destination that is gone, or give up."""
        self.rules.left += 1
        self._left = True
        if branch is self._talking or self.rules.fail_on_leave:
            # The requester has the half of an element, or wants to know.
            branch.drop()
            self.exchange.refuse(ErrorCode.CANCELED, LOST)
            return
        if branch.part:
            # What it said of its last element is of no use.
            for _ in range(branch.part):
                self.release(branch.held.pop())
            self._turns.reverse()
            self._turns.remove(branch)
            self._turns.reverse()
            branch.part = 0
        branch.drop()
        self._go_on()

    def _go_on(self) -> None:
        self.input.balance()
        self.settle()

    def forget(self, branch: Branch, *, due: bool) -> None:
        """Note that a branch is over, or has answered in full."""
        self._due -= due
        if branch.ended:
            self.branches.pop(branch, None)

    # --- elements for the requester -----------------------------------------------------------

    def _free(self) -> bool:
        """Say whether an element can go to the requester at once."""
        if self._talking is not None or self._turns or self._target.send_credit < 1:
            return False
        if self.link.write_paused:
            self.link.starved.add(self)
            return False
        return True

    @property
    def _target(self) -> Stream:
        if self.stream is None:
            raise AssertionError("a request with answers has a stream")
        return self.stream

    def _pass(self, branch: Branch, frame: Frame) -> None:
        """Send a frame of an element to the requester."""
        if frame.word & COMPLETE:  # of one destination, not of all
            word = frame.word & ~(COMPLETE | FOLLOWS) | NEXT
            raw = bytearray(frame.buffer[frame.start - 3 : frame.end])
            raw[7:9] = word.to_bytes(2)
            frame = Frame.of(bytes(raw), 3, len(raw), frame.stream_id, word)
        self._relay(frame)
        self._talking = branch if more_follow(frame) else None

    def _relay(self, frame: Frame) -> None:
        try:
            self.link.core.relay(self._target, frame)
        except LocalProtocolError:
            return  # it has cancelled, in the chunk that is just being read
        self.link.flush_soon()

    def _hold(self, branch: Branch, frame: Frame, *, begins: bool) -> None:
        """Keep a frame that the requester cannot have yet."""
        if begins:
            self._turns.append(branch)
        branch.held.append(frame.detached())
        self.held += frame.end - frame.start + FRAME_COST
        if self.held > self.rules.max_held:
            text = f"over {self.rules.max_held} bytes of answers wait for the requester"
            self.exchange.refuse(ErrorCode.CANCELED, text)

    def release(self, frame: Frame) -> None:
        """Note that a frame is held no more."""
        self.held -= frame.end - frame.start + FRAME_COST

    def _drain(self) -> None:
        """Send what is held, as far as the requester takes it."""
        drained = False
        while True:
            branch = self._talking
            if branch is None:
                turns = self._turns
                if not turns or self._target.send_credit < 1:
                    break
                if self.link.write_paused:
                    self.link.starved.add(self)
                    break
                branch = turns.popleft()
            if not branch.held:
                break  # the rest of its element is still to come
            frame = branch.held.popleft()
            self.release(frame)
            self._pass(branch, frame)
            drained = True
        if drained:
            for branch in tuple(self.branches):
                self._refill(branch)

    def refill(self) -> None:
        """Send what is held, and give the destinations credit."""
        if self.exchange.ended:
            return
        self._drain()
        for branch in tuple(self.branches):
            self._refill(branch)
        self.settle()

    def wanted(self) -> int:
        """Return how many elements a destination may be ahead of the requester now."""
        if self._turns:
            return 0
        return min(self.rules.window, self._target.send_credit)

    def _refill(self, branch: Branch) -> None:
        """Give a destination credit when it has used half of what it may have."""
        to = branch.to
        if to is None or branch.answered or self.exchange.ended:
            return
        wanted = self.wanted()
        ahead = to.ahead
        if ahead < wanted and ahead <= wanted // 2:
            if self.link.write_paused:
                self.link.starved.add(self)
            else:
                to.want(wanted - ahead)

    # --- the end ------------------------------------------------------------------------------

    def settle(self) -> None:
        """End the request, or its answer, if no destination has more to say."""
        exchange = self.exchange
        if exchange.ended or not self.begun:
            return
        if self._due or self._turns:
            return
        if not self._finished:
            self._finished = True
            if not self._said and not self._completed:
                self._end_unanswered()
                return
            if self.stream is not None and self.stream.state != CLOSED:
                self.link.core.send_payload(self.stream, next=False, complete=True)
                self.link.flush_soon()
        if not self.branches:
            self.input.balance()  # nobody wants elements of the requester
            self._end()

    def _end_unanswered(self) -> None:
        """End a request that nobody has answered: all were skipped, left, or need not."""
        exchange = self.exchange
        if self._left:
            exchange.fail(InDoubt("the destination", "all destinations were lost"))
        else:
            exchange.fail(self._refusal)

    def _end(self) -> None:
        self.exchange.end()
        self.exchange.unlink()

    def close(self) -> None:
        """Cancel every branch: the request is over."""
        self.input.close()
        for branch in tuple(self.branches):
            branch.drop()
        self._turns.clear()
        self._talking = None
        self.link.starved.discard(self)
