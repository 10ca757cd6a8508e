"""The removal of secrets from what a report holds.

A broker tells no secrets, and what it is asked for has none. Text that looks like one is removed
all the same: a URL with a password may be in a message of the log, or a token in a tag.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

__all__ = ["HIDDEN", "scrubbed", "scrubbed_text", "without_password"]

HIDDEN: Final = "(hidden)"

MAX_DEPTH: Final = 50
"""The maximum depth of values; deeper ones are left out."""

_SECRET_KEY: Final = re.compile(
    r"(?i)(?:^|[_.-])(?:password|passwd|passphrase|secret|token|credentials?|authorization|"
    r"private[_-]?key|api[_-]?key)$"
)

_OF_URL: Final = (
    # The user and password of a URL, and the fields of its query.
    (r"(?i)([a-z][a-z0-9+.-]{0,30}://)[^/\s\"']*@", rf"\1{HIDDEN}@"),
    (
        r"(?i)([?&](?:[a-z_-]{0,64}(?:token|password|secret|key|signature)|sig)=)[^&\s\"']+",
        rf"\1{HIDDEN}",
    ),
)

# What comes before the mark of a secret is bounded: else a long word takes its length squared.
_PATTERNS: Final = tuple(
    (re.compile(pattern, re.DOTALL), put)
    for pattern, put in (
        # Tokens of ours, JSON Web Tokens, and what follows an authentication scheme.
        (r"onw_[A-Za-z0-9_-]{16,}", HIDDEN),
        (r"eyJ[A-Za-z0-9_-]{8,4096}+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?", HIDDEN),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}", rf"\1 {HIDDEN}"),
        *_OF_URL,
        (
            r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)",
            HIDDEN,
        ),
        # Hashes of passwords.
        (r"\$(?:scrypt|argon2[a-z]*|2[aby])\$[A-Za-z0-9./+=,$-]{8,}", HIDDEN),
        (r"(?i)\b(password|passwd|secret|token)(\s*[=:]\s*)[^\s,;\"']{4,}", rf"\1\2{HIDDEN}"),
    )
)


def without_password(text: str) -> str:
    """Return a text in which the users, passwords and secret fields of URLs are hidden."""
    for pattern, put in _OF_URL:
        text = re.sub(pattern, put, text)
    return text


def scrubbed_text(text: str) -> str:
    """Return a text in which what looks like a secret is hidden."""
    for pattern, put in _PATTERNS:
        text = pattern.sub(put, text)
    return text


def scrubbed(value: object, depth: int = MAX_DEPTH) -> Any:
    """Return a value of JSON in which the texts of secrets, and what looks like one, are hidden.

    Args:
        value: The value.
        depth: The depth down to which it is read.
    """
    if depth == 0:
        return HIDDEN
    if isinstance(value, str):
        return scrubbed_text(value)
    if isinstance(value, list):
        many = cast("list[object]", value)
        match many:
            case [str(key), str(text)] if text and _SECRET_KEY.search(key):
                return [key, HIDDEN]  # a tag, as events have it
            case _:
                pass
        return [scrubbed(each, depth - 1) for each in many]
    if isinstance(value, dict):
        found = cast("dict[str, object]", value)
        return {
            scrubbed_text(key): HIDDEN
            if isinstance(each, str) and each and _SECRET_KEY.search(key)
            else scrubbed(each, depth - 1)
            for key, each in found.items()
        }
    return value
