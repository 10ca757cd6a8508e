"""The book of link states: what is newer, what is void, what is stale."""

from __future__ import annotations

from onward.protocol.dispatch import (
    MAX_NUMBER,
    LinkStateBook,
    ListKind,
    NetworkLimits,
    News,
    NodeLinks,
    NodeNumbers,
)

LIMITS = NetworkLimits(max_nodes=3, stale=60.0)


def book() -> LinkStateBook:
    return LinkStateBook("a", 100, LIMITS, 0.0)


def test_own_link_states_have_a_number_for_each_change() -> None:
    own = book()
    assert own.set_links({"b": 1})
    assert not own.set_links({"b": 1})
    own.advertise()
    own.set_list("a", ListKind.NAMES, 4)
    assert own.own.told == NodeNumbers("a", 100, 2, 1, 4, 0)
    assert own.links_of("a") == NodeLinks("a", 100, 1, {"b": 1})
    assert own.states() == {"a": {"b": 1}}


def learn(
    own: LinkStateBook, links: NodeLinks, number: int = 1, via: str = "link", now: float = 0.0
) -> News:
    """Give link states to a book that has asked for them; return what they mean."""
    asked = NodeNumbers(links.node, links.instance, number, links.links, 0, 0)
    return own.update(links, asked, via, 1, now)[0]


def test_news_are_told_from_what_is_known() -> None:
    own = book()
    first = NodeNumbers("b", 50, 3, 2, 0, 0)
    assert own.advertised(first, 1.0) is News.UNKNOWN
    assert own.advertised(first._replace(links=0), 1.0) is News.OLD
    assert own.others == {}
    assert not own.lacks(first)
    assert own.links_of("b") is None
    assert learn(own, NodeLinks("b", 50, 2, {"a": 1}), 3) is News.NEWER
    assert own.others["b"].told == first
    assert own.advertised(first, 2.0) is News.OLD
    assert not own.holds_newer(first)
    assert own.holds_newer(first._replace(number=2))
    assert own.holds_newer(NodeNumbers("a", 99, 9, 9, 9, 0))
    assert not own.holds_newer(first._replace(node="x"))
    assert not own.lacks(first)
    assert not own.lacks(first._replace(node="x", links=9))
    assert not own.lacks(first._replace(instance=51, links=9))
    assert own.lacks(first._replace(links=3))
    assert learn(own, NodeLinks("b", 50, 2, {"a": 9})) is News.OLD
    assert learn(own, NodeLinks("b", 49, 3, {"a": 9})) is News.OLD
    assert learn(own, NodeLinks("b", 50, 3, {"a": 2})) is News.NEWER
    assert own.states()["b"] == {"a": 2}
    assert own.advertised(first._replace(instance=49, number=9), 3.0) is News.OLD
    assert own.advertised(first._replace(number=4), 3.0) is News.NEWER
    assert own.others["b"].heard_at == 3.0


def test_only_link_states_of_a_later_start_void_what_is_known() -> None:
    own = book()
    learn(own, NodeLinks("b", 50, 2, {"a": 1}))
    own.set_list("b", ListKind.PROVISIONS, 7)
    later = NodeNumbers("b", 60, 9, 9, 9, 9)
    assert own.advertised(later, 4.0) is News.UNKNOWN
    assert own.states()["b"] == {"a": 1}
    assert own.others["b"].told == NodeNumbers("b", 50, 1, 2, 0, 7)
    # What was asked for may be of an even later start.
    update = NodeLinks("b", 61, 1, {"c": 1})
    assert own.update(update, later, "other", 1, 5.0) == (News.RESTARTED, None)
    assert own.others["b"].told == NodeNumbers("b", 61, 0, 1, 0, 0)
    assert (own.others["b"].via, own.others["b"].heard_at) == ("link", 5.0)


def test_there_is_room_for_so_many_nodes() -> None:
    own = book()
    for name in "bc":
        assert learn(own, NodeLinks(name, 1, 1, {})) is News.NEWER
    assert learn(own, NodeLinks("d", 1, 1, {})) is News.FULL
    assert own.advertised(NodeNumbers("b", 1, 2, 1, 0, 0), 0.0) is News.NEWER
    # A second neighbour has half of it.
    asked = NodeNumbers("d", 1, 1, 1, 0, 0)
    assert own.update(NodeLinks("d", 1, 1, {}), asked, "other", 2, 0.0) == (News.NEWER, "c")
    assert own.others.keys() == {"b", "d"}
    own.set_list("x", ListKind.NAMES, 1)


def test_what_is_told_of_this_node_is_outdone() -> None:
    own = book()
    own.set_links({"b": 1})
    own.set_list("a", ListKind.NAMES, 2)
    assert own.advertised(NodeNumbers("a", 100, 1, 1, 2, 0), 0.0) is News.OLD
    assert own.advertised(NodeNumbers("a", 99, 9, 9, 9, 0), 0.0) is News.OLD
    claimed = NodeNumbers("a", 100, 7, 5, 0, 0)
    assert own.advertised(claimed, 0.0) is News.CLAIMED
    own.reclaim(claimed)
    assert own.own.told == NodeNumbers("a", 100, 8, 6, 2, 0)
    own.reclaim(NodeNumbers("a", 100, 1, 1, 9, 0))
    assert own.own.told == NodeNumbers("a", 100, 9, 7, 10, 0)
    later = NodeNumbers("a", 300, 1, 1, 0, 0)
    assert own.advertised(later, 0.0) is News.CLAIMED
    own.reclaim(later)
    assert own.own.told == NodeNumbers("a", 301, 1, 1, 10, 0)
    own.reclaim(NodeNumbers("a", 301, MAX_NUMBER, 1, 1, 0))
    assert own.own.told.instance == 302
    own.reclaim(NodeNumbers("a", MAX_NUMBER, MAX_NUMBER, 1, 1, 0))
    assert own.own.told.instance == MAX_NUMBER


def test_what_is_stale_is_valid_again_with_a_newer_advertisement_only() -> None:
    own = book()
    told = NodeNumbers("b", 50, 3, 2, 4, 0)
    learn(own, NodeLinks("b", 50, 2, {"a": 1}), 3)
    own.set_list("b", ListKind.NAMES, 4)
    assert own.expire(59.9) == []
    assert own.expire(60.0) == ["b"]
    assert own.expire(61.0) == []
    assert own.others["b"].told == told._replace(links=0, names=0)
    assert own.advertised(told, 62.0) is News.OLD
    assert not own.lacks(told)
    newer = told._replace(number=4)
    assert own.advertised(newer, 63.0) is News.NEWER
    assert own.lacks(newer)
    assert own.expire(182.0) == ["b"]
    assert own.expire(183.0) == []
    assert own.others == {}


def test_the_sum_is_that_of_what_is_held_whatever_the_order() -> None:
    one, other = book(), LinkStateBook("b", 50, LIMITS, 0.0)
    learn(one, NodeLinks("c", 1, 1, {}))
    learn(one, NodeLinks("b", 50, 1, {"a": 1}))
    assert one.checksum("bc") != one.checksum("b") != one.checksum("") != other.checksum("")
    one.set_links({"b": 1})
    other.set_links({"a": 1})
    learn(other, NodeLinks("a", 100, 1, {"b": 1}))
    one.advertise()
    assert one.checksum("bx") == other.checksum("a")
    other.set_list("a", ListKind.PROVISIONS, 1)
    assert one.checksum("b") != other.checksum("a")
    one.set_list("a", ListKind.PROVISIONS, 1)
    assert one.checksum("b") == other.checksum("a")
