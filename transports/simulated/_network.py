"""The simulated network: nodes by name, and what happens between them, from one seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakValueDictionary

from ...actors import LimitReached, Node
from ...actors.runtime._run_queue import Phase
from ...actors.testing import crash
from ...protocol import LOCAL, Address
from ...protocol.options import check_value
from ._clockwork import Clockwork
from ._faults import NO_FAULTS, Event, Faults, SimulationOptions, Traffic
from ._way import Way

if TYPE_CHECKING:
    from ._link import SimulatedLink, SimulatedListenerWorker

__all__ = ["Place", "SimulatedNetwork", "network_of"]

_OPTIONS: Final = SimulationOptions()

# By the id of the loop, which lives as long as its network does: that refers to it.
_networks: Final[WeakValueDictionary[int, SimulatedNetwork]] = WeakValueDictionary()


class Place:
    """Where a node is in a network, from its start to its end.

    Attributes:
        network: Which network.
        name: Of the node.
        node: The node.
        links: Its ends of links, oldest first.
        crashed: Whether the node has.
    """

    __slots__ = ("crashed", "links", "name", "network", "node")

    def __init__(self, network: SimulatedNetwork, node: Node) -> None:
        self.network = network
        self.name = node.name
        self.node = node
        self.links: dict[SimulatedLink, None] = {}
        self.crashed = False


class SimulatedNetwork:
    """Nodes on one event loop, and between them what can go wrong between nodes.

    ```python
    async with SimulatedNetwork(seed=7, faults=Faults(loss=0.3)) as network:
        a, b = await network.node("a"), await network.node("b")
        await b.listen("sim://b", expose=["echo"])
        link = await a.connect("sim://b")
    ```

    On a `VirtualLoop` the same seed is the same run: to the order of events, the times, and the
    random addresses of the nodes it makes. There is one network for each event loop.

    Args:
        seed: Where all that is random comes from.
        faults: What goes wrong in each direction between two nodes that have no faults of their
            own.
        options: How far it may grow, and its times.

    Attributes:
        seed: As given.
        faults: As given.
        options: As given.
        hosts: The listeners by host name.
        clockwork: What happens when.

    Raises:
        RuntimeError: There is no event loop running, or it has a network.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        faults: Faults = NO_FAULTS,
        options: SimulationOptions = _OPTIONS,
    ) -> None:
        check_value("seed", seed, int)
        check_value("faults", faults, Faults)
        check_value("options", options, SimulationOptions)
        loop = asyncio.get_running_loop()
        if id(loop) in _networks:
            raise RuntimeError("the event loop has a simulated network already")
        self.seed = seed
        self.faults = faults
        self.options = options
        self.hosts: dict[str, SimulatedListenerWorker] = {}
        self.clockwork = Clockwork(loop, options.history)
        self._places: dict[str, Place] = {}
        self._node_options: dict[str, dict[str, Any]] = {}
        self._ways: dict[tuple[str, str, Faults | None], Way] = {}
        self._lives: dict[str, int] = {}
        self._announced: set[str] = set()
        _networks[id(loop)] = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    # --- nodes ----------------------------------------------------------------------------

    async def node(self, name: str, **options: Any) -> Node:
        """Start a node, with the transport `sim`.

        Its random addresses come from the network's seed.

        Args:
            name: Unique among the nodes that are alive.
            **options: As for `Node`; a restart uses them again.

        Raises:
            ValueError: A node of the name is alive.
            LimitReached: There are as many nodes as there may be.
        """
        from ._transport import SimulatedTransport

        self._check_free(name)
        node = Node(name, **options)
        life = self._lives[name] = self._lives.get(name, 0) + 1
        node.random_address = _addresses(f"{self.seed}/{name}/{life}")
        await node.__aenter__()
        node.add_transport(SimulatedTransport)
        self._node_options[name] = options
        self._join(node)
        self.clockwork.note("started", name, "")
        return node

    def announce(self, *names: str) -> None:
        """Say that there will be nodes of these names, so that partitions and faults may name them.

        Raises:
            LimitReached: There are as many names as there may be nodes.
        """
        most = self.options.nodes
        if len(self._announced.union(names, self._places)) > most:
            raise LimitReached("nodes", most)
        self._announced.update(names)

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes by name, those that have stopped or crashed included."""
        return {name: place.node for name, place in self._places.items()}

    def place(self, node: Node) -> Place:
        """Return where a node is; one that was made elsewhere joins the network.

        Raises:
            ValueError: Another node of the name is alive.
        """
        place = self._places.get(node.name)
        if place is not None and place.node is node:
            return place
        self._check_free(node.name)
        return self._join(node)

    def _join(self, node: Node) -> Place:
        place = self._places[node.name] = Place(self, node)
        return place

    def _check_free(self, name: str) -> None:
        place = self._places.get(name)
        if place is not None:
            if place.node.phase is not Phase.CLOSED:
                raise ValueError(f"the network has a node {name!r}")
        elif len(self._places) >= self.options.nodes:
            raise LimitReached("nodes", self.options.nodes)

    def _check_known(self, *names: str) -> None:
        unknown = [name for name in names if name not in self._places]
        unknown = sorted(set(unknown) - self._announced)
        if unknown:
            wrong, there = ", ".join(map(repr, unknown)), ", ".join(sorted(self._places)) or "none"
            raise ValueError(
                f"the network has no node {wrong}, and none is announced: it has {there}"
            )

    async def crash(self, name: str) -> None:
        """End a node as `kill -9` does; see `onward.actors.testing.crash`.

        What is in its mailboxes and on the way to and from it is lost. Nobody is told: the other
        ends of its links are lost after `SimulationOptions.detection`.

        Raises:
            KeyError: There is no such node.
        """
        place = self._places[name]
        if not place.crashed:
            place.crashed = True
            for host in [host for host, each in self.hosts.items() if each.place is place]:
                del self.hosts[host]
            crash(place.node)
            self.clockwork.note("crashed", name, "")
            detected_at = self.clockwork.loop.time() + self.options.detection
            for link in place.links:
                link.crashed(detected_at)
            place.links.clear()
        # What was cut off has to run into the end of it.
        await asyncio.sleep(0)

    async def restart(self, name: str) -> Node:
        """Start a node again that has crashed or stopped: a new one, with nothing on it.

        Raises:
            KeyError: There is no such node, or it was made elsewhere.
            ValueError: It is alive.
        """
        return await self.node(name, **self._node_options[name])

    async def close(self) -> None:
        """Stop every node the network has made, the last first, and forget what is due."""
        for name in reversed(list(self._node_options)):
            await self._places[name].node.stop()
        self.clockwork.stop()
        _networks.pop(id(self.clockwork.loop), None)

    def listener(self, host: str) -> SimulatedListenerWorker | None:
        """Return who has a host name."""
        return self.hosts.get(host)

    # --- faults ---------------------------------------------------------------------------

    def way(self, source: str, target: str, own: Faults | None = None) -> Way:
        """Return the way from one node to another.

        Args:
            source: The name of a node.
            target: The name of another.
            own: The faults of a link that has its own: those with equal ones share a way.
        """
        way = self._ways.get((source, target, own))
        if way is None:
            faults = self.faults if own is None else own
            way = Way(self.clockwork, source, target, self.seed, faults, own=own is not None)
            if own is not None:
                way.cut_off = self.way(source, target).cut_off
            self._ways[source, target, own] = way
        return way

    def set_faults(self, one: str, other: str, faults: Faults, *, both: bool = True) -> None:
        """Have other faults from now on between two nodes.

        Links that were connected with faults of their own keep those.

        Args:
            one: The name of a node.
            other: The name of another.
            faults: What goes wrong.
            both: In both directions, or only from `one` to `other`.

        Raises:
            ValueError: No node of a name has been there yet or was announced.
        """
        self._check_known(one, other)
        for source, target in _directions((one,), (other,), both):
            self.way(source, target).faults = faults
            self.clockwork.note("faults", source, target)

    def set_all_faults(self, faults: Faults) -> None:
        """Have other faults from now on everywhere, also between nodes yet to come.

        Links that were connected with faults of their own keep those.
        """
        self.faults = faults
        for (_, _, own), way in self._ways.items():
            if own is None:
                way.faults = faults
        self.clockwork.note("faults", "*", "*")

    def partition(self, one: Iterable[str], other: Iterable[str], *, both: bool = True) -> None:
        """Let nothing get across between the nodes of two groups, until `heal`.

        Messages over the cut are lost, those that are on the way included. Links stay, as
        nobody is told; connecting fails when it has been tried for long enough.

        Args:
            one: Names of nodes.
            other: Names of other nodes.
            both: In both directions, or only from `one` to `other`.

        Raises:
            ValueError: A node is in both groups, or no node of a name has been there yet or was
                announced.
        """
        here, there = sorted(set(one)), sorted(set(other))
        self._check_known(*here, *there)
        if shared := sorted(set(here) & set(there)):
            raise ValueError(f"on both sides of a partition: {', '.join(shared)}")
        cut = dict.fromkeys(_directions(here, there, both))
        for source, target in cut:
            self.way(source, target).cut_off = True  # as those of links yet to come will be
        for (source, target, own), way in self._ways.items():
            if own is not None and (source, target) in cut:
                way.cut_off = True
        self.clockwork.note("partition", ",".join(here), ",".join(there))

    def heal(self) -> None:
        """End every partition."""
        for way in self._ways.values():
            way.cut_off = False
        self.clockwork.note("heal", "*", "*")

    # --- what happened --------------------------------------------------------------------

    @property
    def history(self) -> tuple[Event, ...]:
        """The last events, oldest first; `SimulationOptions.history` says how many are kept."""
        return tuple(self.clockwork.history)

    def traffic(self, source: str | None = None, target: str | None = None) -> Traffic:
        """Return what became of the messages between nodes.

        Args:
            source: From this node; from all by default.
            target: To this node; to all by default.
        """
        total = Traffic()
        for (begin, end, _), way in self._ways.items():
            if source in (None, begin) and target in (None, end):
                total += way.traffic()
        return total


def network_of(loop: asyncio.AbstractEventLoop) -> SimulatedNetwork:
    """Return the network of the running loop; one without faults is made if there is none."""
    found = _networks.get(id(loop))
    return SimulatedNetwork() if found is None else found


def _directions(one: Iterable[str], other: Iterable[str], both: bool) -> list[tuple[str, str]]:
    found = [(source, target) for source in one for target in other]
    return found + [(target, source) for source, target in found] if both else found


def _addresses(seed: str) -> Callable[[], Address]:
    """Make addresses as nodes do, but from a seed."""
    bits = Random(seed).getrandbits  # noqa: S311 - it has to repeat

    def take() -> Address:
        return Address(LOCAL, b"%032x" % bits(128))

    return take
