"""The link states of all nodes, as one node knows them.

Each node numbers its own link states and advertisements, and no other node does: there is one
writer. Its *instance*, the time at which it was started, tells the numbers of one start from those
of another. What is newer is passed on to the other neighbours, what is not is ignored: so news go
once over each link, whatever the mesh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from zlib import crc32

from ._frames import MAX_NUMBER, LinksUpdate, NodeNumbers
from ._network_limits import NetworkLimits

__all__ = ["LinkStateBook", "News", "NodeRecord"]


class News(Enum):
    """The meaning of an advertised node to the node that reads of it."""

    OLD = auto()
    """It is known already, or something newer is."""
    NEWER = auto()
    """It is newer than what is known."""
    RESTARTED = auto()
    """It is newer, and the node was started again: what was known before is void."""
    CLAIMED = auto()
    """It is of this node, which has not told it."""
    FULL = auto()
    """It is of another node, and there is no room for one."""


@dataclass(slots=True)
class NodeRecord:
    """The link states of one node.

    Attributes:
        told: The numbers that are held, and told to neighbours.
        peers: Its neighbours and the costs; `None` while they are not known, or are stale.
        heard_at: Time of its last advertisement, in seconds of the caller's clock.
        stale: Whether that was too long ago.
    """

    told: NodeNumbers
    peers: dict[str, int] | None
    heard_at: float
    stale: bool = False


class LinkStateBook:
    """The link states of all nodes.

    Args:
        own: The name of this node.
        instance: When it was started, in milliseconds since the Unix epoch.
        limits: The limits.
        now: The time, in seconds of the caller's clock.

    Attributes:
        own: The record of this node.
        others: Those of other nodes.
    """

    __slots__ = ("_limits", "others", "own")

    def __init__(self, own: str, instance: int, limits: NetworkLimits, now: float) -> None:
        self._limits = limits
        self.own = NodeRecord(NodeNumbers(own, instance, 0, 0, 0), {}, now)
        self.others: dict[str, NodeRecord] = {}

    def find(self, node: str) -> NodeRecord | None:
        """Return the record of a node, also of this one."""
        return self.own if node == self.own.told.node else self.others.get(node)

    # --- of this node -------------------------------------------------------------------------

    def advertise(self) -> None:
        """Number a new advertisement of this node."""
        self._count(number=1)

    def set_links(self, peers: Mapping[str, int]) -> bool:
        """Set the neighbours of this node; return whether that changes anything."""
        if peers == self.own.peers:
            return False
        self.own.peers = dict(peers)
        self._count(number=1, links=1)
        return True

    def set_names(self, number: int) -> None:
        """Set the number of the last change of this node's names."""
        self.own.told = self.own.told._replace(names=number)

    def _count(self, number: int = 0, links: int = 0) -> None:
        told = self.own.told
        self.own.told = told._replace(number=told.number + number, links=told.links + links)

    def reclaim(self, claimed: NodeNumbers) -> None:
        """Number what this node tells beyond what another node tells of it.

        That node may have the same name, or what it tells may be of an earlier start of this one
        with a clock that was ahead. Or it lies: then its lie does not last.
        """
        own = self.own.told
        if claimed.instance == own.instance and max(claimed[2:]) < MAX_NUMBER // 2:
            number, links = max(claimed.number, own.number), max(claimed.links, own.links)
            names = own.names if claimed.names <= own.names else claimed.names + 1
            self.own.told = own._replace(number=number + 1, links=links + 1, names=names)
            return
        instance = min(max(claimed.instance, own.instance) + 1, MAX_NUMBER)
        self.own.told = own._replace(instance=instance, number=1, links=1)

    # --- of other nodes -----------------------------------------------------------------------

    def advertised(self, numbers: NodeNumbers, now: float) -> News:
        """Handle an advertised node, and return what it means."""
        own = self.own.told
        if numbers.node == own.node:
            claims = numbers.instance > own.instance or (
                numbers.instance == own.instance
                and any(theirs > ours for theirs, ours in zip(numbers[2:], own[2:], strict=True))
            )
            return News.CLAIMED if claims else News.OLD
        record = self.others.get(numbers.node)
        if record is None:
            if len(self.others) + 1 >= self._limits.max_nodes:
                return News.FULL
            told = numbers._replace(links=0, names=0)
            self.others[numbers.node] = NodeRecord(told, None, now)
            return News.NEWER
        told = record.told
        if numbers.instance > told.instance:
            record.told = numbers._replace(links=0, names=0)
            record.peers, record.heard_at, record.stale = None, now, False
            return News.RESTARTED
        if numbers.instance < told.instance or numbers.number <= told.number:
            return News.OLD
        record.told = told._replace(number=numbers.number)
        record.heard_at, record.stale = now, False
        return News.NEWER

    def holds_newer(self, numbers: NodeNumbers) -> bool:
        """Whether something newer is held of a node than is advertised, also of this one."""
        record = self.find(numbers.node)
        return record is not None and record.told[1:] > numbers[1:]

    def lacks(self, numbers: NodeNumbers) -> bool:
        """Whether link states of another node are advertised that are not known."""
        record = self.others.get(numbers.node)
        if record is None or record.told.instance != numbers.instance:
            return False
        # What is stale is valid again with a newer advertisement, and with nothing else.
        return not record.stale and numbers.links > record.told.links

    def update(self, update: LinksUpdate) -> bool:
        """Apply link states of another node; return whether they are newer than what was known."""
        record = self.others.get(update.node)
        if (
            record is None
            or update.instance != record.told.instance
            or update.links <= record.told.links
        ):
            return False
        record.told = record.told._replace(links=update.links)
        record.peers = update.peers
        return True

    def links_of(self, node: str) -> LinksUpdate | None:
        """Return the link states of a node as a frame; `None` if they are not known."""
        record = self.find(node)
        if record is None or record.peers is None:
            return None
        told = record.told
        return LinksUpdate(told.node, told.instance, told.links, record.peers)

    def states(self) -> dict[str, dict[str, int]]:
        """Return all link states that are known, this node's included."""
        found = {self.own.told.node: self.own.peers or {}}
        found |= {
            node: record.peers for node, record in self.others.items() if record.peers is not None
        }
        return found

    def expire(self, now: float) -> list[str]:
        """Forget what is stale; return the nodes that have become so just now."""
        stale: list[str] = []
        for node, record in list(self.others.items()):
            age = now - record.heard_at
            if age >= self._limits.stale and not record.stale:
                # The number stays, so that no other node can make what is stale new again.
                record.peers, record.stale = None, True
                record.told = record.told._replace(links=0, names=0)
                stale.append(node)
            elif age >= 2 * self._limits.stale:
                del self.others[node]
        return stale

    def checksum(self, nodes: Iterable[str]) -> int:
        """Return the sum of what is held of some nodes and this one, but for advertisements.

        It is the same on all nodes that know the same, in whatever order they have learned it.
        """
        found = _sum_of(self.own.told)
        for node in nodes:
            record = self.others.get(node)
            if record is not None and record.peers is not None:
                found ^= _sum_of(record.told)
        return found

    def set_names_of(self, node: str, number: int) -> None:
        """Set the number of the last change of another node's names that is held."""
        record = self.others[node]
        record.told = record.told._replace(names=number)


def _sum_of(told: NodeNumbers) -> int:
    return crc32(f"{told.node}/{told.instance}/{told.links}/{told.names}".encode())
