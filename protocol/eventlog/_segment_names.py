"""The names of the files of an event log: by epoch and first event, so that names sort."""

from __future__ import annotations

import re
from typing import Final

from ._cbor import MAX_I64
from ._errors import EventLogError

__all__ = [
    "MAX_EPOCH",
    "MAX_LOG_NAME",
    "OPEN",
    "SEALED",
    "check_log_name",
    "is_log_name",
    "is_segment_name",
    "parse_segment_name",
    "segment_name",
]

SEALED: Final = ".seg"
"""How the name of a segment ends that is whole and will not change."""

OPEN: Final = ".open"
"""How the name of a segment ends that is still written."""

MAX_LOG_NAME: Final = 64
"""Most characters of a log's name."""

MAX_EPOCH: Final = (1 << 31) - 1
"""Largest epoch: one run of a writer. 32 bits with a sign, as in the tables of the lake."""

_LOG_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_SEGMENT_NAME: Final = re.compile(r"([0-9a-f]{8})-([0-9a-f]{16})\.(?:seg|open)")


def check_log_name(name: str) -> str:
    """Return a log's name: what its folder is called, and its broker in every table.

    Raises:
        EventLogError: It is not 1 to 64 of `A-Z a-z 0-9 . _ -`, or begins with a dot.
    """
    if _LOG_NAME.fullmatch(name) is None:
        raise EventLogError(
            f"{name[:80]!r} is no name of an event log: give 1 to {MAX_LOG_NAME} of the "
            "characters A-Z a-z 0-9 . _ -, the first one no dot"
        )
    return name


def is_log_name(name: str) -> bool:
    """Whether a folder of this name could be a log: see `check_log_name`."""
    return _LOG_NAME.fullmatch(name) is not None


def segment_name(epoch: int, first_seq: int) -> str:
    """Return what a sealed segment is called: `0000001f-00000000000003e9.seg`.

    Raises:
        EventLogError: A number is negative or too large.
    """
    if not (0 <= epoch <= MAX_EPOCH and 0 <= first_seq <= MAX_I64):
        raise EventLogError(f"no segment has the epoch {epoch} and the first event {first_seq}")
    return f"{epoch:08x}-{first_seq:016x}{SEALED}"


def parse_segment_name(name: str) -> tuple[int, int]:
    """Return epoch and first event of a segment, sealed or not, from what its file is called.

    Raises:
        EventLogError: It is no such name.
    """
    match = _SEGMENT_NAME.fullmatch(name)
    if match is not None:
        epoch, first_seq = int(match[1], 16), int(match[2], 16)
        if epoch <= MAX_EPOCH and first_seq <= MAX_I64:
            return epoch, first_seq
    raise EventLogError(f"{name[:80]!r} is no name of a segment")


def is_segment_name(name: str) -> bool:
    """Whether a file of this name could be a segment, sealed or not."""
    try:
        parse_segment_name(name)
    except EventLogError:
        return False
    return True
