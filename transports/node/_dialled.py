"""The links of a transport to other nodes: how many there may be, and which is to whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from ...protocol import LinkDown, counted

if TYPE_CHECKING:
    from ...actors import MailboxOptions, Node
    from ._stream_dialled import DialledLink
    from ._stream_link import StreamLink
    from ._udp_link import DialledUdpLink, UdpLink

__all__ = ["DialledLinks"]

L = TypeVar("L", bound="DialledLink | DialledUdpLink")


class DialledLinks(Generic[L]):
    """The links to other nodes, and for each peer the oldest of them.

    A rule may be called on any thread, and open a link there: the tables change under a lock.

    Args:
        node: The node they are on.

    Attributes:
        lock: Held to open and to forget links.
        by_peer: The oldest link to each peer, by its name. To be read without the lock.
    """

    def __init__(self, node: Node) -> None:
        self.lock = threading.RLock()
        self.by_peer: dict[str, L] = {}
        self._node = node
        self._links: dict[L, None] = {}

    def __iter__(self) -> Iterator[L]:
        return iter(list(self._links))

    def open(self, link: L, most: int, mailbox: MailboxOptions) -> None:
        """Start a link.

        Args:
            link: The link.
            most: How many links there may be.
            mailbox: What its worker is given.

        Raises:
            LinkDown: There are as many already.
        """
        with self.lock:
            if len(self._links) >= most:
                raise LinkDown(link.peer, f"{counted(most, 'link')} already")
            self._node.spawn(lambda: link, mailbox=mailbox)
            self._links[link] = None
            self.by_peer.setdefault(link.peer, link)

    def forget(self, link: StreamLink | UdpLink) -> None:
        """Let go of a link that is over."""
        with self.lock:
            self._links = {each: None for each in self._links if each is not link}
            peer = link.peer
            if self.by_peer.get(peer) is link:
                del self.by_peer[peer]
