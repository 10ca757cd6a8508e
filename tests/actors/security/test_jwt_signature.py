"""The signatures of JSON Web Tokens, with the vectors of the RFCs."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from onward.actors import MissingExtra
from onward.protocol.security import BadKeySet, JwtPolicy, parse_jwt

pytest.importorskip("joserfc", reason="joserfc is not installed")

from onward.actors.security._jwt_signature import read_keys

POLICY = JwtPolicy("i", "a", ("EdDSA", "ES256", "HS256", "RS256"))

ED25519 = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
ED25519_TOKEN = (
    b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc."
    b"hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"
)
"""RFC 8037, appendix A.4."""

P256 = {
    "kty": "EC",
    "crv": "P-256",
    "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
    "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
}
P256_TOKEN = (
    b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFt"
    b"cGxlLmNvbS9pc19yb290Ijp0cnVlfQ."
    b"DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
)
"""RFC 7515, appendix A.3."""


def keys(*fields: dict[str, Any]) -> Any:
    return read_keys(json.dumps({"keys": fields}).encode())


@pytest.mark.parametrize(
    ("key", "token"), [(ED25519, ED25519_TOKEN), (P256, P256_TOKEN)], ids=["EdDSA", "ES256"]
)
def test_a_vector_of_an_rfc(key: dict[str, Any], token: bytes) -> None:
    (found,) = keys(key)
    jwt = parse_jwt(token, POLICY)
    assert found.fits(jwt)
    assert found.verifies(jwt)
    for at in (25, len(token) - 5):
        changed = token[:at] + (b"A" if token[at : at + 1] != b"A" else b"B") + token[at + 1 :]
        assert not found.verifies(parse_jwt(changed, POLICY))


def test_a_key_of_another_type_does_not_fit() -> None:
    # RFC 8725, section 2.1: an RSA or EC public key as the secret of HS256.
    hmac = b"eyJhbGciOiJIUzI1NiJ9" + P256_TOKEN[P256_TOKEN.index(b".") :]
    for token in (hmac, ED25519_TOKEN):
        assert not keys(P256)[0].fits(parse_jwt(token, POLICY))


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"kid": "other"}, True),
        ({"alg": "ES256"}, True),
        ({"alg": "ES384"}, False),
    ],
)
def test_a_key_with_an_id_or_an_algorithm(fields: dict[str, str], fits: bool) -> None:
    (key,) = keys({**P256, **fields})
    assert key.fits(parse_jwt(P256_TOKEN, POLICY)) == fits


def test_ed25519_is_the_new_name_of_eddsa() -> None:
    assert keys({**ED25519, "alg": "Ed25519"})[0].fits(parse_jwt(ED25519_TOKEN, POLICY))


def test_keys_that_cannot_be_read_are_left_out() -> None:
    broken: list[dict[str, Any]] = [
        {"kty": "EC"},
        {**P256, "crv": "P-1"},
        {**P256, "x": "AA"},
        {"kty": "OKP", "x": 1},
    ]
    assert len(keys(*broken, P256)) == 1
    with pytest.raises(BadKeySet, match="no key that can be read"):
        keys(*broken)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(MissingExtra, match=r"onward\[jwt\]"):
        keys(P256)
