"""What each hop of a route over identities can see, as `onward trace` says it."""

from __future__ import annotations

import pytest

from onward.cli._trace_sight import sights_of
from onward.protocol import parse_route
from onward.protocol.identity import BadIdentity, identity_text, short_text
from tests.support.identities import key_of

R, S, B = (key_of(name).identity for name in ("r", "s", "b"))
RELAYS = f"36#relay:{identity_text(R)} => 36#relay:{identity_text(S)}"


def test_a_route_without_identities_has_none() -> None:
    assert sights_of(parse_route("1#127.0.0.1:4000 => echo")) == ()


def test_a_relay_sees_the_nodes_next_to_it_alone() -> None:
    r, s, b = map(short_text, (R, S, B))
    route = parse_route(f"{RELAYS} => 36#engine:{identity_text(B)}?hops=2")
    one, other, last, rest = sights_of(route)
    assert (one.hop, other.hop, last.hop) == (f"relay {r}", f"relay {s}", f"the node of engine {b}")
    assert f"from the node of the sender and goes on to relay {s}; size" in one.sees
    assert f"from relay {r} and goes on to the node of engine {b}; size" in other.sees
    assert one.hidden == other.hidden == "the payload, its end, and nodes further away"
    # Each layer is signed by the node that sends, unless that is anonymous.
    assert other.sees.endswith("; the sender's node, unless that is anonymous")
    assert last.hidden == f"the nodes before relay {s}"
    assert rest.hidden == "all the rest"


@pytest.mark.parametrize(
    ("end", "last"),
    [
        (f"36#node:{identity_text(B)} => echo", f"node {short_text(B)}"),
        (
            f"36#topic:{identity_text(B)}",
            f"the node of topic {short_text(B)}, and those of its subscribers",
        ),
    ],
)
def test_the_last_node_sees_the_message(end: str, last: str) -> None:
    first, rest = sights_of(parse_route(f"1#h:1 => {end}"))
    assert (first.hop, first.hidden) == (last, "-")
    assert "payload" in first.sees
    assert rest.hop == "others on the way"


def test_each_member_of_a_domain_that_a_request_passes_can_read_it() -> None:
    first, rest = sights_of(parse_route(f"36#domain:{identity_text(B)} => echo"))
    assert first.hop == f"members of domain {short_text(B)}, the last and those before it"
    assert first.sees == "the payload, what it is for, and the node that it comes from"
    assert first.hidden == "the nodes before that one"
    assert rest.hop == "others on the way"


@pytest.mark.parametrize("end", ["", " => echo"])
def test_a_relay_at_the_end_is_the_last_node(end: str) -> None:
    one, last, _ = sights_of(parse_route(f"{RELAYS}{end}"))
    assert (one.hop, last.hop) == (f"relay {short_text(R)}", f"relay {short_text(S)}")
    assert "payload" in last.sees


def test_an_exit_sees_the_message_as_the_last_node_does() -> None:
    r, s, b = map(short_text, (R, S, B))
    route = parse_route(f"{RELAYS} => 36#engine:{identity_text(B)}?exit=yes")
    one, lets_out, last, _ = sights_of(route)
    assert "payload" in one.hidden
    assert lets_out.hop == f"relay {s}"
    assert lets_out.sees.startswith("the payload")
    assert lets_out.sees.endswith(f"from relay {r}")
    assert lets_out.hidden == f"the nodes before relay {r}"
    assert (last.hop, last.hidden) == (f"the node of engine {b}", f"the nodes before relay {s}")
    route = parse_route(f"36#relay:{identity_text(R)} => 36#engine:{identity_text(B)}?exit=yes")
    assert sights_of(route)[0].hidden == "-"


def test_what_is_no_destination_is_refused() -> None:
    with pytest.raises(BadIdentity):
        sights_of(parse_route("36#engine:aera"))
