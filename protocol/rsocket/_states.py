"""The state machines of RSocket as tables.

Theory of operation
===================

**Connection.** A server waits for SETUP, a client sends it; then both are open. A side that
sent or got ERROR[CONNECTION_CLOSE] drains: live streams go on, no new ones are taken, and
the connection ends with its last stream. `CONNECTION` is the table.

**Stream.** A stream has two directions: what the requester sends and what the responder
sends. Each direction is a small machine, `DIRECTION`, moved by the flags of the PAYLOAD
frames sent in it:

- `OPEN`: any number of elements may come;
- `ONE`: exactly one element is due (the answer of a request/response);
- `PART`: an element is under way in fragments, others may follow it;
- `FINAL`: the last element is under way in fragments;
- `DONE`: nothing may come.

An interaction is two of these machines side by side. The first frame of a stream decides
where they start (`REQUEST_START` and `RESPONDER_START`), and `ENDS_WITH` says which of them
must be done for the stream to be over. REQUEST_N, CANCEL and ERROR belong to no direction;
`CONTROL` says who may send them in which interaction, and what they do. A CANCEL of the
requester ends the stream; a CANCEL of a channel's responder ends the requester's direction,
as both Java and JavaScript have it (the specification names only the first).

What a table does not list is not legal. Received, it is ignored, as section "Handling the
Unexpected" demands; asked for by our own side, it is refused.

At import the product of these tables is compiled into `SEND` and `RECEIVE`: one dict look-up
takes the state and the frame's type and flags to the next state and to what must be done.
A state is an int with its low `KEY_BITS` bits clear, and a frame's key is its 16-bit word
without the five flag bits nobody uses, so `state | key` is the key of the table.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ._constants import COMPLETE, FOLLOWS, METADATA, NEXT, FrameType

__all__ = [
    "CHECK",
    "CLOSE",
    "CLOSED",
    "CONNECTION",
    "CONTROL",
    "CREDIT",
    "DIRECTION",
    "ENDS_WITH",
    "GRANT",
    "IDLE",
    "KEY_BITS",
    "KEY_SHIFT",
    "RECEIVE",
    "REQUEST_START",
    "RESPONDER_START",
    "SEND",
    "START",
    "ConnectionInput",
    "ConnectionState",
    "Direction",
    "Effect",
    "PayloadInput",
    "Role",
    "Side",
    "StreamState",
    "describe",
    "machine",
]


class Role(Enum):
    """Which end of a connection this is."""

    CLIENT = "client"
    SERVER = "server"


# --- the connection -----------------------------------------------------------------------


class ConnectionState(IntEnum):
    """States of a connection."""

    AWAIT_SETUP = 0
    """Nothing was exchanged: a server waits for SETUP, a client has not sent it."""
    OPEN = 1
    DRAINING = 2
    """ERROR[CONNECTION_CLOSE] was sent or received: no new streams, live ones go on."""
    CLOSED = 3
    """Over. Whatever still comes is ignored, nothing can be sent."""


class ConnectionInput(Enum):
    """What moves a connection."""

    SETUP = "SETUP sent by a client, accepted by a server"
    CONNECTION_CLOSE = "ERROR[CONNECTION_CLOSE] sent or received"
    LAST_STREAM = "the last stream ended"
    FAIL = "any other ERROR on stream 0, a violation, a time-out, the end of the transport"


_C, _I = ConnectionState, ConnectionInput

CONNECTION: Final[dict[tuple[ConnectionState, ConnectionInput], ConnectionState]] = {
    (_C.AWAIT_SETUP, _I.SETUP): _C.OPEN,
    (_C.AWAIT_SETUP, _I.CONNECTION_CLOSE): _C.CLOSED,
    (_C.AWAIT_SETUP, _I.FAIL): _C.CLOSED,
    (_C.OPEN, _I.CONNECTION_CLOSE): _C.DRAINING,
    (_C.OPEN, _I.FAIL): _C.CLOSED,
    (_C.DRAINING, _I.CONNECTION_CLOSE): _C.DRAINING,
    (_C.DRAINING, _I.LAST_STREAM): _C.CLOSED,
    (_C.DRAINING, _I.FAIL): _C.CLOSED,
}


# --- a stream -----------------------------------------------------------------------------


class Side(Enum):
    """Who sends: the side that opened the stream or the one that answers."""

    REQUESTER = "requester"
    RESPONDER = "responder"


class Direction(Enum):
    """States of one direction of a stream."""

    OPEN = "open"
    ONE = "one due"
    PART = "in fragments"
    FINAL = "last in fragments"
    DONE = "done"


class PayloadInput(Enum):
    """What the flags of a PAYLOAD say. C wins over F: "implicitly ignores the F flag"."""

    NEXT = "N"
    FOLLOWS = "F"
    COMPLETE = "C"
    NEITHER = "none of N, F, C"


_D, _P = Direction, PayloadInput

DIRECTION: Final[dict[tuple[Direction, PayloadInput], Direction]] = {
    (_D.OPEN, _P.NEXT): _D.OPEN,
    (_D.OPEN, _P.FOLLOWS): _D.PART,
    (_D.OPEN, _P.COMPLETE): _D.DONE,
    # A missing C of the one answer MUST be assumed, whatever else is set.
    (_D.ONE, _P.NEXT): _D.DONE,
    (_D.ONE, _P.FOLLOWS): _D.FINAL,
    (_D.ONE, _P.COMPLETE): _D.DONE,
    (_D.ONE, _P.NEITHER): _D.DONE,
    # Inside a fragmented element N says nothing new, and some peers leave it out.
    (_D.PART, _P.NEXT): _D.OPEN,
    (_D.PART, _P.FOLLOWS): _D.PART,
    (_D.PART, _P.COMPLETE): _D.DONE,
    (_D.PART, _P.NEITHER): _D.OPEN,
    (_D.FINAL, _P.NEXT): _D.DONE,
    (_D.FINAL, _P.FOLLOWS): _D.FINAL,
    (_D.FINAL, _P.COMPLETE): _D.DONE,
    (_D.FINAL, _P.NEITHER): _D.DONE,
}

_RR, _FNF = FrameType.REQUEST_RESPONSE, FrameType.REQUEST_FNF
_STREAM, _CHANNEL = FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL

REQUEST_START: Final[dict[tuple[FrameType, bool, bool], Direction]] = {
    # (request, F, C): where the requester's direction starts. C means something in a channel.
    (_RR, False, False): _D.DONE,
    (_RR, True, False): _D.FINAL,
    (_FNF, False, False): _D.DONE,
    (_FNF, True, False): _D.FINAL,
    (_STREAM, False, False): _D.DONE,
    (_STREAM, True, False): _D.FINAL,
    (_CHANNEL, False, False): _D.OPEN,
    (_CHANNEL, True, False): _D.PART,
    (_CHANNEL, False, True): _D.DONE,
    (_CHANNEL, True, True): _D.FINAL,
}

RESPONDER_START: Final[dict[FrameType, Direction]] = {
    _RR: _D.ONE,
    _FNF: _D.DONE,
    _STREAM: _D.OPEN,
    _CHANNEL: _D.OPEN,
}

ENDS_WITH: Final[dict[FrameType, frozenset[Side]]] = {
    _RR: frozenset({Side.RESPONDER}),
    _FNF: frozenset({Side.REQUESTER}),
    _STREAM: frozenset({Side.RESPONDER}),
    _CHANNEL: frozenset({Side.REQUESTER, Side.RESPONDER}),
}


class Effect(Enum):
    """What a frame that belongs to no direction does to the stream."""

    GRANT = "the other side may send more elements"
    END = "the stream is over"
    END_REQUESTER = "the requester's direction is done"


CONTROL: Final[dict[tuple[FrameType, Side, FrameType], Effect]] = {
    (_RR, Side.REQUESTER, FrameType.CANCEL): Effect.END,
    (_RR, Side.RESPONDER, FrameType.ERROR): Effect.END,
    (_FNF, Side.REQUESTER, FrameType.CANCEL): Effect.END,
    (_STREAM, Side.REQUESTER, FrameType.REQUEST_N): Effect.GRANT,
    (_STREAM, Side.REQUESTER, FrameType.CANCEL): Effect.END,
    (_STREAM, Side.RESPONDER, FrameType.ERROR): Effect.END,
    (_CHANNEL, Side.REQUESTER, FrameType.REQUEST_N): Effect.GRANT,
    (_CHANNEL, Side.REQUESTER, FrameType.CANCEL): Effect.END,
    (_CHANNEL, Side.REQUESTER, FrameType.ERROR): Effect.END,
    (_CHANNEL, Side.RESPONDER, FrameType.REQUEST_N): Effect.GRANT,
    (_CHANNEL, Side.RESPONDER, FrameType.CANCEL): Effect.END_REQUESTER,
    (_CHANNEL, Side.RESPONDER, FrameType.ERROR): Effect.END,
}


class StreamState(NamedTuple):
    """A live stream: the interaction and where its two directions are."""

    kind: FrameType
    requester: Direction
    responder: Direction

    @property
    def over(self) -> bool:
        """Whether the directions that `ENDS_WITH` names are done."""
        at = {Side.REQUESTER: self.requester, Side.RESPONDER: self.responder}
        return all(at[side] is Direction.DONE for side in ENDS_WITH[self.kind])


# --- compilation --------------------------------------------------------------------------

KEY_SHIFT: Final = 5
"""The five low flag bits have no meaning in any frame: a frame's key is its word without them."""
KEY_BITS: Final = 16 - KEY_SHIFT

