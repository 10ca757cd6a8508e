"""The presence of a peer broker: when its routes are hidden, used, removed."""

from __future__ import annotations

import random

import pytest

from onward.protocol.cluster import (
    PRESENCE,
    ClusterLimits,
    Presence,
    PresenceAction,
    PresenceInput,
    PresenceState,
)
from tests.support.counts import times

State = PresenceState
SUSPEND, REVEAL, DROP = (
    (PresenceAction.SUSPEND,),
    (PresenceAction.REVEAL,),
    (PresenceAction.DROP,),
)
LIMITS = ClusterLimits()


def state_of(presence: Presence) -> PresenceState:
    return presence.state  # not what a type checker saw last


def up(now: float = 0.0) -> Presence:
    presence = Presence(LIMITS, now)
    presence.linked_up(now)
    presence.caught_up(now)
    assert state_of(presence) is State.UP
    return presence


def test_the_routes_of_a_new_peer_broker_are_used_as_they_come() -> None:
    presence = Presence(LIMITS, 5.0)
    assert state_of(presence) is State.CONNECTING
    assert not presence.linked
    assert presence.linked_up(6.0) == ()
    assert presence.linked
    assert state_of(presence) is State.JOINING
    assert presence.caught_up(7.0) == ()
    assert (presence.state, presence.since) == (State.UP, 7.0)


def test_a_lost_link_hides_the_routes_until_they_are_known_again() -> None:
    presence = up()
    assert presence.lost(100.0, "reset") == SUSPEND
    assert presence.cause == "reset"
    assert presence.linked_up(101.0) == ()
    assert state_of(presence) is State.RETURNING
    assert presence.tick(130.0) == ()
    assert presence.caught_up(131.0) == REVEAL
    assert state_of(presence) is State.UP


def test_the_routes_are_removed_when_the_hold_is_over() -> None:
    presence = up()
    presence.lost(100.0, "reset")
    assert presence.wake_at == 130.0
    assert presence.tick(129.9) == ()
    assert presence.tick(130.0) == DROP
    assert state_of(presence) is State.GONE
    assert presence.wake_at is None
    presence.linked_up(200.0)
    assert state_of(presence) is State.JOINING


def test_a_link_lost_while_routes_are_hidden_hides_nothing_more() -> None:
    presence = up()
    presence.lost(100.0, "reset")
    presence.linked_up(101.0)
    assert presence.lost(102.0, "reset") == ()
    assert presence.wake_at == 132.0


def flap(presence: Presence, at: float) -> None:
    presence.lost(at, "reset")
    presence.linked_up(at + 0.1)
    presence.caught_up(at + 0.2)


def test_a_link_that_is_lost_too_often_has_to_hold_before_routes_are_used() -> None:
    presence = up()
    for at in (100.0, 110.0):
        flap(presence, at)
        assert state_of(presence) is State.UP
    flap(presence, 120.0)
    assert state_of(presence) is State.UNSTEADY
    assert presence.wake_at == 130.1
    assert presence.tick(130.1) == REVEAL
    flap(presence, 131.0)
    assert presence.wake_at == 151.1
    flap(presence, 132.0)
    assert presence.wake_at == 172.1
    for at in range(133, 140):
        flap(presence, at)
    assert presence.wake_at == 259.1  # no longer than the longest
    assert presence.caught_up(140.0) == ()
    assert presence.tick(259.1) == REVEAL
    flap(presence, 400.0)
    assert state_of(presence) is State.UP  # the others are long ago


def test_a_link_that_another_one_replaces_is_not_lost() -> None:
    presence = up()
    for at in range(100, 110):
        assert presence.lost(at, "another link", replaced=True) == SUSPEND
        presence.linked_up(at + 0.1)
        assert presence.caught_up(at + 0.2) == REVEAL
    assert state_of(presence) is State.UP


def test_a_hold_that_is_over_before_the_copy_is_whole_is_not_waited_for() -> None:
    presence = up()
    for at in (100.0, 101.0):
        flap(presence, at)
    presence.lost(102.0, "reset")
    presence.linked_up(103.0)
    assert presence.caught_up(113.0) == REVEAL


@pytest.mark.parametrize("state", [State.JOINING, State.UP, State.RETURNING, State.UNSTEADY])
def test_a_bad_frame_leads_to_a_pause_and_nothing_is_kept(state: PresenceState) -> None:
    presence = up()
    presence.state = state
    assert presence.wrong(10.0, "bad") == SUSPEND + DROP
    assert (presence.state, presence.cause, presence.wake_at) == (State.PAUSED, "bad", 70.0)
    assert presence.lost(11.0, "") == presence.caught_up(11.0) == ()
    assert state_of(presence) is State.PAUSED
    assert presence.tick(70.0) == ()
    assert state_of(presence) is State.GONE


def test_a_link_that_is_let_in_ends_the_pause() -> None:
    presence = up()
    presence.wrong(10.0, "bad")
    assert presence.linked_up(70.0) == ()
    assert (state_of(presence), presence.wake_at) == (State.JOINING, None)
    presence.caught_up(71.0)
    assert presence.lost(72.0, "reset") == SUSPEND


def test_what_comes_too_late_is_ignored() -> None:
    presence = Presence(LIMITS, 0.0)
    assert presence.lost(1.0, "x") == presence.caught_up(1.0) == presence.wrong(1.0, "x") == ()
    assert (presence.state, presence.cause, presence.tick(9.0)) == (State.CONNECTING, "", ())


@pytest.mark.parametrize("seed", range(times(20, 500)))
def test_routes_are_hidden_exactly_while_they_are_not_to_be_used(seed: int) -> None:
    draw = random.Random(seed)
    presence, now, hidden, there = Presence(LIMITS, 0.0), 0.0, False, False
    for _ in range(300):
        now += draw.choice((0.1, 1.0, 5.0, 40.0))
        match draw.randrange(9):
            case 0:
                actions = presence.wrong(now, "bad")
            case 1 | 2:
                actions = presence.lost(now, "reset")
            case 3 | 4:
                actions = presence.linked_up(now)
            case 5 | 6:
                actions = presence.caught_up(now)
            case _:
                actions = presence.tick(now)
        for action in actions:
            hidden = (
                action is PresenceAction.SUSPEND if action is not PresenceAction.DROP else False
            )
            there = there and action is not PresenceAction.DROP
        there = there or presence.linked
        assert hidden == (presence.state in (State.SUSPENDED, State.RETURNING, State.UNSTEADY))
        assert there == (hidden or presence.linked)
        timed = presence.state in (State.SUSPENDED, State.UNSTEADY, State.PAUSED)
        assert timed == (presence.wake_at is not None)


def test_the_table_has_every_state_and_input() -> None:
    assert {state for state, _ in PRESENCE} == set(State)
    assert {given for _, given in PRESENCE} == set(PresenceInput)
    assert [str(each) for each in State][:2] == ["connecting", "joining"]
