"""What a message asks of its way."""

from __future__ import annotations

import pytest

from onward.protocol.identity import BadRecord, RoutingScope, ScopeKind, Security, TransportPrefs


def test_a_scope_has_a_domain_if_it_is_of_one() -> None:
    with pytest.raises(BadRecord, match="a scope has a domain if it is of one, and only then"):
        RoutingScope(ScopeKind.DOMAIN)


def test_only_onion_routing_has_a_number_of_hops() -> None:
    with pytest.raises(BadRecord, match="only onion routing has a number of hops"):
        TransportPrefs(hops=1)
    with pytest.raises(BadRecord, match="onion routing has 1 to 8 hops, not 9"):
        TransportPrefs(security=Security.ONION, hops=9)
