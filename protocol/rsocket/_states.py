"""The state machines of RSocket as tables.

Theory of operation
===================

**Connection.** A server waits for SETUP, a client sends it; then both are open. A side that
sent or got ERROR[CONNECTION_CLOSE] drains: live streams go on, no new ones are taken, and
the connection ends with its last stream. `CONNECTION` is the table.

A connection with a resume token is *suspended* by the loss of its transport, and goes on over
another one: the client sends RESUME there, and the server answers with RESUME_OK.

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
`CONTROL` lists the sides that may send them in each interaction, and their effect. A CANCEL of the
requester ends the stream; a CANCEL of a channel's responder ends the requester's direction,
as both Java and JavaScript have it (the specification names only the first).

What a table does not list is not legal. Received, it is ignored, as section "Handling the
Unexpected" demands; asked for by our own side, it is refused.

`_tables` multiplies these tables out into the ones that connections look frames up in.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ._constants import FrameType

__all__ = [
    "CLOSED",
    "CONNECTION",
    "CONTROL",
    "DIRECTION",
    "ENDS_WITH",
    "REQUEST_START",
    "RESPONDER_START",
    "ConnectionInput",
    "ConnectionState",
    "Direction",
    "Effect",
    "PayloadInput",
    "Role",
    "Side",
    "StreamState",
]


class Role(Enum):
    """The role of one end of a connection."""

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
    HELD = 4
    """SETUP or RESUME was received by a server that has yet to admit the client. No further frame
    is read, nothing can be sent."""
    SUSPENDED = 5
    """The transport was lost, and the session may be resumed over another one. Streams stay open;
    their frames are kept until then."""
    RESUMING = 6
    """The client has sent RESUME over a new transport, and waits for RESUME_OK."""


class ConnectionInput(Enum):
    """An input of the state machine of a connection."""

    SETUP = "SETUP sent by a client, accepted by a server"
    HOLD = "SETUP or RESUME received by a server that has to decide on the client"
    ADMIT = "the server admits the client"
    CONNECTION_CLOSE = "ERROR[CONNECTION_CLOSE] sent or received"
    LAST_STREAM = "the last stream ended"
    LOSS = "the end of the transport of a session that can be resumed"
    RESUME = "RESUME sent by a client"
    RESUME_OK = "RESUME_OK sent by a server, received by a client"
    FAIL = "any other ERROR on stream 0, a violation, a time-out, the end of the transport"


_C, _I = ConnectionState, ConnectionInput

CONNECTION: Final[dict[tuple[ConnectionState, ConnectionInput], ConnectionState]] = {
    (_C.AWAIT_SETUP, _I.SETUP): _C.OPEN,
    (_C.AWAIT_SETUP, _I.HOLD): _C.HELD,
    (_C.AWAIT_SETUP, _I.CONNECTION_CLOSE): _C.CLOSED,
    # Connection Establishment: "If the server does NOT accept the contents of the SETUP frame, the
    # server MUST send back an ERROR[INVALID_SETUP|UNSUPPORTED_SETUP] and then close the
    # connection."
    (_C.AWAIT_SETUP, _I.FAIL): _C.CLOSED,
    (_C.HELD, _I.ADMIT): _C.OPEN,
    (_C.HELD, _I.CONNECTION_CLOSE): _C.CLOSED,
    (_C.HELD, _I.FAIL): _C.CLOSED,
    # Error Codes, CONNECTION_CLOSE: "Sender or Receiver of this frame MUST wait for outstanding
    # streams to terminate before closing the connection."
    (_C.OPEN, _I.CONNECTION_CLOSE): _C.DRAINING,
    # Error Codes, CONNECTION_ERROR: "Sender or Receiver of this frame MAY close the connection
    # immediately without waiting for outstanding streams to terminate."
    (_C.OPEN, _I.FAIL): _C.CLOSED,
    # Resuming Operation: "it is often necessary to provide the ability for resuming operation on
    # transport failure."
    (_C.OPEN, _I.LOSS): _C.SUSPENDED,
    # Resume Operation: "Client side resumption operation starts when the client desires to try to
    # resume and starts a new transport connection."
    (_C.SUSPENDED, _I.RESUME): _C.RESUMING,
    (_C.SUSPENDED, _I.RESUME_OK): _C.OPEN,
    (_C.SUSPENDED, _I.CONNECTION_CLOSE): _C.CLOSED,
    (_C.SUSPENDED, _I.FAIL): _C.CLOSED,
    (_C.RESUMING, _I.RESUME_OK): _C.OPEN,
    (_C.RESUMING, _I.LOSS): _C.SUSPENDED,
    (_C.RESUMING, _I.CONNECTION_CLOSE): _C.CLOSED,
    # Resume Operation: "On receiving an ERROR[REJECTED_RESUME] frame, the client MUST NOT attempt
    # resumption again."
    (_C.RESUMING, _I.FAIL): _C.CLOSED,
    (_C.DRAINING, _I.CONNECTION_CLOSE): _C.DRAINING,
    (_C.DRAINING, _I.LAST_STREAM): _C.CLOSED,
    (_C.DRAINING, _I.FAIL): _C.CLOSED,
}
"""A connection: where each input leads from each state."""


# --- a stream -----------------------------------------------------------------------------


class Side(Enum):
    """The side of a stream that sends: the one that opened it or the one that answers."""

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
    """The input by the flags of a PAYLOAD. C wins over F: "implicitly ignores the F flag"."""

    NEXT = "N"
    FOLLOWS = "F"
    COMPLETE = "C"
    NEITHER = "none of N, F, C"


_D, _P = Direction, PayloadInput

DIRECTION: Final[dict[tuple[Direction, PayloadInput], Direction]] = {
    # PAYLOAD Frame: "Just (N)ext set meaning PAYLOAD contains data stream is NOT completed."
    (_D.OPEN, _P.NEXT): _D.OPEN,
    # Fragmentation And Reassembly: "When a PAYLOAD frame needs to be fragmented, a sequence of
    # PAYLOAD frames is delivered using the (F)ollows flag."
    (_D.OPEN, _P.FOLLOWS): _D.PART,
    # Request Channel: "A Requester MUST NOT send any additional PAYLOAD frames after sending a
    # frame with the C bit set."
    (_D.OPEN, _P.COMPLETE): _D.DONE,
    # Handling the Unexpected: "If a PAYLOAD for a REQUEST_RESPONSE is received that does not have
    # a COMPLETE flag set, the implementation MUST assume it is set and act accordingly."
    (_D.ONE, _P.NEXT): _D.DONE,
    (_D.ONE, _P.FOLLOWS): _D.FINAL,
    (_D.ONE, _P.COMPLETE): _D.DONE,
    (_D.ONE, _P.NEITHER): _D.DONE,
    # The first fragment has begun the element. Later ones need no N, and some peers leave it out.
    (_D.PART, _P.NEXT): _D.OPEN,
    (_D.PART, _P.FOLLOWS): _D.PART,
    (_D.PART, _P.COMPLETE): _D.DONE,
    (_D.PART, _P.NEITHER): _D.OPEN,
    (_D.FINAL, _P.NEXT): _D.DONE,
    (_D.FINAL, _P.FOLLOWS): _D.FINAL,
    (_D.FINAL, _P.COMPLETE): _D.DONE,
    (_D.FINAL, _P.NEITHER): _D.DONE,
}
"""One direction of a stream: where the flags of a PAYLOAD lead from each state."""

_RR, _FNF = FrameType.REQUEST_RESPONSE, FrameType.REQUEST_FNF
_STREAM, _CHANNEL = FrameType.REQUEST_STREAM, FrameType.REQUEST_CHANNEL

REQUEST_START: Final[dict[tuple[FrameType, bool, bool], Direction]] = {
    # Only a REQUEST_CHANNEL has the flag C.
    (_RR, False, False): _D.DONE,
    # Fragmentation And Reassembly: "the first frame is the REQUEST_* frame with the (F)ollows flag
    # set, followed by a sequence of PAYLOAD frames."
    (_RR, True, False): _D.FINAL,
    (_FNF, False, False): _D.DONE,
    (_FNF, True, False): _D.FINAL,
    (_STREAM, False, False): _D.DONE,
    (_STREAM, True, False): _D.FINAL,
    (_CHANNEL, False, False): _D.OPEN,
    (_CHANNEL, True, False): _D.PART,
    # REQUEST_CHANNEL Frame: "(C)omplete: bit to indicate stream completion."
    (_CHANNEL, False, True): _D.DONE,
    (_CHANNEL, True, True): _D.FINAL,
}
"""The first state of the requester's direction, by the request's frame type, F and C."""

RESPONDER_START: Final[dict[FrameType, Direction]] = {
    _RR: _D.ONE,
    _FNF: _D.DONE,
    _STREAM: _D.OPEN,
    _CHANNEL: _D.OPEN,
}
"""The first state of the responder's direction, by the request's frame type."""

ENDS_WITH: Final[dict[FrameType, frozenset[Side]]] = {
    # Request Response: "Upon sending a response, the stream is terminated on the Responder."
    _RR: frozenset({Side.RESPONDER}),
    # Request Fire-n-Forget: "Upon reception, the stream is terminated by the Responder."
    _FNF: frozenset({Side.REQUESTER}),
    # Request Stream: "Upon receiving a COMPLETE or
    # ERROR[APPLICATION_ERROR|REJECTED|CANCELED|INVALID], the stream is terminated on the
    # Requester."
    _STREAM: frozenset({Side.RESPONDER}),
    # Request Channel: "In absence of ERROR or CANCEL, the stream is terminated after both Requester
    # and Responder have sent and received COMPLETE."
    _CHANNEL: frozenset({Side.REQUESTER, Side.RESPONDER}),
}
"""The directions that have to be done for a stream to be over, by the request's frame type."""


