"""Hints for text that looks like an address or a route and is none.

Text without a `#` is the name of a worker, so nearly any text can be read as an address, and a
mistake would be found only as a worker that does not exist. The mistakes in this table are refused
where they are read, with the right form. Each looks like a place on a network or like several
addresses; a worker may have such a name all the same, which is written with its type: `0#a,b`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

__all__ = ["Hint", "hint_for"]

_TYPES: Final = {"tcp": 1, "udp": 2, "ws": 3, "uds": 5, "sim": 240}
"""Address type of each scheme that has one."""

_SCHEMES: Final = "|".join(_TYPES)
_PORT: Final = r"[0-9]{1,5}"
_HOST: Final = r"(?:localhost|[\w-]+(?:\.[\w-]+)+|\[[0-9A-Fa-f:.]+\])"

_Rewrite: TypeAlias = Callable[[re.Match[str]], str]


class Hint(NamedTuple):
    """A mistake in a text, and the right form.

    Attributes:
        reason: The mistake.
        written: The text in its right form, or empty if there is none. It may have a mistake
            of another kind.
    """

    reason: str
    written: str


def _separated(match: re.Match[str]) -> str:
    return " => ".join(part.strip() for part in match.string.split(match[1]) if part.strip())


def _typed(match: re.Match[str]) -> str:
    return f"{_TYPES[match[1].lower()]}#{match[2]}"


def _none(_: re.Match[str]) -> str:
    return ""


# In this order: the first that matches counts. The patterns are searched for.
_WITH_TYPE: Final[tuple[tuple[re.Pattern[str], str, _Rewrite], ...]] = (
    # The text form of an address never has a `>`: it is written as %3E.
    (re.compile("(->|→)"), "'=>' stands between the addresses of a route, not {}", _separated),
    (
        re.compile(rf"^({_SCHEMES})#(.+)$", re.IGNORECASE),
        "the type of an address is a number, not {}",
        _typed,
    ),
)
_WITHOUT_TYPE: Final[tuple[tuple[re.Pattern[str], str, _Rewrite], ...]] = (
    (re.compile("(,)"), "'=>' stands between the addresses of a route, not {}", _separated),
    (
        re.compile(rf"^({_SCHEMES})://(.+)$", re.IGNORECASE),
        "a URI is not an address, which has a type and no scheme",
        _typed,
    ),
    (
        re.compile(r"^(?:tls|wss)://", re.IGNORECASE),
        "an address cannot ask for TLS: connect to the URI first, with Node.connect or --connect",
        _none,
    ),
    (
        # Of another scheme, as of a user's own transport, it may be the name of a worker.
        re.compile(r"^(?:https?|rsocket\+[a-z]+)://", re.IGNORECASE),
        "a URI is not an address, and there is no type for this scheme",
        _none,
    ),
    (
        re.compile(rf"^(tcp|udp|ws):(\S+:{_PORT}(?:/\S*)?)$", re.IGNORECASE),
        "an address begins with a type and '#', not with a scheme",
        _typed,
    ),
    (
        re.compile(rf"^{_HOST}:{_PORT}$"),
        "a host and a port need a type",
        lambda match: f"1#{match[0]}",
    ),
    (
        re.compile(rf"^([0-9A-Fa-f:]*::[0-9A-Fa-f:.]*):({_PORT})$"),
        "a host and a port need a type, and an IPv6 host brackets",
        lambda match: f"1#[{match[1]}]:{match[2]}",
    ),
)


def hint_for(text: str) -> Hint | None:
    """Return the hint for the text of one address; `None` if it has no known mistake."""
    table = _WITH_TYPE if "#" in text else (*_WITH_TYPE, *_WITHOUT_TYPE)
    for pattern, reason, rewrite in table:
        if match := pattern.search(text):
            found = repr(match[1]) if "{}" in reason else ""
            return Hint(reason.format(found), rewrite(match))
    return None
