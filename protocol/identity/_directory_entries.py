"""The identities of a directory, on three shelves: what is let go first when there is no place.

An identity that the node says something about is *held*, one that it looked up is *used*, and any
other is *unknown*. The places of unknown ones are their own, and a new one takes that of the oldest
of them: a flood of adverts by keys that are made for it lets only such keys go. Used ones become
unknown again in the order of their last use, so that places are not used up for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from ._advert_envelopes import AdvertEnvelope
from ._adverts import AdvertKind
from ._directory_limits import DirectoryLimits
from ._identities import Identity
from ._identity_records import IdentityRecord, LocalMetadata
from ._row_journal import RowJournal

__all__ = ["NOTHING_SAID", "DirectoryEntry", "EntryTable", "Shelf"]

NOTHING_SAID: Final = LocalMetadata()
"""The local metadata of an identity that the node says nothing about; entries share it."""


class Shelf(IntEnum):
    """The shelf that an identity stands on. The number is that in a row of a saved directory."""

    UNKNOWN = 0
    USED = 1
    HELD = 2


class DirectoryEntry:
    """An identity in a directory. Its advert is kept as the bytes that were received.

    Attributes:
        kind: The kind of the advert; `None` without one.
        envelope: The signed advert; empty without one.
        created: When the advert was made, in Unix milliseconds; 0 without one.
        local: What the node itself says.
        equivocated: Whether it signed two adverts of one version.
        verified: Whether the signature is known to be right; not yet, after a restore.
    """

    __slots__ = ("created", "envelope", "equivocated", "kind", "local", "verified")

    def __init__(self) -> None:
        self.kind: AdvertKind | None = None
        self.envelope = b""
        self.created = 0
        self.local = NOTHING_SAID
        self.equivocated = False
        self.verified = True

    @property
    def advert(self) -> AdvertEnvelope | None:
        """The advert in its envelope, if there is one."""
        return None if self.kind is None else AdvertEnvelope(self.kind, self.envelope)

    def record(self, identity: Identity) -> IdentityRecord:
        """Return the record of the identity."""
        return IdentityRecord(identity, self.advert, self.local, self.equivocated)


class EntryTable:
    """The identities of a directory by shelf, within limits.

    Args:
        limits: The limits.
        journal: Keeps which identities have changed.

    Attributes:
        let_go: Unknown identities that were let go for others.
        demoted: Used identities that became unknown for others.
    """

    __slots__ = ("_journal", "_limits", "_shelves", "_sizes", "demoted", "let_go")

    def __init__(self, limits: DirectoryLimits, journal: RowJournal | None) -> None:
        self._limits = limits
        self._journal = journal
        self._shelves: dict[Shelf, OrderedDict[Identity, DirectoryEntry]] = {
            shelf: OrderedDict() for shelf in Shelf
        }
        self._sizes = dict.fromkeys(Shelf, 0)
        self.let_go = 0
        self.demoted = 0

    def __len__(self) -> int:
        return sum(map(len, self._shelves.values()))

    def __iter__(self) -> Iterator[tuple[Identity, DirectoryEntry, Shelf]]:
        """Yield all identities, those that would be let go first before others."""
        for shelf, entries in self._shelves.items():
            for identity, entry in entries.items():
                yield identity, entry, shelf

    def count(self, shelf: Shelf) -> int:
        """Return the number of identities on a shelf."""
        return len(self._shelves[shelf])

    def size(self, shelf: Shelf) -> int:
        """Return the bytes of the adverts on a shelf."""
        return self._sizes[shelf]

    def get(self, identity: Identity) -> DirectoryEntry | None:
        """Return the entry of an identity; `None` if it is not known."""
        for entries in self._shelves.values():
            entry = entries.get(identity)
            if entry is not None:
                return entry
        return None

    def shelf_of(self, identity: Identity) -> Shelf | None:
        """Return the shelf of an identity; `None` if it is not known."""
        for shelf, entries in self._shelves.items():
            if identity in entries:
                return shelf
        return None

    def may_hold(self, identity: Identity) -> bool:
        """Whether an identity may be held: it is, or there is a place without another held one."""
        held = self._shelves[Shelf.HELD]
        return identity in held or len(held) < self._limits.max_known

    def put(self, identity: Identity, entry: DirectoryEntry, shelf: Shelf) -> list[Identity]:
        """Put an identity on a shelf as the newest there, off the one where it was.

        Returns:
            Identities that were let go.
        """
        self.remove(identity)
        self._shelves[shelf][identity] = entry
        self._sizes[shelf] += len(entry.envelope)
        self.touch(identity)
        return self._trim()

    def use(self, identity: Identity) -> list[Identity]:
        """Mark an identity as used, which is in the table.

        Returns:
            Identities that were let go.
        """
        used = self._shelves[Shelf.USED]
        if identity in used:
            used.move_to_end(identity)
            return []
        entry = self._shelves[Shelf.UNKNOWN].get(identity)
        return [] if entry is None else self.put(identity, entry, Shelf.USED)

    def set_advert(
        self, identity: Identity, kind: AdvertKind | None, envelope: bytes, created: int
    ) -> list[Identity]:
        """Set the advert of an identity which is in the table; it stays in its place.

        Returns:
            Identities that were let go.
        """
        shelf = self.shelf_of(identity)
        if shelf is None:
            raise AssertionError("the identity is not in the table")
        entry = self._shelves[shelf][identity]
        self._sizes[shelf] += len(envelope) - len(entry.envelope)
        entry.kind, entry.envelope, entry.created = kind, envelope, created
        entry.verified = True
        self.touch(identity)
        return self._trim()

    def remove(self, identity: Identity) -> bool:
        """Remove an identity and return whether it was in the table."""
        for shelf, entries in self._shelves.items():
            entry = entries.pop(identity, None)
            if entry is not None:
                self._sizes[shelf] -= len(entry.envelope)
                self._drop(identity)
                return True
        return False

    def touch(self, identity: Identity) -> None:
        """Record that an entry has changed."""
        if self._journal is not None:
            self._journal.change(identity)

    def _drop(self, identity: Identity) -> None:
        if self._journal is not None:
            self._journal.remove(identity)

    def _trim(self) -> list[Identity]:
        """Remove identities that are over the limits and return them."""
        limits, sizes = self._limits, self._sizes
        unknown, used, held = self._shelves.values()
        while used and (
            len(used) + len(held) > limits.max_known
            or sizes[Shelf.USED] + sizes[Shelf.HELD] > limits.max_known_size
        ):
            identity, entry = used.popitem(last=False)
            sizes[Shelf.USED] -= len(entry.envelope)
            unknown[identity] = entry
            sizes[Shelf.UNKNOWN] += len(entry.envelope)
            self.touch(identity)
            self.demoted += 1
        gone: list[Identity] = []
        while len(unknown) > limits.max_unknown or sizes[Shelf.UNKNOWN] > limits.max_unknown_size:
            identity, entry = unknown.popitem(last=False)
            sizes[Shelf.UNKNOWN] -= len(entry.envelope)
            self._drop(identity)
            gone.append(identity)
        self.let_go += len(gone)
        return gone
