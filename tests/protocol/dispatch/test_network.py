"""A network of a few nodes, wired together in memory, and neighbours that lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import pytest
from cbor2 import dumps

from onward.protocol.dispatch import (
    ENDED_INSTANCE,
    MAX_COST,
    MAX_NUMBER,
    MAX_SEMANTICS,
    Advertisement,
    BadName,
    BadPattern,
    CostsDiffer,
    LaterFrames,
    LinksRequest,
    LinksUpdate,
    ListChange,
    ListKind,
    ListPart,
    ListRequest,
    NameClaimed,
    NeighbourClosed,
    NeighbourJoined,
    NeighbourLeft,
    Network,
    NetworkEvent,
    NetworkFrame,
    NetworkFrameKind,
    NetworkLimits,
    NodeHello,
    NodeLinks,
    NodeNumbers,
    NodesChanged,
    PathsChanged,
    ProvisionsTold,
    ToldName,
    decode_network_frame,
    encode_network_frame,
)

LIMITS = NetworkLimits()
NAMES, PROVISIONS = ListKind
BALANCED, DIRECT = ToldName(2), ToldName(0, 1234)


def numbers(node: str, instance: int, number: int, links: int, names: int = 0) -> NodeNumbers:
    return NodeNumbers(node, instance, number, links, names, 0)


def states(node: str, instance: int, links: int, peers: dict[str, int]) -> LinksUpdate:
    return LinksUpdate((NodeLinks(node, instance, links, peers),))


def changes(*names: str, joined: str = "", left: str = "") -> NodesChanged:
    """Return the event of names that node `joined` has now, or `left` not any more."""
    return NodesChanged(
        frozenset(names),
        frozenset((name, joined) for name in names if joined),
        frozenset((name, left) for name in names if left),
    )


class Wires:
    """Nodes joined by links without a delay."""

    def __init__(self, names: str, *, limits: NetworkLimits = LIMITS) -> None:
        self.now = 0.0
        self.limits = limits
        self.nodes = {name: Network(name, 100, limits, 0.0) for name in names}
        self.sent = Counter[str]()
        self.events: dict[str, list[NetworkEvent]] = {name: [] for name in names}
        self.lossy: set[str] = set()

    def link(self, pair: str, cost: int = 1, back: int | None = None) -> None:
        left, right = pair[0], pair[1]
        self.nodes[left].neighbour_up(right, cost, self.now)
        self.nodes[right].neighbour_up(left, cost if back is None else back, self.now)

    def cut(self, pair: str) -> None:
        left, right = pair[0], pair[1]
        self.nodes[left].neighbour_lost(right, self.now)
        self.nodes[right].neighbour_lost(left, self.now)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while True:
            timer = min(node.get_timer() for node in self.nodes.values())
            if timer > until:
                break
            self.now = max(self.now, timer)
            for name, node in self.nodes.items():
                for link, data in node.due(self.now):
                    assert isinstance(link, str)
                    kind = NetworkFrameKind(data[2]).name
                    self.sent[kind] += 1
                    if link in self.nodes and kind not in self.lossy:
                        self.nodes[link].receive(name, data, self.now)
                self.events[name] += node.events()
        self.now = until

    def of(self, name: str, kind: type[NetworkEvent]) -> list[NetworkEvent]:
        return [event for event in self.events[name] if isinstance(event, kind)]


def joined(names: str, *pairs: str, limits: NetworkLimits = LIMITS) -> Wires:
    wires = Wires(names, limits=limits)
    for pair in pairs:
        wires.link(pair)
    wires.run(1.0)
    return wires


def test_nodes_in_a_line_learn_of_each_other() -> None:
    wires = joined("abcd", "ab", "bc", "cd")
    for name, node in wires.nodes.items():
        assert node.snapshot.nodes == set("abcd") - {name}
        assert node.link_states()["b"] == {"a": 1, "c": 1}
    assert wires.nodes["a"].snapshot.next_hop("d") == "b"
    assert wires.nodes["b"].neighbours() == {"a": "a", "c": "c"}
    assert wires.nodes["b"].link_to("c") == "c"
    assert wires.nodes["b"].link_to("d") is None
    assert wires.nodes["b"].is_joined("c")
    assert not wires.nodes["b"].is_joined("d")
    assert wires.of("a", NeighbourJoined) == [NeighbourJoined("b", "b")]
    epochs = [each.paths.epoch for each in wires.events["a"] if isinstance(each, PathsChanged)]
    assert epochs == sorted(set(epochs))
    assert wires.nodes["a"].snapshot.epoch == epochs[-1]


def test_names_are_told_to_all_and_changes_follow() -> None:
    wires = joined("abc", "ab", "bc")
    a, c = wires.nodes["a"], wires.nodes["c"]
    a.names_changed({"orders": DIRECT, "gone": BALANCED}, (), wires.now)
    a.names_changed({}, ("gone",), wires.now)
    wires.run(1.0)
    assert dict(c.nodes_of("orders")) == {"a": DIRECT}
    assert c.names_of("a") == {"orders": DIRECT}
    assert c.names_of("x") == {}
    assert wires.of("c", NodesChanged) == [changes("orders", joined="a")]
    before = wires.sent.copy()
    a.names_changed({"prices": BALANCED}, ("orders",), wires.now)
    wires.run(1.0)
    assert (dict(c.nodes_of("orders")), dict(c.nodes_of("prices"))) == ({}, {"a": BALANCED})
    more = wires.sent - before
    assert more["LIST_CHANGE"] == 2  # once over each link
    assert not more["LIST_REQUEST"]


def test_a_node_that_joins_later_learns_all_names() -> None:
    wires = joined("abcd", "ab", "bc")
    names = {f"{number:0300}": BALANCED for number in range(300)}
    wires.nodes["a"].names_changed(names, (), 0.0)
    wires.run(1.0)
    wires.link("cd")
    wires.run(1.0)
    assert wires.nodes["d"].names_of("a") == names
    assert wires.sent["LIST_PART"] > 2


def test_a_neighbour_is_lost_after_three_hellos_or_with_its_link() -> None:
    wires = joined("abc", "ab", "bc", "ac")
    wires.cut("ab")
    wires.run(0.1)
    assert wires.nodes["c"].link_states()["a"] == {"c": 1}
    assert wires.nodes["a"].snapshot.next_hop("b") == "c"
    # c hears a not any more.
    del wires.nodes["a"]
    wires.run(2.0)
    assert "a" in wires.nodes["b"].snapshot.nodes
    wires.run(1.5)
    assert wires.nodes["b"].snapshot.nodes == {"c"}
    assert wires.of("c", NeighbourLeft) == [NeighbourLeft("a", "a")]


def test_names_of_a_node_without_a_path_are_let_go_after_a_moment() -> None:
    wires = joined("abc", "ab", "bc")
    wires.nodes["a"].names_changed({"orders": BALANCED}, (), wires.now)
    wires.run(1.0)
    wires.cut("ab")
    wires.run(0.9)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {"a": BALANCED}
    wires.run(0.2)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {}
    wires.link("ab")
    wires.run(1.0)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {"a": BALANCED}
    # One that is back in time is not let go.
    before = wires.sent["LIST_REQUEST"]
    wires.cut("ab")
    wires.run(0.5)
    wires.link("ab")
    wires.run(2.0)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {"a": BALANCED}
    assert wires.sent["LIST_REQUEST"] == before


def test_a_node_that_is_started_again_is_known_anew() -> None:
    wires = joined("abc", "ab", "bc")
    wires.nodes["a"].names_changed({"orders": BALANCED, "old": BALANCED}, (), wires.now)
    wires.run(1.0)
    # The link to b has not noticed.
    wires.nodes["a"] = Network("a", 200, LIMITS, wires.now)
    wires.nodes["a"].neighbour_up("b", 1, wires.now)
    wires.nodes["a"].names_changed({"orders": DIRECT}, (), wires.now)
    wires.run(2.5)
    assert wires.nodes["c"].names_of("a") == {"orders": DIRECT}
    assert wires.nodes["c"].snapshot.nodes == {"a", "b"}
    assert wires.of("b", NeighbourLeft) == [NeighbourLeft("a", "a", restarted=True)]


def test_a_neighbour_that_starts_again_after_a_while_is_not_one_that_was_silent() -> None:
    wires = joined("ab", "ab")
    left = NeighbourLeft("a", "a")
    silent = wires.nodes.pop("a")
    wires.run(3.5)
    wires.nodes["a"] = silent
    wires.run(3.5)
    assert wires.of("b", NeighbourLeft) == [left]
    del wires.nodes["a"]
    wires.run(3.5)
    wires.nodes["a"] = Network("a", 200, LIMITS, wires.now)
    wires.nodes["a"].neighbour_up("b", 1, wires.now)
    wires.run(3.5)
    assert wires.of("b", NeighbourLeft) == [left, left, NeighbourLeft("a", "a", restarted=True)]
    assert wires.nodes["b"].snapshot.nodes == {"a"}


def test_a_node_that_ends_is_let_go_at_once_on_each_of_its_links() -> None:
    wires = joined("abc", "ab", "bc")
    b = wires.nodes["b"]
    b.neighbour_up("other", 2, wires.now)  # a second link to c, at which it is called "b2"
    wires.nodes["c"].neighbour_up("b2", 2, wires.now)
    hello = encode_network_frame(NodeHello("b", 100, 0, ("c",)))
    wires.nodes["c"].receive("b2", hello, wires.now)
    assert wires.nodes["c"].is_joined("b2")
    ended = wires.nodes.pop("b")
    for link, frame in ended.stop():
        to, at = {"a": ("a", "b"), "c": ("c", "b"), "other": ("c", "b2")}[str(link)]
        wires.nodes[to].receive(at, frame, wires.now)
    wires.run(0.5)
    assert wires.of("a", NeighbourLeft) == [NeighbourLeft("b", "b", restarted=True)]
    assert wires.of("c", NeighbourLeft) == [
        NeighbourLeft("b", "b", restarted=True),
        NeighbourLeft("b2", "b", restarted=True),
    ]
    for name in "ac":
        assert wires.nodes[name].snapshot.nodes == set()
        assert not wires.of(name, NeighbourClosed)


def test_a_node_that_ended_is_a_neighbour_once_it_has_started_again() -> None:
    wires = joined("ab", "ab")
    for link, frame in wires.nodes.pop("a").stop():
        wires.nodes[str(link)].receive("a", frame, wires.now)
    wires.nodes["a"] = Network("a", 100, LIMITS, wires.now)
    wires.nodes["a"].neighbour_up("b", 1, wires.now)
    wires.run(2.5)
    # Nothing is under way between the two.
    assert wires.of("b", NeighbourLeft) == [NeighbourLeft("a", "a", restarted=True)] * 2
    assert wires.nodes["b"].snapshot.nodes == {"a"}


class Parallel:
    """Node `a` with two links, `one` and `two`, to node `b`, which hears it on both."""

    def __init__(self) -> None:
        self.now = 0.0
        self.node = Network("a", 100, LIMITS, 0.0)
        for link in ("one", "two"):
            self.node.neighbour_up(link, 1, 0.0)
            self.hello(link, 100)
        self.node.events()
        assert set(self.node.neighbours()) == {"one", "two"}

    def hello(self, link: str, instance: int, *seen: str) -> None:
        heard = seen or (("a",) if instance else ())
        frame = encode_network_frame(NodeHello("b", instance, 0, heard))
        self.node.receive(link, frame, self.now)

    def left(self) -> list[tuple[Hashable, bool]]:
        """Take the links on which it has left, and whether it was restarted."""
        events = self.node.events()
        assert not [each for each in events if isinstance(each, NeighbourClosed)]
        return [(each.link, each.restarted) for each in events if isinstance(each, NeighbourLeft)]


@pytest.mark.parametrize("instance", [200, 50])  # its clock may go back
@pytest.mark.parametrize("first", ["one", "two"])
def test_a_node_that_is_started_again_on_two_links_is_let_go_on_both(
    first: str, instance: int
) -> None:
    net = Parallel()
    other = "two" if first == "one" else "one"
    net.hello(first, instance, "nobody")
    assert sorted(net.left()) == [("one", True), ("two", True)]
    assert net.node.neighbours() == {}
    net.hello(other, 100)  # it was under way as the node ended
    assert net.node.counts["a hello from before a restart"] == 1
    net.hello(first, instance)
    net.hello(other, instance)
    assert net.left() == []
    assert set(net.node.neighbours()) == {"one", "two"}


def test_a_node_of_which_one_last_hello_is_lost_is_let_go_as_it_starts_again() -> None:
    net = Parallel()
    net.hello("one", ENDED_INSTANCE)
    assert net.left() == [("one", True)]
    net.hello("one", 200)
    assert net.left() == [("one", True), ("two", True)]
    net.hello("two", 200)
    assert set(net.node.neighbours()) == {"one", "two"}
    assert net.left() == []


def test_a_node_of_the_same_name_is_none_that_was_started_again() -> None:
    net = Parallel()
    for instance in (300, 100):  # it says that it is the same one, but hears no node
        net.node.neighbour_up("three", 1, net.now)
        net.hello("three", instance, "nobody")
        net.hello("three", 300, "nobody")
        (closed,) = (each for each in net.node.events() if isinstance(each, NeighbourClosed))
        assert (closed.link, closed.reason) == ("three", "another neighbour has its name")
    assert set(net.node.neighbours()) == {"one", "two"}


def test_a_node_that_was_taken_for_ended_is_a_neighbour_again() -> None:
    # Its link was to another start of it for a while, which has gone without a word.
    net = Parallel()
    net.hello("one", 200)
    net.now = 3.5
    net.hello("one", 100)
    net.hello("two", 100)
    assert net.node.counts["a hello from before a restart"] == 0
    assert set(net.node.neighbours()) == {"one", "two"}
    net.hello("one", 200)
    assert net.node.counts["a hello from before a restart"] == 1


def test_two_starts_of_a_node_at_once_are_told() -> None:
    net = Parallel()
    net.hello("one", 200)
    net.now = 2.5
    net.hello("one", 200)
    net.hello("two", 100)
    assert net.node.counts["a hello from before a restart"] == 1
    net.now = 3.5
    net.hello("two", 100)
    (closed,) = (each for each in net.node.events() if isinstance(each, NeighbourClosed))
    assert (closed.link, closed.reason) == ("two", "another neighbour has its name")
    assert set(net.node.neighbours()) == {"one"}


def test_a_node_that_is_started_again_while_its_names_are_asked_for() -> None:
    wires = joined("abc", "ab", "bc")
    wires.lossy = {"LIST_PART"}
    tell(wires, "b", "a", Advertisement((numbers("x", 1, 1, 1, 1),)))
    tell(wires, "b", "a", states("x", 1, 1, {"a": 1}))
    tell(wires, "b", "a", Advertisement((numbers("x", 2, 1, 1, 1),)))
    tell(wires, "b", "a", states("x", 2, 1, {"a": 1}))
    tell(wires, "b", "a", ListPart(NAMES, "x", 1, 1, 0, True, {"old": BALANCED}))
    assert wires.nodes["b"].counts["an answer that was not asked for"] == 1
    assert wires.nodes["b"].names_of("x") == {}
    wires.run(4.0)
    # The names are asked for once, and a's link states have no x: it is not reached.
    assert wires.nodes["b"].counts["requests without an answer"] == 1


def test_what_is_lost_is_found_again_by_the_sums_in_hellos() -> None:
    wires = joined("abc", "ab", "bc")
    wires.lossy = {"LIST_CHANGE"}
    wires.nodes["a"].names_changed({"orders": BALANCED}, (), wires.now)
    wires.run(0.5)
    wires.lossy = set()
    wires.run(3.0)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {"a": BALANCED}
    assert sum(node.counts["sums that differ"] for node in wires.nodes.values()) >= 1
    # And a change that does not follow shows that one is missing.
    wires.lossy = {"LIST_CHANGE"}
    wires.nodes["a"].names_changed({"one": BALANCED}, (), wires.now)
    wires.run(0.2)
    wires.lossy = set()
    wires.nodes["a"].names_changed({"two": BALANCED}, (), wires.now)
    wires.run(0.2)
    assert wires.nodes["b"].counts["a gap in the changes of a list"] == 1
    assert wires.nodes["b"].names_of("a").keys() == {"orders", "one", "two"}


def test_sums_that_stay_different_make_fewer_and_fewer_advertisements() -> None:
    wires = joined("ab", "ab")
    wires.lossy = {"LIST_PART", "LIST_CHANGE"}
    wires.nodes["a"].names_changed({"orders": BALANCED}, (), wires.now)
    wires.run(200.0)
    assert 5 <= wires.nodes["b"].counts["sums that differ"] <= 12


def test_advertisements_come_each_30_seconds_and_in_flux_each_4() -> None:
    wires = joined("ab", "ab")
    wires.run(25.0)
    before = wires.sent["ADVERTISEMENT"]
    wires.run(60.0)
    assert wires.sent["ADVERTISEMENT"] - before == 4
    wires.cut("ab")
    wires.link("ab")
    wires.run(1.0)
    before = wires.sent["ADVERTISEMENT"]
    wires.run(18.0)
    assert wires.sent["ADVERTISEMENT"] - before == 8


def test_what_is_not_advertised_becomes_stale() -> None:
    wires = joined("abc", "ab", "bc")
    wires.nodes["a"].names_changed({"orders": BALANCED}, (), wires.now)
    wires.run(1.0)
    # b is said to be there by hellos alone.
    wires.lossy = {"ADVERTISEMENT"}
    wires.run(57.5)
    assert "a" in wires.nodes["c"].snapshot.nodes
    wires.run(4.0)
    assert wires.nodes["c"].names_of("a") == {}
    assert wires.nodes["c"].counts["nodes that have become stale"] == 2
    # Late changes of names are not taken.
    tell(wires, "c", "b", ListChange(NAMES, "a", 100, 2, {"x": BALANCED}))
    assert wires.nodes["c"].names_of("a") == {}
    wires.lossy = set()
    wires.run(31.0)
    assert wires.nodes["c"].names_of("a") == {"orders": BALANCED}


def test_two_links_to_one_neighbour_have_the_lower_cost() -> None:
    a, b = Network("a", 1, LIMITS, 0.0), Network("b", 1, LIMITS, 0.0)
    for name, cost in (("dear", 9), ("cheap", 2), ("dear too", 9)):
        a.neighbour_up(name, cost, 0.0)
        b.neighbour_up(name, cost, 0.0)
    now = 0.0
    for _ in range(8):
        for one, other in ((a, b), (b, a)):
            for link, data in one.due(now):
                other.receive(link, data, now)
        now += 0.1
    assert (a.snapshot.cost("b"), a.link_to("b")) == (2, "cheap")
    a.neighbour_lost("cheap", now)
    a.due(now + 0.1)
    assert a.link_to("b") == "dear"
    assert a.link_states()["a"] == {"b": 9}
    a.neighbour_lost("cheap", now)


def test_a_neighbour_that_does_not_hear_this_node_any_more_is_none() -> None:
    wires = joined("ab", "ab")
    tell(wires, "a", "b", NodeHello("b", 100, 0))
    assert wires.nodes["a"].neighbours() == {}
    wires.run(2.0)
    assert wires.nodes["a"].neighbours() == {"b": "b"}


def test_what_was_asked_of_a_lost_neighbour_is_asked_of_another() -> None:
    wires = joined("abc", "ab", "bc", "ac")
    wires.lossy = {"LIST_CHANGE", "LIST_PART"}
    wires.nodes["c"].names_changed({"x": BALANCED}, (), wires.now)
    tell(wires, "a", "b", Advertisement((numbers("c", 100, 50, 2, 1),)))
    wires.lossy = set()
    wires.cut("ab")
    wires.run(4.0)
    assert wires.nodes["a"].names_of("c") == {"x": BALANCED}
    assert wires.nodes["a"].counts["requests without an answer"] == 0


def test_a_change_that_comes_twice_is_applied_once() -> None:
    wires = joined("abc", "ab", "bc", "ac")
    wires.nodes["a"].names_changed({"x": BALANCED}, (), wires.now)
    wires.run(1.0)
    assert wires.sent["LIST_CHANGE"] == 4
    assert wires.of("c", NodesChanged) == [changes("x", joined="a")]


def test_a_change_that_is_known_is_not_read_again() -> None:
    wires = joined("ab", "ab")
    wires.nodes["b"].names_changed({"x": BALANCED}, (), wires.now)
    wires.run(1.0)
    for number, left in ((1, {"b"}), (2, set[str]())):
        broken = dumps((1, 5, 0, "b", 100, number, "no list", ()))
        tell(wires, "a", "b", broken)
        assert set(wires.nodes["a"].neighbours().values()) == left
    assert reason(wires, "a") == "a bad frame: something else where a list has to be"


# --- neighbours that lie ----------------------------------------------------------------------


def tell(wires: Wires, name: str, link: Hashable, frame: NetworkFrame | bytes) -> None:
    """Give a node a frame as if a neighbour had sent it."""
    data = frame if isinstance(frame, bytes) else encode_network_frame(frame)
    wires.nodes[name].receive(link, data, wires.now)


def reason(wires: Wires, name: str) -> str:
    wires.events[name] += wires.nodes[name].events()
    (event,) = wires.of(name, NeighbourClosed)
    assert isinstance(event, NeighbourClosed)
    return event.reason


def test_a_neighbour_with_the_name_of_this_node_is_closed() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].neighbour_up("x", 1, wires.now)
    tell(wires, "a", "x", NodeHello("a", 5, 0))
    assert reason(wires, "a") == "it has the name of this node"
    tell(wires, "a", "x", NodeHello("a", 5, 0))
    assert wires.nodes["a"].counts["a frame on a link that is closed"] == 1
    assert wires.nodes["a"].counts["closed: it has the name of this node"] == 1
    assert wires.nodes["a"].neighbours() == {"b": "b"}


def test_a_neighbour_with_the_name_of_another_neighbour_is_closed() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].neighbour_up("x", 1, wires.now)
    tell(wires, "a", "x", NodeHello("b", 100, 0))
    tell(wires, "a", "x", NodeHello("b", 999, 0))
    assert reason(wires, "a") == "another neighbour has its name"


def test_the_name_of_a_neighbour_that_is_not_let_in_is_told() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].neighbour_up("x", 1, wires.now, "c")
    tell(wires, "a", "x", NodeHello("d", 100, 0))
    wires.events["a"] += wires.nodes["a"].events()
    (event,) = wires.of("a", NeighbourClosed)
    assert event == NeighbourClosed("x", "d", "it has another name than expected")


def test_a_neighbour_that_changes_its_name_is_closed() -> None:
    wires = joined("ab", "ab")
    tell(wires, "a", "b", NodeHello("c", 100, 0, ("a",)))
    assert reason(wires, "a") == "it has another name than before"
    wires.run(0.1)
    assert wires.nodes["a"].snapshot.nodes == frozenset()


def test_a_bad_frame_closes_the_neighbour() -> None:
    wires = joined("ab", "ab")
    tell(wires, "a", "b", b"\x83\1\2\xff")
    assert reason(wires, "a").startswith("a bad frame: ")
    assert wires.nodes["a"].counts["closed: a bad frame"] == 1


def test_a_later_version_is_ignored_and_reported_once() -> None:
    wires = joined("ab", "ab")
    for _ in range(3):
        tell(wires, "a", "b", b"\x83\2\2whatever")
    wires.events["a"] += wires.nodes["a"].events()
    assert wires.of("a", LaterFrames) == [LaterFrames("b", 2)]
    assert wires.nodes["a"].counts["a later version"] == 3
    wires.run(5.0)
    assert wires.nodes["a"].snapshot.nodes == {"b"}


def test_a_flood_closes_the_neighbour() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(frame_rate=10, frame_burst=40))
    for number in range(100):
        tell(wires, "a", "b", Advertisement((numbers("x", number, 1, 0, 0),)))
    assert reason(wires, "a") == "a flood of frames"
    assert wires.nodes["a"].counts["a frame on a link that is closed"] > 50
    # What is slow enough is none.
    wires = joined("ab", "ab", limits=NetworkLimits(frame_rate=10, frame_burst=40))
    for _ in range(100):
        wires.run(0.2)
        tell(wires, "a", "b", Advertisement(()))
    assert wires.of("a", NeighbourClosed) == []


def answered(wires: Wires, name: str) -> int:
    """Return the bytes of the answers that a node sends now."""
    sent = wires.nodes[name].due(wires.now)
    kinds = (NetworkFrameKind.LINKS_UPDATE, NetworkFrameKind.LIST_PART)
    return sum(len(data) for _, data in sent if data[2] in kinds)


def test_an_answer_is_given_once_in_a_while() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].names_changed({"x" * 500: BALANCED}, (), wires.now)
    wires.run(1.0)
    answered(wires, "a")
    for request in (LinksRequest(("a", "b")), ListRequest(NAMES, "a", 100)):
        tell(wires, "a", "b", request)
        assert answered(wires, "a") > 0
        for _ in range(5):
            tell(wires, "a", "b", request)
        assert answered(wires, "a") == 0
    assert wires.nodes["a"].counts["a request that is repeated or beyond answer_rate"] == 15
    # What is new is answered at once, and the rest after a while.
    wires.nodes["a"].names_changed({"y": BALANCED}, (), wires.now)
    wires.run(0.2)
    tell(wires, "a", "b", ListRequest(NAMES, "a", 100))
    assert answered(wires, "a") > 500
    wires.run(2.0)
    tell(wires, "a", "b", LinksRequest(("a", "b")))
    assert answered(wires, "a") > 0


def test_a_list_of_a_later_start_is_another_answer() -> None:
    wires = joined("abc", "ab", "ac")
    for instance in (1, 2):
        tell(wires, "a", "c", Advertisement((numbers("x", instance, 1, 1),)))
        tell(wires, "a", "c", states("x", instance, 1, {"c": 1}))
        tell(wires, "a", "c", ListChange(NAMES, "x", instance, 1, {"y": BALANCED}))
        answered(wires, "a")
        tell(wires, "a", "b", ListRequest(NAMES, "x", instance))
        assert answered(wires, "a") > 0


def test_answers_have_so_many_bytes_each_second() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(answer_rate=50_000))
    names = {f"{number:0500}": BALANCED for number in range(200)}
    wires.nodes["a"].names_changed(names, (), wires.now)
    wires.run(5.0)
    total = 0
    for number in range(30):
        wires.nodes["a"].names_changed({f"more/{number}": BALANCED}, (), wires.now)
        wires.now += 0.3
        tell(wires, "a", "b", NodeHello("b", 100, 0, ("a",)))
        answered(wires, "a")
        tell(wires, "a", "b", ListRequest(NAMES, "a", 100))
        total += answered(wires, "a")
    # In 9 seconds: what was saved, and the last answer, may be on top.
    assert 300_000 < total < 9 * 50_000 + 50_000 + 110_000
    assert wires.of("a", NeighbourClosed) == []


@pytest.mark.parametrize("nodes", [["b"] * 2, [f"n{number}" for number in range(129)]])
def test_a_request_for_much_is_a_bad_frame(nodes: list[str]) -> None:
    wires = joined("ab", "ab")
    tell(wires, "a", "b", dumps((1, 3, nodes)))
    assert reason(wires, "a").startswith("a bad frame: ")


def test_frames_before_the_hellos_are_ignored() -> None:
    wires = Wires("a")
    wires.nodes["a"].neighbour_up("b", 1, 0.0)
    tell(wires, "a", "b", Advertisement((numbers("b", 1, 1, 1, 0),)))
    tell(wires, "a", "b", NodeHello("b", 1, 0))
    tell(wires, "a", "b", Advertisement((numbers("b", 1, 1, 1, 0),)))
    assert wires.nodes["a"].counts["a frame before the hellos"] == 2
    # Silent again, without ever having been a neighbour.
    wires.run(4.0)
    assert wires.events["a"] == []


def test_a_lie_about_the_cost_of_a_link_does_not_attract_messages() -> None:
    wires = Wires("abc")
    wires.link("ab", 10, 1)
    wires.link("bc", 10, 1)
    wires.link("ac", 15)
    wires.run(1.0)
    assert wires.nodes["a"].snapshot.next_hop("c") == "c"
    assert wires.nodes["b"].counts["costs that differ"] == 2
    assert CostsDiffer("b", 10, 1) in wires.events["a"]
    # It is reported once, until it is another lie.
    wires.cut("ac")
    wires.run(1.0)
    assert wires.nodes["a"].counts["costs that differ"] == 1


def test_a_lie_about_another_node_lasts_until_that_node_hears_of_it() -> None:
    wires = joined("abc", "ab", "bc")
    wires.nodes["a"].names_changed({"orders": BALANCED}, (), wires.now)
    wires.run(1.0)
    told = numbers("a", 100, 50, 40, 30)
    tell(wires, "c", "b", Advertisement((told,)))
    tell(wires, "c", "b", states("a", 100, 40, {"z": 1}))
    tell(wires, "c", "b", ListPart(NAMES, "a", 100, 30, 0, True, {"stolen": BALANCED}))
    assert dict(wires.nodes["c"].nodes_of("stolen")) == {"a": BALANCED}
    wires.run(10.0)
    assert dict(wires.nodes["c"].nodes_of("stolen")) == {}
    assert wires.nodes["c"].names_of("a") == {"orders": BALANCED}
    assert wires.nodes["c"].snapshot.nodes == {"a", "b"}
    assert wires.of("a", NameClaimed) == [NameClaimed("b", 100)]


def test_a_claim_of_this_nodes_name_is_outdone_but_not_too_often() -> None:
    wires = joined("abc", "ab", "bc")
    for instance in (500, 600, 700):
        tell(wires, "a", "b", Advertisement((numbers("a", instance, 1, 1, 0),)))
    assert wires.nodes["a"].instance == 501
    assert wires.nodes["a"].counts["something told as of this node"] == 3
    wires.run(2.0)
    assert wires.nodes["c"].snapshot.nodes == {"a", "b"}
    assert wires.nodes["b"].neighbours() == {"a": "a", "c": "c"}


def invent(wires: Wires, name: str, link: str, *nodes: str) -> None:
    """Tell a node of nodes that are not there, each with a link to the one that tells it."""
    for node in nodes:
        tell(wires, name, link, Advertisement((numbers(node, 1, 1, 1),)))
        tell(wires, name, link, states(node, 1, 1, {link: 1}))


def test_nodes_beyond_the_limit_are_ignored_and_counted() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(max_nodes=4))
    invent(wires, "a", "b", *(f"x{number}" for number in range(10)))
    assert wires.nodes["a"].counts["a node beyond max_nodes"] == 8
    assert wires.nodes["a"].link_states().keys() == {"a", "b", "x0", "x1"}
    # b has no link to them, so they cannot be reached; nor can the nodes that they tell of.
    wires.run(0.1)
    assert wires.nodes["a"].snapshot.nodes == {"b"}


def test_nodes_that_are_only_advertised_take_no_room() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(max_nodes=4))
    many = tuple(numbers(f"x{number}", 1, 1, 1) for number in range(10))
    tell(wires, "a", "b", Advertisement(many))
    assert wires.nodes["a"].link_states().keys() == {"a", "b"}
    invent(wires, "a", "b", "y")
    # Four requests are under way already.
    assert "y" not in wires.nodes["a"].link_states()
    wires.run(3.0)
    assert wires.nodes["a"].counts["requests without an answer"] == 4
    invent(wires, "a", "b", "y")
    assert "y" in wires.nodes["a"].link_states()


def test_invented_nodes_do_not_take_the_room_of_other_neighbours() -> None:
    wires = joined("abc", "ab", "ac", limits=NetworkLimits(max_nodes=10))
    invent(wires, "a", "b", *(f"x{number}" for number in range(9)))
    assert len(wires.nodes["a"].link_states()) == 10
    wires.nodes["a"].due(wires.now)
    invent(wires, "a", "c", "d", "e", "f", "g", "h")
    known = wires.nodes["a"].link_states().keys()
    assert known == {"a", "b", "c", "d", "e", "f", "x0", "x1", "x2", "x3"}
    assert wires.nodes["a"].counts["a node beyond the share of a neighbour"] == 3
    assert wires.nodes["a"].counts["a node beyond max_nodes"] == 4


def test_a_stale_node_makes_room() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(max_nodes=3))
    invent(wires, "a", "b", "x")
    wires.run(65.0)
    invent(wires, "a", "b", "y")
    assert wires.nodes["a"].link_states().keys() == {"a", "b", "y"}


def test_links_beyond_the_limit_are_closed() -> None:
    node = Network("a", 1, NetworkLimits(max_neighbours=1), 0.0)
    node.neighbour_up("x", 1, 0.0)
    node.neighbour_up("y", 1, 0.0)
    assert node.events() == [NeighbourClosed("y", "", "more than 1 links to neighbours")]


def test_names_beyond_the_limit_are_counted() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(max_names=2))
    wires.nodes["b"].names_changed(dict.fromkeys("xyz", BALANCED), (), wires.now)
    wires.run(2.0)
    assert len(wires.nodes["a"].names_of("b")) == 2
    assert wires.nodes["a"].counts["names beyond the limits"] == 1


def test_answers_without_a_question_are_ignored_and_counted() -> None:
    wires = joined("abc", "ab", "bc")
    for frame in (
        states("c", 100, 99, {"a": 1}),
        ListPart(NAMES, "c", 100, 9, 0, True, {"x": BALANCED}),
        ListPart(NAMES, "x", 100, 9, 0, True, {"x": BALANCED}),
    ):
        tell(wires, "a", "b", frame)
    assert wires.nodes["a"].counts["an answer that was not asked for"] == 3
    assert wires.nodes["a"].names_of("c") == {}
    # Nor is what was asked for, but is older, or comes in the wrong order.
    tell(wires, "a", "b", Advertisement((numbers("c", 100, 50, 9, 9),)))
    tell(wires, "a", "b", states("c", 100, 1, {"a": 1}))
    assert wires.nodes["a"].counts["link states that are not newer"] == 1
    tell(wires, "a", "b", ListPart(NAMES, "c", 100, 9, 4, True, {"x": BALANCED}))
    assert wires.nodes["a"].counts["parts of a list out of order"] == 1
    tell(wires, "a", "b", ListChange(NAMES, "nobody", 1, 1, {"x": BALANCED}))
    assert wires.nodes["a"].counts["a list of a node that is not known"] == 1


def test_requests_for_what_is_not_known_have_no_answer() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].due(wires.now)
    tell(wires, "a", "b", LinksRequest(("x", "y")))
    tell(wires, "a", "b", ListRequest(NAMES, "x", 5))
    assert wires.nodes["a"].due(wires.now) == []
    wires.run(2.0)
    wires.nodes["a"].due(wires.now)
    tell(wires, "a", "b", LinksRequest(("b",)))
    ((_, data),) = wires.nodes["a"].due(wires.now)
    assert decode_network_frame(data) == states("b", 100, 1, {"a": 1})


def test_names_of_a_node_without_a_path_are_not_kept() -> None:
    wires = joined("ab", "ab")
    invent(wires, "a", "b", "far")
    tell(wires, "a", "b", ListChange(NAMES, "far", 1, 1, {"x": BALANCED}))
    assert dict(wires.nodes["a"].nodes_of("x")) == {"far": BALANCED}
    wires.run(1.1)
    assert dict(wires.nodes["a"].nodes_of("x")) == {}


def test_an_advertisement_of_a_later_start_voids_nothing() -> None:
    wires = joined("abc", "ab", "bc")
    wires.nodes["a"].names_changed({"orders": BALANCED}, (), wires.now)
    wires.run(1.0)
    tell(wires, "b", "c", Advertisement((numbers("a", 100_000, 9, 9, 9),)))
    for _ in range(1300):
        wires.run(0.1)
        for node in "bc":
            assert wires.nodes[node].names_of("a") == {"orders": BALANCED}
            assert "a" in wires.nodes[node].snapshot.nodes
    # It was asked for, and c has told what it holds.
    assert wires.nodes["b"].counts["link states that are not newer"] == 1


def test_link_states_of_a_later_start_that_are_false_do_not_last() -> None:
    wires = joined("abc", "ab", "bc")
    wires.nodes["a"].names_changed({"orders": BALANCED}, (), wires.now)
    wires.run(1.0)
    tell(wires, "b", "c", Advertisement((numbers("a", 100_000, 9, 9, 9),)))
    tell(wires, "b", "c", states("a", 100_000, 9, {"z": 1}))
    assert wires.nodes["b"].names_of("a") == {}
    wires.run(0.2)
    for node in "bc":
        assert wires.nodes[node].names_of("a") == {"orders": BALANCED}
        assert "a" in wires.nodes[node].snapshot.nodes
    assert wires.nodes["a"].instance == 100_001


def test_false_numbers_of_a_node_do_not_keep_it_from_being_known() -> None:
    # A neighbour tells of a node that is not known yet, and does not answer.
    wires = joined("abc", "ab")
    tell(wires, "b", "a", Advertisement((numbers("c", 50_000, 9, 9, 9),)))
    wires.link("bc")
    wires.run(0.2)
    assert wires.nodes["b"].snapshot.nodes == {"a", "c"}


def test_a_claim_ahead_of_the_clock_is_refused_in_changes_and_in_lists() -> None:
    wires = joined("abc", "ab")
    a, b = wires.nodes["a"], wires.nodes["b"]
    most = 100 + int(1000 * (wires.now + LIMITS.max_ahead))
    claims = {"newest": ToldName(0, MAX_NUMBER), "most": ToldName(0, most)}
    a.names_changed(claims, (), wires.now)
    wires.run(1.0)
    assert b.names_of("a") == {"most": claims["most"]}
    assert b.counts["claims ahead of the clock"] == 1
    # A claim that is known already stays as it is.
    a.names_changed({"most": ToldName(0, MAX_NUMBER)}, (), wires.now)
    wires.run(1.0)
    assert b.names_of("a") == {"most": claims["most"]}
    # So it is in the whole list, which a node asks for that joins later.
    wires.link("ac")
    wires.run(2.0)
    assert wires.nodes["c"].names_of("a") == {}
    assert wires.nodes["c"].counts["claims ahead of the clock"] == 2


def test_a_start_ahead_of_the_clock_is_refused_and_not_passed_on() -> None:
    day = 86_400_000
    wires = joined("abc", "ab", "bc")
    before = wires.nodes["c"].link_states()
    tell(wires, "b", "a", Advertisement((numbers("c", MAX_NUMBER, 1, 1),)))
    tell(wires, "b", "a", Advertisement((numbers("x", 100 + day + 2_000, 1, 1),)))
    assert wires.nodes["b"].counts["a start ahead of the clock"] == 2
    assert wires.nodes["b"].due(wires.now) == []
    # The clock of this node goes on.
    wires.run(1.0)
    tell(wires, "b", "a", Advertisement((numbers("x", 100 + day + 2_000, 1, 1),)))
    assert wires.nodes["b"].counts["a start ahead of the clock"] == 2
    # Nor are link states of a start that was not advertised, or a neighbour.
    tell(wires, "b", "a", states("x", MAX_NUMBER, 1, {"a": 1}))
    assert wires.nodes["b"].counts["a start ahead of the clock"] == 3
    assert wires.nodes["c"].link_states() == before
    tell(wires, "b", "a", NodeHello("a", MAX_NUMBER, 0, ("b",)))
    assert reason(wires, "b") == "its start is ahead of the clock"


def test_a_link_is_not_joined_before_both_ends_have_heard_each_other() -> None:
    wires = Wires("ab")
    a = wires.nodes["a"]
    assert not a.is_joined("b")
    wires.link("ab")
    assert not a.is_joined("b")
    wires.run(1.0)
    assert a.is_joined("b")
    wires.cut("ab")
    assert not a.is_joined("b")


def test_a_neighbour_has_to_be_the_expected_one() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].neighbour_up("right", 1, wires.now, "c")
    wires.nodes["a"].neighbour_up("wrong", 1, wires.now, "c")
    tell(wires, "a", "right", NodeHello("c", 100, 0, ("a",)))
    tell(wires, "a", "wrong", NodeHello("d", 100, 0, ("a",)))
    assert reason(wires, "a") == "it has another name than expected"
    assert wires.nodes["a"].neighbours() == {"b": "b", "right": "c"}


def test_own_input_is_checked_and_changes_nothing() -> None:
    for bad in ("", "all", "a/b"):
        with pytest.raises(BadName):
            Network(bad, 1, LIMITS, 0.0)
    for instance in (-1, ENDED_INSTANCE, MAX_NUMBER + 1):
        with pytest.raises(ValueError, match="the instance"):
            Network("a", instance, LIMITS, 0.0)
    node = Network("a", 1, LIMITS, 0.0)
    for cost in (0, -1, MAX_COST + 1):
        with pytest.raises(ValueError, match=f"the cost {cost} is none from 1"):
            node.neighbour_up("x", cost, 0.0)
    with pytest.raises(BadName):
        node.neighbour_up("x", 1, 0.0, "a/b")
    node.neighbour_up("x", 1, 0.0)
    with pytest.raises(ValueError, match="there already"):
        node.neighbour_up("x", 1, 0.0)
    for name in ("_local/x", "_temp/a/1", "_topo/b/x", "/x", "amqp:/x", "", "n" * 513):
        with pytest.raises(BadName):
            node.names_changed({"good": BALANCED, name: BALANCED}, (), 0.0)
    for told in (ToldName(-1), ToldName(256), ToldName(2, -1), ToldName(2, MAX_NUMBER + 1)):
        with pytest.raises(ValueError, match="is none from 0"):
            node.names_changed({"x": told}, (), 0.0)
    for pattern in ("_local/x", "_topo/#", "_temp", "a/b", "#.*", ".a", ""):
        with pytest.raises(BadPattern):
            node.provisions_changed({"good": b"x", pattern: b"x"}, (), 0.0)
    for semantics in (b"", bytes(MAX_SEMANTICS + 1)):
        with pytest.raises(ValueError, match="the size of semantics"):
            node.provisions_changed({"x": semantics}, (), 0.0)
    assert all(data[2] == NetworkFrameKind.HELLO for _, data in node.due(0.5))


def test_provisions_are_told_to_all_like_names() -> None:
    wires = joined("abc", "ab", "bc")
    a, c = wires.nodes["a"], wires.nodes["c"]
    a.provisions_changed({"orders.#": b"one", "prices": b"two"}, (), wires.now)
    wires.run(1.0)
    assert c.provisions_of("a") == {"orders.#": b"one", "prices": b"two"}
    assert c.provisions_of("b") == {}
    assert wires.of("c", ProvisionsTold) == [
        ProvisionsTold("a", {"orders.#": b"one", "prices": b"two"}, frozenset())
    ]
    a.provisions_changed({"orders.#": b"three"}, ("prices",), wires.now)
    wires.run(1.0)
    assert wires.of("c", ProvisionsTold)[1:] == [
        ProvisionsTold("a", {"orders.#": b"three"}, frozenset({"prices"}))
    ]
    # A node that joins later asks for them, and those of a node without a path are let go.
    wires.nodes["d"] = Network("d", 100, LIMITS, wires.now)
    wires.events["d"] = []
    wires.link("cd")
    wires.run(1.0)
    assert wires.nodes["d"].provisions_of("a") == {"orders.#": b"three"}
    wires.cut("ab")
    wires.run(2.0)
    assert wires.nodes["d"].provisions_of("a") == {}
    assert wires.of("d", ProvisionsTold)[-1] == ProvisionsTold("a", {}, frozenset({"orders.#"}))


def test_lists_beyond_the_limits_are_counted() -> None:
    limits = NetworkLimits(max_names_of_node=2, max_provisions_of_node=1)
    wires = joined("ab", "ab", limits=limits)
    wires.nodes["b"].names_changed(dict.fromkeys("xyz", BALANCED), (), wires.now)
    wires.nodes["b"].provisions_changed(dict.fromkeys("xyz", b"x"), (), wires.now)
    wires.run(2.0)
    assert wires.nodes["a"].names_of("b").keys() == {"x", "y"}
    assert wires.nodes["a"].counts["names beyond the limits"] == 1
    assert wires.nodes["a"].counts["provisions beyond the limits"] == 2


def test_what_a_node_tells_of_a_name_may_change() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].names_changed({"x": DIRECT}, (), wires.now)
    wires.run(1.0)
    wires.nodes["a"].names_changed({"x": ToldName(0, 99)}, (), wires.now)
    wires.run(1.0)
    wires.nodes["a"].names_changed({}, ("x",), wires.now)
    wires.run(1.0)
    told = [changes("x", joined="a"), changes("x"), changes("x", left="a")]
    assert wires.of("b", NodesChanged) == told
    assert list(wires.nodes["b"].names()) == []


def test_repeated_parts_do_not_renew_a_wait() -> None:
    wires = joined("ab", "ab")
    node = wires.nodes["a"]
    first = ListPart(NAMES, "b", 100, 9, 0, False, {"x": BALANCED})
    tell(wires, "a", "b", Advertisement((numbers("b", 100, 50, 1, 9),)))
    tell(wires, "a", "b", first)
    tell(wires, "a", "b", first)
    assert node.counts["parts of a list out of order"] == 1
    tell(wires, "a", "b", first)
    assert node.counts["an answer that was not asked for"] == 1
    # Parts that go on for ever are awaited for as long as a node may be silent.
    node.due(wires.now)
    tell(wires, "a", "b", Advertisement((numbers("b", 100, 51, 1, 9),)))
    for part in range(100):
        tell(wires, "a", "b", ListPart(NAMES, "b", 100, 9, part, False, {f"{part}": BALANCED}))
        wires.now += 1.0
        node.due(wires.now)
        tell(wires, "a", "b", NodeHello("b", 100, 0, ("a",)))
        tell(wires, "a", "b", Advertisement((numbers("b", 100, 52 + part, 1, 8),)))
    assert node.counts["requests without an answer"] == 1
    assert node.names_of("b") == {}


def test_parts_of_a_request_before_are_not_mixed_with_those_of_the_next() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].due(wires.now)
    tell(wires, "a", "b", Advertisement((numbers("b", 100, 50, 1, 9),)))
    tell(wires, "a", "b", ListPart(NAMES, "b", 100, 9, 0, False, {"x": BALANCED}))
    wires.lossy = {"LIST_PART"}
    wires.run(3.0)
    tell(wires, "a", "b", Advertisement((numbers("b", 100, 51, 1, 10),)))
    tell(wires, "a", "b", ListPart(NAMES, "b", 100, 10, 0, True, {"y": BALANCED}))
    assert wires.nodes["a"].names_of("b") == {"y": BALANCED}
    assert wires.nodes["a"].counts["parts of a list out of order"] == 0


def test_a_flood_of_news_is_gathered_for_longer_and_longer() -> None:
    wires = joined("abc", "ab", "bc")
    wires.run(30.0)
    before, epoch = wires.sent["ADVERTISEMENT"], wires.nodes["b"].snapshot.epoch
    for number in range(1000):
        tell(wires, "b", "a", Advertisement((numbers("x", 1, number, number + 1),)))
        tell(wires, "b", "a", states("x", 1, number + 1, {"a": number + 1}))
        wires.run(0.01)
    assert 20 <= wires.nodes["b"].snapshot.epoch - epoch <= 40
    assert wires.sent["ADVERTISEMENT"] - before <= 120
    # The first one after a rest is passed on at once.
    wires.run(3.0)
    epoch = wires.nodes["b"].snapshot.epoch
    tell(wires, "b", "a", Advertisement((numbers("x", 1, 5000, 5000),)))
    tell(wires, "b", "a", states("x", 1, 5000, {"a": 1}))
    wires.run(0.001)
    assert wires.nodes["b"].snapshot.epoch == epoch + 1


@pytest.mark.parametrize("instance", [0, 86_000_000])
def test_instances_at_the_ends_of_their_range_are_taken(instance: int) -> None:
    wires = joined("ab", "ab")
    tell(wires, "a", "b", Advertisement((numbers("x", instance, 1, 0, 0),)))
    assert wires.of("a", NeighbourClosed) == []
