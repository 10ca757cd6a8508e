"""Send random and mutated frames to the decoder and to a node of a network of dispatchers.

The invariant of a frame: it is read, or refused with `NetworkFrameError` or `LaterVersion` with a
short printable text; no other error is raised. What was read and written is read as the same frame.
So are the semantics of provisions, or they are refused with `BadSemantics`.

The frames are then given to a node, as those of one of three neighbours, on a simulated clock. What
the node sends can be read; it answers no more than its rate allows; nodes, names and provisions
stay within the limits; its own name has no link to a neighbour that is not there. A neighbour that
is closed comes anew. The process does not grow.

    python fuzz/network.py --count 1000000 --seed 1
"""

from __future__ import annotations

import sys
from random import Random
from typing import Final

from _fuzzing import arguments_of, check_text_of, drawn, run

from onward.protocol.dispatch import (
    Advertisement,
    BadSemantics,
    LaterVersion,
    LinksRequest,
    LinksUpdate,
    ListChange,
    ListKind,
    ListPart,
    ListRequest,
    NeighbourClosed,
    Network,
    NetworkFrame,
    NetworkFrameError,
    NetworkFrameKind,
    NetworkLimits,
    NodeHello,
    NodeLinks,
    NodeNumbers,
    Provisions,
    ProvisionsTold,
    RoutingPattern,
    Semantics,
    ToldName,
    decode_network_frame,
    decode_semantics,
    encode_network_frame,
    encode_semantics,
)

NAMES, PROVISIONS = ListKind
NODES: Final = ("own", "x", "y", "z", "far", "farther")
LINKS: Final = ("x", "y", "z")
DIRECT: Final = encode_semantics(Semantics(pattern=RoutingPattern.DIRECT, window=5))
LIMITS: Final = NetworkLimits(
    max_nodes=5,
    max_names=8,
    max_names_of_node=3,
    max_provisions=8,
    max_provisions_of_node=3,
    answer_rate=2_000,
)
MOST_ANSWERED: Final = 200_000
"""Most bytes of one answer: no frame is longer, and a list here has one or two."""
PIECES: Final = [
    bytes.fromhex(text)
    for text in ("00", "01", "18ff", "1b001fffffffffffff", "1bffffffffffffffff", "40", "80", "f5")
]


def frames() -> list[NetworkFrame]:
    """Return frames about a few nodes, so that they have to do with each other."""
    found: list[NetworkFrame] = [LinksRequest(NODES)]
    found += [NodeHello(node, 1000, 0, ("own",)) for node in LINKS]
    for node in NODES:
        for instance, number in ((1000, 1), (1000, 2), (2000, 3)):
            numbers = NodeNumbers(node, instance, number, number, number, number)
            links = NodeLinks(node, instance, number, {"own": 1, "far": 2})
            found += [Advertisement((numbers,)), LinksUpdate((links,))]
            for kind, values in ((NAMES, ToldName(2, 5)), (PROVISIONS, DIRECT)):
                held = dict.fromkeys((f"{node}.{each}" for each in range(number * 2)), values)
                found += [
                    ListChange(kind, node, instance, number, held, ("a",)),  # type: ignore[arg-type]
                    ListPart(kind, node, instance, number, 0, True, held),  # type: ignore[arg-type]
                    ListPart(kind, node, instance, number, number - 1, False, {}),
                ]
        found += [ListRequest(kind, node, 1000) for kind in ListKind]
    return found


class Fuzzed:
    """The decoders and a node with three neighbours."""

    def __init__(self) -> None:
        self.seeds = [encode_network_frame(frame) for frame in frames()]
        self.now = 0.0
        self.begin()

    def begin(self) -> None:
        self.node = Network("own", 1000, LIMITS, self.now)
        self.provisions = Provisions("own", nodes_of=self.node.nodes_of)
        self.budget = 0.0
        for link in LINKS:
            self.join(link)

    def join(self, link: str) -> None:
        self.node.neighbour_up(link, 1, self.now)
        hello = encode_network_frame(NodeHello(link, 1000, 0, ("own",)))
        self.node.receive(link, hello, self.now)

    def check(self, random: Random, data: bytes) -> bool:
        """Give bytes to everything; return whether they are a frame."""
        passed = random.choice((0.0, 0.01, 0.5, 1.0, 1.0, 70.0 if random.random() < 0.02 else 2.0))
        self.now += passed
        self.budget = min(self.budget + passed * LIMITS.answer_rate * len(LINKS), 0.0)
        if random.random() < 0.01:
            self.begin()
        self.read_semantics(data)
        taken = self.read(data) is not None
        self.node.receive(random.choice(LINKS), data, self.now)
        for link in LINKS:
            if random.random() < 0.5:
                self.node.receive(link, self.seeds[1 + LINKS.index(link)], self.now)
        self.follow()
        self.check_limits()
        return taken

    def read(self, data: bytes) -> NetworkFrame | None:
        try:
            frame = decode_network_frame(data)
        except (NetworkFrameError, LaterVersion) as error:
            check_text_of(error)
            return None
        if decode_network_frame(encode_network_frame(frame)) != frame:
            raise AssertionError(f"{frame} is read otherwise when it was written")
        return frame

    def read_semantics(self, data: bytes) -> None:
        try:
            semantics = decode_semantics(data)
        except BadSemantics:
            return
        if decode_semantics(encode_semantics(semantics)) != semantics:
            raise AssertionError(f"{semantics} are read otherwise when they were written")

    def follow(self) -> None:
        """Read what the node sends, and do what its worker does."""
        for link, data in self.node.due(self.now):
            decode_network_frame(data)
            if data[2] in (NetworkFrameKind.LINKS_UPDATE, NetworkFrameKind.LIST_PART):
                self.budget -= len(data)
            if link not in LINKS:
                raise AssertionError(f"a frame for {link}")
        if self.budget < -MOST_ANSWERED * len(LINKS):
            raise AssertionError("more answers than the rate allows")
        self.node.get_timer()
        for event in self.node.events():
            if isinstance(event, ProvisionsTold):
                self.provisions.learn(event.node, event.added, event.removed)
            elif isinstance(event, NeighbourClosed):
                check_text_of(Exception(event.reason))
                self.join(str(event.link))

    def check_limits(self) -> None:
        states = self.node.link_states()
        if len(states) > LIMITS.max_nodes:
            raise AssertionError(f"{len(states)} nodes")
        if not states["own"].keys() <= set(LINKS):
            raise AssertionError(f"links to {states['own']}")
        names = [len(self.node.names_of(node)) for node in states]
        told = [self.node.provisions_of(node) for node in states]
        if max(names) > 3 or max(map(len, told)) > 3 or sum(names) > LIMITS.max_names:
            raise AssertionError(f"{names} names, {told} provisions")
        deciding = {str(each.pattern) for each in self.provisions.deciding()}
        if not deciding <= {pattern for held in told for pattern in held}:
            raise AssertionError(f"{deciding} decide, {told} are told")
        self.provisions.conflicts(self.node.names())


def main(arguments: list[str] | None = None) -> int:
    options = arguments_of(__doc__).parse_args(arguments)
    fuzzed = Fuzzed()
    held = run(
        "network",
        options.count,
        options.seed,
        lambda random, _: drawn(random, fuzzed.seeds, PIECES, 0.7),
        fuzzed.check,
    )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
