"""Semantics as bytes, as nodes tell each other what they have provisioned.

They are one map of CBOR with the words of the file of provisions, and of these only the values that
differ from the defaults: `{"routing": "direct", "window": 50}`. Semantics with a word or a value
that is not known are those of a later version: they cannot be read, and decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar

from cbor2 import dumps

from ..payloads import CborCodec, PayloadError, PayloadLimits
from ._errors import BadSemantics
from ._frames import MAX_SEMANTICS
from ._semantics import Semantics, Undeliverable
from ._semantics_parts import (
    Access,
    Gate,
    Hold,
    Last,
    Mechanism,
    Overflow,
    Reattach,
    Redirect,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Settlement,
    Weigh,
)

__all__ = ["decode_semantics", "encode_semantics"]

T = TypeVar("T")

_CODEC: Final = CborCodec(PayloadLimits(size=MAX_SEMANTICS, depth=4, items=MAX_SEMANTICS))
_DEFAULTS: Final = Semantics()
_RETRY: Final = Retry()
_SAME: Final = 1024
"""Semantics that are kept as they were read, so that equal ones are one object."""


def _roles(value: Any) -> frozenset[str]:
    if not isinstance(value, list):
        raise TypeError
    found: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return frozenset(found)


def _as_it_is(value: Any) -> Any:
    return value


_VALUES: Final[dict[str, tuple[str, Callable[[Any], object]]]] = {
    "routing": ("pattern", RoutingPattern),
    "mechanism": ("mechanism", Mechanism),
    "window": ("window", _as_it_is),
    "gate": ("gate", Gate),
    "second": ("second", Second),
    "weigh": ("weigh", Weigh),
    "overflow": ("overflow", Overflow),
    "reattach": ("reattach", Reattach),
    "tags": ("tags", _as_it_is),
    "settle_time": ("settle_time", _as_it_is),
}
_RELIABILITY: Final[dict[str, tuple[str, Callable[[Any], object]]]] = {
    "settle": ("settle", Settlement),
    "accepts": ("accepts", _as_it_is),
    "deduplicate": ("deduplicate", _as_it_is),
    "deadline": ("deadline", _as_it_is),
}
_ACCESS: Final[dict[str, tuple[str, Callable[[Any], object]]]] = {
    "producers": ("producers", _roles),
    "consumers": ("consumers", _roles),
}
_HOLD: Final[dict[str, tuple[str, Callable[[Any], object]]]] = {
    "hold": ("messages", _as_it_is),
    "size": ("size", _as_it_is),
    "age": ("age", _as_it_is),
    "disk": ("disk", _as_it_is),
}
_ROUNDS: Final[dict[str, tuple[str, Callable[[Any], object]]]] = {
    "rounds": ("rounds", _as_it_is),
    "first": ("first", _as_it_is),
    "longest": ("longest", _as_it_is),
}


def encode_semantics(semantics: Semantics) -> bytes:
    """Write semantics.

    Raises:
        BadSemantics: They have more than `MAX_SEMANTICS` bytes.
    """
    written = _written(_VALUES, semantics, _DEFAULTS)
    written |= _written(_RELIABILITY, semantics.reliability, _DEFAULTS.reliability)
    written |= _written(_ACCESS, semantics.access, _DEFAULTS.access)
    chain = [_part(each) for each in semantics.undeliverable if not isinstance(each, Last)]
    if chain:
        written["undeliverable"] = chain
    if semantics.last is not Last.RELEASE:
        written["last"] = semantics.last.value
    data = dumps(written)
    if len(data) > MAX_SEMANTICS:
        raise BadSemantics([f"{len(data)} bytes are over the limit of {MAX_SEMANTICS}"])
    return data


@lru_cache(maxsize=_SAME)
def decode_semantics(data: bytes) -> Semantics:
    """Read semantics.

    Raises:
        BadSemantics: They cannot be read, or contradict themselves.
    """
    try:
        found = _CODEC.decode(data)
    except PayloadError as error:
        raise BadSemantics([error.reason]) from None
    try:
        given = _copy(found)
        values = _taken(_VALUES, given)
        values["reliability"] = Reliability(**_taken(_RELIABILITY, given))
        values["access"] = Access(**_taken(_ACCESS, given))
        chain = [_read_part(_copy(each)) for each in given.pop("undeliverable", ())]
        chain.append(Last(given.pop("last", Last.RELEASE.value)))
        _check_empty(given)
        return Semantics(**values, undeliverable=tuple(chain))
    except (TypeError, ValueError):
        raise BadSemantics(["a value that is not known"]) from None


# --- writing ----------------------------------------------------------------------------------


def _written(
    keys: Mapping[str, tuple[str, Callable[[Any], object]]], of: object, defaults: object
) -> dict[str, object]:
    """Return the values that differ from the defaults."""
    found: dict[str, object] = {}
    for key, (name, _) in keys.items():
        value = getattr(of, name)
        if value != getattr(defaults, name):
            found[key] = _plain(value)
    return found


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, frozenset):
        roles: frozenset[str] = value  # pyright: ignore[reportUnknownVariableType]
        return sorted(roles)
    return value


def _part(part: Retry | Redirect) -> dict[str, object]:
    if isinstance(part, Redirect):
        return {"redirect": part.to}
    found = _written(_HOLD, part.hold, _RETRY.hold) | _written(_ROUNDS, part, _RETRY)
    return {"hold": part.hold.messages} | found


# --- reading ----------------------------------------------------------------------------------


def _copy(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError
    found: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    return dict(found)


def _taken(
    keys: Mapping[str, tuple[str, Callable[[Any], object]]], given: dict[str, Any]
) -> dict[str, Any]:
    """Return the values of some keys, and remove these."""
    return {name: read(given.pop(key)) for key, (name, read) in keys.items() if key in given}


def _read_part(given: dict[str, Any]) -> Undeliverable:
    if "redirect" in given:
        part: Undeliverable = Redirect(given.pop("redirect"))
    elif "hold" not in given:
        raise ValueError
    else:
        hold = Hold(**_taken(_HOLD, given))
        part = Retry(hold=hold, **_taken(_ROUNDS, given))
    _check_empty(given)
    return part


def _check_empty(given: dict[str, Any]) -> None:
    if given:
        raise ValueError
