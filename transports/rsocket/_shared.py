"""What the connections of one listener share: byte limits, exposed addresses, authentication."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from ...actors.access._exposed import Exposed
from ...actors.security import Authentication
from ...protocol import Route
from ._byte_shares import ByteShares
from ._options import LinkOptions
from ._unfinished import UnfinishedFrames

if TYPE_CHECKING:
    from ...actors.cluster import PeerHandlers
    from ._flow import Flow
    from ._java_peer import JavaLink
    from ._link import Link

__all__ = ["Shared"]

_NOTHING: Final = Exposed()


class Shared:
    """The bounds on the bytes that all connections of a listener hold, and what its peers may do.

    Args:
        loop: The loop of the connections.
        options: The limits.
        exposed: The addresses that requests may name.
        authentication: The authentication of the listener's peers; `None` for none.
        peers: The cluster, of which other brokers may connect; `None` for none.
        siblings: Whether a broker of the same user may be one without a rule, at a Unix socket.

    Attributes:
        unfinished: Bytes of unfinished frames.
        waiting: Bytes that wait for sockets, of the connections with a large backlog.
        gathered: Bytes of whole frames that no destination has taken yet.
        exposed: The addresses that requests may name, and that they may go on to.
        authentication: The authentication of the listener's peers; `None` for none.
        peers: The cluster, of which other brokers may connect; `None` for none.
        siblings: Whether a broker of the same user may be one without a rule, at a Unix socket.
        by_several: Whether other processes of this broker listen there, too.
        listener: The address of the listener's worker, once it has one.
        java: Java brokers that have one of their two connections, by their ids; each has a
            connection, so that there are no more than those.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: LinkOptions,
        exposed: Exposed = _NOTHING,
        authentication: Authentication | None = None,
        peers: PeerHandlers | None = None,
        *,
        siblings: bool = False,
    ) -> None:
        self.exposed = exposed
        self.authentication = authentication
        self.peers = peers
        self.siblings = siblings
        self.by_several = False
        self.listener: Route = ()
        self.java: dict[bytes, JavaLink] = {}
        self.unfinished = UnfinishedFrames(loop, options)
        self.waiting = ByteShares(options.flow.max_pending_total, _waiting, loop.time)
        self.gathered = ByteShares(options.gathering.max_gathered_total, _gathered, loop.time)

    @staticmethod
    def next_tick(now: float, interval: float) -> float:
        """Return the time of the next KEEPALIVE of the connections that this side opens.

        All that have one interval send theirs in one turn of the loop, so that they wake an idle
        process once in each interval. The times are whole multiples of the interval, so the brokers
        of one machine, which have one clock, send theirs together: each handles what it gets of all
        others in a few turns.

        Args:
            now: The time.
            interval: The seconds between two KEEPALIVE frames of a connection.
        """
        return interval * (now // interval + 1)


def _waiting(link: Flow) -> int:
    return link.waiting


def _gathered(link: Flow) -> int:
    return cast("Link", link).session.gathered.count()
