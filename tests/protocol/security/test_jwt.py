"""JSON Web Tokens without cryptography: parts, claims and sets of keys."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.protocol.security import (
    BadKeySet,
    JwtPolicy,
    NotAuthenticated,
    Principal,
    UnverifiedJwt,
    inspect_jwt,
    looks_like_jwt,
    parse_jwt,
    parse_key_set,
    read_claims,
)

POLICY = JwtPolicy("https://issuer.example", "onward", ("ES256", "Ed25519"))
NOW = 1_000_000.0
CLAIMS = {
    "iss": POLICY.issuer,
    "aud": POLICY.audience,
    "exp": NOW + 60,
    "sub": "billing",
    "roles": ["orders"],
}


def base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def token(header: object, payload: bytes = b"{}", signature: bytes = b"sig") -> bytes:
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    return f"{base64(head)}.{base64(payload)}.{base64(signature)}".encode()


def test_a_token_in_its_parts() -> None:
    whole = token({"alg": "ES256", "kid": "k", "typ": "JWT", "other": 1}, b'{"a":1}')
    found = parse_jwt(whole, POLICY)
    signed = whole.rpartition(b".")[0]
    assert found == UnverifiedJwt("ES256", "k", signed, b'{"a":1}', b"sig")
    assert repr(found) == "UnverifiedJwt(algorithm='ES256', key_id='k')"
    assert inspect_jwt(whole) == ({"alg": "ES256", "kid": "k", "typ": "JWT", "other": 1}, {"a": 1})
    assert looks_like_jwt(whole)
    assert not looks_like_jwt(b"opaque")
    assert not looks_like_jwt(whole + b".")


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        (token({"alg": "none"}, signature=b""), "algorithm"),
        (token({"alg": "HS256"}), "algorithm"),
        (token({"alg": "es256"}), "algorithm"),
        (token({"alg": ["ES256"]}), "algorithm"),
        (token({}), "algorithm"),
        (token({"alg": "ES256", "crit": ["b64"], "b64": False}), "critical header"),
        (token({"alg": "ES256", "crit": []}), "critical header"),
        (token({"alg": "ES256", "kid": 1}), "malformed"),
        (token([]), "malformed"),
        (token(b"{"), "malformed"),
        (token(b'{"alg":"ES256"\xff}'), "malformed"),
        (token('{"alg":"ES256"}'.encode("utf-16")), "malformed"),
        (token(b"[" * 4000), "malformed"),
        (token({"alg": "ES256"}) + b"=", "malformed"),
        (token({"alg": "ES256"}) + b"\n", "malformed"),
        (b"..", "malformed"),
        (b"e.e.e", "malformed"),
        (b"opaque", "malformed"),
    ],
)
def test_a_header_that_is_not_accepted(given: bytes, cause: str) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        parse_jwt(given, POLICY)
    assert caught.value.cause == cause


def test_the_claims_make_the_principal() -> None:
    expected = Principal(
        "billing", "jwt", frozenset({"orders"}), expires=NOW + 90, issuer=POLICY.issuer
    )
    assert read_claims(json.dumps(CLAIMS).encode(), POLICY, NOW) == expected
    several = {**CLAIMS, "aud": ["other", POLICY.audience], "nbf": NOW + 30, "exp": NOW + 60.0}
    assert read_claims(json.dumps(several).encode(), POLICY, NOW) == expected
    without = {key: value for key, value in CLAIMS.items() if key != "roles"}
    assert read_claims(json.dumps(without).encode(), POLICY, NOW).roles == frozenset()


def test_an_expiry_has_a_leeway() -> None:
    payload = json.dumps({**CLAIMS, "exp": NOW - 29}).encode()
    assert read_claims(payload, POLICY, NOW).expires == NOW + 1
    with pytest.raises(NotAuthenticated):
        read_claims(payload, POLICY, NOW + 1)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"iss": "https://issuer.example/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "Onward"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": ["other"]}, "audience"),
        ({"aud": [POLICY.audience, 1]}, "malformed"),
        ({"aud": {"onward": 1}}, "malformed"),
        ({"exp": None}, "no expiry"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": str(NOW + 60)}, "malformed"),
        ({"exp": True}, "malformed"),
        ({"exp": 10**400}, "malformed"),
        ({"nbf": NOW + 31}, "not yet valid"),
        ({"nbf": []}, "malformed"),
        ({"sub": None}, "no subject"),
        ({"sub": ""}, "no subject"),
        ({"sub": 7}, "no subject"),
        ({"sub": "a\nb"}, "no subject"),
        ({"sub": "x" * 256}, "no subject"),
        ({"sub": "\ud800"}, "no subject"),
        ({"roles": "orders"}, "malformed"),
        ({"roles": [1]}, "malformed"),
        ({"roles": [""]}, "malformed"),
        ({"roles": ["x"] * 65}, "malformed"),
    ],
)
def test_claims_that_are_not_accepted(change: dict[str, Any], cause: str) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        read_claims(json.dumps({**CLAIMS, **change}).encode(), POLICY, NOW)
    assert caught.value.cause == cause


A, B, EU = ("tenant", "a"), ("tenant", "b"), (6, "eu")
ROLE_TAGS: dict[str, Any] = {
    "red": frozenset({A}),
    "crimson": frozenset({A, EU}),
    "blue": frozenset({B}),
}


@pytest.mark.parametrize(
    ("roles", "org", "tags"),
    [
        ([], "a", {A}),
        (["other"], "b", {B}),
        (["red"], "a", {A}),
        (["red", "crimson"], "a", {A, EU}),
        (["blue"], "b", {B}),
    ],
)
def test_forced_tags_by_roles_and_claims(roles: list[str], org: str, tags: set[Any]) -> None:
    policy = replace(POLICY, role_tags=ROLE_TAGS, claim_tags={"org": "tenant"})
    found = read_claims(json.dumps({**CLAIMS, "roles": roles, "org": org}).encode(), policy, NOW)
    assert found.tags == tags


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"roles": ["red", "blue"]}, "conflicting tags"),
        ({"roles": ["blue"]}, "conflicting tags"),
        ({"org": None}, "tags"),
        ({"org": ""}, "tags"),
        ({"org": 7}, "tags"),
        ({"org": ["a"]}, "tags"),
        ({"org": "a\n"}, "tags"),
        ({"org": "\ud800"}, "tags"),
        ({"org": "x" * 128}, "tags"),
    ],
)
def test_forced_tags_that_cannot_be(change: dict[str, Any], cause: str) -> None:
    policy = replace(POLICY, role_tags=ROLE_TAGS, claim_tags={"org": "tenant"})
    claims = {**CLAIMS, "org": "a", **change}
    with pytest.raises(NotAuthenticated) as caught:
        read_claims(json.dumps(claims).encode(), policy, NOW)
    assert caught.value.cause == cause


@pytest.mark.parametrize("constant", ["Infinity", "NaN", "1e999"])
def test_an_expiry_that_never_comes_is_refused(constant: str) -> None:
    payload = json.dumps({**CLAIMS, "exp": 0}).replace('"exp": 0', f'"exp": {constant}').encode()
    with pytest.raises(NotAuthenticated) as caught:
        read_claims(payload, POLICY, NOW)
    assert caught.value.cause == "malformed"


@pytest.mark.parametrize(
    ("issuer", "audience", "algorithms"),
    [
        ("", "a", ("ES256",)),
        ("i", "", ("ES256",)),
        ("i", "a", ()),
        ("i", "a", ("none",)),
        ("i", "a", ("ES256", "RS1")),
    ],
)
def test_a_policy_names_its_issuer_audience_and_algorithms(
    issuer: str, audience: str, algorithms: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=r"JWT|algorithms"):
        JwtPolicy(issuer, audience, algorithms)


EC = {"kty": "EC", "crv": "P-256"}


@pytest.mark.parametrize(
    ("key", "usable"),
    [
        (EC, True),
        ({**EC, "use": "sig", "key_ops": ["verify"]}, True),
        ({**EC, "use": "enc"}, False),
        ({**EC, "key_ops": ["sign"]}, False),
        ({**EC, "key_ops": 1}, False),
        ({"kty": "OKP"}, True),
        ({"kty": "AKP"}, False),
        ({"kty": ["EC"]}, False),
        ({"kty": "RSA", "n": base64(bytes(256))}, True),
        ({"kty": "RSA", "n": base64(bytes(128))}, False),
        ({"kty": "RSA", "n": "\ud800"}, False),
        ({"kty": "RSA"}, False),
        ({"kty": "oct", "k": base64(bytes(32))}, True),
        ({"kty": "oct", "k": base64(b"secret")}, False),
        ({"kty": "oct", "k": "+"}, False),
        ("EC", False),
    ],
)
def test_keys_that_may_verify(key: object, usable: bool) -> None:
    other = {"kty": "OKP", "kid": "other"}
    found = parse_key_set(json.dumps({"keys": [key, other]}).encode())
    assert found == ([key, other] if usable else [other])


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"", "it is not a JSON object"),
        (b"[]", "it is not a JSON object"),
        (b"{}", "it has no list of keys"),
        (b'{"keys": []}', "it has no key that can verify a signature"),
        (json.dumps({"keys": [EC] * 101}).encode(), "it has more than 100 keys"),
    ],
)
def test_a_broken_set_of_keys(document: bytes, reason: str) -> None:
    with pytest.raises(BadKeySet) as caught:
        parse_key_set(document)
    assert str(caught.value) == f"bad set of keys: {reason}"


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (
        lambda: parse_jwt(data, POLICY),
        lambda: parse_jwt(token({"alg": "ES256"}, data), POLICY),
        lambda: read_claims(data, POLICY, NOW),
    ):
        try:
            read()
        except NotAuthenticated:
            continue
