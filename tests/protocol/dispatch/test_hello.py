"""Hellos on one link."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import HELLO, HelloInput, HelloState, LinkHello, NetworkLimits

LIMITS = NetworkLimits(hello=1.0, missed_hellos=3)


def test_a_node_that_has_heard_this_one_is_a_neighbour_until_three_hellos_are_missed() -> None:
    link = LinkHello(LIMITS, 10.0)
    assert (link.state, link.send_at, link.missed_at) == (HelloState.SILENT, 10.0, None)
    link.sent(10.0)
    assert link.send_at == 11.0
    link.heard(False, 10.5)
    # It is answered at once.
    assert (link.state, link.send_at) == (HelloState.HEARD, 10.5)
    link.sent(10.5)
    link.heard(True, 10.6)
    assert (link.state, link.missed_at) == (HelloState.NEIGHBOUR, 13.6)
    assert not link.missed(13.5)
    assert link.missed(13.6)
    assert (link.state, link.missed_at) == (HelloState.SILENT, None)
    assert not link.missed(20.0)


def test_hellos_that_wait_unread_while_this_node_is_held_up_are_not_missed() -> None:
    link = LinkHello(LIMITS, 10.0)
    link.heard(True, 10.0)
    # It was to look at 13.0.
    assert not link.missed(14.0)
    assert (link.state, link.missed_at) == (HelloState.NEIGHBOUR, 15.0)
    link.heard(True, 14.1)
    assert link.missed_at == 17.1
    # They have the time once: a node that is late for ever still sees a loss.
    assert not link.missed(18.1)
    assert link.missed(30.0)
    assert link.state is HelloState.SILENT


def test_a_node_that_has_forgotten_this_one_is_no_neighbour() -> None:
    link = LinkHello(LIMITS, 0.0)
    link.heard(True, 0.0)
    link.sent(0.0)
    link.heard(True, 0.1)
    assert link.send_at == 1.0
    link.heard(False, 0.2)
    assert (link.state, link.send_at) == (HelloState.HEARD, 0.2)


@given(st.lists(st.sampled_from(HelloInput)))
def test_the_last_hello_decides(inputs: list[HelloInput]) -> None:
    state = HelloState.SILENT
    for given_ in inputs:
        state = HELLO.get((state, given_), state)
    last = inputs[-1] if inputs else HelloInput.MISSED
    assert (
        state
        is {
            HelloInput.HEARS_US: HelloState.NEIGHBOUR,
            HelloInput.HEARS_NOT: HelloState.HEARD,
            HelloInput.MISSED: HelloState.SILENT,
        }[last]
    )


def test_limits_are_checked() -> None:
    with pytest.raises(ValueError, match="max_neighbours"):
        NetworkLimits(max_neighbours=241)
