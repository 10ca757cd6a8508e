"""JSON Web Tokens without cryptography: their three parts, their claims, and sets of keys.

RFC 7515 (JWS), RFC 7517 (JWK), RFC 7519 (JWT), RFC 8725 (JWT Best Current Practices). Each refusal
is a `NotAuthenticated` with a cause for the counters of this side.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, cast

from ..broker import MAX_VALUE_SIZE, Key, Tag, TagSet
from ._errors import BadKeySet, NotAuthenticated
from ._principal import Principal

__all__ = [
    "DEFAULT_ALGORITHMS",
    "JWT_ALGORITHMS",
    "MAX_KEYS",
    "MAX_ROLES",
    "JwtPolicy",
    "UnverifiedJwt",
    "inspect_jwt",
    "looks_like_jwt",
    "parse_jwt",
    "parse_key_set",
    "read_claims",
]

DEFAULT_ALGORITHMS: Final = ("Ed25519", "EdDSA", "ES256", "PS256", "RS256")
"""The algorithms of signatures that are accepted by default."""
JWT_ALGORITHMS: Final = (
    *DEFAULT_ALGORITHMS,
    *("ES384", "ES512", "HS256", "HS384", "HS512"),
    *("PS384", "PS512", "RS384", "RS512"),
)
"""The algorithms of signatures that can be accepted; `none` cannot."""

MAX_KEYS: Final = 100
"""The maximum number of keys in a set."""
MAX_ROLES: Final = 64
"""The maximum number of roles in a token."""
MAX_NAME: Final = 255
MAX_TIME: Final = 10**12

# RFC 7518, section 3.3: "A key of size 2048 bits or larger MUST be used", and section 3.2: "A key
# of the same size as the hash output or larger MUST be used".
MIN_RSA: Final = 2048 // 8
MIN_SECRET: Final = 256 // 8


@dataclass(frozen=True, slots=True)
class JwtPolicy:
    """The required contents of a token. None of it is taken from the token.

    Attributes:
        issuer: The value of `iss`.
        audience: The value of `aud`, or one of its values.
        algorithms: The algorithms of signatures.
        leeway: Seconds by which the clocks of the issuer and of this side may differ.
        role_tags: The forced tags of roles, by role.
        claim_tags: The keys of forced tags that take their values from claims, by claim.
    """

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    leeway: float = 30.0
    role_tags: Mapping[str, TagSet] = field(default_factory=dict[str, TagSet])
    claim_tags: Mapping[str, Key] = field(default_factory=dict[str, Key])

    def __post_init__(self) -> None:
        if not self.issuer or not self.audience:
            raise ValueError("a JWT needs an issuer and an audience to be checked against")
        unknown = [each for each in self.algorithms if each not in JWT_ALGORITHMS]
        if unknown or not self.algorithms:
            known = ", ".join(JWT_ALGORITHMS)
            raise ValueError(f"algorithms must be one or more of {known}, not {unknown}")


@dataclass(frozen=True, slots=True)
class UnverifiedJwt:
    """A token in its parts, before its signature is verified.

    Attributes:
        algorithm: The algorithm in its header.
        key_id: The id of the key in its header, if there is one.
        signed: The bytes that are signed. They are not in the `repr`.
        payload: The claims. They are not in the `repr`.
        signature: The signature. It is not in the `repr`.
    """

    algorithm: str
    key_id: str | None
    signed: bytes = field(repr=False)
    payload: bytes = field(repr=False)
    signature: bytes = field(repr=False)


def looks_like_jwt(token: bytes) -> bool:
    """Whether a bearer token has the three parts of a JWT."""
    return token.count(b".") == 2


def inspect_jwt(token: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims of a token, of which nothing is verified.

    Raises:
        NotAuthenticated: It is malformed.
    """
    head, _, rest = token.partition(b".")
    return _object(_base64(head)), _object(_base64(rest.partition(b".")[0]))


def parse_jwt(token: bytes, policy: JwtPolicy) -> UnverifiedJwt:
    """Separate the parts of a token, and check its header.

    Raises:
        NotAuthenticated: It is malformed, or its header is not accepted.
    """
    head, _, rest = token.partition(b".")
    body, _, signature = rest.partition(b".")
    header = _object(_base64(head))
    algorithm, key_id = header.get("alg"), header.get("kid")
    # RFC 8725, section 3.1: "Libraries MUST enable the caller to specify a supported set of
    # algorithms and MUST NOT use any other algorithms when performing cryptographic operations."
    if algorithm not in policy.algorithms:
        raise NotAuthenticated("algorithm")
    # RFC 7515, section 4.1.11: "If any of the listed extension Header Parameters are not
    # understood and supported by the recipient, then the JWS is invalid." None is supported here.
    if "crit" in header:
        raise NotAuthenticated("critical header")
    if key_id is not None and not isinstance(key_id, str):
        raise NotAuthenticated("malformed")
    return UnverifiedJwt(
        cast("str", algorithm), key_id, head + b"." + body, _base64(body), _base64(signature)
    )


