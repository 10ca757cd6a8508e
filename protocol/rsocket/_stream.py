"""One live stream of a connection."""

from __future__ import annotations

from typing import Any, Final

from .._closed import close_class
from ._states import CLOSED
from ._tables import describe

__all__ = ["CONNECTION_STREAM", "Stream"]


class Stream:
    """A stream, as one end of a connection sees it.

    A stream is made by `Connection.open` or by a request of the peer, and is forgotten by
    its connection when it is over: `closed` is then true and every send on it is refused.

    Attributes:
        id: The stream id, 1 to 2**31 - 1.
        kind: The type of its request frame, 4 to 7 (`FrameType`).
        requester: Whether our side opened it.
        state: Its state, an int of the compiled tables; `describe` says it in words.
        send_credit: Elements we may still send. It means nothing for the one answer of
            a request/response.
        receive_credit: Elements the peer may still send; below 0 if it has sent more than it was
            granted, out of `reserve`.
        reserve: Elements the peer may send beyond what it was granted: for a broker, what
            the requester has granted and the broker has not passed on yet.
        peer: Free for the user of the connection: for a broker, the stream it is joined to.
    """

    __slots__ = (
        "id",
        "kind",
        "peer",
        "receive_credit",
        "requester",
        "reserve",
        "send_credit",
        "state",
    )

    # As in `Frame` there is no `__init__`: a connection sets the attributes itself.
    id: int
    kind: int
    requester: bool
    state: int
    send_credit: int
    receive_credit: int
    reserve: int
    peer: Any

    @property
    def closed(self) -> bool:
        """Whether the stream is over."""
        return self.state == CLOSED

    def __repr__(self) -> str:
        return (
            f"<Stream {self.id} {describe(self.state)}; "
            f"credit to send {self.send_credit}, to receive {self.receive_credit}>"
        )


close_class(Stream)


def _connection_stream() -> Stream:
    stream = Stream()
    stream.id = stream.kind = 0
    stream.requester = False
    stream.state = CLOSED
    stream.send_credit = stream.receive_credit = 0
    stream.reserve = 0
    stream.peer = None
    return stream


CONNECTION_STREAM: Final = _connection_stream()
"""What `Frame.stream` is for frames of the connection itself, and for frames that no
connection has accepted. It is shared: leave its `peer` alone."""
