"""The simulated network: its nodes, the faults between them, and its history, from one seed."""

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
from ._path import NetworkPath

if TYPE_CHECKING:
    from ._link import SimulatedLink, SimulatedListenerWorker
    from ._streams import SimulatedServer, SimulatedStream

__all__ = ["Membership", "SimulatedNetwork", "network_of"]

_OPTIONS: Final = SimulationOptions()

# By the id of the loop. The network refers to the loop, so the id stays unique.
_networks: Final[WeakValueDictionary[int, SimulatedNetwork]] = WeakValueDictionary()


class Membership:
    """The membership of a node in a network, for the life of the node.

    Attributes:
        network: The network.
        name: The name of the node.
        node: The node.
        links: The node's ends of links, oldest first.
        streams: The node's ends of byte streams, oldest first.
        crashed: Whether the node has crashed.
    """

    __slots__ = ("crashed", "links", "name", "network", "node", "streams")

    def __init__(self, network: SimulatedNetwork, node: Node) -> None:
        self.network = network
        self.name = node.name
        self.node = node
        self.links: dict[SimulatedLink, None] = {}
        self.streams: dict[SimulatedStream, None] = {}
        self.crashed = False


class SimulatedNetwork:
    """A network of nodes on one event loop, with faults between them.

    ```python
    async with SimulatedNetwork(seed=7, faults=Faults(loss=0.3)) as network:
        a, b = await network.node("a"), await network.node("b")
        await b.listen("sim://b", expose=["echo"])
        link = await a.connect("sim://b")
    ```

    On a `VirtualLoop` the same seed gives the same run: the order of events, the times, and the
    random addresses of the nodes it makes. There is one network for each event loop.

    Args:
        seed: The seed of all random numbers.
        faults: The faults in each direction between two nodes without faults of their own.
        options: The limits and times.

    Attributes:
        seed: The seed.
        faults: The default faults.
        options: The limits and times.
        hosts: The listeners by host name.
        servers: The listeners of byte streams by host name.
        clockwork: The scheduler of events.

    Raises:
        RuntimeError: No event loop is running, or it has a network already.
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
        self.servers: dict[str, SimulatedServer] = {}
        self.clockwork = Clockwork(loop, options.history)
        self._places: dict[str, Membership] = {}
        self._node_options: dict[str, dict[str, Any]] = {}
        self._paths: dict[tuple[str, str, Faults | None], NetworkPath] = {}
        self._lives: dict[str, int] = {}
        self._announced: set[str] = set()
        _networks[id(loop)] = self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc_info: object) -> None:
        await self.close()

    # --- nodes ----------------------------------------------------------------------------

    async def node(self, name: str, **options: Any) -> Node:
        """Start a node with the transport `sim`.

        Its random addresses come from the network's seed.

        Args:
            name: The name, unique among the nodes that are alive.
            **options: The options of `Node`; a restart uses them again.

        Raises:
            ValueError: A node of this name is alive.
            LimitReached: The maximum number of nodes is reached.
        """
        from ._transport import SimulatedTransport

        self._check_free(name)
        node = Node(name, **options)
        life = self._lives[name] = self._lives.get(name, 0) + 1
        node.parts.table.random_address = _addresses(f"{self.seed}/{name}/{life}")
        await node.__aenter__()
        node.add_transport(SimulatedTransport)
        self._node_options[name] = options
        self._join(node)
        self.clockwork.note("started", name, "")
        return node

    def announce(self, *names: str) -> None:
        """Announce names of later nodes, so that partitions and faults may refer to them.

        Raises:
            LimitReached: There are more names than `SimulationOptions.nodes`.
        """
        most = self.options.nodes
        if len(self._announced.union(names, self._places)) > most:
            raise LimitReached("nodes", most)
        self._announced.update(names)

    @property
    def nodes(self) -> dict[str, Node]:
        """The nodes by name, including those that have stopped or crashed."""
        return {name: place.node for name, place in self._places.items()}

    def place(self, node: Node) -> Membership:
        """Return the place of a node; a node that was made elsewhere joins the network.

        Raises:
            ValueError: Another node of this name is alive.
        """
        place = self._places.get(node.name)
        if place is not None and place.node is node:
            return place
        self._check_free(node.name)
        return self._join(node)

    def _join(self, node: Node) -> Membership:
        place = self._places[node.name] = Membership(self, node)
        return place

    def _check_free(self, name: str) -> None:
        place = self._places.get(name)
        if place is not None:
            if place.node.parts.run_queue.phase is not Phase.CLOSED:
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

        Messages in its mailboxes and in transit to and from it are lost. No notice is sent: the
        other ends detect the loss of its links after `SimulationOptions.detection`.

        Raises:
            KeyError: There is no such node.
        """
        place = self._places[name]
        if not place.crashed:
            place.crashed = True
            for host in [host for host, each in self.hosts.items() if each.place is place]:
                del self.hosts[host]
            for host in [host for host, each in self.servers.items() if each.place is place]:
                del self.servers[host]
            crash(place.node)
            self.clockwork.note("crashed", name, "")
            detected_at = self.clockwork.loop.time() + self.options.detection
            for link in place.links:
                link.crashed(detected_at)
            place.links.clear()
            for stream in tuple(place.streams):
                stream.crashed(detected_at)
        # The tasks of the node notice the crash in this tick.
        await asyncio.sleep(0)

    async def restart(self, name: str) -> Node:
        """Start a node again that has crashed or stopped: a new one, without workers.

        Raises:
            KeyError: There is no such node, or it was made elsewhere.
            ValueError: The node is alive.
        """
        return await self.node(name, **self._node_options[name])

    async def close(self) -> None:
        """Stop every node that the network has made, the last first, and cancel all events."""
        for name in reversed(list(self._node_options)):
            await self._places[name].node.stop()
        self.clockwork.stop()
        _networks.pop(id(self.clockwork.loop), None)

    def listener(self, host: str) -> SimulatedListenerWorker | None:
        """Return the listener of a host name, or `None`."""
        return self.hosts.get(host)

    # --- faults ---------------------------------------------------------------------------

    def path(self, source: str, target: str, own: Faults | None = None) -> NetworkPath:
        """Return the `NetworkPath` from one node to another.

        Args:
            source: The name of the sending node.
            target: The name of the receiving node.
            own: The faults of a link with faults of its own; equal ones share a `NetworkPath`.
        """
        path = self._paths.get((source, target, own))
        if path is None:
            faults = self.faults if own is None else own
            path = NetworkPath(
                self.clockwork, source, target, self.seed, faults, own=own is not None
            )
            if own is not None:
                path.cut_off = self.path(source, target).cut_off
            self._paths[source, target, own] = path
        return path

    def set_faults(self, one: str, other: str, faults: Faults, *, both: bool = True) -> None:
        """Replace the faults between two nodes from now on.

        Links that were connected with faults of their own keep these.

        Args:
            one: The name of a node.
            other: The name of another node.
            faults: The new faults.
            both: Whether in both directions, or only from `one` to `other`.

        Raises:
            ValueError: A name is neither that of a node nor announced.
        """
        self._check_known(one, other)
        for source, target in _directions((one,), (other,), both):
            self.path(source, target).faults = faults
            self.clockwork.note("faults", source, target)

    def set_all_faults(self, faults: Faults) -> None:
        """Replace the faults everywhere from now on, also between later nodes.

        Links that were connected with faults of their own keep these.
        """
        self.faults = faults
        for (_, _, own), path in self._paths.items():
            if own is None:
                path.faults = faults
        self.clockwork.note("faults", "*", "*")

    def partition(self, one: Iterable[str], other: Iterable[str], *, both: bool = True) -> None:
        """Lose all messages between the nodes of two groups, until `heal`.

        Messages in transit are lost too. Links stay, as no notice is sent; connecting fails after
        `SimulationOptions.connect_timeout`.

        Args:
            one: Names of nodes.
            other: Names of other nodes.
            both: Whether in both directions, or only from `one` to `other`.

        Raises:
            ValueError: A node is in both groups, or a name is neither that of a node nor
                announced.
        """
        here, there = sorted(set(one)), sorted(set(other))
        self._check_known(*here, *there)
        if shared := sorted(set(here) & set(there)):
            raise ValueError(f"on both sides of a partition: {', '.join(shared)}")
        cut = dict.fromkeys(_directions(here, there, both))
        for source, target in cut:
            self.path(source, target).cut_off = True  # as for later links
        for (source, target, own), path in self._paths.items():
            if own is not None and (source, target) in cut:
                path.cut_off = True
        self.clockwork.note("partition", ",".join(here), ",".join(there))

    def heal(self, one: Iterable[str] | None = None, other: Iterable[str] = ()) -> None:
        """End every partition, or all that is cut between the nodes of two groups.

        Args:
            one: Names of nodes; `None` for all.
            other: Names of other nodes.
        """
        here, there = sorted(set(one or ())), sorted(set(other))
        healed = None if one is None else dict.fromkeys(_directions(here, there, True))
        for (source, target, _), path in self._paths.items():
            if healed is None or (source, target) in healed:
                path.cut_off = False
        self.clockwork.note("heal", ",".join(here) or "*", ",".join(there) or "*")

    # --- what happened --------------------------------------------------------------------

    @property
    def history(self) -> tuple[Event, ...]:
        """The last events, oldest first, at most `SimulationOptions.history`."""
        return tuple(self.clockwork.history)

    def traffic(self, source: str | None = None, target: str | None = None) -> Traffic:
        """Return the counters of the messages between nodes.

        Args:
            source: The sending node; all by default.
            target: The receiving node; all by default.
        """
        total = Traffic()
        for (begin, end, _), path in self._paths.items():
            if source in (None, begin) and target in (None, end):
                total += path.traffic()
        return total


def network_of(loop: asyncio.AbstractEventLoop) -> SimulatedNetwork:
    """Return the network of the running loop; make one without faults if there is none."""
    found = _networks.get(id(loop))
    return SimulatedNetwork() if found is None else found


def _directions(one: Iterable[str], other: Iterable[str], both: bool) -> list[tuple[str, str]]:
    found = [(source, target) for source in one for target in other]
    return found + [(target, source) for source, target in found] if both else found


def _addresses(seed: str) -> Callable[[], Address]:
    """Return a function that makes random addresses as nodes do, but from a seed."""
    bits = Random(seed).getrandbits  # noqa: S311 - has to be repeatable

    def take() -> Address:
        return Address(LOCAL, b"%032x" % bits(128))

    return take
