"""Two ends of a circuit and the nodes between, wired together by links that can be cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise

from onward.protocol.dispatch import (
    CircuitAttach,
    CircuitDown,
    CircuitEnd,
    CircuitEvent,
    CircuitLimits,
    CircuitOpened,
    CircuitRefused,
    Circuits,
    CircuitSend,
    CircuitSide,
    parse_circuit_frame,
    serialize_circuit_frame,
)

UP, DOWN = CircuitSide.UPSTREAM, CircuitSide.DOWNSTREAM
KEY = bytes(range(16))
LIMITS = CircuitLimits(max_unsettled=4)


class Chain:
    """A circuit over some nodes. The attaching end is at place 0, the accepting one at the last.

    Attributes:
        ends: The attaching and the accepting end.
        events: What has happened at each end, in order.
        now: The time.
    """

    def __init__(
        self,
        nodes: int,
        *,
        producer: bool = True,
        resumable: bool = True,
        make_end: Callable[..., CircuitEnd] = CircuitEnd,
        make_node: Callable[..., Circuits] = Circuits,
    ) -> None:
        self.now = 0.0
        self.ends = tuple(
            make_end(producer=role, key=KEY, resumable=resumable, limits=LIMITS)
            for role in (producer, not producer)
        )
        self.events: tuple[list[CircuitEvent], list[CircuitEvent]] = ([], [])
        self._nodes = [make_node(bytes((0, 0, 0, n)), LIMITS) for n in range(nodes)]
        self._places = nodes + 2
        self._numbers = [0] * nodes
        # Frames under way, by where they come from and where they go to.
        self.links: dict[tuple[int, int], deque[bytes]] = {}
        for here, there in pairwise(range(self._places)):
            self.links[here, there] = deque()
            self.links[there, here] = deque()

    @property
    def maker(self) -> CircuitEnd:
        """The producer."""
        return self.ends[0] if self.ends[0].producer else self.ends[1]

    @property
    def taker(self) -> CircuitEnd:
        """The consumer."""
        return self.ends[1] if self.ends[0].producer else self.ends[0]

    def seen(self, end: CircuitEnd) -> list[CircuitEvent]:
        """Return what has happened at an end."""
        return self.events[end is self.ends[1]]

    def attach(self) -> None:
        self.ends[0].attach("orders", self.now)
        self.flush()

    def flush(self) -> None:
        """Put on the first links what the ends have to send."""
        last = self._places - 1
        self.links[0, 1] += self.ends[0].data_to_send()
        self.links[last, last - 1] += self.ends[1].data_to_send()

    def busy(self) -> list[tuple[int, int]]:
        """Return the links with frames under way."""
        return [link for link, queue in self.links.items() if queue]

    def step(self, link: tuple[int, int]) -> None:
        """Deliver the first frame of a link."""
        here, there = link
        data = self.links[link].popleft()
        if there in (0, self._places - 1):
            self._at_end(there, data)
        else:
            self._at_node(there, UP if here < there else DOWN, data)
        self.flush()

    def run(self) -> None:
        """Deliver all frames."""
        while links := self.busy():
            self.step(links[0])

    def cut(self, here: int) -> None:
        """Cut the link between a place and the next; what was under way there is lost."""
        there = here + 1
        self.links[here, there].clear()
        self.links[there, here].clear()
        for place in (here, there):
            if place in (0, self._places - 1):
                index = int(place > 0)
                self.events[index].extend(self.ends[index].lost())
            else:
                other = there if place == here else here
                self._route(place, self._nodes[place - 1].link_lost(f"{other}"))
        self.flush()

    def wait(self, time: float) -> None:
        """Let time pass at each place."""
        self.now += time
        for index, end in enumerate(self.ends):
            self.events[index].extend(end.due(self.now))
        for place, node in enumerate(self._nodes, 1):
            self._route(place, node.due(self.now))
        self.flush()

    def downs(self, end: CircuitEnd) -> list[CircuitDown]:
        return [event for event in self.seen(end) if isinstance(event, CircuitDown)]

    def _at_end(self, place: int, data: bytes) -> None:
        index = int(place > 0)
        end = self.ends[index]
        if index and data[2] == 1:  # ATTACH
            attach = parse_circuit_frame(data)
            assert isinstance(attach, CircuitAttach)
            # An end may learn of a loss by the attach that resumes the circuit.
            self.events[index].extend(end.lost())
            self.events[index].extend(end.accept(attach, self.now))
        else:
            self.events[index].extend(end.receive(data, self.now))

    def _at_node(self, place: int, side: CircuitSide, data: bytes) -> None:
        node = self._nodes[place - 1]
        if data[2] == 1:
            attach = parse_circuit_frame(data)
            assert isinstance(attach, CircuitAttach)
            result = node.open(attach, f"{place - 1}", f"{place + 1}", self.now)
            if isinstance(result, CircuitRefused):
                self.links[place, place - 1].append(serialize_circuit_frame(result))
                return
            assert isinstance(result, CircuitOpened)
            self._numbers[place - 1] = result.number
            self.links[place, place + 1].append(result.attach)
            return
        self._route(place, node.receive(self._numbers[place - 1], side, data, self.now))

    def _route(self, place: int, sends: tuple[CircuitSend, ...]) -> None:
        for send in sends:
            self.links[place, place - 1 if send.side is UP else place + 1].append(send.data)


def tied(nodes: int = 2, *, producer: bool = True, resumable: bool = True) -> Chain:
    """Return a chain that is attached, without any events."""
    chain = Chain(nodes, producer=producer, resumable=resumable)
    chain.attach()
    chain.run()
    for events in chain.events:
        events.clear()
    return chain
