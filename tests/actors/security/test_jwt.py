"""The method `jwt`: the tokens that are accepted, and those that are remembered."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from onward.actors import ReloadFailed
from onward.actors.security import Authentication, JwtAuthenticator, JwtOptions
from onward.protocol import AddressError
from onward.protocol.broker import BrokerFrameError, WellKnownKey
from onward.protocol.security import (
    BearerToken,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    UserPassword,
    make_token,
)

jwk: Any = pytest.importorskip("joserfc.jwk", reason="joserfc is not installed")
jws: Any = pytest.importorskip("joserfc.jws", reason="joserfc is not installed")

ISSUER, AUDIENCE = "https://issuer.example", "onward"
PEER = PeerIdentity()
NOW = 1_000_000.0
KEYS = {
    name: jwk.import_key({**jwk.generate_key(kty, size).as_dict(private=True), "kid": name})
    for name, kty, size in (("ec", "EC", "P-256"), ("ed", "OKP", "Ed25519"), ("new", "EC", "P-256"))
}
ALGORITHMS = {"ec": "ES256", "ed": "Ed25519", "new": "ES256"}


def sign(key: str = "ec", header: dict[str, Any] | None = None, **claims: Any) -> BearerToken:
    whole = {"iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60, "sub": "billing", **claims}
    fields = {"alg": ALGORITHMS[key], "kid": key} if header is None else header
    made = jws.serialize_compact(fields, json.dumps(whole), KEYS[key], [ALGORITHMS[key]])
    return BearerToken(made.encode())


def write(path: Path, *names: str) -> None:
    keys = [KEYS[name].as_dict(private=False) for name in names]
    path.write_text(json.dumps({"keys": keys}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    write(path, "ec", "ed")
    return path


def method(path: Path, now: list[float] | None = None, **given: Any) -> JwtAuthenticator:
    clock = now if now is not None else [NOW]
    return JwtAuthenticator(path, issuer=ISSUER, audience=AUDIENCE, clock=lambda: clock[0], **given)


async def cause(made: JwtAuthenticator, credentials: Credentials) -> str:
    with pytest.raises(NotAuthenticated) as caught:
        await made.authenticate(credentials, PEER)
    return caught.value.cause


@pytest.mark.parametrize("key", ["ec", "ed"])
async def test_a_token_makes_a_principal(path: Path, key: str) -> None:
    found = await method(path).authenticate(sign(key, roles=["orders"]), PEER)
    assert found is not None
    assert (found.name, found.method, found.issuer) == ("billing", "jwt", ISSUER)
    assert found.roles == {"orders"}
    assert found.expires == NOW + 90


@pytest.mark.parametrize(
    "credentials",
    [None, UserPassword("a", "b.c.d"), BearerToken(make_token(bytes(32)).encode())],
)
async def test_other_credentials_are_left_to_other_methods(
    path: Path, credentials: Credentials | None
) -> None:
    made = method(path)
    assert await made.authenticate(credentials, PEER) is None
    assert await made.authenticate(BearerToken(b"opaque"), PEER) is None


async def test_each_refusal(path: Path) -> None:
    made = method(path)
    right = sign().token
    assert await cause(made, sign("new")) == "unknown key"
    assert await cause(made, sign(header={"alg": "ES256", "kid": "ed"})) == "unknown key"
    head, body, signature = right.split(b".")
    other = sign(sub="root").token.split(b".")[1]
    assert await cause(made, BearerToken(b".".join((head, other, signature)))) == "signature"
    assert await cause(made, BearerToken(b".".join((head, body, b"")))) == "signature"
    assert await cause(made, sign(aud="other")) == "audience"
    assert await cause(method(path, algorithms=("Ed25519",)), sign()) == "algorithm"


async def test_without_a_key_id_each_key_of_the_type_is_tried(path: Path) -> None:
    write(path, "ed", "new", "ec")
    assert await method(path).authenticate(sign(header={"alg": "ES256"}), PEER) is not None


async def test_a_token_is_verified_once_until_its_expiry(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [NOW]
    made, token, verified = method(path, now), sign(), list[bytes]()
    key = made._keys.keys[0]
    real = key.verifies

    def verifies(jwt: Any) -> bool:
        verified.append(jwt.signature)
        return real(jwt)

    monkeypatch.setattr(key, "verifies", verifies)
    for _ in range(3):
        assert await made.authenticate(token, PEER) is not None
    assert len(verified) == 1
    # A wrong signature is not remembered, and is not found by the right one.
    wrong = BearerToken(token.token[:-4] + b"AAAA")
    for _ in range(2):
        assert await cause(made, wrong) == "signature"
    assert len(verified) == 3
    now[0] = NOW + 90
    assert await cause(made, token) == "expired"


async def test_the_tokens_that_are_remembered_are_limited(path: Path) -> None:
    made = method(path, options=JwtOptions(remembered=2))
    for number in range(5):
        assert await made.authenticate(sign(sub=f"{number}"), PEER) is not None
    assert len(made._known) == 2


async def test_a_token_is_not_remembered_if_the_keys_change_meanwhile(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = method(path)
    real = made._keys.find

    async def find(jwt: Any) -> Any:
        found = await real(jwt)
        made._keys.keys = []
        return found

    monkeypatch.setattr(made._keys, "find", find)
    assert await made.authenticate(sign(), PEER) is not None
    assert len(made._known) == 0


@pytest.mark.real_time
async def test_a_withdrawn_key_accepts_nothing_that_was_remembered(path: Path) -> None:
    made, token = method(path), sign()
    assert await made.authenticate(token, PEER) is not None
    write(path, "new")
    (await Authentication([made]).prepare_reload())()
    assert await cause(made, token) == "unknown key"
    assert await made.authenticate(sign("new"), PEER) is not None
    path.write_text("{")
    with pytest.raises(ReloadFailed, match="jwt: "):
        await Authentication([made]).prepare_reload()
    assert await made.authenticate(sign("new"), PEER) is not None


async def test_a_public_key_is_no_shared_secret(tmp_path: Path) -> None:
    """The confusion of algorithms: a signature by HMAC whose secret is a published key."""
    path = tmp_path / "keys.json"
    rsa = jwk.RSAKey.generate_key(2048, {"kid": "r"})
    path.write_text(json.dumps({"keys": [rsa.as_dict(private=False)]}))
    made = method(path, algorithms=("RS256", "HS256"))
    claims = json.dumps({"iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60, "sub": "root"})
    for secret in (rsa.as_pem(private=False), rsa.as_der(private=False)):
        for header in ({"alg": "HS256", "kid": "r"}, {"alg": "HS256"}):
            parts = (json.dumps(header).encode(), claims.encode())
            signed = b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in parts)
            signature = urlsafe_b64encode(hmac.digest(secret, signed, "sha256")).rstrip(b"=")
            assert await cause(made, BearerToken(signed + b"." + signature)) == "unknown key"
    right = jws.serialize_compact({"alg": "RS256", "kid": "r"}, claims, rsa, ["RS256"])
    assert await made.authenticate(BearerToken(right.encode()), PEER) is not None


@pytest.mark.parametrize("field", ["jku", "x5u", "jwk"])
async def test_a_token_cannot_name_its_key(path: Path, field: str) -> None:
    own = {"jwk": KEYS["new"].as_dict(private=False)}.get(field, "https://evil.example/keys")
    made = method(path)
    forged = jws.serialize_compact(
        {"alg": "ES256", field: own},
        json.dumps({"iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60, "sub": "root"}),
        KEYS["new"],
        ["ES256"],
    )
    assert await cause(made, BearerToken(forged.encode())) == "signature"


async def test_a_clock_that_jumps(path: Path) -> None:
    now = [NOW]
    made, token = method(path, now), sign(nbf=NOW)
    assert await made.authenticate(token, PEER) is not None
    now[0] = NOW + 10_000_000  # what is remembered has expired with it
    assert await cause(made, token) == "expired"
    now[0] = NOW - 1000
    assert await cause(made, token) == "not yet valid"
    now[0] = NOW
    assert await made.authenticate(token, PEER) is not None
    now[0] = NOW - 1000  # remembered: it was verified, and its expiry is to come
    assert await made.authenticate(token, PEER) is not None


async def test_roles_and_claims_make_forced_tags(path: Path) -> None:
    made = method(
        path,
        role_tags={"shop": {"tenant": "a", "region": "eu"}, "other": {"tenant": "b"}},
        claim_tags={"org": "tenant"},
    )
    found = await made.authenticate(sign(roles=["shop"], org="a"), PEER)
    assert found is not None
    assert found.tags == {("tenant", "a"), (int(WellKnownKey.REGION), "eu")}
    assert await cause(made, sign(roles=["shop"], org="b")) == "conflicting tags"
    assert await cause(made, sign(roles=["shop", "other"], org="a")) == "conflicting tags"
    assert await cause(made, sign(roles=["shop"])) == "tags"
    with pytest.raises(BrokerFrameError):
        method(path, role_tags={"shop": {"tenant": "x" * 200}})
    with pytest.raises(AddressError):
        method(path, claim_tags={"org": ""})


async def test_keys_are_fetched_by_https_only() -> None:
    with pytest.raises(ValueError, match="by https only"):
        JwtAuthenticator("http://issuer.example/keys", issuer=ISSUER, audience=AUDIENCE)
    made = JwtAuthenticator("https://issuer.example/keys", issuer=ISSUER, audience=AUDIENCE)
    await made.close()
