"""The end of the connections of a listener that drains.

A connection goes through two steps. First it *begins to end*: new requests of its peer are
REJECTED, and as a destination it is passed over. Once it has no open stream, its peer is
*notified*, by ERROR[CONNECTION_CLOSE]. Not before: many clients end all their streams on any ERROR
of stream 0, though the specification has them wait. Requests that the peer has sent meanwhile are
REJECTED until it closes the connection, or `LinkOptions.drain_timeout` is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ...actors.broker.table._leaving import BROKER_DRAINS
from ...protocol.rsocket import ConnectionState, ErrorCode, Frame, FrameType
from ._connection import FrameReceiver

if TYPE_CHECKING:
    from ._link import Link
    from ._session import Session

__all__ = ["DrainingConnections", "DrainingSession", "notify_if_idle"]

DRAINED: Final = "drained"
"""The reason of the end of a connection, as in `Flow.closed_reason`."""

_FNF: Final = int(FrameType.REQUEST_FNF)


class DrainingSession(FrameReceiver):
    """The receiver of a connection that begins to end.

    It refuses requests that have an answer. Those without one are routed as before, as nothing
    could tell their sender.

    Args:
        link: The connection.
        session: Its session.
    """

    def __init__(self, link: Link, session: Session) -> None:
        self._link = link
        self._session = session

    def on_request(self, frame: Frame) -> None:
        """Refuse a request, or route a fire-and-forget."""
        if frame.type == _FNF:
            self._session.on_request(frame)
        else:
            # Error Codes, CONNECTION_CLOSE: "New requests MAY not be accepted." REJECTED: "The
            # Responder guarantees that it didn't process the request."
            self._session.turn_away(frame, BROKER_DRAINS)
            # At once: the peer may send a refused request again, to a broker that drains still.
            notify_if_idle(self._link)

    def on_frame(self, frame: Frame) -> None:
        """Handle a frame of the connection as before."""
        self._session.on_frame(frame)


class DrainingConnections:
    """The connections of a listener that drains, with the moments at which they begin to end.

    Args:
        links: The connections.
        random: Returns a random number, 0 or more and less than 1.
    """

    def __init__(self, links: Iterable[Link], random: Callable[[], float]) -> None:
        moments: list[tuple[float, Link]] = []
        for link in links:
            if link.leases is not None:
                link.leases.renew_no_more()
            # Destinations follow their requesters: no request is left without one.
            begins = 0.0 if link.session.registration is None else 0.5
            moments.append((begins + random() / 2, link))
        self._moments = sorted(moments, key=lambda each: each[0], reverse=True)
        self._ending: set[Link] = set()

    def drain_to(self, progress: float) -> None:
        """Begin to end connections, and notify the peers of those without a stream.

        Args:
            progress: The part of the spread that has passed, 0 to 1.
        """
        moments = self._moments
        while moments and moments[-1][0] <= progress:
            _, link = moments.pop()
            link.begin_to_end()
            self._ending.add(link)
        for link in [each for each in self._ending if notify_if_idle(each)]:
            self._ending.discard(link)

    def forget(self, link: Link) -> None:
        """Forget a connection that has ended."""
        self._ending.discard(link)

    def cut(self, links: Iterable[Link]) -> None:
        """End all streams, each with an error of its own, and close all connections."""
        left = tuple(links)
        for link in left:
            link.end_requests(BROKER_DRAINS)
        for link in left:
            # A worker of this node may still wait for an answer.
            code = ErrorCode.CONNECTION_ERROR if link.core.streams else ErrorCode.CONNECTION_CLOSE
            link.close(DRAINED, BROKER_DRAINS, code)


def notify_if_idle(link: Link) -> bool:
    """Notify the peer of a connection without streams; return whether it has been notified."""
    core = link.core
    if core.streams or link.closed_reason:
        return bool(link.closed_reason)
    if core.state is not ConnectionState.OPEN:
        link.close(DRAINED, BROKER_DRAINS, ErrorCode.CONNECTION_CLOSE)
        return True
    link.closed_reason = DRAINED
    link.session.leave(BROKER_DRAINS)
    core.announce_close(BROKER_DRAINS)
    link.flush_soon()
    link.call_later(link.options.drain_timeout, link.hang_up)
    return True
