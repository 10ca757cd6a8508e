"""The link states of all nodes, as one node knows them.

Each node numbers its own link states and advertisements, and no other node does: there is one
writer. Its *instance*, the time at which it was started, tells the numbers of one start from those
of another. What is newer is passed on to the other neighbours, what is not is ignored: so news go
once over each link, whatever the mesh.

A node is taken into the book with its link states, and what is known of it is void when link states
of a later start come. An advertisement alone, which may be false, does neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from zlib import crc32

from ._frames import MAX_NUMBER, ListKind, NodeLinks, NodeNumbers
from ._network_limits import NetworkLimits

__all__ = ["LinkStateBook", "News", "NodeRecord"]


class News(Enum):
    """The meaning of what is told of a node to the node that reads it."""

    OLD = auto()
    """It is known already, or something newer is."""
    UNKNOWN = auto()
    """It is of a node, or of the start of one, with link states that are not known."""
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
        peers: Its neighbours and the costs; `None` when they are stale.
        heard_at: Time of its last advertisement, in seconds of the caller's clock.
        via: The link on which it was heard of first.
        stale: Whether its last advertisement was too long ago.
        sum: The sum of what is held of it, but for advertisements.
    """

    told: NodeNumbers
    peers: Mapping[str, int] | None
    heard_at: float
    via: Hashable = None
    stale: bool = False
    sum: int = 0

    def __post_init__(self) -> None:
        self.hold(self.told)

    def hold(self, told: NodeNumbers) -> None:
        """Hold other numbers."""
        self.told = told
        node, instance, _, *held = told
        self.sum = crc32("/".join(map(str, (node, instance, *held))).encode())


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
        self.own = NodeRecord(NodeNumbers(own, instance, 0, 0, 0, 0), {}, now)
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

    def _count(self, number: int = 0, links: int = 0) -> None:
        told = self.own.told
        self.own.hold(told._replace(number=told.number + number, links=told.links + links))

    def reclaim(self, claimed: NodeNumbers) -> None:
        """Number what this node tells beyond what another node tells of it.

        That node may have the same name, or what it tells may be of an earlier start of this one
        with a clock that was ahead. Or it lies: then its lie does not last.
        """
        own = self.own.told
        if claimed.instance == own.instance and max(claimed[2:]) < MAX_NUMBER // 2:
            number, links = max(claimed.number, own.number), max(claimed.links, own.links)
            told = own._replace(number=number + 1, links=links + 1)
            for kind in ListKind:
                if claimed.of(kind) > own.of(kind):
                    told = told.with_list(kind, claimed.of(kind) + 1)
            self.own.hold(told)
            return
        instance = min(max(claimed.instance, own.instance) + 1, MAX_NUMBER)
        self.own.hold(own._replace(instance=instance, number=1, links=1))

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
        if record is None or numbers.instance > record.told.instance:
            return News.UNKNOWN if numbers.links else News.OLD
        told = record.told
        if numbers.instance < told.instance or numbers.number <= told.number:
            return News.OLD
        record.told = told._replace(number=numbers.number)
        record.heard_at, record.stale = now, False
        return News.NEWER

    def holds_newer(self, numbers: NodeNumbers) -> bool:
        """Whether something newer is held of a node than is advertised, also of this one."""
        record = self.find(numbers.node)
        return record is not None and record.told[1:] > numbers[1:]

    def holds(self, numbers: NodeNumbers) -> bool:
        """Whether the same is held of a node as is advertised."""
        record = self.find(numbers.node)
        return record is not None and record.told == numbers

    def lacks(self, numbers: NodeNumbers) -> bool:
        """Whether link states of a node are advertised that are not known, of its known start."""
        record = self.others.get(numbers.node)
        if record is None or record.told.instance != numbers.instance:
            return False
        # What is stale is valid again with a newer advertisement, and with nothing else.
        return not record.stale and numbers.links > record.told.links

    def update(
        self, links: NodeLinks, asked: NodeNumbers, via: Hashable, neighbours: int, now: float
    ) -> tuple[News, str | None]:
        """Apply link states of another node.

        Args:
            links: The link states.
            asked: The numbers that they were asked for with.
            via: The link on which they have come.
            neighbours: Number of links to neighbours, which share the room.
            now: The time, in seconds of the caller's clock.

        Returns:
            What they mean, and the node that was forgotten for them, if any.
        """
        record = self.others.get(links.node)
        number = asked.number if asked.instance == links.instance else 0
        told = NodeNumbers(links.node, links.instance, number, links.links, 0, 0)
        if record is not None and links.instance == record.told.instance:
            if links.links <= record.told.links:
                return News.OLD, None
            record.hold(record.told._replace(links=links.links))
            record.peers = links.peers
            return News.NEWER, None
        if record is not None:
            if links.instance < record.told.instance:
                return News.OLD, None
            self.others[links.node] = NodeRecord(told, links.peers, now, record.via)
            return News.RESTARTED, None
        gone = None
        if len(self.others) + 1 >= self._limits.max_nodes:
            gone = self._spare(via, neighbours)
            if gone is None:
                return News.FULL, None
            del self.others[gone]
        self.others[links.node] = NodeRecord(told, links.peers, now, via)
        return News.NEWER, gone

    def _spare(self, via: Hashable, neighbours: int) -> str | None:
        """Return the node that has to go for one that is heard of on a link; `None` for none.

        Each neighbour has a share of the room: one that tells of nodes that are not there does not
        take the room of those that others tell of.
        """
        found = next((node for node, record in self.others.items() if record.stale), None)
        if found is not None:
            return found
        counts = Counter(record.via for record in self.others.values())
        if counts[via] >= (self._limits.max_nodes - 1) // max(neighbours, 1):
            return None
        greedy, _ = counts.most_common(1)[0]
        return next(node for node in reversed(self.others) if self.others[node].via == greedy)

    def links_of(self, node: str) -> NodeLinks | None:
        """Return the link states of a node as they are told; `None` if they are not known."""
        record = self.find(node)
        if record is None or record.peers is None:
            return None
        told = record.told
        return NodeLinks(told.node, told.instance, told.links, record.peers)

    def states(self) -> dict[str, Mapping[str, int]]:
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
                record.hold(record.told._replace(links=0, names=0, provisions=0))
                stale.append(node)
            elif age >= 2 * self._limits.stale:
                del self.others[node]
        return stale

    def checksum(self, nodes: Iterable[str]) -> int:
        """Return the sum of what is held of some nodes and this one, but for advertisements.

        It is the same on all nodes that know the same, in whatever order they have learned it.
        """
        found = self.own.sum
        for node in nodes:
            record = self.others.get(node)
            if record is not None and record.peers is not None:
                found ^= record.sum
        return found

    def set_list(self, node: str, kind: ListKind, number: int) -> None:
        """Set the number of the last change of a list of a node that is held, also of this one."""
        record = self.find(node)
        if record is not None:
            record.hold(record.told.with_list(kind, number))