CLOSE: Final = 1
"""Action: the stream is over; forget it."""
CREDIT: Final = 2
"""Action: an element begins; it costs one credit."""
GRANT: Final = 4
"""Action: the frame carries a request-n at offset 6."""
CHECK: Final = 8
"""Action: the frame has inner lengths that must be checked before it is accepted."""

CLOSED: Final = 0
"""The state of every stream that is over."""

Transition = tuple[int, int]
"""The next state and a sum of actions."""

_FLAG_SETS = tuple(bits << KEY_SHIFT for bits in range(1 << (10 - KEY_SHIFT)))


def _payload_input(flags: int) -> PayloadInput:
    if flags & COMPLETE:
        return PayloadInput.COMPLETE
    if flags & FOLLOWS:
        return PayloadInput.FOLLOWS
    return PayloadInput.NEXT if flags & NEXT else PayloadInput.NEITHER


def _start(kind: FrameType, flags: int) -> StreamState:
    complete = bool(flags & COMPLETE) and kind is FrameType.REQUEST_CHANNEL
    requester = REQUEST_START[kind, bool(flags & FOLLOWS), complete]
    return StreamState(kind, requester, RESPONDER_START[kind])


def _after(state: StreamState, side: Side, frame: FrameType, flags: int) -> StreamState | None:
    """Return the next state; `state.over` may hold for it; `None` if the frame is illegal."""
    if frame is FrameType.PAYLOAD:
        here = state.requester if side is Side.REQUESTER else state.responder
        there = DIRECTION.get((here, _payload_input(flags)))
        if there is None:
            return None
        if side is Side.REQUESTER:
            return state._replace(requester=there)
        return state._replace(responder=there)
    effect = CONTROL.get((state.kind, side, frame))
    if effect is Effect.END:
        return StreamState(state.kind, Direction.DONE, Direction.DONE)
    if effect is Effect.END_REQUESTER:
        return state._replace(requester=Direction.DONE)
    return None if effect is None else state


