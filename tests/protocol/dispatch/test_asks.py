"""Requests that wait for an answer."""

from __future__ import annotations

from onward.protocol.dispatch import Asks, NetworkLimits, NodeNumbers

LIMITS = NetworkLimits(max_nodes=2, ask_timeout=2.0, stale=10.0)


def numbers(node: str, instance: int = 1, links: int = 1) -> NodeNumbers:
    return NodeNumbers(node, instance, 1, links, 0, 0)


def test_one_neighbour_is_asked_for_one_state() -> None:
    asks = Asks(LIMITS)
    assert asks.begin("x", numbers("a"), 1, 0.0)
    assert not asks.begin("x", numbers("a"), 2, 0.0)
    assert not asks.begin("y", numbers("a"), 1, 0.0)
    # Another state is asked for where it was advertised.
    assert asks.begin("y", numbers("a"), 2, 0.0)
    assert asks.begin("z", numbers("a", 2), 1, 0.0)
    found = asks.find("y", "a")
    assert found is not None
    assert found.wanted == 2
    assert asks.find("y", "b") is None
    asks.end("x", "a")
    assert asks.find("x", "a") is None
    assert asks.begin("x", numbers("a"), 1, 0.0)


def test_a_neighbour_is_asked_so_many_questions() -> None:
    asks = Asks(LIMITS)
    assert [asks.begin("x", numbers(node), 1, 0.0) for node in "abc"] == [True, True, False]
    assert asks.begin("y", numbers("c"), 1, 0.0)
    asks.forget("x")
    assert asks.find("x", "a") is None
    assert asks.find("y", "c") is not None
    assert [asks.begin("x", numbers(node), 1, 0.0) for node in "abd"] == [True, True, False]


def test_a_request_is_late_and_its_parts_renew_it_up_to_a_time() -> None:
    asks = Asks(LIMITS)
    asks.begin("x", numbers("a"), 1, 0.0)
    asks.begin("x", numbers("b"), 1, 1.0)
    ask = asks.find("x", "b")
    assert ask is not None
    assert asks.expire(1.9) == 0
    assert asks.expire(2.0) == 1
    for now in range(2, 20):
        asks.go_on(ask, float(now))
    assert asks.expire(10.9) == 0
    assert asks.expire(11.0) == 1
    assert asks.expire(99.0) == 0
