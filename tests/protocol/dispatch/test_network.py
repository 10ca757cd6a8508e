"""A network of a few nodes, wired together in memory, and neighbours that lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import pytest

from onward.protocol.dispatch import (
    MAX_NUMBER,
    Advertisement,
    CostsDiffer,
    LaterFrames,
    LinksRequest,
    LinksUpdate,
    NameClaimed,
    NamesChange,
    NamesPart,
    NamesRequest,
    NeighbourClosed,
    NeighbourJoined,
    NeighbourLeft,
    Network,
    NetworkEvent,
    NetworkFrame,
    NetworkFrameKind,
    NetworkLimits,
    NodeHello,
    NodeNumbers,
    NodesChanged,
    PathsChanged,
    decode_network_frame,
    encode_network_frame,
)

LIMITS = NetworkLimits()


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
    assert wires.of("a", NeighbourJoined) == [NeighbourJoined("b", "b")]
    epochs = [each.paths.epoch for each in wires.events["a"] if isinstance(each, PathsChanged)]
    assert epochs == sorted(set(epochs))
    assert wires.nodes["a"].snapshot.epoch == epochs[-1]


def test_names_are_told_to_all_and_changes_follow() -> None:
    wires = joined("abc", "ab", "bc")
    a, c = wires.nodes["a"], wires.nodes["c"]
    a.names_changed({"orders": "direct", "gone": ""}, (), wires.now)
    a.names_changed({}, ("gone",), wires.now)
    wires.run(1.0)
    assert dict(c.nodes_of("orders")) == {"a": "direct"}
    assert c.names_of("a") == {"orders": "direct"}
    assert c.names_of("x") == {}
    assert wires.of("c", NodesChanged) == [NodesChanged(frozenset({"orders"}))]
    before = wires.sent.copy()
    a.names_changed({"prices": ""}, ("orders",), wires.now)
    wires.run(1.0)
    assert (dict(c.nodes_of("orders")), dict(c.nodes_of("prices"))) == ({}, {"a": ""})
    more = wires.sent - before
    assert more["NAMES_CHANGE"] == 2  # once over each link
    assert not more["NAMES_REQUEST"]


def test_a_node_that_joins_later_learns_all_names() -> None:
    wires = joined("abcd", "ab", "bc")
    names = {f"{number:0300}": "" for number in range(300)}
    wires.nodes["a"].names_changed(names, (), 0.0)
    wires.run(1.0)
    wires.link("cd")
    wires.run(1.0)
    assert wires.nodes["d"].names_of("a") == names
    assert wires.sent["NAMES_PART"] > 2


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
    wires.nodes["a"].names_changed({"orders": ""}, (), wires.now)
    wires.run(1.0)
    wires.cut("ab")
    wires.run(0.9)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {"a": ""}
    wires.run(0.2)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {}
    wires.link("ab")
    wires.run(1.0)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {"a": ""}
    # One that is back in time is not let go.
    before = wires.sent["NAMES_REQUEST"]
    wires.cut("ab")
    wires.run(0.5)
    wires.link("ab")
    wires.run(2.0)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {"a": ""}
    assert wires.sent["NAMES_REQUEST"] == before


def test_a_node_that_is_started_again_is_known_anew() -> None:
    wires = joined("abc", "ab", "bc")
    wires.nodes["a"].names_changed({"orders": "", "old": ""}, (), wires.now)
    wires.run(1.0)
    # The link to b has not noticed.
    wires.nodes["a"] = Network("a", 200, LIMITS, wires.now)
    wires.nodes["a"].neighbour_up("b", 1, wires.now)
    wires.nodes["a"].names_changed({"orders": "new"}, (), wires.now)
    wires.run(2.5)
    assert wires.nodes["c"].names_of("a") == {"orders": "new"}
    assert wires.nodes["c"].snapshot.nodes == {"a", "b"}
    assert wires.of("b", NeighbourLeft) == [NeighbourLeft("a", "a")]


def test_a_node_that_is_started_again_while_its_names_are_asked_for() -> None:
    wires = joined("abc", "ab", "bc")
    wires.lossy = {"LINKS_UPDATE", "NAMES_PART"}
    tell(wires, "b", "a", Advertisement((NodeNumbers("x", 1, 1, 1, 1),)))
    tell(wires, "b", "a", Advertisement((NodeNumbers("x", 2, 1, 1, 1),)))
    assert wires.nodes["b"].counts["requests without an answer"] == 0
    wires.run(4.0)
    # Two of the second start: those of the first are forgotten with it.
    assert wires.nodes["b"].counts["requests without an answer"] == 2


def test_what_is_lost_is_found_again_by_the_sums_in_hellos() -> None:
    wires = joined("abc", "ab", "bc")
    wires.lossy = {"NAMES_CHANGE"}
    wires.nodes["a"].names_changed({"orders": ""}, (), wires.now)
    wires.run(0.5)
    wires.lossy = set()
    wires.run(3.0)
    assert dict(wires.nodes["c"].nodes_of("orders")) == {"a": ""}
    assert sum(node.counts["sums that differ"] for node in wires.nodes.values()) >= 1
    # And a change that does not follow shows that one is missing.
    wires.lossy = {"NAMES_CHANGE"}
    wires.nodes["a"].names_changed({"one": ""}, (), wires.now)
    wires.run(0.2)
    wires.lossy = set()
    wires.nodes["a"].names_changed({"two": ""}, (), wires.now)
    wires.run(0.2)
    assert wires.nodes["b"].counts["a gap in the changes of names"] == 1
    assert wires.nodes["b"].names_of("a").keys() == {"orders", "one", "two"}


def test_sums_that_stay_different_make_fewer_and_fewer_advertisements() -> None:
    wires = joined("ab", "ab")
    wires.lossy = {"NAMES_PART", "NAMES_CHANGE"}
    wires.nodes["a"].names_changed({"orders": ""}, (), wires.now)
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
    wires.nodes["a"].names_changed({"orders": ""}, (), wires.now)
    wires.run(1.0)
    # b is said to be there by hellos alone.
    wires.lossy = {"ADVERTISEMENT"}
    wires.run(58.0)
    assert "a" in wires.nodes["c"].snapshot.nodes
    wires.run(4.0)
    assert wires.nodes["c"].names_of("a") == {}
    assert wires.nodes["c"].counts["nodes that have become stale"] == 2
    # Late changes of names are not taken.
    tell(wires, "c", "b", NamesChange("a", 100, 2, {"x": ""}))
    assert wires.nodes["c"].names_of("a") == {}
    wires.lossy = set()
    wires.run(31.0)
    assert wires.nodes["c"].names_of("a") == {"orders": ""}


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
    wires.lossy = {"NAMES_CHANGE", "NAMES_PART"}
    wires.nodes["c"].names_changed({"x": ""}, (), wires.now)
    tell(wires, "a", "b", Advertisement((NodeNumbers("c", 100, 50, 2, 1),)))
    wires.lossy = set()
    wires.cut("ab")
    wires.run(4.0)
    assert wires.nodes["a"].names_of("c") == {"x": ""}
    assert wires.nodes["a"].counts["requests without an answer"] == 0


def test_a_change_that_comes_twice_is_applied_once() -> None:
    wires = joined("abc", "ab", "bc", "ac")
    wires.nodes["a"].names_changed({"x": ""}, (), wires.now)
    wires.run(1.0)
    assert wires.sent["NAMES_CHANGE"] == 4
    assert wires.of("c", NodesChanged) == [NodesChanged(frozenset("x"))]


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
        tell(wires, "a", "b", Advertisement((NodeNumbers("x", number, 1, 0, 0),)))
    assert reason(wires, "a") == "a flood of frames"
    assert wires.nodes["a"].counts["a frame on a link that is closed"] > 50
    # What is slow enough is none.
    wires = joined("ab", "ab", limits=NetworkLimits(frame_rate=10, frame_burst=40))
    for _ in range(100):
        wires.run(0.2)
        tell(wires, "a", "b", Advertisement(()))
    assert wires.of("a", NeighbourClosed) == []


def test_requests_for_much_are_a_flood_too() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(frame_rate=10, frame_burst=40))
    names = {f"{number:0500}": "" for number in range(1000)}
    wires.nodes["a"].names_changed(names, (), wires.now)
    wires.nodes["a"].due(wires.now + 1.0)
    for _ in range(4):
        tell(wires, "a", "b", NamesRequest("a", 100))
    assert reason(wires, "a") == "a flood of frames"


def test_frames_before_the_hellos_are_ignored() -> None:
    wires = Wires("a")
    wires.nodes["a"].neighbour_up("b", 1, 0.0)
    tell(wires, "a", "b", Advertisement((NodeNumbers("b", 1, 1, 1, 0),)))
    tell(wires, "a", "b", NodeHello("b", 1, 0))
    tell(wires, "a", "b", Advertisement((NodeNumbers("b", 1, 1, 1, 0),)))
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
    wires.nodes["a"].names_changed({"orders": ""}, (), wires.now)
    wires.run(1.0)
    told = NodeNumbers("a", 100, 50, 40, 30)
    tell(wires, "c", "b", Advertisement((told,)))
    tell(wires, "c", "b", LinksUpdate("a", 100, 40, {"z": 1}))
    tell(wires, "c", "b", NamesPart("a", 100, 30, 0, True, {"stolen": ""}))
    assert dict(wires.nodes["c"].nodes_of("stolen")) == {"a": ""}
    wires.run(10.0)
    assert dict(wires.nodes["c"].nodes_of("stolen")) == {}
    assert wires.nodes["c"].names_of("a") == {"orders": ""}
    assert wires.nodes["c"].snapshot.nodes == {"a", "b"}
    assert wires.of("a", NameClaimed) == [NameClaimed("b", 100)]


def test_a_claim_of_this_nodes_name_is_outdone_but_not_too_often() -> None:
    wires = joined("abc", "ab", "bc")
    for instance in (500, 600, 700):
        tell(wires, "a", "b", Advertisement((NodeNumbers("a", instance, 1, 1, 0),)))
    assert wires.nodes["a"].instance == 501
    assert wires.nodes["a"].counts["something told as of this node"] == 3
    wires.run(2.0)
    assert wires.nodes["c"].snapshot.nodes == {"a", "b"}
    assert wires.nodes["b"].neighbours() == {"a": "a", "c": "c"}


def test_nodes_beyond_the_limit_are_ignored_and_counted() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(max_nodes=4))
    many = tuple(NodeNumbers(f"x{number}", 1, 1, 1, 0) for number in range(10))
    tell(wires, "a", "b", Advertisement(many))
    assert wires.nodes["a"].counts["a node beyond max_nodes"] == 8
    tell(wires, "a", "b", LinksUpdate("x0", 1, 1, {f"y{number}": 1 for number in range(9)}))
    wires.run(0.1)
    assert len(wires.nodes["a"].snapshot.graph.names) == 4
    assert wires.nodes["a"].counts["made-up nodes that are left out"] > 0


def test_links_beyond_the_limit_are_closed() -> None:
    node = Network("a", 1, NetworkLimits(max_neighbours=1), 0.0)
    node.neighbour_up("x", 1, 0.0)
    node.neighbour_up("y", 1, 0.0)
    assert node.events() == [NeighbourClosed("y", "", "more than 1 links to neighbours")]


def test_names_beyond_the_limit_are_counted() -> None:
    wires = joined("ab", "ab", limits=NetworkLimits(max_names=2))
    wires.nodes["b"].names_changed(dict.fromkeys("xyz", ""), (), wires.now)
    wires.run(2.0)
    assert len(wires.nodes["a"].names_of("b")) == 2
    assert wires.nodes["a"].counts["names beyond max_names"] == 1


def test_answers_without_a_question_are_ignored_and_counted() -> None:
    wires = joined("abc", "ab", "bc")
    for frame in (
        LinksUpdate("c", 100, 99, {"a": 1}),
        NamesPart("c", 100, 9, 0, True, {"x": ""}),
        NamesPart("x", 100, 9, 0, True, {"x": ""}),
    ):
        tell(wires, "a", "b", frame)
    assert wires.nodes["a"].counts["an answer that was not asked for"] == 3
    assert wires.nodes["a"].names_of("c") == {}
    # Nor is what was asked for, but is older, or comes in the wrong order.
    tell(wires, "a", "b", Advertisement((NodeNumbers("c", 100, 50, 9, 9),)))
    tell(wires, "a", "b", LinksUpdate("c", 100, 1, {"a": 1}))
    assert wires.nodes["a"].counts["link states that are not newer"] == 1
    tell(wires, "a", "b", NamesPart("c", 100, 9, 4, True, {"x": ""}))
    assert wires.nodes["a"].counts["parts of names out of order"] == 1
    tell(wires, "a", "b", NamesChange("nobody", 1, 1, {"x": ""}))
    assert wires.nodes["a"].counts["names of a node that is not known"] == 1


def test_requests_for_what_is_not_known_have_no_answer() -> None:
    wires = joined("ab", "ab")
    wires.nodes["a"].due(wires.now)
    tell(wires, "a", "b", LinksRequest(("x", "y")))
    tell(wires, "a", "b", NamesRequest("x", 5))
    assert wires.nodes["a"].due(wires.now) == []
    tell(wires, "a", "b", LinksRequest(("b",)))
    ((_, data),) = wires.nodes["a"].due(wires.now)
    assert decode_network_frame(data) == LinksUpdate("b", 100, 1, {"a": 1})


def test_names_of_a_node_without_a_path_are_not_kept() -> None:
    wires = joined("ab", "ab")
    tell(wires, "a", "b", Advertisement((NodeNumbers("far", 1, 1, 0, 0),)))
    tell(wires, "a", "b", NamesChange("far", 1, 1, {"x": ""}))
    assert dict(wires.nodes["a"].nodes_of("x")) == {"far": ""}
    wires.run(1.1)
    assert dict(wires.nodes["a"].nodes_of("x")) == {}


@pytest.mark.parametrize("instance", [0, MAX_NUMBER])
def test_instances_at_the_ends_of_their_range_are_taken(instance: int) -> None:
    wires = joined("ab", "ab")
    tell(wires, "a", "b", Advertisement((NodeNumbers("x", instance, 1, 0, 0),)))
    assert wires.of("a", NeighbourClosed) == []
