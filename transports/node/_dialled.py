"""The table of links that a transport has opened, by peer and with a limit."""

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
    """The links to other nodes, and the oldest link to each peer.

    A rule may open a link on any thread, so a lock protects the tables.

    Args:
        node: The node of the links.

    Attributes:
        lock: Held to open and to forget links.
        by_peer: The oldest link to each peer, by the peer's name. Read without the lock.
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
            most: The maximum number of links.
            mailbox: The options of the link's mailbox.

        Raises:
            LinkDown: The limit is reached.
        """
        with self.lock:
            if len(self._links) >= most:
                raise LinkDown(link.peer, f"{counted(most, 'link')} already")
            self._node.spawn(lambda: link, mailbox=mailbox)
            self._links[link] = None
            self.by_peer.setdefault(link.peer, link)

    def forget(self, link: StreamLink | UdpLink) -> None:
        """Remove a link that has ended."""
        with self.lock:
            self._links = {each: None for each in self._links if each is not link}
            peer = link.peer
            if self.by_peer.get(peer) is link:
                del self.by_peer[peer]
