"""The rows of a saved directory: one for each identity, with the bytes of its advert as received.

They are the columns of a table of SQLite. A row that is damaged is left out, and whether an advert
is signed is looked at when it is wanted first: to verify all takes ten seconds for 100,000 of them.
"""

from __future__ import annotations

from types import NoneType
from typing import Final, NamedTuple, cast

from cbor2 import dumps

from ._advert_envelopes import MAX_ADVERT_ENVELOPE
from ._adverts import AdvertKind
from ._directory_entries import NOTHING_SAID, DirectoryEntry, Shelf
from ._errors import BadIdentity, BadRecord
from ._identities import MAX_ENGINE_NAME, Identity, parse_identity_bytes
from ._identity_records import local_items, read_local
from ._record_reader import RecordReader

__all__ = ["DIRECTORY_VERSION", "DirectoryRow", "Restored", "read_row", "row_of"]

DIRECTORY_VERSION: Final = 1
"""The version of the rows. A directory of a newer one is refused."""

_MAX_LOCAL: Final = MAX_ENGINE_NAME + 64
"""Most bytes of what the node itself says."""
_MAX_CREATED: Final = 2**63 - 1
"""Greatest number of SQLite."""
_SHELVES: Final = {int(each): each for each in Shelf}
_KINDS: Final = {int(each): each for each in AdvertKind}
_TYPES: Final[tuple[type | tuple[type, ...], ...]] = (
    *(bytes, int, (int, NoneType)),
    *(bytes, int, bytes, int),
)


class DirectoryRow(NamedTuple):
    """The row of an identity in a saved directory.

    Attributes:
        identity: The identity.
        shelf: The number of its `Shelf`.
        kind: The number of the kind of its advert; `None` without one.
        envelope: Its signed advert; empty without one.
        created: When the advert was made, in Unix milliseconds; 0 without one.
        local: The record of what the node itself says; empty for nothing.
        equivocated: 1 if it signed two adverts of one version, and 0 otherwise.
    """

    identity: bytes
    shelf: int
    kind: int | None
    envelope: bytes
    created: int
    local: bytes
    equivocated: int


class Restored(NamedTuple):
    """A report about rows that were read.

    Attributes:
        read: Rows that were read.
        bad: Rows that were left out, as they are damaged.
        refused: Rows that were left out, as there is no place for more held identities.
    """

    read: int
    bad: int
    refused: int


def row_of(identity: Identity, entry: DirectoryEntry, shelf: Shelf) -> DirectoryRow:
    """Return the row of an identity."""
    said = entry.local is not NOTHING_SAID
    return DirectoryRow(
        bytes(identity),
        int(shelf),
        None if entry.kind is None else int(entry.kind),
        entry.envelope,
        entry.created,
        dumps(local_items(entry.local)) if said else b"",
        int(entry.equivocated),
    )


def read_row(row: DirectoryRow) -> tuple[Identity, DirectoryEntry, Shelf]:
    """Read the row of an identity; its advert is not read yet.

    Raises:
        BadRecord: It is damaged.
    """
    values = cast("tuple[object, ...]", row)  # as they were written to a file
    for value, expected in zip(values, _TYPES, strict=True):
        if not isinstance(value, expected):
            raise BadRecord(f"a row has a value of the type {type(value).__name__}")
    shelf = _SHELVES.get(row.shelf)
    kind = None if row.kind is None else _KINDS.get(row.kind)
    if shelf is None or (kind is None) != (row.kind is None):
        raise BadRecord("a row has a number of no shelf or kind")
    if (kind is None) != (not row.envelope) or len(row.envelope) > MAX_ADVERT_ENVELOPE:
        raise BadRecord(f"a row has an advert of {len(row.envelope)} bytes")
    if not 0 <= row.created <= _MAX_CREATED or row.equivocated not in {0, 1}:
        raise BadRecord("a row has a number out of its range")
    if not row.local and (kind is None or shelf is Shelf.HELD):
        raise BadRecord("a row has nothing to say")
    entry = DirectoryEntry()
    entry.kind, entry.envelope, entry.created = kind, row.envelope, row.created
    entry.equivocated = bool(row.equivocated)
    entry.verified = kind is None
    if row.local:
        reader = RecordReader(row.local, _MAX_LOCAL)
        entry.local = read_local(reader)
        reader.end()
    try:
        return parse_identity_bytes(row.identity), entry, shelf
    except BadIdentity as error:
        raise BadRecord(error.reason) from None
