"""What a message asks of its way: the values that there are."""

from __future__ import annotations

import pytest

from onward.protocol.identity import (
    MAX_HOPS,
    MAX_NUMBER,
    SCOPE_ANY,
    SCOPE_LOCAL,
    BadRecord,
    Ordering,
    Protocol,
    Reliability,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
    Security,
    SigningKey,
    TransportPrefs,
    derived_engine,
)

DOMAIN = SigningKey(bytes(range(32))).identity


def test_a_scope_has_a_domain_if_it_is_of_one() -> None:
    assert RoutingScope(ScopeKind.DOMAIN, DOMAIN).domain == DOMAIN
    assert RoutingScope(ScopeKind.LOCAL) == SCOPE_LOCAL
    assert RoutingScope(ScopeKind.ANY) == SCOPE_ANY == RoutingPrefs().scope
    for kind, domain in [
        (ScopeKind.DOMAIN, None),
        (ScopeKind.LOCAL, DOMAIN),
        (ScopeKind.ANY, DOMAIN),
    ]:
        with pytest.raises(BadRecord, match="a scope has a domain if it is of one, and only then"):
            RoutingScope(kind, domain)
    with pytest.raises(BadRecord, match="the domain of a scope has no key"):
        RoutingScope(ScopeKind.DOMAIN, derived_engine(DOMAIN, b"printer"))


def test_only_onion_routing_has_a_number_of_hops() -> None:
    for hops in range(1, MAX_HOPS + 1):
        assert TransportPrefs(security=Security.ONION, hops=hops).hops == hops
    for hops in (-1, 0, 9):
        with pytest.raises(BadRecord, match=f"onion routing has 1 to 8 hops, not {hops}"):
            TransportPrefs(security=Security.ONION, hops=hops)
    for security in (Security.DIRECT, Security.MIXNET):
        with pytest.raises(BadRecord, match="only onion routing has a number of hops"):
            TransportPrefs(security=security, hops=1)


def test_a_message_is_ordered_reliable_and_direct_if_it_asks_nothing() -> None:
    assert TransportPrefs() == TransportPrefs(
        Ordering.ORDERED, Reliability.RELIABLE, Security.DIRECT, 0
    )


def test_a_protocol_has_a_short_name_and_a_version() -> None:
    assert Protocol("é" * 16, MAX_NUMBER).version == MAX_NUMBER
    for name, size in [("", 0), ("a" * 33, 33), ("é" * 17, 34)]:
        with pytest.raises(
            BadRecord, match=f"the name of the protocol has {size} bytes, not 1 to 32"
        ):
            Protocol(name, 1)
    with pytest.raises(BadRecord, match="the name of the protocol is not UTF-8"):
        Protocol("\ud800", 1)
    for version in (-1, MAX_NUMBER + 1):
        with pytest.raises(BadRecord, match=f"the version of the protocol is {version}, not 0"):
            Protocol("wire", version)
