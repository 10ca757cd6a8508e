"""The tables of `_states`, multiplied out for speed.

One look-up in `SEND` or `RECEIVE` takes a stream's state and a frame's type and flags to the
next state and to what must be done. A state is an int with its low 16 bits clear, so that
`state | word`, with the 16 bits of a frame's type and flags, is the key. The tables know
words without the five flag bits that have no meaning in any frame: a look-up that finds nothing
is repeated with `word & KNOWN_BITS`.

`SEND` also says with which type and flags a relayed frame is written: its sender's, except where
the specification forbids them or gives them no meaning (`_mended`). A strict peer would close its
whole connection over such a frame, which another peer wrote.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from ._constants import COMPLETE, FOLLOWS, IGNORE, METADATA, NEXT, FrameType
from ._states import (
    CLOSED,
    CONTROL,
    DIRECTION,
    REQUEST_START,
    RESPONDER_START,
    Direction,
    Effect,
    PayloadInput,
    Side,
    StreamState,
)

__all__ = [
    "BARE",
    "CHECK",
    "CLOSE",
    "CREDIT",
    "GRANT",
    "IDLE",
    "KNOWN_BITS",
    "RECEIVE",
    "SEND",
    "START",
    "Move",
    "Sending",
    "describe",
    "machine",
    "start_states",
]

KNOWN_BITS: Final = 0xFFE0
"""The bits of type and flags (16 bits) that mean something in some frame."""

CLOSE: Final = 1
"""Action: the stream is over; forget it."""
CREDIT: Final = 2
"""Action: an element begins; it costs one credit."""
GRANT: Final = 4
"""Action: the frame carries a request-n, at offset 6."""
CHECK: Final = 8
"""Action: the frame has lengths inside that must be checked before it is accepted."""
BARE: Final = 16
"""Action: the frame has fixed fields only; a relay leaves out what follows them."""

Move: TypeAlias = PayloadInput | FrameType
"""An input of a stream: the flags of a PAYLOAD, or REQUEST_N, CANCEL or ERROR."""
Transition: TypeAlias = tuple[int, int]
"""The next state and a sum of actions."""
Sending: TypeAlias = tuple[int, int, int]
"""The next state, a sum of actions, and the word that the frame is written with."""

_MEANT: Final[dict[FrameType, int]] = {
    FrameType.REQUEST_RESPONSE: METADATA | FOLLOWS,
    FrameType.REQUEST_FNF: METADATA | FOLLOWS,
    FrameType.REQUEST_STREAM: METADATA | FOLLOWS,
    FrameType.REQUEST_CHANNEL: METADATA | FOLLOWS | COMPLETE,
    FrameType.REQUEST_N: 0,
    FrameType.CANCEL: 0,
    FrameType.ERROR: 0,
    FrameType.PAYLOAD: METADATA | FOLLOWS | COMPLETE | NEXT,
}
"""The flags that mean something in a frame of a stream, besides I."""

_STATE_SHIFT: Final = 16
_FLAG_SETS: Final = tuple(range(0, 0x400, 0x20))
_KINDS: Final = tuple(RESPONDER_START)
_MOVES: Final[tuple[Move, ...]] = (
    *PayloadInput,
    FrameType.REQUEST_N,
    FrameType.CANCEL,
    FrameType.ERROR,
)


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


def start_states(kind: FrameType) -> tuple[StreamState, ...]:
    """Return the states that a request frame can open a stream in; one may be over at once."""
    return tuple(dict.fromkeys(_start(kind, flags) for flags in _FLAG_SETS))


def _after(state: StreamState, side: Side, move: Move) -> StreamState | None:
    """Return the next state, which may be over; `None` if the move is not legal."""
    if isinstance(move, PayloadInput):
        requester = side is Side.REQUESTER
        there = DIRECTION.get((state.requester if requester else state.responder, move))
        if there is None:
            return None
        return state._replace(requester=there) if requester else state._replace(responder=there)
    effect = CONTROL.get((state.kind, side, move))
    if effect is Effect.END:
        return StreamState(state.kind, Direction.DONE, Direction.DONE)
    if effect is Effect.END_REQUESTER:
        return state._replace(requester=Direction.DONE)
    return None if effect is None else state


def machine(kind: FrameType) -> dict[StreamState, dict[tuple[Side, Move], StreamState | None]]:
    """Return the whole machine of one interaction, for documentation and tests.

    Args:
        kind: The request frame that opens the stream.

    Returns:
        For each live state that can be reached, which (sender, move) is legal and where it
        leads; `None` stands for the end of the stream.
    """
    found: dict[StreamState, dict[tuple[Side, Move], StreamState | None]] = {}
    todo = [state for state in start_states(kind) if not state.over]
    while todo:
        state = todo.pop()
        if state in found:
            continue
        moves = found[state] = {}
        for side in Side:
            for move in _MOVES:
                after = _after(state, side, move)
                if after is None:
                    continue
                moves[side, move] = None if after.over else after
                if not after.over:
                    todo.append(after)
    return found


def _words(move: Move, direction: Direction) -> list[tuple[int, int]]:
    """Return each word (type and flags) that means the move, with its actions."""
    if move is FrameType.REQUEST_N:
        return [(move << 10 | flags, GRANT | CHECK | BARE) for flags in _FLAG_SETS]
    if isinstance(move, FrameType):
        action = CHECK if move is FrameType.ERROR else BARE
        return [(move << 10 | flags, action) for flags in _FLAG_SETS]
    words: list[tuple[int, int]] = []
    for flags in _FLAG_SETS:
        if _payload_input(flags) is not move:
            continue
        # PAYLOAD Frame: "Just (C)omplete set meaning PAYLOAD contains no data and only signals
        # stream completion." Fragmentation And Reassembly: "a fragmented PAYLOAD frame counts as a
        # single request(n) credit".
        element = direction is Direction.OPEN and (
            move is not PayloadInput.COMPLETE or flags & NEXT
        )
        actions = (CREDIT if element else 0) | (CHECK if flags & METADATA else 0)
        words.append((FrameType.PAYLOAD << 10 | flags, actions))
    return words


def _mended(word: int, kind: FrameType, direction: Direction) -> int:
    """Return type and flags of a frame of a stream as a strict peer accepts them.

    Args:
        word: Type and flags as its sender wrote them; all of its move's other bits are known.
        kind: The request frame that opened the stream.
        direction: Where the sender's direction was before the frame.
    """
    frame_type = FrameType(word >> 10)
    # Frame Header Format: "Any Flag bit not specifically indicated in the frame type should be set
    # to 0 when sent and not interpreted on reception."
    word &= frame_type << 10 | IGNORE | _MEANT[frame_type]
    if frame_type is not FrameType.PAYLOAD:
        return word
    if word & COMPLETE:
        # Handling the Unexpected: "A PAYLOAD with both F and C flags set, implicitly ignores the F
        # flag." A peer that does not ignore it waits for a fragment that never comes.
        word &= ~FOLLOWS
    within = direction in (Direction.PART, Direction.FINAL)
    if within or not word & COMPLETE:
        # PAYLOAD Frame: "A PAYLOAD MUST NOT have both (C)complete and (N)ext empty (false)." On a
        # C alone inside a fragmented payload, peers drop the fragments before it.
        word |= NEXT
    if kind is FrameType.REQUEST_CHANNEL and direction is Direction.FINAL and not word & FOLLOWS:
        # Request Channel: "A Requester may indicate COMPLETE by setting the C bit on either the
        # initial REQUEST_CHANNEL frame, or on the last PAYLOAD frame sent." The first fragment had
        # it; peers that reassemble look for it in the last.
        word |= COMPLETE
    return word


class _Tables(NamedTuple):
    send: dict[int, Sending]
    receive: dict[int, Transition]
    start: dict[int, Transition]
    idle: dict[int, int]
    names: dict[int, str]


class _Numbers:
    """Gives each state, as each side sees it, an int."""

    def __init__(self) -> None:
        self.names = {CLOSED: "closed"}
        self._known: dict[tuple[StreamState, Side], int] = {}

    def new(self, name: str) -> int:
        number = len(self.names) << _STATE_SHIFT
        self.names[number] = name
        return number

    def of(self, state: StreamState | None, ours: Side) -> int:
        if state is None or state.over:
            return CLOSED
        if (state, ours) not in self._known:
            self._known[state, ours] = self.new(
                f"{state.kind.name} as {ours.value}: requester {state.requester.value}, "
                f"responder {state.responder.value}"
            )
        return self._known[state, ours]


def _compile() -> _Tables:
    numbers = _Numbers()
    tables = _Tables({}, {}, {}, {}, numbers.names)
    for kind in _KINDS:
        for state, moves in machine(kind).items():
            for (side, move), after in moves.items():
                direction = state.requester if side is Side.REQUESTER else state.responder
                close = CLOSE if after is None else 0
                for ours in Side:
                    here, there = numbers.of(state, ours), numbers.of(after, ours)
                    for word, actions in _words(move, direction):
                        if side is ours:
                            # What we send was checked when it was accepted, or made by us.
                            needed = actions & ~CHECK | close
                            written = _mended(word, kind, direction)
                            tables.send[here | word] = (there, needed, written)
                        else:
                            tables.receive[here | word] = (there, actions & ~BARE | close)
        idle = tables.idle[int(kind)] = numbers.new(f"{kind.name} as requester: not sent")
        grant = GRANT if kind in (FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL) else 0
        for flags in _FLAG_SETS:
            state = _start(kind, flags)
            actions = grant | (CLOSE if state.over else 0)
            word = kind << 10 | flags
            tables.start[word] = (numbers.of(state, Side.RESPONDER), actions)
            written = _mended(word, kind, state.requester)
            tables.send[idle | word] = (numbers.of(state, Side.REQUESTER), actions, written)
    return tables


_TABLES = _compile()

SEND: Final = _TABLES.send
"""`state | word` of a frame we send: the next state, actions, and the word to write."""
RECEIVE: Final = _TABLES.receive
"""`state | word` of a frame we receive: the next state and actions."""
START: Final = _TABLES.start
"""Word of a request frame the peer opens a stream with: our first state and actions."""
IDLE: Final = _TABLES.idle
"""Type of a request frame: the state of a stream allocated for it, with nothing sent yet."""


def describe(state: int) -> str:
    """Return a stream's state in words."""
    return _TABLES.names[state]
