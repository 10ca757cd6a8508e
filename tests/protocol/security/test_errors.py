"""The texts of errors of authentication and authorization: what a peer may see of them."""

from __future__ import annotations

from onward.protocol.security import (
    NOT_AUTHENTICATED,
    BadCredentials,
    BadKeySet,
    NotAllowed,
    NotAuthenticated,
)


def test_a_peer_does_not_see_why_it_is_not_authenticated() -> None:
    errors = [NotAuthenticated(cause) for cause in ("unknown", "expired")]
    assert [str(error) for error in errors] == [NOT_AUTHENTICATED] * 2
    assert [error.cause for error in errors] == ["unknown", "expired"]


def test_what_is_broken_is_named() -> None:
    assert str(BadCredentials("too long")) == "bad credentials: too long"
    assert str(BadKeySet("no key")) == "bad set of keys: no key"


def test_an_action_that_is_not_allowed_is_cut() -> None:
    assert str(NotAllowed("request service=a")) == "not allowed: request service=a"
    assert NotAllowed("x" * 1000).action == "x" * 200 + "..."
