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
    CircuitMisuse,
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
ATTACH = 1


class Chain:
    """A circuit over some nodes. The attaching end is at place 0, the accepting one at the last.

    Frames have the number of the attach that they belong to beside them, as each circuit has
    addresses of its own: so what is left of an earlier circuit reaches no later one.

    Attributes:
        ends: The attaching and the accepting end.
        events: What has happened at each end, in order.
        now: The time.
        attaches: The number of the attach that each end belongs to.
        links: Frames under way, by where they come from and where they go to.
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
        self.attaches = [0, 0]
        # By place and number of a circuit at its node, the attach; and back.
        self._attach_of: dict[tuple[int, int], int] = {}
        self._number_of: dict[tuple[int, int], int] = {}
        self.links: dict[tuple[int, int], deque[tuple[int, bytes]]] = {}
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
        self.flush()
        self.ends[0].attach("orders", self.now)
        self.attaches[0] += 1
        self.flush()

    def flush(self) -> None:
        """Put on the first links what the ends have to send."""
        last = self._places - 1
        first, second = self.attaches
        self.links[0, 1] += [(first, data) for data in self.ends[0].data_to_send()]
        self.links[last, last - 1] += [(second, data) for data in self.ends[1].data_to_send()]

    def busy(self) -> list[tuple[int, int]]:
        """Return the links with frames under way."""
        return [link for link, queue in self.links.items() if queue]

    def step(self, link: tuple[int, int]) -> None:
        """Deliver the first frame of a link."""
        here, there = link
        attach, data = self.links[link].popleft()
        if there in (0, self._places - 1):
            self._at_end(there, attach, data)
        else:
            self._at_node(there, UP if here < there else DOWN, attach, data)
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

    def _at_end(self, place: int, number: int, data: bytes) -> None:
        index = int(place > 0)
        end = self.ends[index]
        if index and data[2] == ATTACH:
            attach = _attach(data)
            # An end may learn of a loss by the attach that resumes the circuit.
            self.events[index].extend(end.lost())
            self.flush()
            self.attaches[index] = number
            try:
                self.events[index].extend(end.accept(attach, self.now))
            except CircuitMisuse as error:
                refused = serialize_circuit_frame(CircuitRefused("over", error.reason))
                self.links[place, place - 1].append((number, refused))
        elif number == self.attaches[index]:
            self.events[index].extend(end.receive(data, self.now))

    def _at_node(self, place: int, side: CircuitSide, number: int, data: bytes) -> None:
        node = self._nodes[place - 1]
        if data[2] == ATTACH:
            result = node.open(_attach(data), f"{place - 1}", f"{place + 1}", self.now)
            assert isinstance(result, CircuitOpened)
            self._attach_of[place, result.number] = number
            self._number_of[place, number] = result.number
            self.links[place, place + 1].append((number, result.attach))
        else:
            at_node = self._number_of.get((place, number), 0)
            self._route(place, node.receive(at_node, side, data, self.now))

    def _route(self, place: int, sends: tuple[CircuitSend, ...]) -> None:
        for send in sends:
            there = place - 1 if send.side is UP else place + 1
            self.links[place, there].append((self._attach_of[place, send.number], send.data))


def _attach(data: bytes) -> CircuitAttach:
    attach = parse_circuit_frame(data)
    assert isinstance(attach, CircuitAttach)
    return attach


def tied(nodes: int = 2, *, producer: bool = True, resumable: bool = True) -> Chain:
    """Return a chain that is attached, without any events."""
    chain = Chain(nodes, producer=producer, resumable=resumable)
    chain.attach()
    chain.run()
    for events in chain.events:
        events.clear()
    return chain
