"""JSON (RFC 8259) as a payload, without what two readers could read differently.

Refused are: a name twice in one object, `NaN` and `Infinity`, numbers too large for a float, halves
of surrogate pairs, and anything but UTF-8 ("MUST be encoded using UTF-8", section 8.1).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from ._codec import LIMITS, PayloadError, PayloadLimits
from ._plain import check_plain, check_size

__all__ = ["JSON", "JsonCodec"]

# Also one that is not closed, up to the end: else each quotation mark in it would be tried.
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_ESCAPED_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_BRACKETS: Final = re.compile(rb"[\[{]|[\]}]")


@dataclass(frozen=True, slots=True)
class JsonCodec:
    """Plain data as JSON: names are texts, and there are no bytes.

    Attributes:
        limits: How much a payload may hold.
    """

    limits: PayloadLimits = LIMITS

    @property
    def name(self) -> str:
        """Its name."""
        return "json"

    @property
    def native(self) -> tuple[type, ...]:
        """The types that are encoded beside plain data."""
        return ()

    def encode(self, value: Any) -> bytes:
        """Write plain data, as short as it goes.

        Raises:
            PayloadError: It is not plain data, a float is not finite, or it is over a limit.
        """
        check_plain(value, self.limits, binary=False)
        try:
            made = _write(value).encode()
        except UnicodeEncodeError:
            raise PayloadError("a text that UTF-8 cannot write") from None
        except ValueError:  # an integer of thousands of digits
            raise PayloadError("a number of too many digits") from None
        return check_size(made, self.limits)

    def decode(self, data: bytes, kind: Any = None) -> Any:
        """Read plain data; the kind does not matter.

        Raises:
            PayloadError: It is not JSON, or is over a limit.
        """
        _check_shape(check_size(data, self.limits), self.limits)
        try:
            value = _decoder.decode(data.decode())
        except UnicodeDecodeError:
            raise PayloadError("not UTF-8") from None
        except json.JSONDecodeError as error:
            raise PayloadError(f"not JSON: {error.msg} at character {error.pos}") from None
        except PayloadError:
            raise
        except ValueError:  # an integer of thousands of digits
            raise PayloadError("a number of too many digits") from None
        if _ESCAPED_SURROGATE.search(data) and _SURROGATE.search(_write(value)):
            raise PayloadError("a text with half of a surrogate pair")
        return value


JSON: Final = JsonCodec()
"""Payloads of JSON, with the default limits."""

_write: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), check_circular=False
).encode


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of names and values, in one pass over them.

    Raises:
        PayloadError: A name is there twice.
    """
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise PayloadError(f"the name {name!r} twice"[:80])
        made[name] = value
    return made


def _float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise PayloadError("a number too large for a float")
    return number


def _no_constant(text: str) -> Any:
    raise PayloadError(f"{text} is no number of JSON")


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=object_of, parse_float=_float, parse_constant=_no_constant
)


def _check_shape(data: bytes, limits: PayloadLimits) -> None:
    """Check depth and number of items before any is built."""
    brackets = data.count(b"[") + data.count(b"{")
    marks = data.count(b",") + data.count(b":")
    if brackets <= limits.depth and brackets + marks < limits.items:
        return
    # Perhaps most of them are within texts: count again without those.
    bare = _STRING.sub(b"", data)
    brackets = bare.count(b"[") + bare.count(b"{")
    if brackets + bare.count(b",") + bare.count(b":") >= limits.items:
        raise PayloadError(f"over {limits.items} items")
    depth = 0
    for bracket in _BRACKETS.finditer(bare):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > limits.depth:
            raise PayloadError(f"over {limits.depth} deep")
