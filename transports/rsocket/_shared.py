"""The byte limits shared by the connections of one listener."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from ._byte_shares import ByteShares
from ._options import LinkOptions
from ._unfinished import UnfinishedFrames

if TYPE_CHECKING:
    from ._flow import Flow
    from ._link import Link

__all__ = ["Shared"]


class Shared:
    """The bounds on the bytes that all connections of a listener hold.

    Args:
        loop: The loop of the connections.
        options: The limits.

    Attributes:
        unfinished: Bytes of unfinished frames.
        waiting: Bytes that wait for sockets, of the connections with a large backlog.
        gathered: Bytes of whole frames that no destination has taken yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, options: LinkOptions) -> None:
        self.unfinished = UnfinishedFrames(loop, options)
        self.waiting = ByteShares(options.max_pending_total, _waiting, loop.time)
        self.gathered = ByteShares(options.max_gathered_total, _gathered, loop.time)


def _waiting(link: Flow) -> int:
    return link.waiting


def _gathered(link: Flow) -> int:
    return cast("Link", link).session.gathered.count()
