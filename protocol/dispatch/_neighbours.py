"""The links of a node to its neighbours, and what is to be sent on them."""

from __future__ import annotations

from collections.abc import Hashable

from ._frame_codec import encode_network_frame, in_frames
from ._frames import (
    Advertisement,
    NetworkFrame,
    NodeNumbers,
)
from ._link_states import LinkStateBook
from ._neighbour import Neighbour

__all__ = ["Neighbours"]


class Neighbours:
    """The links of a node to its neighbours.

    Attributes:
        links: The links, also those on which no neighbour is heard.
        out: The frames that are to be sent, each with its link.
    """

    __slots__ = ("links", "out")

    def __init__(self) -> None:
        self.links: dict[Hashable, Neighbour] = {}
        self.out: list[tuple[Hashable, bytes]] = []

    def joined(self) -> list[Neighbour]:
        """Return the links with a neighbour."""
        return [each for each in self.links.values() if each.joined]

    def send(self, neighbour: Neighbour, frame: NetworkFrame) -> int:
        """Send a frame on a link; return its size in bytes."""
        data = encode_network_frame(frame)
        self.out.append((neighbour.link, data))
        return len(data)

    def send_all(self, frame: NetworkFrame, but: Neighbour | None = None) -> None:
        """Send a frame to all neighbours but one."""
        data = encode_network_frame(frame)
        self.out += [(each.link, data) for each in self.joined() if each is not but]

    def untell(self, node: str, but: Neighbour | None = None) -> None:
        """Advertise a node to all neighbours but one."""
        for each in self.joined():
            if each is not but:
                each.untold[node] = None

    def flush(self, neighbour: Neighbour, book: LinkStateBook, now: float) -> None:
        """Advertise to a neighbour the nodes that are to be."""
        found: list[NodeNumbers] = []
        for node in neighbour.untold:
            record = book.find(node)
            if record is not None and record.peers is not None:
                found.append(record.told)
        neighbour.untold.clear()
        neighbour.flushes.used(now)
        for some in in_frames(found) if found else ():
            self.send(neighbour, Advertisement(tuple(some)))