class Effect(Enum):
    """The effect on a stream of a frame that belongs to no direction."""

    GRANT = "the other side may send more elements"
    END = "the stream is over"
    END_REQUESTER = "the requester's direction is done"


CONTROL: Final[dict[tuple[FrameType, Side, FrameType], Effect]] = {
    # Request Response: "Upon receiving a CANCEL, the stream is terminated on the Responder and the
    # response SHOULD not be sent."
    (_RR, Side.REQUESTER, FrameType.CANCEL): Effect.END,
    (_RR, Side.RESPONDER, FrameType.ERROR): Effect.END,
    # Fragmentation And Reassembly: "If the Requester wants to cancel sending a fragmented sequence,
    # it MAY send a CANCEL frame without finishing delivery of the fragments."
    (_FNF, Side.REQUESTER, FrameType.CANCEL): Effect.END,
    # Request Stream: "At any time, the Requester may send REQUEST_N frames."
    (_STREAM, Side.REQUESTER, FrameType.REQUEST_N): Effect.GRANT,
    (_STREAM, Side.REQUESTER, FrameType.CANCEL): Effect.END,
    # Request Stream: "Upon sending a COMPLETE or
    # ERROR[APPLICATION_ERROR|REJECTED|CANCELED|INVALID], the stream is terminated on the
    # Responder."
    (_STREAM, Side.RESPONDER, FrameType.ERROR): Effect.END,
    # Request Channel: "At any time, a Requester, as well as a Responder, may send REQUEST_N
    # frames."
    (_CHANNEL, Side.REQUESTER, FrameType.REQUEST_N): Effect.GRANT,
    # Request Channel: "Upon receiving a CANCEL, the stream is terminated on the Responder."
    (_CHANNEL, Side.REQUESTER, FrameType.CANCEL): Effect.END,
    # Request Channel: "Upon receiving an ERROR[APPLICATION_ERROR|REJECTED|CANCELED|INVALID], the
    # stream is terminated on both Requester and Responder."
    (_CHANNEL, Side.REQUESTER, FrameType.ERROR): Effect.END,
    (_CHANNEL, Side.RESPONDER, FrameType.REQUEST_N): Effect.GRANT,
    (_CHANNEL, Side.RESPONDER, FrameType.CANCEL): Effect.END_REQUESTER,
    (_CHANNEL, Side.RESPONDER, FrameType.ERROR): Effect.END,
}
"""The effect of a frame that belongs to no direction, by interaction, sender and frame type."""


CLOSED: Final = 0
"""`Stream.state` of every stream that is over; live ones have other, opaque numbers."""


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