def _actions(state: StreamState, side: Side, frame: FrameType, flags: int) -> int:
    if frame is FrameType.REQUEST_N:
        return GRANT | CHECK
    if frame is FrameType.ERROR:
        return CHECK
    if frame is not FrameType.PAYLOAD:
        return 0
    here = state.requester if side is Side.REQUESTER else state.responder
    element = _payload_input(flags) is not PayloadInput.COMPLETE or flags & NEXT
    credit = CREDIT if here is Direction.OPEN and element else 0
    return credit | (CHECK if flags & METADATA else 0)


_MOVES = (FrameType.PAYLOAD, FrameType.REQUEST_N, FrameType.CANCEL, FrameType.ERROR)
_KINDS = (_RR, _FNF, _STREAM, _CHANNEL)


def machine(
    kind: FrameType,
) -> dict[StreamState, dict[tuple[Side, FrameType, int], StreamState | None]]:
    """Return the whole machine of one interaction, for documentation and tests.

    Args:
        kind: The request frame that opens the stream.

    Returns:
        For each reachable live state, what (sender, frame type, flags) leads where; `None`
        stands for the end of the stream.
    """
    found: dict[StreamState, dict[tuple[Side, FrameType, int], StreamState | None]] = {}
    todo = [start for flags in _FLAG_SETS if not (start := _start(kind, flags)).over]
    while todo:
        state = todo.pop()
        if state in found:
            continue
        moves = found[state] = {}
        for side in Side:
            for frame in _MOVES:
                for flags in _FLAG_SETS:
                    after = _after(state, side, frame, flags)
                    if after is None:
                        continue
                    moves[side, frame, flags] = None if after.over else after
                    if not after.over:
                        todo.append(after)
    return found


