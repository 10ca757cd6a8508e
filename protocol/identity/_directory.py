"""The directory of a node: what it knows of identities, by signed adverts and by its own word.

Adverts come from anywhere, so each is measured before its signature is verified, which takes
longest. A new version replaces the one before. Two adverts of one version are an *equivocation*:
the first stays, the identity is marked, and trust in it is lowered once, as others can send the two
again. Whether an advert is put or not, its outcome is counted.

Times are Unix milliseconds, as they are compared with those of adverts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ._advert_envelopes import AdvertEnvelope, UnverifiedAdvert, is_advert_signed, read_advert
from ._adverts import node_of_advert, signer_of
from ._directory_entries import NOTHING_SAID, DirectoryEntry, EntryTable, Shelf
from ._directory_limits import DirectoryLimits
from ._directory_reports import AdvertSource, DirectoryStatistics, DirectoryUpdates, PutOutcome
from ._directory_rows import DIRECTORY_VERSION, DirectoryRow, Restored, read_row, row_of
from ._errors import BadRecord, NewerDirectory
from ._freshness import MAX_SKEW
from ._identities import Identity
from ._identity_records import IdentityRecord, LocalMetadata
from ._keys import Verifiers
from ._requests import IdentityUpdated
from ._results import ResultCode
from ._row_journal import RowJournal
from ._trust import TRUST_BANNED, lowered_trust

__all__ = ["Directory"]


class Directory:
    """A table of what a node knows of identities.

    Args:
        verifiers: Keys that are ready to verify.
        limits: The limits.
        journal: Keeps what is to be saved; `None` for a directory that is not saved.
    """

    __slots__ = (
        "_changed",
        "_expired",
        "_journal",
        "_limits",
        "_lost",
        "_lost_before",
        "_missed",
        "_outcomes",
        "_table",
        "_unsound",
        "_verifiers",
    )

    def __init__(
        self,
        verifiers: Verifiers,
        limits: DirectoryLimits | None = None,
        journal: RowJournal | None = None,
    ) -> None:
        self._verifiers = verifiers
        self._limits = DirectoryLimits() if limits is None else limits
        self._journal = journal
        self._table = EntryTable(self._limits, journal)
        self._changed: dict[Identity, None] = {}
        self._outcomes: Counter[PutOutcome] = Counter()
        self._expired = 0
        self._unsound = 0
        self._lost = 0
        self._lost_before = 0
        self._missed = 0

    def __len__(self) -> int:
        return len(self._table)

    def put_advert(
        self,
        envelope: AdvertEnvelope,
        now: int,
        source: AdvertSource,
        teller: Identity | None = None,
    ) -> PutOutcome:
        """Put an advert of any sender into the directory.

        Args:
            envelope: The advert, which is not verified yet.
            now: The time, in Unix milliseconds.
            source: Where it is from.
            teller: The node that has told it, which has a share of the unknown identities. What is
                told by its own node counts as told by that alone.
        """
        outcome = self._put(envelope, now, source, teller)
        self._outcomes[outcome] += 1
        return outcome

    def lookup(self, identity: Identity, now: int) -> IdentityRecord | None:
        """Return what is known of an identity, which is used by it; `None` if it is not known.

        Args:
            identity: The identity.
            now: The time, in Unix milliseconds.
        """
        record = self.peek(identity, now)
        if record is None:
            self._missed += 1
        else:
            self._forget_changes(self._table.use(identity))
        return record

    def peek(self, identity: Identity, now: int) -> IdentityRecord | None:
        """Return what is known of an identity for others than this node; it is not used by that.

        Args:
            identity: The identity.
            now: The time, in Unix milliseconds.
        """
        self._drop_unusable(identity, now)
        entry = self._table.get(identity)
        return None if entry is None else entry.record(identity)

    def update(self, identity: Identity, local: LocalMetadata) -> ResultCode:
        """Set what the node itself says about an identity, in the place of all that it said before.

        Returns:
            `OK`; or `OVERFLOW` if there is no place for one that the node says something about.
        """
        entry = self._table.get(identity)
        if local == NOTHING_SAID:
            self._say_nothing(identity, entry)
            self._save_first(identity)
            return ResultCode.OK
        if not self._table.may_hold(identity):
            return ResultCode.OVERFLOW
        entry = DirectoryEntry() if entry is None else entry
        changed = entry.local != local
        entry.local = local
        self._forget_changes(self._table.put(identity, entry, Shelf.HELD))
        self._save_first(identity)
        if changed:
            self._change(identity)
        return ResultCode.OK

    def set_trust(self, identity: Identity, trust: int) -> ResultCode:
        """Set the trust in an identity, and leave all else that the node says about it.

        Returns:
            As `update` does.

        Raises:
            BadRecord: There is no such trust.
        """
        entry = self._table.get(identity)
        local = NOTHING_SAID if entry is None else entry.local
        return self.update(identity, replace(local, trust=trust))

    def trust(self, identity: Identity) -> int:
        """Return the trust in an identity; that in any if it is not known."""
        entry = self._table.get(identity)
        return NOTHING_SAID.trust if entry is None else entry.local.trust

    def forget(self, identity: Identity) -> bool:
        """Forget an identity, what the node says about it included; return whether it was known."""
        known = self._table.remove(identity)
        self._save_first(identity)
        if known:
            self._change(identity)
        return known

    @property
    def has_updates(self) -> bool:
        """Whether `take_updates` would say anything."""
        return bool(self._changed) or self._lost != self._lost_before

    def take_updates(self) -> DirectoryUpdates:
        """Take the changes of identities since the last time."""
        updates: list[IdentityUpdated] = []
        for identity in self._changed:
            entry = self._table.get(identity)
            record = None if entry is None else entry.record(identity)
            updates.append(IdentityUpdated(identity, record))
        self._changed.clear()
        lost = self._lost - self._lost_before
        self._lost_before = self._lost
        return DirectoryUpdates(tuple(updates), lost)

    def snapshot(self) -> Iterator[DirectoryRow]:
        """Yield the rows to save, those that would be let go first before others.

        The directory must not change until all are taken.
        """
        for identity, entry, shelf in self._table:
            yield row_of(identity, entry, shelf)

    def banned(self) -> Iterator[Identity]:
        """Yield all identities that are banned. The directory must not change until then."""
        for identity, entry, _ in self._table:
            if entry.local.trust == TRUST_BANNED:
                yield identity

    def row(self, identity: Identity) -> DirectoryRow | None:
        """Return the row of an identity, to save it alone; `None` if it is not known."""
        entry, shelf = self._table.get(identity), self._table.shelf_of(identity)
        return None if entry is None or shelf is None else row_of(identity, entry, shelf)

    def restore(self, rows: Iterable[DirectoryRow], version: int) -> Restored:
        """Read the rows of a saved directory.

        Identities that are known already stay as they are.

        Args:
            rows: The rows, in the order of `snapshot`.
            version: The version that was saved with them, as `DIRECTORY_VERSION` was then.

        Raises:
            NewerDirectory: A newer version of Onward wrote them. Nothing has been read.
        """
        if version > DIRECTORY_VERSION:
            raise NewerDirectory(version, DIRECTORY_VERSION)
        read = bad = refused = 0
        for row in rows:
            try:
                identity, entry, shelf = read_row(row)
            except BadRecord:
                bad += 1
                continue
            if self._table.get(identity) is not None:
                continue
            if shelf is Shelf.HELD and not self._table.may_hold(identity):
                refused += 1
                continue
            self._table.put(identity, entry, shelf)
            if self._journal is not None:
                self._journal.read(identity)
            read += 1
        return Restored(read, bad, refused)

    def statistics(self) -> DirectoryStatistics:
        """Return the directory at this moment."""
        table = self._table
        return DirectoryStatistics(
            held=table.count(Shelf.HELD),
            used=table.count(Shelf.USED),
            unknown=table.count(Shelf.UNKNOWN),
            known_size=table.size(Shelf.HELD) + table.size(Shelf.USED),
            unknown_size=table.size(Shelf.UNKNOWN),
            outcomes=tuple((each, self._outcomes[each]) for each in PutOutcome),
            let_go=table.let_go,
            demoted=table.demoted,
            expired=self._expired,
            unsound=self._unsound,
            lost=self._lost,
            missed=self._missed,
        )

    def _put(
        self,
        envelope: AdvertEnvelope,
        now: int,
        source: AdvertSource,
        teller: Identity | None,
    ) -> PutOutcome:
        try:
            unverified = read_advert(envelope)
        except BadRecord:
            return PutOutcome.MALFORMED
        advert = unverified.advert
        identity = advert.identity
        if self._is_banned(identity) or self._is_banned(signer_of(advert)):
            return PutOutcome.BANNED
        if advert.created > now + MAX_SKEW:
            return PutOutcome.AHEAD
        if advert.created < now - self._limits.max_age:
            return PutOutcome.EXPIRED
        self._drop_unusable(identity, now)
        entry = self._table.get(identity)
        outcome = _compare(entry, envelope, unverified)
        of_teller = teller if teller in {identity, node_of_advert(advert)} else None
        if outcome is PutOutcome.KNOWN:
            self._use(identity, source)
            self._set_teller(identity, of_teller)
        if outcome in {PutOutcome.KNOWN, PutOutcome.OLDER, PutOutcome.OTHER_KIND}:
            return outcome
        if not is_advert_signed(unverified, self._verifiers):
            return PutOutcome.BAD_SIGNATURE
        if outcome is PutOutcome.EQUIVOCATION:
            self._equivocated(identity)
            return outcome
        if entry is None:
            entry = DirectoryEntry()
            entry.teller = teller if source is AdvertSource.NETWORK else None
            self._forget_changes(self._table.put(identity, entry, Shelf.UNKNOWN))
        self._forget_changes(
            self._table.set_advert(identity, envelope.kind, envelope.envelope, advert.created)
        )
        self._use(identity, source)
        self._set_teller(identity, of_teller)
        self._change(identity)
        return outcome

    def _use(self, identity: Identity, source: AdvertSource) -> None:
        if source is not AdvertSource.NETWORK:
            self._forget_changes(self._table.use(identity))

    def _set_teller(self, identity: Identity, teller: Identity | None) -> None:
        if teller is not None:
            self._forget_changes(self._table.set_teller(identity, teller))

    def _is_banned(self, identity: Identity) -> bool:
        return self.trust(identity) == TRUST_BANNED

    def _equivocated(self, identity: Identity) -> None:
        """Mark an identity that signed two adverts of one version."""
        entry = self._table.get(identity)
        if entry is None or entry.equivocated:
            return
        entry.equivocated = True
        trust = lowered_trust(entry.local.trust)
        entry.local = replace(entry.local, trust=trust)
        self._table.touch(identity)
        self._change(identity)

    def _drop_unusable(self, identity: Identity, now: int) -> None:
        """Drop an advert that has become too old, or was saved and is not what it says."""
        entry = self._table.get(identity)
        if entry is None or entry.kind is None:
            return
        if entry.created < now - self._limits.max_age:
            self._expired += 1
        elif not entry.verified and not self._is_sound(identity, entry):
            self._unsound += 1
        else:
            entry.verified = True
            return
        if self._table.shelf_of(identity) is Shelf.HELD:
            self._table.set_advert(identity, None, b"", 0)
        else:
            self._table.remove(identity)
        self._change(identity)

    def _is_sound(self, identity: Identity, entry: DirectoryEntry) -> bool:
        """Whether an advert that was saved is of its identity and time, and signed."""
        advert = entry.advert
        if advert is None:
            raise AssertionError("an entry without an advert is verified")
        try:
            unverified = read_advert(advert)
        except BadRecord:
            return False
        found = unverified.advert
        return (found.identity, found.created) == (identity, entry.created) and is_advert_signed(
            unverified, self._verifiers
        )

    def _save_first(self, identity: Identity) -> None:
        if self._journal is not None:
            self._journal.put_first(identity)

    def _say_nothing(self, identity: Identity, entry: DirectoryEntry | None) -> None:
        if entry is None:
            return
        changed = entry.local != NOTHING_SAID
        entry.local = NOTHING_SAID
        self._table.touch(identity)
        if entry.kind is None:
            self._table.remove(identity)
        elif self._table.shelf_of(identity) is Shelf.HELD:
            self._forget_changes(self._table.put(identity, entry, Shelf.USED))
        if changed:
            self._change(identity)

    def _change(self, identity: Identity) -> None:
        """Keep a change until it is taken, one for each identity."""
        if identity in self._changed:
            return
        if len(self._changed) >= self._limits.max_updates:
            self._lost += 1
            return
        self._changed[identity] = None

    def _forget_changes(self, gone: list[Identity]) -> None:
        """Drop the changes of identities that were let go: to let one go is no change of it."""
        for identity in gone:
            self._changed.pop(identity, None)


def _compare(
    entry: DirectoryEntry | None, envelope: AdvertEnvelope, unverified: UnverifiedAdvert
) -> PutOutcome:
    """Return the outcome of an advert, if it is signed, beside the one that is known."""
    known = None if entry is None else entry.advert
    if known is None:
        return PutOutcome.STORED
    if known.kind is not envelope.kind:
        return PutOutcome.OTHER_KIND
    stored = read_advert(known)
    # A payload that is signed anew contradicts nothing.
    if stored.signed.payload == unverified.signed.payload:
        return PutOutcome.KNOWN
    if unverified.advert.version < stored.advert.version:
        return PutOutcome.OLDER
    if unverified.advert.version == stored.advert.version:
        return PutOutcome.EQUIVOCATION
    return PutOutcome.REPLACED
