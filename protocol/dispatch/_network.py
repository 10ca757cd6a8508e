"""The network of dispatchers, as one node takes part in it, without I/O.

[`Network`][onward.protocol.dispatch.Network] is given the frames of neighbours and the time, and
returns frames for them. Frames go from neighbour to neighbour only, and each node passes on what is
newer than what it held:

- *hellos* find out which links have a neighbour at their other end;
- *advertisements* tell which numbers a node holds of some nodes: its own each 30 seconds, after a
  change of its links each 4 seconds and at once; those of others as soon as they are newer; and all
  of them when a neighbour joins, and when the sums in hellos differ for longer than a moment;
- *link states* and the two *lists*, of names with consumers and of provisions, are asked for on the
  link where they were advertised;
- *changes* of a list are sent without a request, and passed on if their number is the next one.

So what one node loses it finds again, from any neighbour that has it. A neighbour is a node that
this one has a link with and that is allowed to be one; what it tells is nevertheless checked and
bounded. A frame that cannot be read, another node's name and a flood close its link; of a change
that is known already only the number is read. An
advertisement about another node voids nothing by itself. A lie with link states to it lasts until
that node hears of it, and tells something newer at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from ._errors import LaterVersion, NetworkFrameError
from ._frame_codec import decode_network_frame, encode_network_frame, read_change_head
from ._frames import (
    ENDED_INSTANCE,
    MAX_COST,
    MAX_HINT,
    MAX_NUMBER,
    MAX_SEMANTICS,
    NodeHello,
    ToldName,
    check_told_name,
    check_told_pattern,
)
from ._graph import Paths, join_links
from ._hello import LinkHello
from ._knowledge import Knowledge
from ._names import check_node_name
from ._neighbour import Neighbour
from ._neighbours import Neighbours
from ._network_events import (
    LaterFrames,
    NeighbourClosed,
    NeighbourJoined,
    NeighbourLeft,
    NetworkEvent,
    PathsChanged,
)
from ._network_limits import NetworkLimits
from ._throttle import Throttle

__all__ = ["Network"]

_SWEEP: Final = 1.0
"""Time between two looks for what is stale or was not answered, in seconds."""


class Network:
    """The network of dispatchers, as one node takes part in it.

    After each call, `due` returns the frames that are to be sent now, and `events` what has
    happened; `get_timer` returns when `due` has more.

    Args:
        own: The name of this node.
        instance: When it was started, in milliseconds since the Unix epoch. It says what time it
            is, too: others may be ahead of it by `NetworkLimits.max_ahead`.
        limits: The limits.
        now: The time, in seconds of the caller's clock.

    Attributes:
        snapshot: The paths. Other paths are another object, with the next epoch.
        counts: What was ignored, refused or closed, by its reason.

    Raises:
        BadName: A node cannot be called so.
        ValueError: The instance is out of its range.
    """

    def __init__(self, own: str, instance: int, limits: NetworkLimits, now: float) -> None:
        self.own = check_node_name(own)
        _check("instance", instance, ENDED_INSTANCE + 1, MAX_NUMBER)
        self.limits = limits
        self._started = instance
        self._neighbours = Neighbours()
        self._knowledge = known = Knowledge(own, instance, limits, self._neighbours, now)
        self.counts: Counter[str] = known.counts
        self._compute_at: float | None = None
        self._computes = Throttle(limits.pause, limits.longest_pause)
        self._flux_until = now
        self._advertise_at = now + limits.advertise
        self._sweep_at = now + _SWEEP
        self.snapshot = Paths(join_links(known.book.states()), own)

    # --- what the caller asks -----------------------------------------------------------------

    @property
    def instance(self) -> int:
        """The start of this node; later than that if another node claims its name."""
        return self._knowledge.book.own.told.instance

    def nodes_of(self, name: str) -> Mapping[str, ToldName]:
        """Return the other nodes with consumers of a name, and what they tell of it. It is live.

        A node without a path is among them for `NetworkLimits.unreachable_hold`.
        """
        return self._knowledge.nodes_of(name)

    def names(self) -> Iterable[str]:
        """Return all names with consumers at other nodes."""
        return self._knowledge.names.keys()

    def names_of(self, node: str) -> Mapping[str, ToldName]:
        """Return the names with consumers at another node, and what it tells of them."""
        known = self._knowledge.names.others.get(node)
        return {} if known is None else dict(known.held)

    def provisions_of(self, node: str) -> Mapping[str, bytes]:
        """Return the patterns that another node has provisioned, with their semantics as bytes."""
        known = self._knowledge.provisions.others.get(node)
        return {} if known is None else dict(known.held)

    def link_states(self) -> dict[str, dict[str, int]]:
        """Return the link states of all nodes that are known."""
        return {node: dict(peers) for node, peers in self._knowledge.book.states().items()}

    def link_to(self, neighbour: str) -> Hashable | None:
        """Return the cheapest link to a neighbour, of several the oldest; `None` for none."""
        found = [each for each in self._neighbours.joined() if each.node == neighbour]
        return min(found, key=lambda each: each.cost).link if found else None

    def is_joined(self, link: Hashable) -> bool:
        """Whether both ends of a link have heard each other, and the name is as expected."""
        found = self._neighbours.links.get(link)
        return found is not None and found.joined

    def neighbours(self) -> dict[Hashable, str]:
        """Return the links to neighbours, with the names of these."""
        return {each.link: each.node for each in self._neighbours.joined()}

    def events(self) -> list[NetworkEvent]:
        """Return what has happened since the last call."""
        return self._knowledge.take_events()

    # --- what the caller tells ----------------------------------------------------------------

    def neighbour_up(self, link: Hashable, cost: int, now: float, node: str = "") -> None:
        """Begin with hellos on a link that there is now.

        Args:
            link: The link.
            cost: Its cost, from 1 to `MAX_COST`. Both ends should tell the same.
            now: The time, in seconds of the caller's clock.
            node: The name of the node that has to be at its other end; empty: any.

        Raises:
            BadName: A node cannot be called so.
            ValueError: The cost is out of its range, or the link is there already.
        """
        _check("cost", cost, 1, MAX_COST)
        if node:
            check_node_name(node)
        links = self._neighbours.links
        if link in links:
            raise ValueError(f"link {link} is there already")
        if len(links) >= self.limits.max_neighbours:
            self._refuse(link, "", f"more than {self.limits.max_neighbours} links to neighbours")
            return
        links[link] = Neighbour(link, cost, node, self.limits, now)

    def neighbour_lost(self, link: Hashable, now: float) -> None:
        """Handle the loss of a link: its neighbour is lost at once."""
        neighbour = self._neighbours.links.pop(link, None)
        if neighbour is not None and neighbour.joined:
            self._left(neighbour, now)

    def stop(self) -> list[tuple[Hashable, bytes]]:
        """Return the last frames to send, each with its link: hellos that say that this node ends.

        Each neighbour lets it go at once, with what is under way on their link.
        """
        hello = encode_network_frame(NodeHello(self.own, ENDED_INSTANCE, 0, ()))
        return [(link, hello) for link in self._neighbours.links]

    def names_changed(
        self, added: Mapping[str, ToldName], removed: Iterable[str], now: float
    ) -> None:
        """Change the names with consumers at this node.

        Args:
            added: The names that have consumers, or of which something else is told.
            removed: The names without consumers.
            now: The time, in seconds of the caller's clock.

        Raises:
            BadName: One is no name of the whole network. Nothing is changed.
            ValueError: A number is out of its range. Nothing is changed.
        """
        for name, (hint, since) in added.items():
            check_told_name(name)
            _check("hint", hint, 0, MAX_HINT)
            _check("time", since, 0, MAX_NUMBER)
        self._knowledge.names.change(added, removed, now)

    def provisions_changed(
        self, added: Mapping[str, bytes], removed: Iterable[str], now: float
    ) -> None:
        """Change the provisions of this node that others are told of.

        Args:
            added: The patterns that are new or have other semantics, with these as bytes.
            removed: The patterns that are gone.
            now: The time, in seconds of the caller's clock.

        Raises:
            BadPattern: One is no pattern of names of the whole network. Nothing is changed.
            ValueError: Semantics have too many bytes. Nothing is changed.
        """
        for pattern, semantics in added.items():
            check_told_pattern(pattern)
            _check("size of semantics", len(semantics), 1, MAX_SEMANTICS)
        self._knowledge.provisions.change(added, removed, now)

    def receive(self, link: Hashable, frame: bytes, now: float) -> None:
        """Read a frame that has come on a link."""
        neighbour = self._neighbours.links.get(link)
        if neighbour is None:
            self.counts["a frame on a link that is closed"] += 1
            return
        if not neighbour.admits(now):
            self._close(neighbour, "a flood of frames", now)
            return
        # In a mesh a change comes once from each neighbour: to read a hundred names takes a
        # millisecond, and to see that the change is known already a few microseconds.
        head = read_change_head(frame) if neighbour.joined else None
        if head is not None and self._knowledge.holds_change(*head):
            return
        try:
            found = decode_network_frame(frame)
        except LaterVersion as error:
            # "newer versions ignored with one warning"
            self.counts["a later version"] += 1
            if not neighbour.warned:
                neighbour.warned = True
                self._knowledge.events.append(LaterFrames(link, error.version))
            return
        except NetworkFrameError as error:
            self._close(neighbour, f"a bad frame: {error.reason}", now)
            return
        if isinstance(found, NodeHello):
            self._on_hello(neighbour, found, now)
        elif not neighbour.joined:
            self.counts["a frame before the hellos"] += 1
        else:
            self._knowledge.receive(neighbour, found, now)
        self._follow(now)

    def get_timer(self) -> float:
        """Return the time at which `due` has something to do; it may be in the past."""
        if self._neighbours.out:
            return 0.0
        times = [self._advertise_at, self._sweep_at, *self._knowledge.gather_at()]
        if self._compute_at is not None:
            times.append(self._compute_at)
        for each in self._neighbours.links.values():
            times.append(each.hello.send_at)
            if each.hello.missed_at is not None:
                times.append(each.hello.missed_at)
            if each.untold:
                times.append(each.flushes.next(0.0))
        for since in self._knowledge.unreachable.values():
            times.append(since + self.limits.unreachable_hold)
            break  # they are in the order of these times
        return min(times)

    def due(self, now: float) -> list[tuple[Hashable, bytes]]:
        """Perform what is due, and return the frames to send, each with its link."""
        known, links = self._knowledge, self._neighbours.links
        for neighbour in links.values():
            before = neighbour.joined
            if neighbour.hello.missed(now) and before:
                self._left(neighbour, now)
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEEP
            known.sweep(now)
            self._follow(now)
        known.tell_lists(now)
        if now >= self._advertise_at:
            known.book.advertise()
            self._advertise(now)
        if self._compute_at is not None and now >= self._compute_at:
            self._compute(now)
        known.let_go(now)
        for neighbour in links.values():
            if now >= neighbour.hello.send_at:
                seen = (neighbour.node,) if neighbour.hello.missed_at is not None else ()
                hello = NodeHello(self.own, self._started, known.checksum(), seen)
                self._neighbours.send(neighbour, hello)
                neighbour.hello.sent(now)
            if neighbour.untold and now >= neighbour.flushes.next(0.0):
                self._neighbours.flush(neighbour, known.book, now)
        found, self._neighbours.out = self._neighbours.out, []
        return found

    # --- neighbours ---------------------------------------------------------------------------

    def _on_hello(self, neighbour: Neighbour, hello: NodeHello, now: float) -> None:
        ended = hello.instance == neighbour.ended and now < neighbour.ended_until
        if ended and ENDED_INSTANCE not in (neighbour.instance, hello.instance):
            self.counts["a hello from before a restart"] += 1
            return
        if reason := self._is_impostor(neighbour, hello, now):
            # The name that it gives itself, also if it is not believed.
            self._refuse(neighbour.link, hello.node, reason)
            self.neighbour_lost(neighbour.link, now)
            return
        if neighbour.node and hello.instance != neighbour.instance:
            # Also if it was not heard for a while: what was under way with it stayed. One that ends
            # has another instance as well, and hears no node.
            self._restarted(neighbour, hello.instance, now)
        neighbour.node, neighbour.instance = hello.node, hello.instance
        before = neighbour.joined
        neighbour.hello.heard(self.own in hello.seen, now)
        if before and not neighbour.joined:
            self._left(neighbour, now)
        elif neighbour.joined and not before:
            self._join(neighbour, now)
        elif neighbour.joined:
            differ = hello.checksum != self._knowledge.checksum()
            if neighbour.sums_differ(differ, now):
                self.counts["sums that differ"] += 1
                self._knowledge.untell_all(neighbour)

    def _restarted(self, neighbour: Neighbour, instance: int, now: float) -> None:
        """Forget a node that has started again on all of its links, one that ends on this one."""
        links = [neighbour]
        if instance != ENDED_INSTANCE:
            same = (each for each in self._neighbours.joined() if each.node == neighbour.node)
            links += [each for each in same if each.instance != instance and each is not neighbour]
        for each in links:
            if each.joined:
                each.ended = each.instance
                each.ended_until = now + self.limits.missed_hellos * self.limits.hello
            each.hello, each.instance = LinkHello(self.limits, now), instance
            self._left(each, now, restarted=True)

    def _is_impostor(self, neighbour: Neighbour, hello: NodeHello, now: float) -> str:
        """Return the reason for closing a link with this hello; empty for none."""
        if hello.node == self.own:
            return "it has the name of this node"
        if neighbour.expected and hello.node != neighbour.expected:
            return "it has another name than expected"
        if neighbour.node and hello.node != neighbour.node:
            return "it has another name than before"
        if self._knowledge.is_ahead(hello.instance, now):
            return "its start is ahead of the clock"
        for other in self._neighbours.joined():
            same = other is not neighbour and other.node == hello.node
            # A node that ends says so on one link after the other, and one that has started again
            # on one before the other. Both links were to the same start of it before.
            before = neighbour.instance if neighbour.joined else neighbour.ended
            known = other.instance in (hello.instance, before)
            if same and not known and hello.instance != ENDED_INSTANCE:
                return "another neighbour has its name"
        return ""

    def _join(self, neighbour: Neighbour, now: float) -> None:
        self._knowledge.events.append(NeighbourJoined(neighbour.link, neighbour.node))
        self._links_changed(now)
        self._knowledge.untell_all(neighbour)

    def _left(self, neighbour: Neighbour, now: float, *, restarted: bool = False) -> None:
        """Forget what was under way with a neighbour that is one no more."""
        self._knowledge.events.append(NeighbourLeft(neighbour.link, neighbour.node, restarted))
        neighbour.untold.clear()
        neighbour.assembly = None
        self._knowledge.forget_link(neighbour.link)
        self._links_changed(now)

    def _close(self, neighbour: Neighbour, reason: str, now: float) -> None:
        self._refuse(neighbour.link, neighbour.node, reason)
        self.neighbour_lost(neighbour.link, now)

    def _refuse(self, link: Hashable, node: str, reason: str) -> None:
        self.counts[f"closed: {reason.partition(':')[0]}"] += 1
        self._knowledge.events.append(NeighbourClosed(link, node, reason))

    def _links_changed(self, now: float) -> None:
        """Set the links of this node to those that there are, and advertise them at once."""
        peers: dict[str, int] = {}
        for each in self._neighbours.joined():
            peers[each.node] = min(each.cost, peers.get(each.node, each.cost))
        if self._knowledge.book.set_links(peers):
            self._flux_until = now + self.limits.flux
            self._advertise(now)
            self._knowledge.changed = True
            self._follow(now)

    # --- what follows from a frame --------------------------------------------------------------

    def _follow(self, now: float) -> None:
        """Perform what follows from what is known now."""
        if self._knowledge.advertise_soon:
            self._knowledge.advertise_soon = False
            self._advertise(now)
        if self._knowledge.changed and self._compute_at is None:
            self._compute_at = self._computes.next(now)

    def _advertise(self, now: float) -> None:
        in_flux = now < self._flux_until
        self._advertise_at = now + (
            self.limits.advertise_in_flux if in_flux else self.limits.advertise
        )
        self._knowledge.untell(self.own)

    def _compute(self, now: float) -> None:
        self._compute_at = None
        self._computes.used(now)
        graph = join_links(self._knowledge.book.states())
        self.snapshot = Paths(graph, self.own, self.snapshot.epoch + 1)
        self._knowledge.reach(self.snapshot.nodes, now)
        self._knowledge.events.append(PathsChanged(self.snapshot))


def _check(what: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ValueError(f"the {what} {value} is none from {least} to {most}")
