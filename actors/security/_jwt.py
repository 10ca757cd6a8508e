"""The method `jwt`: JSON Web Tokens of an issuer, verified by its keys."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from ...protocol.broker import make_tags, parse_key, tag_set
from ...protocol.options import Count, Seconds, SecondsOrZero, check_options
from ...protocol.security import (
    DEFAULT_ALGORITHMS,
    BearerToken,
    Credentials,
    JwtPolicy,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    Remembered,
    is_token,
    looks_like_jwt,
    parse_jwt,
    read_claims,
)
from ._authenticator import Authenticator
from ._jwt_keys import FileKeys, JwtKeys, UrlKeys

__all__ = ["JwtAuthenticator", "JwtOptions"]


@dataclass(frozen=True, slots=True)
class JwtOptions:
    """The limits of the method `jwt`.

    Attributes:
        leeway: Seconds by which the clocks of the issuer and of this side may differ.
        remembered: Tokens that are remembered until their expiry, so that their signatures are not
            verified again; then the oldest is forgotten.
        fetch_interval: Seconds between two fetches of the keys from a URL.
        fetch_retry: Seconds after a fetch in which an unknown key id, or a failure, leads to no
            other.
        fetch_timeout: Seconds for a fetch, from the look-up of the name to the last byte; then the
            keys stay as they are.
        key_set_size: Bytes of the set of keys; a larger one is refused.
    """

    leeway: SecondsOrZero = 30.0
    remembered: Count = 10_000
    fetch_interval: Seconds = 600.0
    fetch_retry: Seconds = 60.0
    fetch_timeout: Seconds = 5.0
    key_set_size: Count = 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)


_OPTIONS: Final = JwtOptions()


class JwtAuthenticator(Authenticator):
    """The method for JSON Web Tokens.

    The claim `sub` is the name of the principal, `roles` its roles. `exp` is required. Issuer,
    audience and algorithms are given here, and never taken from the token.

    Args:
        keys: The set of keys (JWKS) of the issuer: a file, or an https URL.
        issuer: The value of the claim `iss`.
        audience: The value of the claim `aud`, or one of its values.
        algorithms: The algorithms of signatures that are accepted.
        role_tags: The forced tags of roles, by role: `{"shop": {"tenant": "a"}}`. A token with
            roles that have different values for one tag is refused.
        claim_tags: The keys of forced tags that take their values from claims, by claim:
            `{"org": "tenant"}`. A token without such a claim is refused.
        options: The limits.
        context: The TLS context for the URL; `None`: the authorities of the system.
        clock: Returns the seconds since 1970.

    Raises:
        MissingExtra: The extra `jwt` is not installed.
        OSError: The file cannot be read.
        BadKeySet: The file is no set of keys.
        ValueError: The URL is not https or has a password, the issuer or the audience is empty, or
            an algorithm is unknown.
        AddressError: The key of a tag cannot be read.
        BrokerFrameError: A tag is too long.
    """

    method = "jwt"

    def __init__(
        self,
        keys: str | Path,
        *,
        issuer: str,
        audience: str,
        algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS,
        role_tags: Mapping[str, Mapping[str, str]] | None = None,
        claim_tags: Mapping[str, str] | None = None,
        options: JwtOptions = _OPTIONS,
        context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._policy = JwtPolicy(
            issuer,
            audience,
            algorithms,
            options.leeway,
            {role: tag_set(make_tags(tags)) for role, tags in (role_tags or {}).items()},
            {claim: parse_key(key) for claim, key in (claim_tags or {}).items()},
        )
        self._keys = _source(keys, options, context)
        self._clock = clock
        self._known: Remembered[Principal] = Remembered(options.remembered)
        self._known_by = self._keys.keys

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        """Return the principal of a JSON Web Token, or `None` for other credentials.

        Raises:
            NotAuthenticated: The token is not accepted, or the keys could not be fetched yet.
        """
        if not isinstance(credentials, BearerToken):
            return None
        token = credentials.token
        if is_token(token) or not looks_like_jwt(token):
            return None
        if self._known_by is not self._keys.keys:
            # A key may have been withdrawn, and with it all that it has signed.
            self._known.clear()
            self._known_by = self._keys.keys
        digest = sha256(token).digest()
        known = self._known.get(digest, self._clock())
        if known is not None:
            return known
        principal = await self._verified(token)
        if principal.expires is not None and self._known_by is self._keys.keys:
            self._known.put(digest, principal, principal.expires)
        return principal

    async def _verified(self, token: bytes) -> Principal:
        jwt = parse_jwt(token, self._policy)
        keys = await self._keys.find(jwt)
        if not keys:
            raise NotAuthenticated("unknown key")
        if not any(key.verifies(jwt) for key in keys):
            raise NotAuthenticated("signature")
        return read_claims(jwt.payload, self._policy, self._clock())

    async def prepare_reload(self) -> Callable[[], object]:
        """Read the keys again. Keys of a URL are fetched and replaced at once."""
        return await self._keys.prepare_reload()

    async def close(self) -> None:
        """Stop fetching keys."""
        await self._keys.close()


def _source(keys: str | Path, options: JwtOptions, context: ssl.SSLContext | None) -> JwtKeys:
    if not isinstance(keys, str) or "://" not in keys:
        return FileKeys(Path(keys), options.key_set_size)
    from ._jwt_fetch import check_url, fetch_keys, load_h11

    check_url(keys)
    load_h11()
    timeout, most = options.fetch_timeout, options.key_set_size
    return UrlKeys(
        lambda: fetch_keys(keys, context, timeout, most),
        options.fetch_interval,
        options.fetch_retry,
    )
