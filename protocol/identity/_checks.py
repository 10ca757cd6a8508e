"""Checks of the values of a record, the same when it is made here and when it is read."""

from __future__ import annotations

from ._errors import BadRecord
from ._identities import Identity, is_derived
from ._record_reader import MAX_NUMBER

__all__ = ["check_key", "check_number", "check_size", "check_text"]


def check_key(what: str, identity: Identity) -> None:
    """Check that an identity has a key.

    Raises:
        BadRecord: It is derived.
    """
    if is_derived(identity):
        raise BadRecord(f"{what} has no key")


def check_number(what: str, number: int, most: int = MAX_NUMBER, least: int = 0) -> None:
    """Check that a number is from `least` to `most`.

    Raises:
        BadRecord: It is not.
    """
    if not least <= number <= most:
        raise BadRecord(f"{what} is {number}, not {least} to {most}")


def check_size(what: str, data: bytes, most: int, least: int = 0) -> None:
    """Check that data has `least` to `most` bytes.

    Raises:
        BadRecord: It has not.
    """
    if not least <= len(data) <= most:
        right = str(least) if least == most else f"{least} to {most}"
        raise BadRecord(f"{what} has {len(data)} bytes, not {right}")


def check_text(what: str, text: str, most: int, least: int = 0) -> None:
    """Check that a text has `least` to `most` bytes in UTF-8.

    Raises:
        BadRecord: It has not, or cannot be written in it.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise BadRecord(f"{what} is not UTF-8") from None
    check_size(what, data, most, least)
