"""Tokens of this broker: 32 random bytes in text, of which only the digest is kept."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final

__all__ = ["TOKEN_BYTES", "TOKEN_PREFIX", "is_token", "make_token", "token_digest"]

TOKEN_PREFIX: Final = "onw_"  # noqa: S105 - no secret
"""The first characters of each token, by which scanners find tokens that were published."""

TOKEN_BYTES: Final = 32
"""The number of random bytes in a token."""


def make_token(random: bytes) -> str:
    """Return the token for random bytes, in the alphabet of URLs.

    Args:
        random: `TOKEN_BYTES` bytes of a cryptographic source.

    Raises:
        ValueError: There are more bytes, or fewer.
    """
    if len(random) != TOKEN_BYTES:
        raise ValueError(f"a token is made of {TOKEN_BYTES} random bytes, not {len(random)}")
    return TOKEN_PREFIX + urlsafe_b64encode(random).rstrip(b"=").decode()


def is_token(text: bytes) -> bool:
    """Whether a bearer token is one of this broker; others may be a JWT."""
    return text.startswith(TOKEN_PREFIX.encode())


def token_digest(token: bytes) -> bytes:
    """Return the SHA-256 of a token, prefix included.

    Tokens are looked up by it. The time of the look-up depends on the digest, from which nothing
    about the token follows, so it needs no comparison in constant time. With 256 random bits a
    slow hash, as passwords need, adds nothing.
    """
    return sha256(token).digest()
