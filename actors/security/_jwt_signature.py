"""The signatures of JSON Web Tokens: the one place that uses the library `joserfc`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...protocol.security import BadKeySet, UnverifiedJwt, parse_key_set
from .._values import MissingExtra

__all__ = ["JwtKey", "load_joserfc", "read_keys"]


class JwtKey:
    """A key that verifies signatures.

    Args:
        fields: The fields of the key, as in the set.
        key: The key of `joserfc`.
        algorithms: The algorithms of `joserfc`, by name.
    """

    def __init__(self, fields: dict[str, Any], key: Any, algorithms: dict[str, Any]) -> None:
        self._id = fields.get("kid")
        self._algorithm = fields.get("alg")
        self._key = key
        self._algorithms = algorithms

    def fits(self, jwt: UnverifiedJwt) -> bool:
        """Whether the key may have signed a token: by its id, its algorithm and its type."""
        if jwt.key_id is not None and jwt.key_id != self._id:
            return False
        # RFC 8725, section 3.1: "Each key MUST be used with exactly one algorithm". RFC 9864 has
        # renamed EdDSA with this curve.
        if self._algorithm is not None and _name(self._algorithm) != _name(jwt.algorithm):
            return False
        try:
            self._algorithms[jwt.algorithm].check_key(self._key)
        except load_joserfc().errors.JoseError:  # of another type, or on another curve
            return False
        return True

    def verifies(self, jwt: UnverifiedJwt) -> bool:
        """Whether the key has signed a token that it fits. It takes up to 0.2 ms."""
        found: bool = self._algorithms[jwt.algorithm].verify(jwt.signed, jwt.signature, self._key)
        return found


def _name(algorithm: object) -> object:
    return "Ed25519" if algorithm == "EdDSA" else algorithm


def read_keys(document: bytes) -> Sequence[JwtKey]:
    """Return the keys of a set (JWKS).

    Raises:
        BadKeySet: It is no set of keys, or has none that can be used.
    """
    joserfc = load_joserfc()
    keys: list[JwtKey] = []
    for fields in parse_key_set(document):
        # The library has no notion of the two names of Ed25519, so `fits` checks the algorithm.
        parts = {name: value for name, value in fields.items() if name != "alg"}
        try:
            key = joserfc.jwk.import_key(parts)
        except (joserfc.errors.JoseError, ValueError, TypeError, KeyError):
            continue  # "SHOULD ignore JWKs [...] that are missing required members"
        keys.append(JwtKey(fields, key, joserfc.jws.JWSRegistry.algorithms))
    if not keys:
        raise BadKeySet("it has no key that can be read")
    return tuple(keys)


class Joserfc(NamedTuple):
    """The modules of `joserfc`."""

    errors: Any
    jwk: Any
    jws: Any


def load_joserfc() -> Joserfc:
    """Import `joserfc`.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        from joserfc import errors, jwk, jws
    except ImportError:
        raise MissingExtra("the authentication method jwt", "jwt") from None
    return Joserfc(errors, jwk, jws)