def read_claims(payload: bytes, policy: JwtPolicy, now: float) -> Principal:
    """Return the principal of a token with a verified signature.

    Args:
        payload: The claims.
        policy: The required contents.
        now: The time, in seconds since 1970.

    Raises:
        NotAuthenticated: A claim is missing, or is not accepted.
    """
    claims = _object(payload)
    if claims.get("iss") != policy.issuer:
        raise NotAuthenticated("issuer")
    # RFC 7519, section 4.1.3: "If the principal processing the claim does not identify itself with
    # a value in the "aud" claim when this claim is present, then the JWT MUST be rejected."
    audience = claims.get("aud", [])
    if policy.audience not in _texts([audience] if isinstance(audience, str) else audience):
        raise NotAuthenticated("audience")
    expiry = _time(claims, "exp")
    if expiry is None:
        raise NotAuthenticated("no expiry")
    if expiry + policy.leeway <= now:
        raise NotAuthenticated("expired")
    start = _time(claims, "nbf")
    if start is not None and start - policy.leeway > now:
        raise NotAuthenticated("not yet valid")
    name = claims.get("sub")
    if not isinstance(name, str) or not _is_name(name):
        raise NotAuthenticated("no subject")
    roles = _texts(claims.get("roles", []))
    if len(roles) > MAX_ROLES or not all(map(_is_name, roles)):
        raise NotAuthenticated("malformed")
    return Principal(
        name,
        "jwt",
        frozenset(roles),
        _forced_tags(claims, roles, policy),
        expires=expiry + policy.leeway,
        issuer=policy.issuer,
    )


def _forced_tags(claims: dict[str, Any], roles: list[str], policy: JwtPolicy) -> TagSet:
    """Return the tags that the policy makes of roles and claims.

    Raises:
        NotAuthenticated: Two values are for one key, or a claim is missing or is no value of a tag.
    """
    if not policy.role_tags and not policy.claim_tags:
        return frozenset()
    forced = set[Tag]()
    for role in roles:
        forced |= policy.role_tags.get(role, frozenset())
    for claim, key in policy.claim_tags.items():
        value = claims.get(claim)
        # Without its value the principal would be of no tenant, and so reach all of them.
        if (
            not isinstance(value, str)
            or not _is_name(value)
            or len(value.encode()) > MAX_VALUE_SIZE
        ):
            raise NotAuthenticated("tags")
        forced.add((key, value))
    if len({key for key, _ in forced}) < len(forced):
        raise NotAuthenticated("conflicting tags")
    return frozenset(forced)


def parse_key_set(document: bytes) -> list[dict[str, Any]]:
    """Return the keys of a set (JWKS) that may verify signatures.

    Raises:
        BadKeySet: It is no set of keys, has too many, or none that can be used.
    """
    try:
        keys = _object(document).get("keys")
    except NotAuthenticated:
        raise BadKeySet("it is not a JSON object") from None
    if not isinstance(keys, list):
        raise BadKeySet("it has no list of keys")
    listed = cast("list[object]", keys)
    if len(listed) > MAX_KEYS:
        raise BadKeySet(f"it has more than {MAX_KEYS} keys")
    # RFC 7517, section 5: "Implementations SHOULD ignore JWKs within a JWK Set that use "kty" (key
    # type) values that are not understood by them, that are missing required members, or for which
    # values are out of the supported ranges."
    usable = [
        cast("dict[str, Any]", each)
        for each in listed
        if isinstance(each, dict) and _may_verify(cast("dict[str, Any]", each))
    ]
    if not usable:
        raise BadKeySet("it has no key that can verify a signature")
    return usable


def _may_verify(key: dict[str, Any]) -> bool:
    operations = key.get("key_ops", ["verify"])
    if key.get("use", "sig") != "sig" or not isinstance(operations, list):
        return False
    if "verify" not in cast("list[object]", operations):
        return False
    kind = key.get("kty")
    if kind == "RSA":
        return _size(key.get("n")) >= MIN_RSA
    if kind == "oct":
        return _size(key.get("k")) >= MIN_SECRET
    return kind in ("EC", "OKP")


def _size(text: object) -> int:
    try:
        return len(_base64(text.encode())) if isinstance(text, str) else 0
    except (NotAuthenticated, UnicodeEncodeError):
        return 0


def _base64(text: bytes) -> bytes:
    # RFC 7515, section 2: base64url "with all trailing '=' characters omitted [...] and without
    # the inclusion of any line breaks, whitespace, or other additional characters."
    if b"=" in text or b"+" in text or b"/" in text:
        raise NotAuthenticated("malformed")
    try:
        return b64decode(text + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except NotBase64:
        raise NotAuthenticated("malformed") from None


def _object(text: bytes) -> dict[str, Any]:
    try:
        found: object = json.loads(text.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise NotAuthenticated("malformed") from None
    if not isinstance(found, dict):
        raise NotAuthenticated("malformed")
    return cast("dict[str, Any]", found)


def _refuse(constant: str) -> NoReturn:
    """Refuse `NaN` and `Infinity`, which are not JSON: an expiry would never come."""
    raise ValueError(constant)


def _time(claims: dict[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NotAuthenticated("malformed")
    # A float has no room for each whole number that JSON has.
    if not -MAX_TIME < value < MAX_TIME:
        raise NotAuthenticated("malformed")
    return float(value)


def _texts(value: object) -> list[str]:
    listed = cast("list[object]", value) if isinstance(value, list) else [None]
    texts = [each for each in listed if isinstance(each, str)]
    if len(texts) < len(listed):
        raise NotAuthenticated("malformed")
    return texts


def _is_name(text: str) -> bool:
    try:
        return 0 < len(text.encode()) <= MAX_NAME and text.isprintable()
    except UnicodeEncodeError:
        return False
