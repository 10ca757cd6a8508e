"""Hashes of passwords as texts: the PHC string format, and that of bcrypt.

```
$scrypt$ln=14,r=8,p=1$salt$hash          base64 without padding
$argon2id$v=19$m=65536,t=3,p=4$salt$hash
$2b$12$salt and hash
```
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from dataclasses import dataclass, field
from hashlib import scrypt
from hmac import compare_digest
from typing import Final

__all__ = ["SALT_SIZE", "PasswordHash", "hash_password", "parse_password_hash", "verify_scrypt"]

MAX_SCRYPT_MEMORY: Final = 256 * 1024 * 1024
"""The maximum memory that the parameters of an scrypt hash may require, in bytes."""
MAX_PARALLEL: Final = 16
"""The maximum of the parameter p of scrypt: its passes, one after the other."""

DEFAULT_LN: Final = 14
DEFAULT_R: Final = 8
DEFAULT_P: Final = 1
SALT_SIZE: Final = 16
"""The number of random bytes in the salt of a password's hash."""
HASH_SIZE: Final = 32

_SCRYPT: Final = re.compile(
    r"\$scrypt\$ln=([0-9]{1,2}),r=([0-9]{1,4}),p=([0-9]{1,4})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)"
)
_OTHERS: Final = (
    (
        "argon2id",
        re.compile(r"\$argon2id\$v=\d+\$m=\d+,t=\d+,p=\d+\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+"),
    ),
    ("bcrypt", re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")),
)


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """The hash of a password.

    Attributes:
        kind: `scrypt`, `argon2id` or `bcrypt`.
        text: The hash as in a file. It is not in the `repr`.
    """

    kind: str
    text: str = field(repr=False)


def parse_password_hash(text: str) -> PasswordHash:
    """Check the form of a hash.

    Raises:
        ValueError: It has another form, or its parameters are out of range. The text of the error
            has no part of the hash.
    """
    if text.startswith("$scrypt$"):
        _scrypt_parts(text)
        return PasswordHash("scrypt", text)
    for kind, form in _OTHERS:
        if form.fullmatch(text):
            return PasswordHash(kind, text)
    raise ValueError("it is no hash of scrypt, argon2id or bcrypt; `onward password` makes one")


def _scrypt_parts(text: str) -> tuple[int, int, int, bytes, bytes]:
    match = _SCRYPT.fullmatch(text)
    if match is None:
        raise ValueError("it is not $scrypt$ln=..,r=..,p=..$salt$hash in base64 without padding")
    ln, r, p = int(match[1]), int(match[2]), int(match[3])
    if not (1 <= ln <= 32 and r >= 1 and 128 * r << ln <= MAX_SCRYPT_MEMORY):
        raise ValueError(f"its ln and r need more than {MAX_SCRYPT_MEMORY >> 20} MiB, or nothing")
    if not 1 <= p <= MAX_PARALLEL:
        raise ValueError(f"its p is not 1 to {MAX_PARALLEL}")
    try:
        salt, digest = (b64decode(part + "=" * (-len(part) % 4)) for part in match.group(4, 5))
    except NotBase64:
        raise ValueError("its salt or hash is not base64") from None
    if not (8 <= len(salt) <= 64 and 16 <= len(digest) <= 64):
        raise ValueError("its salt is not 8 to 64 bytes, or its hash not 16 to 64")
    return ln, r, p, salt, digest


def hash_password(password: str, salt: bytes) -> PasswordHash:
    """Return the scrypt hash of a password, with the parameters of today. It takes about 70 ms.

    Args:
        password: The password.
        salt: `SALT_SIZE` bytes of a cryptographic source.
    """
    digest = _scrypt(password, DEFAULT_LN, DEFAULT_R, DEFAULT_P, salt, HASH_SIZE)
    head = f"$scrypt$ln={DEFAULT_LN},r={DEFAULT_R},p={DEFAULT_P}"
    return PasswordHash("scrypt", f"{head}${_base64(salt)}${_base64(digest)}")


def verify_scrypt(password: str, stored: PasswordHash) -> bool:
    """Whether a password is the one of a hash of the kind `scrypt`. It takes about 70 ms."""
    ln, r, p, salt, digest = _scrypt_parts(stored.text)
    return compare_digest(_scrypt(password, ln, r, p, salt, len(digest)), digest)


def _scrypt(password: str, ln: int, r: int, p: int, salt: bytes, size: int) -> bytes:
    # OpenSSL counts the buffers of both halves, hence twice the memory of the parameters.
    memory = 2 * MAX_SCRYPT_MEMORY
    return scrypt(password.encode(), salt=salt, n=1 << ln, r=r, p=p, maxmem=memory, dklen=size)


def _base64(data: bytes) -> str:
    return b64encode(data).rstrip(b"=").decode()
