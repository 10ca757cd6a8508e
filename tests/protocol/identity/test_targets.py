"""The text of a destination with its wishes."""

from __future__ import annotations

import pytest

from onward.protocol.identity import (
    SCOPE_ANY,
    SCOPE_LOCAL,
    BadIdentity,
    Destination,
    DestinationKind,
    Ordering,
    Reliability,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
    Security,
    SigningKey,
    Target,
    TransportPrefs,
    identity_text,
    parse_target,
    target_text,
)

IDENTITY = SigningKey(bytes(32)).identity
DOMAIN = SigningKey(bytes(31) + b"d").identity
TO = Destination(DestinationKind.ENGINE, IDENTITY)
BASE = f"engine:{identity_text(IDENTITY)}"
OF_DOMAIN = RoutingPrefs(RoutingScope(ScopeKind.DOMAIN, DOMAIN))


@pytest.mark.parametrize(
    ("wishes", "target"),
    [
        ("", Target(TO)),
        ("?scope=local", Target(TO, RoutingPrefs(SCOPE_LOCAL))),
        ("?scope=any", Target(TO, RoutingPrefs(SCOPE_ANY))),
        (f"?scope={identity_text(DOMAIN)}", Target(TO, OF_DOMAIN)),
        ("?ordered=no", Target(TO, None, TransportPrefs(Ordering.UNORDERED))),
        ("?reliable=no", Target(TO, None, TransportPrefs(reliability=Reliability.UNRELIABLE))),
        ("?mix=yes", Target(TO, None, TransportPrefs(security=Security.MIXNET))),
        ("?hops=3", Target(TO, None, TransportPrefs(security=Security.ONION, hops=3))),
        ("?exit=yes", Target(TO, exit=True)),
        (
            "?hops=2&exit=yes",
            Target(TO, None, TransportPrefs(security=Security.ONION, hops=2), True),
        ),
        (
            f"?scope={identity_text(DOMAIN)}&ordered=no&reliable=no&hops=8",
            Target(
                TO,
                OF_DOMAIN,
                TransportPrefs(Ordering.UNORDERED, Reliability.UNRELIABLE, Security.ONION, 8),
            ),
        ),
    ],
)
def test_a_destination_has_wishes(wishes: str, target: Target) -> None:
    assert parse_target(BASE + wishes) == target
    assert target_text(target) == BASE + wishes


def test_what_a_message_gets_anyway_may_be_asked_for() -> None:
    assert parse_target(f"{BASE}?ordered=yes&reliable=yes").tprefs == TransportPrefs()
    assert parse_target(f"{BASE}?exit=no") == Target(TO)
    assert parse_target(f"{BASE}?mix=no").tprefs == TransportPrefs()
    assert parse_target(BASE).scope == SCOPE_ANY
    assert parse_target(f"{BASE}?scope=local").scope == SCOPE_LOCAL


@pytest.mark.parametrize(
    "wishes",
    [
        "?",
        "?scope",
        "?scope=",
        "?scope=here",
        "?scope=local&scope=local",
        "?ordered=maybe",
        "?reliable=",
        "?hops=0",
        "?hops=9",
        "?hops=1&",
        "?hops=-1",
        "?exit=",
        "?exit=1",
        "?hops=٣",
        "?mixnet=yes",
        "?mix=",
        "?mix=yes&hops=2",
        "?Scope=local",
    ],
)
def test_another_wish_is_refused(wishes: str) -> None:
    with pytest.raises(BadIdentity):
        parse_target(BASE + wishes)
