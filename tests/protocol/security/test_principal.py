"""A principal: its text, and which others are the same."""

from __future__ import annotations

from dataclasses import replace

from onward.protocol.security import Principal

ANN = Principal("ann", "jwt", issuer="https://issuer.example", entry=b"digest")


def test_the_text_of_a_principal_is_its_name_and_method() -> None:
    assert str(ANN) == "ann (jwt)"
    assert "digest" not in repr(ANN)


def test_a_principal_stays_the_same_with_other_roles_and_tags() -> None:
    changed = replace(ANN, roles=frozenset({"a"}), tags=frozenset({(1, "b")}), expires=1.0)
    assert ANN.is_same(changed)
    for other in (replace(ANN, name="bob"), replace(ANN, method="token"), replace(ANN, issuer="")):
        assert not ANN.is_same(other)
