"""What one node knows of the nodes of a network: their link states, names and provisions.

It is what the frames of neighbours that come after the hellos change. Each handler reads one kind
of frame, takes what is newer, has it passed on, and asks for what is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ._asks import Asks
from ._frame_codec import in_frames, links_item
from ._frames import (
    MAX_ASKED,
    Advertisement,
    LinksRequest,
    LinksUpdate,
    ListChange,
    ListKind,
    ListPart,
    ListRequest,
    NetworkFrame,
    NodeLinks,
    NodeNumbers,
    ToldName,
)
from ._link_states import LinkStateBook, News
from ._list_sync import Assembly, ListSync
from ._neighbour import Neighbour
from ._neighbours import Neighbours
from ._network_events import CostsDiffer, NameClaimed, NetworkEvent, NodesChanged, ProvisionsTold
from ._network_limits import NetworkLimits

__all__ = ["Knowledge"]


class Knowledge:
    """The state of the nodes of a network, as far as one node knows it.

    Args:
        own: The name of this node.
        instance: When it was started, in milliseconds since the Unix epoch.
        limits: The limits.
        neighbours: The links to its neighbours.
        now: The time, in seconds of the caller's clock.

    Attributes:
        book: The link states.
        names: The names with consumers.
        provisions: The provisions.
        counts: What was ignored or refused, by its reason.
        events: What has happened, but for what `take_events` finds by itself.
        changed: Whether link states have changed since the paths were computed.
        advertise_soon: Whether this node is to be advertised at once.
        unreachable: Nodes with lists that cannot be reached, since when, in this order.
    """

    def __init__(
        self,
        own: str,
        instance: int,
        limits: NetworkLimits,
        neighbours: Neighbours,
        now: float,
    ) -> None:
        self._own: Final = own
        self._limits: Final = limits
        self._neighbours: Final = neighbours
        # The clock of the caller tells how much later it is than at the start of this node.
        self._latest: Final = instance + 1000.0 * (limits.max_ahead - now)
        self.counts: Final = Counter[str]()
        self.book: Final = LinkStateBook(own, instance, limits, now)
        self.names: Final = ListSync[ToldName].of_names(limits)
        self.provisions: Final = ListSync[bytes].of_provisions(limits)
        self._lists: Final[dict[ListKind, ListSync[Any]]] = {
            ListKind.NAMES: self.names,
            ListKind.PROVISIONS: self.provisions,
        }
        self._link_asks: Final = Asks(limits)
        self._list_asks: Final = {kind: Asks(limits) for kind in ListKind}
        self._costs: Final[dict[str, int]] = {}
        self._reclaim_at = now
        self._reached: frozenset[str] = frozenset()
        self._sum: int | None = None
        self.events: list[NetworkEvent] = []
        self.changed = False
        self.advertise_soon = False
        self.unreachable: Final[dict[str, float]] = {}

    def receive(self, neighbour: Neighbour, frame: NetworkFrame, now: float) -> None:
        """Read a frame of a neighbour that is no hello."""
        match frame:
            case Advertisement():
                self.on_advertisement(neighbour, frame, now)
            case LinksRequest():
                self.on_links_request(neighbour, frame, now)
            case LinksUpdate():
                self.on_links_update(neighbour, frame, now)
            case ListChange():
                self.on_list_change(neighbour, frame, now)
            case ListRequest():
                self.on_list_request(neighbour, frame, now)
            case ListPart():
                self.on_list_part(neighbour, frame, now)
            case _:
                raise AssertionError(f"unexpected {frame}")

    # --- of this node -------------------------------------------------------------------------

    def gather_at(self) -> Iterator[float]:
        """Yield the times at which changes of lists of this node are to be told."""
        for each in self._lists.values():
            if each.gather_at is not None:
                yield each.gather_at

    def tell_lists(self, now: float) -> None:
        """Send the changes of lists of this node that are due."""
        for kind, each in self._lists.items():
            if each.gather_at is not None and now >= each.gather_at:
                for change in each.gather(self._own, self.book.own.told.instance):
                    self._neighbours.send_all(change)
                self.book.set_list(self._own, kind, each.number)
                self._sum = None

    def checksum(self) -> int:
        """Return the sum of what is held of this node and of those that can be reached."""
        if self._sum is None:
            self._sum = self.book.checksum(self._reached)
        return self._sum

    def is_ahead(self, milliseconds: int, now: float) -> bool:
        """Whether a start or a claim is ahead of the clock by more than `max_ahead`."""
        return milliseconds > self._latest + 1000.0 * now

    def untell(self, node: str, but: Neighbour | None = None) -> None:
        """Advertise a node to all neighbours but one, as there is something new of it."""
        self._sum = None
        self._neighbours.untell(node, but)

    def untell_all(self, neighbour: Neighbour) -> None:
        """Advertise all nodes that can be reached to a neighbour."""
        neighbour.untold[self._own] = None
        neighbour.untold.update(dict.fromkeys(sorted(self._reached)))

    # --- advertisements -----------------------------------------------------------------------

    def on_advertisement(self, neighbour: Neighbour, found: Advertisement, now: float) -> None:
        """Accept the numbers that are newer, and ask for what they are the numbers of."""
        wanted: list[str] = []
        for numbers in found.nodes:
            if self.is_ahead(numbers.instance, now):
                self.counts["a start ahead of the clock"] += 1
                continue
            news = self.book.advertised(numbers, now)
            if news is News.CLAIMED:
                self._claimed(neighbour, numbers, now)
            elif news is News.NEWER:
                self.untell(numbers.node, neighbour)
            elif self.book.holds_newer(numbers):
                # It is told so: this is how a lie that came another way gets to the node itself.
                neighbour.untold[numbers.node] = None
            elif self.book.holds(numbers):
                neighbour.untold.pop(numbers.node, None)
            lacks = news is News.UNKNOWN or self.book.lacks(numbers)
            if lacks and self._link_asks.begin(neighbour.link, numbers, numbers.links, now):
                wanted.append(numbers.node)
            self._ask_lists(neighbour, numbers, now)
        for first in range(0, len(wanted), MAX_ASKED):
            some = wanted[first : first + MAX_ASKED]
            self._neighbours.send(neighbour, LinksRequest(tuple(some)))

    def _claimed(self, neighbour: Neighbour, numbers: NodeNumbers, now: float) -> None:
        """Outdo what another node tells as of this one; not too often."""
        self.counts["something told as of this node"] += 1
        if now < self._reclaim_at:
            return
        self._reclaim_at = now + self._limits.hello
        self.events.append(NameClaimed(neighbour.link, numbers.instance))
        self.book.reclaim(numbers)
        for kind, each in self._lists.items():
            each.number = self.book.own.told.of(kind)
        self.advertise_soon = True

    # --- link states --------------------------------------------------------------------------

    def on_links_request(self, neighbour: Neighbour, found: LinksRequest, now: float) -> None:
        """Answer with the link states that are known."""
        states: list[NodeLinks] = []
        for node in found.nodes:
            links = self.book.links_of(node)
            if links is None:
                continue
            if neighbour.may_ask(node, links[1:3], now):
                states.append(links)
            else:
                self.counts["a request that is repeated or beyond answer_rate"] += 1
        for some in in_frames(states, links_item) if states else ():
            neighbour.answered(self._neighbours.send(neighbour, LinksUpdate(tuple(some))))

    def on_links_update(self, neighbour: Neighbour, found: LinksUpdate, now: float) -> None:
        """Accept the link states that are newer."""
        for links in found.states:
            ask = self._link_asks.find(neighbour.link, links.node)
            if ask is None:
                self.counts["an answer that was not asked for"] += 1
                continue
            self._link_asks.end(neighbour.link, links.node)
            if self.is_ahead(links.instance, now):
                self.counts["a start ahead of the clock"] += 1
            elif self._take_links(neighbour, links, ask.numbers, now):
                self._ask_lists(neighbour, ask.numbers, now)

    def _take_links(
        self, neighbour: Neighbour, links: NodeLinks, asked: NodeNumbers, now: float
    ) -> bool:
        """Accept link states; return whether they are newer than what was known."""
        sharing = len(self._neighbours.joined())
        news, gone = self.book.update(links, asked, neighbour.link, sharing, now)
        if news is News.OLD:
            self.counts["link states that are not newer"] += 1
            return False
        if news is News.FULL:
            self.counts["a node beyond max_nodes"] += 1
            return False
        if news is News.RESTARTED:
            self._drop_lists(links.node)
        if gone is not None:
            self.counts["a node beyond the share of a neighbour"] += 1
            self._drop_lists(gone)
        self.untell(links.node, neighbour)
        self.changed = True
        self._compare_costs(links)
        return True

    def _compare_costs(self, found: NodeLinks) -> None:
        own, theirs = (self.book.own.peers or {}).get(found.node), found.peers.get(self._own)
        if own is None or theirs is None or own == theirs:
            self._costs.pop(found.node, None)
        elif self._costs.get(found.node) != theirs:
            self._costs[found.node] = theirs
            self.counts["costs that differ"] += 1
            self.events.append(CostsDiffer(found.node, own, theirs))

    # --- lists --------------------------------------------------------------------------------

    def _ask_lists(self, neighbour: Neighbour, numbers: NodeNumbers, now: float) -> None:
        record = self.book.others.get(numbers.node)
        if record is None or record.stale or record.told.instance != numbers.instance:
            return
        for kind, asks in self._list_asks.items():
            wanted = numbers.of(kind)
            if record.told.of(kind) < wanted and asks.begin(neighbour.link, numbers, wanted, now):
                assembly = neighbour.assembly
                if assembly is not None and (assembly.kind, assembly.node) == (kind, numbers.node):
                    neighbour.assembly = None
                request = ListRequest(kind, numbers.node, numbers.instance)
                self._neighbours.send(neighbour, request)

    def holds_change(self, kind: ListKind, node: str, instance: int, number: int) -> bool:
        """Whether nothing would come of a change, as it is known already."""
        record = self.book.others.get(node)
        if record is None or record.stale or record.told.instance != instance:
            return False
        return self._lists[kind].holds(node, instance, number)

    def on_list_change(self, neighbour: Neighbour, found: ListChange, now: float) -> None:
        """Apply a change that is not known yet if it is the next one, and pass it on."""
        record = self.book.others.get(found.node)
        if record is None or record.stale or record.told.instance != found.instance:
            self.counts["a list of a node that is not known"] += 1
            return
        added = self._timely(found.kind, found.added, now)
        if self._lists[found.kind].apply(replace(found, added=added)):
            self._list_held(found.kind, found.node, found.number, now)
            self._neighbours.send_all(found, neighbour)
        else:
            # "when a diff is not exactly last+1"
            self.counts["a gap in the changes of a list"] += 1
            self._ask_lists(neighbour, record.told.with_list(found.kind, found.number), now)

    def _list_held(self, kind: ListKind, node: str, number: int, now: float) -> None:
        self.book.set_list(node, kind, number)
        self._sum = None
        if node not in self._reached:
            self.unreachable.setdefault(node, now)

    def on_list_request(self, neighbour: Neighbour, found: ListRequest, now: float) -> None:
        """Answer with a whole list, if it is known."""
        each = self._lists[found.kind]
        if found.node != self._own:
            parts = each.parts(found.node, found.instance)
        else:
            parts = each.own_parts(self._own, self.book.own.told.instance)
        if not parts:
            return
        if not neighbour.may_ask(
            (found.kind, found.node), (parts[0].instance, parts[0].number), now
        ):
            self.counts["a request that is repeated or beyond answer_rate"] += 1
            return
        for part in parts:
            neighbour.answered(self._neighbours.send(neighbour, part))

    def on_list_part(self, neighbour: Neighbour, found: ListPart, now: float) -> None:
        """Put the parts of a whole list together, and apply it when the last one comes."""
        kind, node, asks = found.kind, found.node, self._list_asks[found.kind]
        ask, record = asks.find(neighbour.link, node), self.book.others.get(node)
        if ask is None or record is None or record.told.instance != found.instance:
            self.counts["an answer that was not asked for"] += 1
            return
        assembly = neighbour.assembly
        if not found.part and (assembly is None or (assembly.kind, assembly.node) != (kind, node)):
            assembly = Assembly(kind, node, found.instance, found.number)
        if assembly is None or not assembly.takes(found):
            self.counts["parts of a list out of order"] += 1
            neighbour.assembly = None
            asks.end(neighbour.link, node)
            return
        neighbour.assembly = assembly
        part = replace(found, held=self._timely(kind, found.held, now))
        if not self._lists[kind].apply_part(assembly, part):
            asks.go_on(ask, now)
            return
        neighbour.assembly = None
        asks.end(neighbour.link, node)
        self._list_held(kind, node, found.number, now)
        self.untell(node, neighbour)

    def _timely(self, kind: ListKind, items: Mapping[str, Any], now: float) -> Mapping[str, Any]:
        """Return items of a list without names that are claimed ahead of the clock.

        Such a claim would outdo all others for ever where the newest has a name.
        """
        if kind is not ListKind.NAMES:
            return items
        kept = {name: told for name, told in items.items() if not self.is_ahead(told.since, now)}
        if ahead := len(items) - len(kept):
            self.counts["claims ahead of the clock"] += ahead
        return kept

    def _drop_lists(self, node: str) -> None:
        for each in self._lists.values():
            each.drop(node)
        self.unreachable.pop(node, None)

    # --- what time brings ---------------------------------------------------------------------

    def forget_link(self, link: Hashable) -> None:
        """Wait for no answer of a neighbour that is lost."""
        for asks in (self._link_asks, *self._list_asks.values()):
            asks.forget(link)

    def reach(self, nodes: frozenset[str], now: float) -> None:
        """Receive the nodes that can be reached now."""
        self._reached, self._sum, self.changed = nodes, None, False
        for node in list(self.unreachable):
            if node in nodes:
                del self.unreachable[node]
        for node in self.names.others.keys() | self.provisions.others.keys():
            if node not in nodes:
                self.unreachable.setdefault(node, now)

    def let_go(self, now: float) -> None:
        """Forget the lists of nodes that have been without a path for long enough."""
        for node, since in list(self.unreachable.items()):
            if now < since + self._limits.unreachable_hold:
                break
            self._forget_lists(node)

    def _forget_lists(self, node: str) -> None:
        self._drop_lists(node)
        for kind in ListKind:
            self.book.set_list(node, kind, 0)
        self._sum = None

    def sweep(self, now: float) -> None:
        """Forget what is stale, and what was not answered."""
        for node in self.book.expire(now):
            self.counts["nodes that have become stale"] += 1
            self._forget_lists(node)
            self.changed = True
        for asks in (self._link_asks, *self._list_asks.values()):
            if late := asks.expire(now):
                self.counts["requests without an answer"] += late
        for neighbour in self._neighbours.links.values():
            neighbour.forget_answers(now)
        if self.names.refused:
            self.counts["names beyond the limits"] = self.names.refused
        if self.provisions.refused:
            self.counts["provisions beyond the limits"] = self.provisions.refused

    def take_events(self) -> list[NetworkEvent]:
        """Return what has happened since the last call."""
        found, self.events = self.events, []
        if names := self.names.take_changed():
            joined = frozenset(pair for pair, before in names.items() if before is None)
            left = frozenset((name, node) for name, node in names if self._has_left(name, node))
            found.append(NodesChanged(frozenset(name for name, _ in names), joined, left))
        by_node: dict[str, tuple[dict[str, bytes], set[str]]] = {}
        for pattern, node in self.provisions.take_changed():
            added, removed = by_node.setdefault(node, ({}, set()))
            semantics = self.provisions.nodes_of(pattern).get(node)
            if semantics is None:
                removed.add(pattern)
            else:
                added[pattern] = semantics
        for node, (added, removed) in by_node.items():
            found.append(ProvisionsTold(node, added, frozenset(removed)))
        return found

    def _has_left(self, name: str, node: str) -> bool:
        return node not in self.names.nodes_of(name)

    def nodes_of(self, name: str) -> Mapping[str, ToldName]:
        """Return the other nodes with consumers of a name, and what they tell of it."""
        return self.names.nodes_of(name)
