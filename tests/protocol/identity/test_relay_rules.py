"""The policy of a relay as people write it."""

from __future__ import annotations

import pytest

from onward.protocol.identity import RelayPolicy, identity_text, parse_relay_rules
from tests.support.identities import key_of

ONE, OTHER = key_of("one").identity, key_of("other").identity


@pytest.mark.parametrize(
    ("rules", "policy"),
    [
        ((), RelayPolicy()),
        (("any",), RelayPolicy(from_any=True)),
        (("reserved", "exit"), RelayPolicy(to_reserved=True, exits=True)),
        (
            (f"from:{identity_text(ONE)}", f"from:{identity_text(OTHER)}"),
            RelayPolicy(sources=frozenset({ONE, OTHER})),
        ),
        (
            (f"to:{identity_text(ONE)}", f"from:{identity_text(OTHER)}", "exit"),
            RelayPolicy(sources=frozenset({OTHER}), destinations=frozenset({ONE}), exits=True),
        ),
    ],
)
def test_each_rule_adds_to_what_is_allowed(rules: tuple[str, ...], policy: RelayPolicy) -> None:
    assert parse_relay_rules(rules) == policy


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("all", "'all' is not one of from:IDENTITY, to:IDENTITY, reserved, any, exit"),
        ("any:x", "'any:x' is not one of "),
        ("from", "'from' is not one of "),
        ("from:aera", "'from:aera': "),
        ("to:", "'to:': "),
        ("exit", "exit allows nothing alone"),
    ],
)
def test_what_is_no_rule_is_told(rule: str, told: str) -> None:
    with pytest.raises(ValueError, match=rf"^{told}") as failed:
        parse_relay_rules((rule,))
    assert str(failed.value).startswith(told)
