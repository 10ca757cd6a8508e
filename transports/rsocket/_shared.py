"""What the connections of one listener hold together."""

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
    """Bounds what all connections of a listener hold.

    Args:
        loop: The loop of the connections.
        options: The limits.

    Attributes:
        unfinished: What they keep of unfinished frames.
        waiting: What waits for their sockets, of those for which it is much.
        gathered: What they keep of whole frames that nothing has taken yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, options: LinkOptions) -> None:
        self.unfinished = UnfinishedFrames(loop, options)
        self.waiting = ByteShares(options.max_pending_total, _waiting, loop.time)
        self.gathered = ByteShares(options.max_gathered_total, _gathered, loop.time)


def _waiting(link: Flow) -> int:
    return link.waiting


def _gathered(link: Flow) -> int:
    return cast("Link", link).session.gathered.count()