def _key(frame: FrameType, flags: int) -> int:
    return (frame << 10 | flags) >> KEY_SHIFT


class _Tables(NamedTuple):
    send: dict[int, Transition]
    receive: dict[int, Transition]
    start: dict[int, Transition]
    idle: dict[int, int]
    names: dict[int, str]


def _compile() -> _Tables:
    tables = _Tables({}, {}, {}, {}, {CLOSED: "closed"})
    numbers: dict[tuple[StreamState, Side], int] = {}

    def number(state: StreamState, ours: Side) -> int:
        """Return the int of a state as the side `ours` sees it."""
        if state.over:
            return CLOSED
        made = numbers.setdefault((state, ours), (len(numbers) + 1) << KEY_BITS)
        tables.names[made] = (
            f"{state.kind.name} as {ours.value}: requester {state.requester.value}, "
            f"responder {state.responder.value}"
        )
        return made

    for kind in _KINDS:
        for state, moves in machine(kind).items():
            for (side, frame, flags), after in moves.items():
                actions = _actions(state, side, frame, flags) | (CLOSE if after is None else 0)
                for ours in Side:
                    sending = side is ours
                    table = tables.send if sending else tables.receive
                    nxt = CLOSED if after is None else number(after, ours)
                    # What we send was checked when it was accepted or made.
                    done = actions & ~CHECK if sending else actions
                    table[number(state, ours) | _key(frame, flags)] = (nxt, done)
    for kind in _KINDS:
        idle = tables.idle[int(kind)] = (len(numbers) + 1 + len(tables.idle)) << KEY_BITS
        tables.names[idle] = f"{kind.name} as requester: not sent"
        grant = GRANT if kind in (_STREAM, _CHANNEL) else 0
        for flags in _FLAG_SETS:
            state = _start(kind, flags)
            actions = grant | (CLOSE if state.over else 0)
            check = CHECK if flags & METADATA or grant else 0
            tables.start[_key(kind, flags)] = (number(state, Side.RESPONDER), actions | check)
            tables.send[idle | _key(kind, flags)] = (number(state, Side.REQUESTER), actions)
    return tables


_TABLES = _compile()

SEND: Final = _TABLES.send
"""`state | key` of a frame we send: the next state and actions."""
RECEIVE: Final = _TABLES.receive
"""`state | key` of a frame we receive: the next state and actions."""
START: Final = _TABLES.start
"""Key of a request frame the peer opens a stream with: our first state and actions."""
IDLE: Final = _TABLES.idle
"""Request frame type: the state of a stream we allocated and have sent nothing on."""


def describe(state: int) -> str:
    """Return a compiled state in words."""
    return _TABLES.names[state]
