"""The network of dispatchers, as one node takes part in it, without I/O.

[`Network`][onward.protocol.dispatch.Network] is given the frames of neighbours and the time, and
returns frames for them. Frames go from neighbour to neighbour only, and each node passes on what is
newer than what it held:

- *hellos* find out which links have a neighbour at their other end;
- *advertisements* tell which numbers a node holds of some nodes: its own each 30 seconds, after a
  change of its links each 4 seconds and at once; those of others as soon as they are newer; and all
  of them when a neighbour joins, and when the sums in hellos differ for longer than a moment;
- *link states* and *names* are asked for on the link where they were advertised;
- *changes of names* are sent without a request, and passed on if their number is the next one.

So what one node loses it finds again, from any neighbour that has it. A neighbour is a node that
this one has a link with and that is allowed to be one; what it tells is nevertheless checked and
bounded. A frame that cannot be read, another node's name and a flood close its link. A lie about
another node lasts until that node hears of it and tells something newer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from ._errors import LaterVersion, NetworkFrameError
from ._frames import (
    Advertisement,
    LinksRequest,
    LinksUpdate,
    NamesChange,
    NamesPart,
    NamesRequest,
    NetworkFrame,
    NodeHello,
    NodeNumbers,
    decode_network_frame,
    encode_network_frame,
    in_frames,
)
from ._graph import Paths, join_links
from ._hello import LinkHello
from ._link_states import LinkStateBook, News
from ._name_sync import NameSync
from ._neighbour import Neighbour
from ._network_events import (
    CostsDiffer,
    LaterFrames,
    NameClaimed,
    NeighbourClosed,
    NeighbourJoined,
    NeighbourLeft,
    NetworkEvent,
    NodesChanged,
    PathsChanged,
)
from ._network_limits import NetworkLimits

__all__ = ["Network"]

_SWEEP: Final = 1.0
"""Time between two looks for what is stale or was not answered, in seconds."""


class Network:
    """The network of dispatchers, as one node takes part in it.

    After each call, `due` returns the frames that are to be sent now, and `events` what has
    happened; `get_timer` returns when `due` has more.

    Args:
        own: The name of this node.
        instance: When it was started, in milliseconds since the Unix epoch.
        limits: The limits.
        now: The time, in seconds of the caller's clock.

    Attributes:
        snapshot: The paths. Other paths are another object, with the next epoch.
        counts: What was ignored, refused or closed, by its reason.
    """

    def __init__(self, own: str, instance: int, limits: NetworkLimits, now: float) -> None:
        self.own = own
        self.limits = limits
        self._started = instance
        self.counts = Counter[str]()
        self._book = LinkStateBook(own, instance, limits, now)
        self._names = NameSync(limits)
        self._handlers: Final[dict[type, Callable[[Neighbour, Any, float], None]]] = {
            Advertisement: self._on_advertisement,
            LinksRequest: self._on_links_request,
            LinksUpdate: self._on_links_update,
            NamesChange: self._on_names_change,
            NamesRequest: self._on_names_request,
            NamesPart: self._on_names_part,
        }
        self._neighbours: dict[Hashable, Neighbour] = {}
        self._links_asked: dict[str, tuple[Hashable, float]] = {}
        self._names_asked: dict[str, tuple[Hashable, float]] = {}
        self._unreachable: dict[str, float] = {}
        self._costs: dict[str, int] = {}
        self._out: list[tuple[Hashable, bytes]] = []
        self._events: list[NetworkEvent] = []
        self._sum: int | None = None
        self._compute_at: float | None = None
        self._computed_at = now - limits.pause
        self._flux_until = now
        self._advertise_at = now + limits.advertise
        self._reclaim_at = now
        self._sweep_at = now + _SWEEP
        self.snapshot = Paths(join_links(self._book.states(), limits.max_nodes), own)

    # --- what the caller asks -----------------------------------------------------------------

    @property
    def instance(self) -> int:
        """The start of this node; later than that if another node claims its name."""
        return self._book.own.told.instance

    def nodes_of(self, name: str) -> Mapping[str, str]:
        """Return the other nodes with consumers of a name, and their hints. It is live.

        A node without a path is among them for `NetworkLimits.unreachable_hold`.
        """
        return self._names.nodes_of(name)

    def names_of(self, node: str) -> Mapping[str, str]:
        """Return the names with consumers at another node, and their hints."""
        known = self._names.others.get(node)
        return {} if known is None else dict(known.names)

    def link_states(self) -> dict[str, dict[str, int]]:
        """Return the link states of all nodes that are known."""
        return {node: dict(peers) for node, peers in self._book.states().items()}

    def link_to(self, neighbour: str) -> Hashable | None:
        """Return the cheapest link to a neighbour, of several the oldest; `None` for none."""
        found = [each for each in self._joined() if each.node == neighbour]
        return min(found, key=lambda each: each.cost).link if found else None

    def neighbours(self) -> dict[Hashable, str]:
        """Return the links to neighbours, with the names of these."""
        return {each.link: each.node for each in self._joined()}

    def events(self) -> list[NetworkEvent]:
        """Return what has happened since the last call."""
        if changed := self._names.take_changed():
            self._events.append(NodesChanged(changed))
        found, self._events = self._events, []
        return found

    # --- what the caller tells ----------------------------------------------------------------

    def neighbour_up(self, link: Hashable, cost: int, now: float) -> None:
        """Begin with hellos on a link that there is now.

        Args:
            link: The link.
            cost: Its cost, from 1 to `MAX_COST`. Both ends should tell the same.
            now: The time, in seconds of the caller's clock.
        """
        if len(self._neighbours) >= self.limits.max_neighbours:
            self._refuse(link, "", f"more than {self.limits.max_neighbours} links to neighbours")
            return
        hello = LinkHello(self.limits, now)
        self._neighbours[link] = Neighbour(link, cost, hello, float(self.limits.frame_burst), now)

    def neighbour_lost(self, link: Hashable, now: float) -> None:
        """Handle the loss of a link: its neighbour is lost at once."""
        neighbour = self._neighbours.pop(link, None)
        if neighbour is not None and neighbour.joined:
            self._left(neighbour, now)

    def names_changed(self, added: Mapping[str, str], removed: Iterable[str], now: float) -> None:
        """Change the names with consumers at this node.

        Args:
            added: The names, with their hints.
            removed: The names without consumers.
            now: The time, in seconds of the caller's clock.
        """
        self._names.change(added, removed, now)

    def receive(self, link: Hashable, frame: bytes, now: float) -> None:
        """Read a frame that has come on a link."""
        neighbour = self._neighbours.get(link)
        if neighbour is None:
            self.counts["a frame on a link that is closed"] += 1
            return
        if not neighbour.admits(self.limits, now):
            self._close(neighbour, "a flood of frames", now)
            return
        try:
            found = decode_network_frame(frame)
        except LaterVersion as error:
            # "newer versions ignored with one warning"
            self.counts["a later version"] += 1
            if not neighbour.warned:
                neighbour.warned = True
                self._events.append(LaterFrames(link, error.version))
            return
        except NetworkFrameError as error:
            self._close(neighbour, f"a bad frame: {error.reason}", now)
            return
        if isinstance(found, NodeHello):
            self._on_hello(neighbour, found, now)
        elif not neighbour.joined:
            self.counts["a frame before the hellos"] += 1
        else:
            self._handlers[type(found)](neighbour, found, now)

    def get_timer(self) -> float:
        """Return the time at which `due` has something to do; it may be in the past."""
        if self._out:
            return 0.0
        times = [self._advertise_at, self._sweep_at]
        times += [each for each in (self._names.gather_at, self._compute_at) if each is not None]
        for each in self._neighbours.values():
            times.append(each.hello.send_at)
            if each.hello.missed_at is not None:
                times.append(each.hello.missed_at)
            if each.untold:
                times.append(each.flush_at)
        for since in self._unreachable.values():
            times.append(since + self.limits.unreachable_hold)
            break  # they are in the order of these times
        return min(times)

    def due(self, now: float) -> list[tuple[Hashable, bytes]]:
        """Perform what is due, and return the frames to send, each with its link."""
        for neighbour in self._neighbours.values():
            before = neighbour.joined
            if neighbour.hello.missed(now) and before:
                self._left(neighbour, now)
        if now >= self._sweep_at:
            self._sweep(now)
        if self._names.gather_at is not None and now >= self._names.gather_at:
            self._tell_names()
        if now >= self._advertise_at:
            self._book.advertise()
            self._advertise(now)
        if self._compute_at is not None and now >= self._compute_at:
            self._compute(now)
        self._let_go(now)
        for neighbour in self._neighbours.values():
            if now >= neighbour.hello.send_at:
                seen = (neighbour.node,) if neighbour.hello.missed_at is not None else ()
                hello = NodeHello(self.own, self._started, self._checksum(), seen)
                self._send(neighbour, hello)
                neighbour.hello.sent(now)
            if neighbour.untold and now >= neighbour.flush_at:
                self._flush(neighbour, now)
        found, self._out = self._out, []
        return found

    # --- neighbours ---------------------------------------------------------------------------

    def _joined(self) -> list[Neighbour]:
        return [each for each in self._neighbours.values() if each.joined]

    def _on_hello(self, neighbour: Neighbour, hello: NodeHello, now: float) -> None:
        if reason := self._is_impostor(neighbour, hello):
            self._close(neighbour, reason, now)
            return
        if neighbour.joined and hello.instance != neighbour.instance:
            neighbour.hello = LinkHello(self.limits, now)
            self._left(neighbour, now)
        neighbour.node, neighbour.instance = hello.node, hello.instance
        before = neighbour.joined
        neighbour.hello.heard(self.own in hello.seen, now)
        if before and not neighbour.joined:
            self._left(neighbour, now)
        elif neighbour.joined and not before:
            self._join(neighbour, now)
        elif neighbour.joined:
            differ = hello.checksum != self._checksum()
            if neighbour.sums_differ(differ, self.limits, now):
                self.counts["sums that differ"] += 1
                self._untold_all(neighbour)

    def _is_impostor(self, neighbour: Neighbour, hello: NodeHello) -> str:
        """Return the reason for closing a link with this hello; empty for none."""
        if hello.node == self.own:
            return "it has the name of this node"
        if neighbour.node and hello.node != neighbour.node:
            return "it has another name than before"
        for other in self._joined():
            same = other is not neighbour and other.node == hello.node
            if same and other.instance != hello.instance:
                return "another neighbour has its name"
        return ""

    def _join(self, neighbour: Neighbour, now: float) -> None:
        self._events.append(NeighbourJoined(neighbour.link, neighbour.node))
        self._links_changed(now)
        self._untold_all(neighbour)

    def _left(self, neighbour: Neighbour, now: float) -> None:
        """Forget what was under way with a neighbour that is one no more."""
        self._events.append(NeighbourLeft(neighbour.link, neighbour.node))
        neighbour.untold.clear()
        for asked in (self._links_asked, self._names_asked):
            for node in [node for node, (link, _) in asked.items() if link == neighbour.link]:
                del asked[node]
        self._links_changed(now)

    def _close(self, neighbour: Neighbour, reason: str, now: float) -> None:
        self._refuse(neighbour.link, neighbour.node, reason)
        self.neighbour_lost(neighbour.link, now)

    def _refuse(self, link: Hashable, node: str, reason: str) -> None:
        self.counts[f"closed: {reason.partition(':')[0]}"] += 1
        self._events.append(NeighbourClosed(link, node, reason))

    def _links_changed(self, now: float) -> None:
        """Set the links of this node to those that there are, and advertise them at once."""
        peers: dict[str, int] = {}
        for each in self._joined():
            peers[each.node] = min(each.cost, peers.get(each.node, each.cost))
        if self._book.set_links(peers):
            self._flux_until = now + self.limits.flux
            self._advertise(now)
            self._graph_changed(now)

    # --- advertisements -----------------------------------------------------------------------

    def _advertise(self, now: float) -> None:
        in_flux = now < self._flux_until
        self._advertise_at = now + (
            self.limits.advertise_in_flux if in_flux else self.limits.advertise
        )
        self._untell(self.own)

    def _untell(self, node: str, but: Neighbour | None = None) -> None:
        """Advertise a node to all neighbours but one."""
        self._sum = None
        for each in self._joined():
            if each is not but:
                each.untold[node] = None

    def _untold_all(self, neighbour: Neighbour) -> None:
        neighbour.untold[self.own] = None
        neighbour.untold.update(dict.fromkeys(sorted(self.snapshot.nodes)))

    def _flush(self, neighbour: Neighbour, now: float) -> None:
        found: list[NodeNumbers] = []
        for node in neighbour.untold:
            record = self._book.find(node)
            if record is not None and record.peers is not None:
                found.append(record.told)
        neighbour.untold.clear()
        neighbour.flush_at = now + self.limits.pause
        for some in in_frames(found) if found else ():
            self._send(neighbour, Advertisement(tuple(some)))

    def _on_advertisement(self, neighbour: Neighbour, found: Advertisement, now: float) -> None:
        wanted: list[str] = []
        for numbers in found.nodes:
            news = self._book.advertised(numbers, now)
            node = numbers.node
            if news is News.FULL:
                self.counts["a node beyond max_nodes"] += 1
            elif news is News.CLAIMED:
                self._claimed(neighbour, numbers, now)
            elif news is News.RESTARTED:
                self._names.drop(node)
                self._links_asked.pop(node, None)
                self._names_asked.pop(node, None)
                self._graph_changed(now)
            elif news is News.NEWER:
                self._untell(node, neighbour)
            elif self._book.holds_newer(numbers):
                # It is told so: this is how a lie that came another way gets to the node itself.
                neighbour.untold[node] = None
            if self._book.lacks(numbers) and node not in self._links_asked:
                self._links_asked[node] = neighbour.link, now + self.limits.ask_timeout
                wanted.append(node)
            self._ask_names(neighbour, numbers, now)
        if wanted:
            self._send(neighbour, LinksRequest(tuple(wanted)))

    def _claimed(self, neighbour: Neighbour, numbers: NodeNumbers, now: float) -> None:
        """Outdo what another node tells as of this one; not too often."""
        self.counts["something told as of this node"] += 1
        if now < self._reclaim_at:
            return
        self._reclaim_at = now + self.limits.advertise_in_flux
        self._events.append(NameClaimed(neighbour.link, numbers.instance))
        self._book.reclaim(numbers)
        self._names.number = self._book.own.told.names
        self._advertise(now)

    # --- link states --------------------------------------------------------------------------

    def _on_links_request(self, neighbour: Neighbour, found: LinksRequest, _: float) -> None:
        for node in found.nodes[: self.limits.max_nodes]:
            links = self._book.links_of(node)
            if links is not None:
                self._send(neighbour, links)

    def _on_links_update(self, neighbour: Neighbour, found: LinksUpdate, now: float) -> None:
        if self._links_asked.get(found.node, (None,))[0] != neighbour.link:
            self.counts["an answer that was not asked for"] += 1
            return
        del self._links_asked[found.node]
        if not self._book.update(found):
            self.counts["link states that are not newer"] += 1
            return
        self._untell(found.node, neighbour)
        self._graph_changed(now)
        self._compare_costs(found)

    def _compare_costs(self, found: LinksUpdate) -> None:
        own, theirs = (self._book.own.peers or {}).get(found.node), found.peers.get(self.own)
        if own is None or theirs is None or own == theirs:
            self._costs.pop(found.node, None)
        elif self._costs.get(found.node) != theirs:
            self._costs[found.node] = theirs
            self.counts["costs that differ"] += 1
            self._events.append(CostsDiffer(found.node, own, theirs))

    def _graph_changed(self, now: float) -> None:
        self._sum = None
        if self._compute_at is None:
            self._compute_at = max(now, self._computed_at + self.limits.pause)

    def _compute(self, now: float) -> None:
        self._compute_at, self._computed_at, self._sum = None, now, None
        graph = join_links(self._book.states(), self.limits.max_nodes)
        if graph.left_out:
            self.counts["made-up nodes that are left out"] = graph.left_out
        self.snapshot = Paths(graph, self.own, self.snapshot.epoch + 1)
        self._events.append(PathsChanged(self.snapshot))
        reached = self.snapshot.nodes
        for node in list(self._unreachable):
            if node in reached:
                del self._unreachable[node]
        for node in self._names.others:
            if node not in reached:
                self._unreachable.setdefault(node, now)

    # --- names --------------------------------------------------------------------------------

    def _tell_names(self) -> None:
        for change in self._names.gather(self.own, self.instance):
            self._send_all(change)
        self._book.set_names(self._names.number)
        self._sum = None

    def _ask_names(self, neighbour: Neighbour, numbers: NodeNumbers, now: float) -> None:
        record = self._book.others.get(numbers.node)
        if (
            record is not None
            and record.told.instance == numbers.instance
            and record.told.names < numbers.names
            and not record.stale
            and numbers.node not in self._names_asked
        ):
            self._names_asked[numbers.node] = neighbour.link, now + self.limits.ask_timeout
            self._send(neighbour, NamesRequest(numbers.node, numbers.instance))

    def _on_names_change(self, neighbour: Neighbour, found: NamesChange, now: float) -> None:
        record = self._book.others.get(found.node)
        if record is None or record.stale or record.told.instance != found.instance:
            self.counts["names of a node that is not known"] += 1
            return
        applied = self._names.apply(found)
        if applied:
            self._names_held(found.node, found.names, now)
            self._send_all(found, neighbour)
        elif applied is False:
            # "when a diff is not exactly last+1"
            self.counts["a gap in the changes of names"] += 1
            self._ask_names(neighbour, record.told._replace(names=found.names), now)

    def _names_held(self, node: str, number: int, now: float) -> None:
        self._book.set_names_of(node, number)
        self._sum = None
        if node not in self.snapshot.nodes:
            self._unreachable.setdefault(node, now)

    def _on_names_request(self, neighbour: Neighbour, found: NamesRequest, _: float) -> None:
        if found.node != self.own:
            parts = self._names.parts(found.node, found.instance)
        else:
            parts = self._names.own_parts(self.own, self.instance)
        # What is long counts as many frames.
        neighbour.tokens -= max(len(parts) - 1, 0)
        for part in parts:
            self._send(neighbour, part)

    def _on_names_part(self, neighbour: Neighbour, found: NamesPart, now: float) -> None:
        record = self._book.others.get(found.node)
        if (
            record is None
            or record.told.instance != found.instance
            or self._names_asked.get(found.node, (None,))[0] != neighbour.link
        ):
            self.counts["an answer that was not asked for"] += 1
            return
        complete = self._names.apply_part(found)
        if complete is None:
            self.counts["parts of names out of order"] += 1
        if not complete:
            self._names_asked[found.node] = neighbour.link, now + self.limits.ask_timeout
            return
        del self._names_asked[found.node]
        self._names_held(found.node, found.names, now)
        self._untell(found.node, neighbour)

    # --- what time brings ---------------------------------------------------------------------

    def _let_go(self, now: float) -> None:
        """Forget the names of nodes that have been without a path for long enough."""
        for node, since in list(self._unreachable.items()):
            if now < since + self.limits.unreachable_hold:
                break
            del self._unreachable[node]
            self._forget_names(node)

    def _forget_names(self, node: str) -> None:
        self._names.drop(node)
        self._book.set_names_of(node, 0)
        self._sum = None

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + _SWEEP
        for node in self._book.expire(now):
            self.counts["nodes that have become stale"] += 1
            self._forget_names(node)
            self._unreachable.pop(node, None)
            self._graph_changed(now)
        for asked in (self._links_asked, self._names_asked):
            for node in [node for node, (_, until) in asked.items() if now >= until]:
                del asked[node]
                self.counts["requests without an answer"] += 1
        if self._names.refused:
            self.counts["names beyond max_names"] = self._names.refused

    def _checksum(self) -> int:
        if self._sum is None:
            self._sum = self._book.checksum(self.snapshot.nodes)
        return self._sum

    # --- sending ------------------------------------------------------------------------------

    def _send(self, neighbour: Neighbour, frame: NetworkFrame) -> None:
        self._out.append((neighbour.link, encode_network_frame(frame)))

    def _send_all(self, frame: NetworkFrame, but: Neighbour | None = None) -> None:
        data = encode_network_frame(frame)
        self._out += [(each.link, data) for each in self._joined() if each is not but]
