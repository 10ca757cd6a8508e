"""The frame of a disposition, byte for byte: what the target of a copy tells of it.

It is the CBOR array `[version, state, settled, details, tally]`: details are `[condition,
description]` of rejected, `[failed, undeliverable here]` of modified, and empty otherwise; the
tally is empty or the numbers of copies accepted, rejected, modified and released, and the state is
the outcome of one. As of a transit address, there is one spelling, the shortest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cbor2 import dumps

from .._errors import MalformedMessage
from ..ockam._cbor import CborReader
from ._outcomes import (
    ACCEPTED,
    RECEIVED,
    RELEASED,
    Accepted,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    Tally,
)
from ._transit import BadTransit, check_version

__all__ = [
    "MAX_CONDITION",
    "MAX_DESCRIPTION",
    "MAX_DISPOSITION",
    "Disposition",
    "decode_disposition",
    "encode_disposition",
]

MAX_DISPOSITION: Final = 1024
"""Most bytes of the frame of a disposition."""
MAX_CONDITION: Final = 128
"""Most bytes of a condition, in UTF-8. A longer one is cut when it is written."""
MAX_DESCRIPTION: Final = 512
"""Most bytes of a description, in UTF-8. A longer one is cut when it is written."""

_MAX_COUNT: Final = 0xFFFFFFFF
_VERSION: Final = 1
_TEXT: Final = 3
_RECEIVED, _ACCEPTED, _REJECTED, _RELEASED, _MODIFIED = range(3, 8)
"""As the last digits of the outcomes of AMQP."""


@dataclass(frozen=True, slots=True)
class Disposition:
    """The state of a copy, as its target tells it.

    Attributes:
        state: The state.
        settled: Whether the target has settled; without, the producer is to settle first.
        tally: The outcomes of the copies behind a node; `None` for a single copy.
    """

    state: DeliveryState
    settled: bool = True
    tally: Tally | None = None


def encode_disposition(disposition: Disposition) -> bytes:
    """Write the frame of a disposition; texts that are too long are cut."""
    code, details = _state_parts(disposition.state)
    tally = disposition.tally
    counts: tuple[int, ...] = ()
    if tally is not None:
        counts = tuple(min(each, _MAX_COUNT) for each in _counts(tally))
    made: bytes = dumps((_VERSION, code, disposition.settled, details, counts))
    return made


def _state_parts(state: DeliveryState) -> tuple[int, tuple[str | bool, ...]]:
    match state:
        case Received():
            return _RECEIVED, ()
        case Accepted():
            return _ACCEPTED, ()
        case Rejected(condition, description):
            return _REJECTED, (_cut(condition, MAX_CONDITION), _cut(description, MAX_DESCRIPTION))
        case Released():
            return _RELEASED, ()
        case _:
            return _MODIFIED, (state.failed, state.undeliverable_here)


def _cut(text: str, most: int) -> str:
    # What UTF-8 cannot have is left out, and so is half a character at the end.
    return text.encode(errors="ignore")[:most].decode(errors="ignore")


def decode_disposition(frame: bytes) -> Disposition:
    """Read the frame of a disposition.

    Raises:
        BadTransit: It is none.
        LaterVersion: It is of a later version.
    """
    if len(frame) > MAX_DISPOSITION:
        raise BadTransit(f"a disposition of more than {MAX_DISPOSITION} bytes")
    check_version(frame[:2])
    try:
        disposition = _read_disposition(CborReader(frame))
    except (MalformedMessage, UnicodeDecodeError):
        raise BadTransit("a disposition that is malformed") from None
    if disposition is None or encode_disposition(disposition) != frame:
        raise BadTransit("a disposition in another spelling")
    return disposition


def _read_disposition(reader: CborReader) -> Disposition | None:
    code = 0
    settled = False
    details: tuple[str | bool, ...] = ()
    counts: list[int] = []
    for index in reader.elements("a disposition", 5):
        match index:
            case 0:
                reader.unsigned("the version", _VERSION)
            case 1:
                code = reader.unsigned("the state", _MODIFIED)
            case 2:
                settled = reader.boolean("whether it is settled")
            case 3:
                details = _read_details(reader, code)
            case _:
                counts = [
                    reader.unsigned("a number of copies", _MAX_COUNT)
                    for _ in reader.elements("the tally", 4)
                ]
    state = _state(code, details)
    if state is None or len(counts) not in {0, 4}:
        return None
    tally = Tally(*counts) if counts else None
    if tally is not None and not _has(tally, state):
        return None
    return Disposition(state, settled, tally)


def _has(tally: Tally, state: DeliveryState) -> bool:
    """Whether the state is the outcome of a copy that the tally counts."""
    if isinstance(state, Received):
        return False
    one = Tally.of(state)
    pairs = zip(_counts(tally), _counts(one), strict=True)
    return all(count or not needed for count, needed in pairs)


def _counts(tally: Tally) -> tuple[int, ...]:
    return tally.accepted, tally.rejected, tally.modified, tally.released


def _read_details(reader: CborReader, code: int) -> tuple[str | bool, ...]:
    elements = reader.elements("the details", 2)
    if code == _MODIFIED:
        return tuple(reader.boolean("a detail") for _ in elements)
    limits = (MAX_CONDITION, MAX_DESCRIPTION)
    return tuple(reader.string(_TEXT, "a detail", limits[index]).decode() for index in elements)


def _state(code: int, details: tuple[str | bool, ...]) -> DeliveryState | None:
    """Return a state by its number; `None` if there is none with such details."""
    match code, details:
        case 3, ():
            return RECEIVED
        case 4, ():
            return ACCEPTED
        case 5, (str(condition), str(description)):
            return Rejected(condition, description)
        case 6, ():
            return RELEASED
        case 7, (bool(failed), bool(undeliverable_here)):
            return Modified(failed, undeliverable_here)
        case _:
            return None
