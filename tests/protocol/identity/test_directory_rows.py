"""Saved directories: what is read again, and what is left out."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    DIRECTORY_VERSION,
    MAX_ADVERT_ENVELOPE,
    AdvertKind,
    AdvertSource,
    BadRecord,
    ConnectionPrefs,
    Directory,
    DirectoryLimits,
    DirectoryRow,
    Identity,
    LocalMetadata,
    NewerDirectory,
    NodeAdvert,
    PutOutcome,
    RowJournal,
    SigningKey,
    Verifiers,
    read_row,
    sign_advert,
)

NOW = 2_000_000_000_000
KEYS = [SigningKey(bytes((number,)) * 32) for number in range(6)]
ADVERTS = [
    sign_advert(NodeAdvert(key.identity, (), bytes(32), 5, NOW - number), key)
    for number, key in enumerate(KEYS)
]
OTHERS = [sign_advert(NodeAdvert(key.identity, (), b"x" * 32, 5, NOW), key) for key in KEYS]
SAID = LocalMetadata(200, None, ConnectionPrefs.PERMANENT, b"printer")


def directory(
    limits: DirectoryLimits | None = None, journal: RowJournal | None = None
) -> Directory:
    return Directory(Verifiers(), limits, journal)


def filled() -> Directory:
    """Return a directory with two identities on each shelf; the last one has no advert."""
    known = directory()
    for number in range(5):
        source = AdvertSource.NETWORK if number < 2 else AdvertSource.ANSWER
        assert known.put_advert(ADVERTS[number], NOW, source) is PutOutcome.STORED
    other = sign_advert(NodeAdvert(KEYS[0].identity, (), bytes(32), 5, NOW - 9), KEYS[0])
    assert known.put_advert(other, NOW, AdvertSource.NETWORK) is PutOutcome.EQUIVOCATION
    known.update(KEYS[4].identity, SAID)
    known.update(KEYS[5].identity, LocalMetadata(0))
    return known


def row(number: int) -> DirectoryRow:
    found = filled().row(KEYS[number].identity)
    assert found is not None
    return found


def test_a_directory_is_restored_as_it_was() -> None:
    before, after = filled(), directory()
    rows = list(before.snapshot())
    assert [each.identity for each in rows] == [key.identity for key in KEYS]
    assert after.restore(rows, DIRECTORY_VERSION) == (6, 0, 0)
    assert list(after.snapshot()) == rows
    assert [after.row(key.identity) for key in KEYS] == rows
    assert after.row(SigningKey(b"x" * 32).identity) is None
    for key in KEYS:
        assert after.peek(key.identity, NOW) == before.peek(key.identity, NOW)
    assert after.take_updates() == ((), 0)
    # What is known is not overwritten by what was saved.
    assert after.restore(rows, DIRECTORY_VERSION) == (0, 0, 0)


def test_rows_are_kept_by_sqlite() -> None:
    rows = list(filled().snapshot())
    table = sqlite3.connect(":memory:")
    try:
        columns = ", ".join(DirectoryRow._fields)
        table.execute(f"CREATE TABLE identity ({columns})")
        table.executemany("INSERT INTO identity VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        read = [DirectoryRow(*each) for each in table.execute("SELECT * FROM identity")]
    finally:
        table.close()
    assert read == rows


def test_the_golden_vector_of_a_row() -> None:
    assert row(4) == DirectoryRow(
        identity=KEYS[4].identity,
        shelf=2,
        kind=1,
        envelope=ADVERTS[4].envelope,
        created=NOW - 4,
        local=bytes.fromhex("8418c8f601477072696e746572"),
        equivocated=0,
    )
    assert row(5) == (KEYS[5].identity, 2, None, b"", 0, bytes.fromhex("8400f6f6f6"), 0)
    assert row(0)[5:] == (bytes.fromhex("841840f6f6f6"), 1)
    assert row(1)[5:] == (b"", 0)


def test_a_directory_of_a_newer_version_is_refused() -> None:
    known = directory()
    with pytest.raises(NewerDirectory) as raised:
        known.restore(filled().snapshot(), DIRECTORY_VERSION + 1)
    assert (raised.value.version, raised.value.known) == (2, 1)
    assert str(raised.value) == (
        "the directory has version 2, and this Onward reads up to 1: "
        "use the newer Onward that wrote it, or another file"
    )
    assert len(known) == 0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(4)._replace(identity=b"x"), "it has 33 bytes, not 1"),
        (row(4)._replace(identity="x"), "a row has a value of the type str"),  # type: ignore[arg-type]
        (row(4)._replace(kind=[1]), "a row has a value of the type list"),  # type: ignore[arg-type]
        (row(4)._replace(kind=1.0), "a row has a value of the type float"),  # type: ignore[arg-type]
        (row(4)._replace(shelf=3), "a row has a number of no shelf or kind"),
        (row(4)._replace(kind=3), "a row has a number of no shelf or kind"),
        (row(4)._replace(kind=None), "a row has an advert of 156 bytes"),
        (row(4)._replace(envelope=b""), "a row has an advert of 0 bytes"),
        (
            row(4)._replace(envelope=bytes(MAX_ADVERT_ENVELOPE + 1)),
            f"a row has an advert of {MAX_ADVERT_ENVELOPE + 1} bytes",
        ),
        (row(4)._replace(created=-1), "a row has a number out of its range"),
        (row(4)._replace(created=2**63), "a row has a number out of its range"),
        (row(4)._replace(equivocated=2), "a row has a number out of its range"),
        (row(4)._replace(local=b"\x80"), "the local part has 0 items, not 4"),
        (row(4)._replace(local=row(4).local + b"\x00"), "1 bytes behind the end"),
        (row(4)._replace(local=bytes(2000)), "2000 bytes, over the limit of 1088"),
        (row(4)._replace(local=b""), "a row has nothing to say"),
        (row(1)._replace(kind=None, envelope=b""), "a row has nothing to say"),
    ],
)
def test_a_row_that_is_damaged_is_left_out(bad: DirectoryRow, reason: str) -> None:
    with pytest.raises(BadRecord) as raised:
        read_row(bad)
    assert raised.value.reason == reason
    known = directory()
    assert known.restore([bad, row(2)], DIRECTORY_VERSION) == (1, 1, 0)
    assert known.peek(KEYS[2].identity, NOW) is not None


FLIPPED = bytes((*ADVERTS[2].envelope[:-1], ADVERTS[2].envelope[-1] ^ 1))


@pytest.mark.parametrize(
    "bad",
    [
        row(2)._replace(envelope=FLIPPED),
        row(2)._replace(envelope=b"x"),
        row(2)._replace(envelope=ADVERTS[1].envelope, created=NOW - 1),
        row(2)._replace(created=NOW),
        row(2)._replace(kind=int(AdvertKind.TOPIC)),
    ],
)
def test_an_advert_that_was_not_saved_as_it_came_is_let_go_when_it_is_wanted(
    bad: DirectoryRow,
) -> None:
    known = directory()
    assert known.restore([bad], DIRECTORY_VERSION) == (1, 0, 0)
    assert known.lookup(KEYS[2].identity, NOW) is None
    assert known.statistics().unsound == 1
    assert [each.record for each in known.take_updates().updates] == [None]
    # It stands in the way of no other advert.
    known.restore([bad], DIRECTORY_VERSION)
    assert known.put_advert(ADVERTS[2], NOW, AdvertSource.NETWORK) is PutOutcome.STORED
    assert known.statistics().unsound == 2


def test_rows_over_smaller_limits_are_let_go_oldest_first() -> None:
    rows = list(filled().snapshot())
    known = directory(DirectoryLimits(max_identities=2, max_unknown=1))
    assert known.restore(rows, DIRECTORY_VERSION) == (5, 0, 1)
    kept = [number for number in range(6) if known.peek(KEYS[number].identity, NOW)]
    assert kept == [3, 4]


values = st.none() | st.integers(-1, 3) | st.binary(max_size=40) | st.text(max_size=3)


@given(st.integers(0, 5), st.integers(0, 6), values)
def test_any_row_is_read_or_left_out(number: int, column: int, value: object) -> None:
    items: list[object] = [*row(number)]
    items[column] = value
    bad = DirectoryRow(*items)  # type: ignore[arg-type]
    known = directory()
    read, damaged, refused = known.restore([bad], DIRECTORY_VERSION)
    assert (read + damaged, refused) == (1, 0)
    rows = list(known.snapshot())
    assert len(rows) == read
    for each in rows:
        assert each == bad or column == 5
        known.peek(Identity(each.identity), NOW)


class File:
    """A directory that is saved as a worker does, in a file that is a mapping."""

    def __init__(self, limits: DirectoryLimits | None = None) -> None:
        self.journal = RowJournal()
        self.known = directory(limits, self.journal)
        self.rows: dict[bytes, DirectoryRow] = {}
        self.saving: dict[Identity, DirectoryRow | None] = {}

    def restore(self, rows: dict[bytes, DirectoryRow]) -> None:
        self.rows = dict(rows)
        self.known.restore(rows.values(), DIRECTORY_VERSION)

    def save(self, most: int = 1000) -> list[Identity]:
        saved = self.begin(most)
        self.end()
        return saved

    def begin(self, most: int) -> list[Identity]:
        saving = list(self.journal.begin(most))
        self.saving = {identity: self.known.row(identity) for identity in saving}
        return saving

    def end(self, *, fails: bool = False) -> None:
        saving, self.saving = self.saving, {}
        if fails:
            self.journal.end(None)
            return
        for identity, found in saving.items():
            if found is None:
                del self.rows[identity]
            else:
                self.rows[identity] = found
        self.journal.end({identity for identity, found in saving.items() if found is not None})

    @property
    def is_as_saved(self) -> bool:
        return self.rows == {each.identity: each for each in self.known.snapshot()}


def test_changes_are_saved_in_their_order_and_what_came_and_went_is_not() -> None:
    file = File()
    for envelope in ADVERTS[:3]:
        file.known.put_advert(envelope, NOW, AdvertSource.NETWORK)
    file.known.forget(KEYS[1].identity)
    assert len(file.journal) == 2
    assert file.save(1) == [KEYS[0].identity]
    assert file.save() == [KEYS[2].identity]
    assert file.is_as_saved
    file.known.forget(KEYS[0].identity)
    file.known.set_trust(KEYS[2].identity, 0)
    assert file.save() == [KEYS[0].identity, KEYS[2].identity]
    assert file.save() == []
    assert file.is_as_saved
    # What the node itself says comes before adverts.
    for envelope in ADVERTS[3:5]:
        file.known.put_advert(envelope, NOW, AdvertSource.NETWORK)
    file.known.set_trust(KEYS[5].identity, 0)
    assert [KEYS[number].identity in file.journal for number in (2, 3, 5)] == [False, True, True]
    assert file.save(1) == [KEYS[5].identity]
    assert KEYS[5].identity not in file.journal
    file.known.forget(KEYS[5].identity)
    assert file.save() == [KEYS[number].identity for number in (5, 3, 4)]
    assert file.is_as_saved
    # What is only looked at is as it was.
    file.known.lookup(KEYS[2].identity, NOW)
    assert len(file.journal) == 0


def test_what_changes_while_it_is_saved_is_saved_again() -> None:
    file = File()
    for envelope in ADVERTS[:4]:
        file.known.put_advert(envelope, NOW, AdvertSource.NETWORK)
    file.begin(4)
    file.known.set_trust(KEYS[0].identity, 0)
    file.known.forget(KEYS[1].identity)
    file.known.forget(KEYS[2].identity)
    file.known.put_advert(ADVERTS[2], NOW, AdvertSource.NETWORK)
    file.end()
    assert file.save() == [KEYS[number].identity for number in (0, 1, 2)]
    assert file.is_as_saved
    # What is removed, and forgotten or back before that is done.
    for number in (0, 3):
        file.known.forget(KEYS[number].identity)
    file.begin(4)
    file.known.put_advert(ADVERTS[3], NOW, AdvertSource.NETWORK)
    file.end()
    assert file.save() == [KEYS[3].identity]
    assert file.is_as_saved
    # What cannot be saved, and is gone before that is known, is waited for no longer.
    file.known.put_advert(ADVERTS[0], NOW, AdvertSource.NETWORK)
    file.known.put_advert(ADVERTS[4], NOW, AdvertSource.NETWORK)
    file.begin(4)
    file.known.forget(KEYS[0].identity)
    file.end(fails=True)
    assert file.save() == [KEYS[4].identity]
    assert file.is_as_saved


def test_a_restored_directory_is_saved_already_but_for_what_had_no_place() -> None:
    before = File()
    for envelope in ADVERTS:
        before.known.put_advert(envelope, NOW, AdvertSource.NETWORK)
    before.save()
    after = File(DirectoryLimits(max_identities=5, max_unknown=2))
    after.restore(before.rows)
    assert after.save() == [key.identity for key in KEYS[:4]]
    assert len(after.known) == 2
    assert after.is_as_saved


def test_the_identities_that_are_banned_are_given() -> None:
    known = filled()
    assert list(known.banned()) == [KEYS[5].identity]
    known.set_trust(KEYS[0].identity, 0)
    known.set_trust(KEYS[5].identity, 1)
    assert list(known.banned()) == [KEYS[0].identity]
    assert [known.trust(key.identity) for key in KEYS] == [0, 128, 128, 128, 200, 1]
    assert known.trust(SigningKey(b"x" * 32).identity) == 128


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["network", "local", "other", "ban", "unban", "forget", "use", "begin", "end"]
            ),
            st.integers(0, 5),
        ),
        max_size=40,
    )
)
def test_whatever_happens_the_saved_rows_are_those_of_the_directory(
    steps: list[tuple[str, int]],
) -> None:
    file = File(DirectoryLimits(max_identities=4, max_unknown=2))
    for step, number in steps:
        key = KEYS[number]
        match step:
            case "network" | "local":
                file.known.put_advert(ADVERTS[number], NOW, AdvertSource(step))
            case "other":
                file.known.put_advert(OTHERS[number], NOW, AdvertSource.NETWORK)
            case "ban":
                file.known.set_trust(key.identity, 0)
            case "unban":
                file.known.update(key.identity, LocalMetadata())
            case "forget":
                file.known.forget(key.identity)
            case "use":
                file.known.lookup(key.identity, NOW)
            case "begin":
                if not file.saving:
                    file.begin(2)
            case _:
                file.end(fails=number > 3)
        # It does not grow with what is not there any more.
        most = len(file.known) + len(file.rows) + len(file.saving)
        assert len(file.journal) <= most
    file.end(fails=bool(steps) and steps[-1][1] > 3)
    file.save()
    assert file.is_as_saved
    again = File()
    again.restore(file.rows)
    assert again.save() == []
    assert again.is_as_saved
