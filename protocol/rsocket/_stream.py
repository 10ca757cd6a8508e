"""One live stream of a connection."""

from __future__ import annotations

from typing import Any, Final

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
        receive_credit: Elements the peer may still send.
        peer: Free for the user of the connection: for a broker, the stream it is joined to.
        user: Free for the user of the connection.
    """

    __slots__ = (
        "id",
        "kind",
        "peer",
        "receive_credit",
        "requester",
        "send_credit",
        "state",
        "user",
    )

    def __init__(
        self,
        id: int,  # noqa: A002 - the specification's word
        kind: int,
        requester: bool,
        state: int,
        send_credit: int = 0,
        receive_credit: int = 0,
    ) -> None:
        self.id = id
        self.kind = kind
        self.requester = requester
        self.state = state
        self.send_credit = send_credit
        self.receive_credit = receive_credit
        self.peer: Any = None
        self.user: Any = None

    @property
    def closed(self) -> bool:
        """Whether the stream is over."""
        return self.state == CLOSED

    def __repr__(self) -> str:
        return (
            f"<Stream {self.id} {describe(self.state)}; "
            f"credit to send {self.send_credit}, to receive {self.receive_credit}>"
        )


CONNECTION_STREAM: Final = Stream(0, 0, requester=False, state=CLOSED)
"""What `Frame.stream` is for frames of the connection itself, and for frames that no
connection has accepted. It is shared: leave its `peer` and `user` alone."""
