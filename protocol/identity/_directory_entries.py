"""The identities of a directory, on three shelves: what is let go first when there is no place.

An identity that the node says something about is *held*, one that it looked up is *used*, and any
other is *unknown*. The places of unknown ones are their own, and a new one takes that of the oldest
of them: a flood of adverts by keys that are made for it lets only such keys go. Used ones become
unknown again in the order of their last use, so that places are not used up for ever.

Of the unknown ones a node may have told as many as are free, in number and in bytes: one leaves
half of the places to others, two leave a third. Beyond that its own oldest is let go.
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
        teller: The node that has told it, while it is unknown; `None` for this node itself.
        verified: Whether the signature is known to be right; not yet, after a restore.
    """

    __slots__ = ("created", "envelope", "equivocated", "kind", "local", "teller", "verified")

    def __init__(self) -> None:
        self.kind: AdvertKind | None = None
        self.envelope = b""
        self.created = 0
        self.local = NOTHING_SAID
        self.equivocated = False
        self.teller: Identity | None = None
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

    __slots__ = (
        "_journal",
        "_limits",
        "_shelves",
        "_sizes",
        "_told",
        "_told_sizes",
        "demoted",
        "let_go",
    )

    def __init__(self, limits: DirectoryLimits, journal: RowJournal | None) -> None:
        self._limits = limits
        self._journal = journal
        self._shelves: dict[Shelf, OrderedDict[Identity, DirectoryEntry]] = {
            shelf: OrderedDict() for shelf in Shelf
        }
        self._sizes = dict.fromkeys(Shelf, 0)
        # The unknown identities that each node has told, the oldest first, and their bytes.
        self._told: dict[Identity, OrderedDict[Identity, None]] = {}
        self._told_sizes: dict[Identity, int] = {}
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
        teller = entry.teller
        self.remove(identity)
        self._shelves[shelf][identity] = entry
        self._sizes[shelf] += len(entry.envelope)
        if shelf is Shelf.UNKNOWN:
            self._count(identity, entry, teller)
        self.touch(identity)
        return self._trim(teller)

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
        more = len(envelope) - len(entry.envelope)
        self._sizes[shelf] += more
        if entry.teller is not None:
            self._told_sizes[entry.teller] += more
        entry.kind, entry.envelope, entry.created = kind, envelope, created
        entry.verified = True
        self.touch(identity)
        return self._trim(entry.teller)

    def set_teller(self, identity: Identity, teller: Identity) -> list[Identity]:
        """Set the node that has told an identity, if it is unknown; it stays in its place.

        Returns:
            Identities that were let go.
        """
        entry = self._shelves[Shelf.UNKNOWN].get(identity)
        if entry is None or entry.teller == teller:
            return []
        self._count_off(identity, entry)
        self._count(identity, entry, teller)
        return self._trim(teller)

    def remove(self, identity: Identity) -> bool:
        """Remove an identity and return whether it was in the table."""
        for shelf, entries in self._shelves.items():
            entry = entries.pop(identity, None)
            if entry is not None:
                self._sizes[shelf] -= len(entry.envelope)
                self._count_off(identity, entry)
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

    def _count(self, identity: Identity, entry: DirectoryEntry, teller: Identity | None) -> None:
        """Count an unknown identity as one that a node has told."""
        entry.teller = teller
        if teller is not None:
            self._told.setdefault(teller, OrderedDict())[identity] = None
            self._told_sizes[teller] = self._told_sizes.get(teller, 0) + len(entry.envelope)

    def _count_off(self, identity: Identity, entry: DirectoryEntry) -> None:
        teller, entry.teller = entry.teller, None
        if teller is None:
            return
        told = self._told[teller]
        del told[identity]
        self._told_sizes[teller] -= len(entry.envelope)
        if not told:
            del self._told[teller], self._told_sizes[teller]

    def _trim(self, teller: Identity | None = None) -> list[Identity]:
        """Remove identities that are over the limits and return them.

        Args:
            teller: The node that has told what was put last.
        """
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
        while teller is not None and self._is_over_share(teller):
            gone.append(next(iter(self._told[teller])))
            self.remove(gone[-1])
        while len(unknown) > limits.max_unknown or sizes[Shelf.UNKNOWN] > limits.max_unknown_size:
            gone.append(next(iter(unknown)))
            self.remove(gone[-1])
        self.let_go += len(gone)
        return gone

    def _is_over_share(self, teller: Identity) -> bool:
        """Whether a node has told more unknown identities than are free. It may always have one."""
        limits, told = self._limits, self._told.get(teller, ())
        free = limits.max_unknown - len(self._shelves[Shelf.UNKNOWN])
        free_size = limits.max_unknown_size - self._sizes[Shelf.UNKNOWN]
        return len(told) > 1 and (len(told) > free or self._told_sizes[teller] > free_size)
