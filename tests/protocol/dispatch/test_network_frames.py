"""Whatever frames neighbours send, in whatever order, a node stays within its limits."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    Advertisement,
    LinksRequest,
    LinksUpdate,
    ListChange,
    ListKind,
    ListPart,
    ListRequest,
    NeighbourClosed,
    Network,
    NetworkFrame,
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
    encode_network_frame,
    encode_semantics,
)

LIMITS = NetworkLimits(
    max_nodes=4,
    max_names=5,
    max_names_of_node=3,
    max_provisions=5,
    max_provisions_of_node=3,
)
LINKS = ("b", "c")
DAY = 86_400_000

nodes = st.sampled_from(["a", "b", "c", "d", "e", "f"])
instances = st.sampled_from([1000, 2000, DAY * 2])
small = st.integers(0, 4)
numbers = st.builds(NodeNumbers, nodes, instances, small, small, small, small)
peers = st.dictionaries(nodes, st.integers(1, 3), max_size=3)
links = st.builds(NodeLinks, nodes, instances, st.integers(1, 4), peers)
told = st.builds(ToldName, st.integers(0, 15), small)
semantics = st.sampled_from([Semantics(pattern=each) for each in RoutingPattern])
names = st.dictionaries(st.sampled_from("pqrstu"), told, max_size=4)
provisions = st.dictionaries(
    st.sampled_from(["#", "p.#", "p", "*.q"]), semantics.map(encode_semantics), max_size=3
)
items = st.one_of(
    st.tuples(st.just(ListKind.NAMES), names), st.tuples(st.just(ListKind.PROVISIONS), provisions)
)


def change(
    given: tuple[ListKind, dict[str, ToldName] | dict[str, bytes]],
    node: str,
    instance: int,
    number: int,
) -> NetworkFrame:
    kind, held = given
    return ListChange(kind, node, instance, number, held, ("zz",))


def part(
    given: tuple[ListKind, dict[str, ToldName] | dict[str, bytes]],
    node: str,
    instance: int,
    number: int,
    index: int,
    last: bool,
) -> NetworkFrame:
    kind, held = given
    return ListPart(kind, node, instance, number, index, last, held)


frames = st.one_of(
    st.builds(
        NodeHello, nodes, instances, small, st.lists(nodes, max_size=2, unique=True).map(tuple)
    ),
    st.builds(
        Advertisement,
        st.lists(numbers, max_size=4, unique_by=lambda each: each.node).map(tuple),
    ),
    st.builds(LinksRequest, st.lists(nodes, max_size=4, unique=True).map(tuple)),
    st.builds(
        LinksUpdate, st.lists(links, max_size=3, unique_by=lambda each: each.node).map(tuple)
    ),
    st.builds(change, items, nodes, instances, st.integers(1, 4)),
    st.builds(part, items, nodes, instances, small, st.integers(0, 2), st.booleans()),
    st.builds(ListRequest, st.sampled_from(ListKind), nodes, instances),
)
steps = st.lists(
    st.tuples(st.sampled_from(LINKS), frames, st.sampled_from([0.0, 0.01, 1.0, 70.0])), max_size=60
)


class Watched:
    """A node with two neighbours, and its provisions."""

    def __init__(self) -> None:
        self.now = 0.0
        self.node = Network("a", 1000, LIMITS, 0.0)
        self.provisions = Provisions("a", nodes_of=self.node.nodes_of)
        for link in LINKS:
            self.join(link)

    def join(self, link: str) -> None:
        self.node.neighbour_up(link, 1, self.now)
        self.receive(link, NodeHello(link, 1000, 0, ("a",)))

    def receive(self, link: str, frame: NetworkFrame) -> None:
        data = encode_network_frame(frame)
        assert decode_network_frame(data) == frame
        self.node.receive(link, data, self.now)

    def follow(self) -> None:
        for link, data in self.node.due(self.now):
            assert link in LINKS
            decode_network_frame(data)
        for event in self.node.events():
            if isinstance(event, ProvisionsTold):
                self.provisions.learn(event.node, event.added, event.removed)
            elif isinstance(event, NeighbourClosed):
                assert isinstance(event.link, str)
                self.join(event.link)

    def check(self) -> None:
        states = self.node.link_states()
        assert len(states) <= LIMITS.max_nodes
        assert states["a"].keys() <= set(LINKS)
        assert self.node.snapshot.nodes <= states.keys() | set(LINKS)
        held = {node: self.node.names_of(node) for node in states}
        assert sum(map(len, held.values())) <= LIMITS.max_names
        assert max(map(len, held.values())) <= LIMITS.max_names_of_node
        for name in self.node.names():
            assert self.node.nodes_of(name) == {
                node: names[name] for node, names in held.items() if name in names
            }
        told = {pattern for node in states for pattern in self.node.provisions_of(node)}
        assert {".".join(each.pattern.tokens) for each in self.provisions.deciding()} <= told
        assert all(instance <= 1000 + DAY + 1000 * self.now for instance in (self.node.instance,))


@given(steps)
def test_a_node_bears_whatever_its_neighbours_send(
    given_steps: list[tuple[str, NetworkFrame, float]],
) -> None:
    watched = Watched()
    for link, frame, passed in given_steps:
        watched.now += passed
        watched.receive(link, frame)
        watched.follow()
        watched.check()
