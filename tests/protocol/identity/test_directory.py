"""The directory: which adverts it takes, what it lets go, and what it says of changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_ADVERT_AGE,
    MAX_ADVERT_ENVELOPE,
    MAX_SKEW,
    TRUST_BANNED,
    TRUST_DEFAULT,
    TRUST_OWN,
    AdvertEnvelope,
    AdvertKind,
    AdvertSource,
    BadRecord,
    ConnectionPrefs,
    Directory,
    DirectoryLimits,
    DomainAdvert,
    EngineAdvert,
    Identity,
    IdentityRecord,
    IdentityUpdated,
    LocalMetadata,
    NodeAdvert,
    PutOutcome,
    ResultCode,
    SignedKind,
    SigningKey,
    Verifiers,
    derived_engine,
    serialize_node_advert,
    sign,
    sign_advert,
)

NOW = 2_000_000_000_000
KEYS = [SigningKey(bytes((number,)) * 32) for number in range(40)]
NODE, OTHER = KEYS[0], KEYS[1]
NETWORK, ANSWER, LOCAL = AdvertSource


@cache
def advert(
    number: int = 0, version: int = 1, content: int = 0, created: int = NOW
) -> AdvertEnvelope:
    """Return a signed advert of a node."""
    key = KEYS[number]
    return sign_advert(NodeAdvert(key.identity, (), bytes((content,)) * 32, version, created), key)


def directory(limits: DirectoryLimits | None = None) -> Directory:
    return Directory(Verifiers(), limits)


def put(of: Directory, envelope: AdvertEnvelope, source: AdvertSource = NETWORK) -> PutOutcome:
    return of.put_advert(envelope, NOW, source)


def changes(of: Directory) -> list[tuple[Identity, IdentityRecord | None]]:
    there_are = of.has_updates
    taken = of.take_updates()
    assert taken.lost == 0
    assert (there_are, of.has_updates) == (bool(taken.updates), False)
    return [(each.identity, each.record) for each in taken.updates]


def outcomes(of: Directory) -> dict[PutOutcome, int]:
    return {each: count for each, count in of.statistics().outcomes if count}


def test_the_newest_version_of_an_advert_counts() -> None:
    known = directory()
    assert known.lookup(NODE.identity, NOW) is None
    assert put(known, advert(version=2)) is PutOutcome.STORED
    assert put(known, advert(version=2)) is PutOutcome.KNOWN
    assert put(known, advert(version=1)) is PutOutcome.OLDER
    assert known.lookup(NODE.identity, NOW) == IdentityRecord(NODE.identity, advert(version=2))
    assert put(known, advert(version=3)) is PutOutcome.REPLACED
    assert known.lookup(NODE.identity, NOW) == IdentityRecord(NODE.identity, advert(version=3))
    assert outcomes(known) == {
        PutOutcome.STORED: 1,
        PutOutcome.KNOWN: 1,
        PutOutcome.OLDER: 1,
        PutOutcome.REPLACED: 1,
    }
    assert known.statistics().missed == 1
    assert len(known) == 1


def test_of_two_adverts_of_one_version_the_first_stays_and_trust_is_lowered_once() -> None:
    known = directory()
    put(known, advert())
    changes(known)
    marked = IdentityRecord(NODE.identity, advert(), LocalMetadata(64), equivocated=True)
    assert put(known, advert(content=1)) is PutOutcome.EQUIVOCATION
    assert changes(known) == [(NODE.identity, marked)]
    # Others can send the same two again and again, which says nothing new.
    assert put(known, advert(content=1)) is PutOutcome.EQUIVOCATION
    assert put(known, advert(content=2)) is PutOutcome.EQUIVOCATION
    assert put(known, advert()) is PutOutcome.KNOWN
    assert changes(known) == []
    assert known.peek(NODE.identity, NOW) == marked
    # A newer version counts, and the mark stays.
    assert put(known, advert(version=2)) is PutOutcome.REPLACED
    assert changes(known) == [(NODE.identity, replace(marked, advert=advert(version=2)))]


def test_a_forged_equivocation_marks_nothing() -> None:
    known = directory()
    put(known, advert())
    payload = serialize_node_advert(NodeAdvert(NODE.identity, (), bytes(32), 1, NOW - 1))
    forged = AdvertEnvelope(AdvertKind.NODE, sign(SignedKind.NODE_ADVERT, payload, OTHER))
    assert put(known, forged) is PutOutcome.BAD_SIGNATURE
    assert known.peek(NODE.identity, NOW) == IdentityRecord(NODE.identity, advert())


def test_a_payload_that_is_signed_anew_is_no_equivocation() -> None:
    known = directory()
    put(known, advert())
    again = bytearray(advert().envelope)
    again[-1] ^= 1
    assert put(known, AdvertEnvelope(AdvertKind.NODE, bytes(again))) is PutOutcome.KNOWN
    assert known.peek(NODE.identity, NOW) == IdentityRecord(NODE.identity, advert())


def test_an_advert_of_another_kind_is_refused() -> None:
    known = directory()
    put(known, advert())
    domain = sign_advert(DomainAdvert(NODE.identity, (), 9, NOW), NODE)
    assert put(known, domain) is PutOutcome.OTHER_KIND
    assert changes(known) == [(NODE.identity, IdentityRecord(NODE.identity, advert()))]


def test_what_is_no_advert_or_wrongly_signed_changes_nothing() -> None:
    known = directory()
    envelope = advert().envelope
    assert put(known, AdvertEnvelope(AdvertKind.NODE, b"")) is PutOutcome.MALFORMED
    assert put(known, AdvertEnvelope(AdvertKind.DOMAIN, envelope)) is PutOutcome.MALFORMED
    flipped = envelope[:-1] + bytes((envelope[-1] ^ 1,))
    assert put(known, AdvertEnvelope(AdvertKind.NODE, flipped)) is PutOutcome.BAD_SIGNATURE
    assert changes(known) == []
    assert len(known) == 0


def test_the_time_of_an_advert_has_bounds() -> None:
    known = directory()
    assert put(known, advert(0, created=NOW + MAX_SKEW + 1)) is PutOutcome.AHEAD
    assert put(known, advert(1, created=NOW - MAX_ADVERT_AGE - 1)) is PutOutcome.EXPIRED
    # A clock that is an hour ahead is not believed; one that is an hour late is.
    assert put(known, advert(2, created=NOW + 3_600_000)) is PutOutcome.AHEAD
    assert put(known, advert(3, created=2**64 - 1)) is PutOutcome.AHEAD
    assert len(known) == 0
    assert put(known, advert(0, created=NOW + MAX_SKEW)) is PutOutcome.STORED
    assert put(known, advert(1, created=NOW - MAX_ADVERT_AGE)) is PutOutcome.STORED
    assert put(known, advert(2, created=NOW - 3_600_000)) is PutOutcome.STORED


def test_an_advert_that_becomes_too_old_is_let_go_when_it_is_wanted() -> None:
    known = directory()
    put(known, advert(0))
    put(known, advert(1))
    known.set_trust(OTHER.identity, 200)
    changes(known)
    late = NOW + MAX_ADVERT_AGE
    assert known.lookup(NODE.identity, late) is not None
    assert known.lookup(NODE.identity, late + 1) is None
    held = IdentityRecord(OTHER.identity, None, LocalMetadata(200))
    assert known.peek(OTHER.identity, late + 1) == held
    assert changes(known) == [(NODE.identity, None), (OTHER.identity, held)]
    figures = known.statistics()
    assert (figures.expired, figures.known_size, figures.unknown_size) == (2, 0, 0)
    # One that is too old stands in the way of none.
    assert known.put_advert(advert(1), NOW, NETWORK) is PutOutcome.STORED
    older = advert(1, version=0, created=late + 1)
    assert known.put_advert(older, late + 1, NETWORK) is PutOutcome.STORED


def test_all_of_a_banned_identity_is_refused_and_its_record_stays() -> None:
    known = directory()
    put(known, advert())
    assert known.set_trust(NODE.identity, TRUST_BANNED) is ResultCode.OK
    banned = IdentityRecord(NODE.identity, advert(), LocalMetadata(TRUST_BANNED))
    assert banned.is_banned
    assert put(known, advert(version=2)) is PutOutcome.BANNED
    # What it signs for is refused as well.
    echo = derived_engine(NODE.identity, b"echo")
    engine = sign_advert(EngineAdvert(echo, NODE.identity, b"echo", 1, NOW), NODE)
    assert put(known, engine, LOCAL) is PutOutcome.BANNED
    assert known.lookup(NODE.identity, NOW) == banned
    assert changes(known) == [(NODE.identity, banned)]
    # One that is unknown can be banned, and taken in again.
    assert known.set_trust(OTHER.identity, TRUST_BANNED) is ResultCode.OK
    assert put(known, advert(1)) is PutOutcome.BANNED
    assert known.set_trust(OTHER.identity, TRUST_DEFAULT) is ResultCode.OK
    assert known.peek(OTHER.identity, NOW) is None
    assert put(known, advert(1)) is PutOutcome.STORED


def test_what_the_node_says_is_beside_the_advert() -> None:
    known = directory()
    said = LocalMetadata(TRUST_OWN, None, ConnectionPrefs.PERMANENT, b"printer")
    assert known.update(NODE.identity, said) is ResultCode.OK
    assert put(known, advert()) is PutOutcome.STORED
    record = IdentityRecord(NODE.identity, advert(), said)
    assert known.lookup(NODE.identity, NOW) == record
    # An equivocation marks the node's own key, which goes on.
    put(known, advert(content=1))
    marked = replace(record, equivocated=True)
    assert changes(known) == [(NODE.identity, marked)]
    assert known.update(NODE.identity, said) is ResultCode.OK
    assert changes(known) == []
    trusted = replace(said, trust=200)
    assert known.set_trust(NODE.identity, 200) is ResultCode.OK
    assert changes(known) == [(NODE.identity, replace(marked, local=trusted))]
    with pytest.raises(BadRecord, match="the trust is 256, not 0 to 255"):
        known.set_trust(NODE.identity, 256)
    # Nothing said any more, it is a used one among others.
    assert known.update(NODE.identity, LocalMetadata()) is ResultCode.OK
    assert changes(known) == [(NODE.identity, replace(marked, local=LocalMetadata()))]
    assert known.update(NODE.identity, LocalMetadata()) is ResultCode.OK
    assert known.update(OTHER.identity, LocalMetadata()) is ResultCode.OK
    assert changes(known) == []
    assert (known.statistics().held, known.statistics().used) == (0, 1)


def test_trust_that_an_equivocation_lowers_to_the_default_is_still_held() -> None:
    known = directory()
    known.set_trust(NODE.identity, 192)
    put(known, advert())
    put(known, advert(content=1))
    record = known.peek(NODE.identity, NOW)
    assert record is not None
    assert record.local.trust == TRUST_DEFAULT
    assert known.statistics().held == 1
    changes(known)
    known.update(NODE.identity, LocalMetadata())
    assert known.statistics().used == 1
    assert changes(known) == []


def test_a_flood_of_unknown_keys_lets_only_unknown_ones_go() -> None:
    known = directory(DirectoryLimits(max_identities=10, max_unknown=4))
    put(known, advert(0), ANSWER)
    put(known, advert(1))
    known.lookup(KEYS[1].identity, NOW)
    put(known, advert(2), LOCAL)
    known.set_trust(KEYS[3].identity, 200)
    put(known, advert(3))
    put(known, advert(4))
    # A look by others than this node makes nothing used.
    assert known.peek(KEYS[4].identity, NOW) is not None
    for number in range(5, 40):
        assert put(known, advert(number)) is PutOutcome.STORED
    kept = [number for number in range(40) if known.peek(KEYS[number].identity, NOW)]
    assert kept == [0, 1, 2, 3, 36, 37, 38, 39]
    figures = known.statistics()
    assert (figures.unknown, figures.used, figures.held, figures.let_go) == (4, 3, 1, 32)
    # To let one go is no change of it.
    assert [each for each, _ in changes(known)] == [KEYS[number].identity for number in kept]


def test_an_advert_that_is_known_becomes_used_as_an_answer() -> None:
    known = directory(DirectoryLimits(max_identities=4, max_unknown=1))
    put(known, advert(0))
    assert put(known, advert(0), ANSWER) is PutOutcome.KNOWN
    put(known, advert(1))
    put(known, advert(2))
    assert known.peek(KEYS[0].identity, NOW) is not None
    assert known.peek(KEYS[1].identity, NOW) is None


def test_used_identities_become_unknown_in_the_order_of_their_use() -> None:
    known = directory(DirectoryLimits(max_identities=5, max_unknown=2))
    for number in range(3):
        put(known, advert(number), ANSWER)
    known.lookup(KEYS[0].identity, NOW)
    put(known, advert(3), ANSWER)
    figures = known.statistics()
    assert (figures.used, figures.unknown, figures.demoted) == (3, 1, 1)
    put(known, advert(4))
    put(known, advert(5))
    kept = [number for number in range(6) if known.peek(KEYS[number].identity, NOW)]
    assert kept == [0, 2, 3, 4, 5]


def test_what_is_held_has_a_limit_and_is_never_let_go() -> None:
    known = directory(DirectoryLimits(max_identities=3, max_unknown=1))
    put(known, advert(0), ANSWER)
    assert known.set_trust(KEYS[1].identity, 200) is ResultCode.OK
    assert known.set_trust(KEYS[2].identity, 200) is ResultCode.OK
    assert known.set_trust(KEYS[3].identity, 200) is ResultCode.OVERFLOW
    assert known.set_trust(KEYS[2].identity, 201) is ResultCode.OK
    # The one that was used is unknown now, and goes first.
    figures = known.statistics()
    assert (figures.held, figures.used, figures.unknown) == (2, 0, 1)
    assert known.lookup(KEYS[0].identity, NOW) is not None
    put(known, advert(4))
    assert known.peek(KEYS[0].identity, NOW) is None
    assert known.peek(KEYS[1].identity, NOW) is not None


def test_the_bytes_of_adverts_have_limits() -> None:
    node = NodeAdvert(NODE.identity, (), bytes(32), 1, NOW)
    size = len(advert().envelope)
    most = MAX_ADVERT_ENVELOPE // size
    known = directory(
        DirectoryLimits(max_known_size=MAX_ADVERT_ENVELOPE, max_unknown_size=MAX_ADVERT_ENVELOPE)
    )
    assert most < 60
    keys = [SigningKey(bytes((number, 1)) * 16) for number in range(60)]
    for key in keys:
        put(known, sign_advert(replace(node, identity=key.identity), key))
    figures = known.statistics()
    assert (figures.unknown, figures.unknown_size) == (most, most * size)
    for key in keys:
        put(known, sign_advert(replace(node, identity=key.identity), key), ANSWER)
    figures = known.statistics()
    assert (figures.used, figures.known_size) == (most, most * size)
    assert figures.unknown == 60 - most
    # A version that is larger counts with its bytes, and the place stays.
    address = ("a" * 200, 0)
    larger = replace(node, identity=keys[-1].identity, version=2)
    larger = NodeAdvert(larger.identity, (address,), bytes(32), 2, NOW)  # type: ignore[arg-type]
    put(known, sign_advert(larger, keys[-1]))
    assert known.statistics().known_size <= MAX_ADVERT_ENVELOPE
    assert known.statistics().used < most


def test_changes_are_one_for_each_identity_in_the_order_of_the_first() -> None:
    known = directory(DirectoryLimits(max_updates=2))
    put(known, advert(0))
    put(known, advert(1))
    put(known, advert(0, version=2))
    put(known, advert(2))
    known.forget(KEYS[1].identity)
    assert not known.forget(KEYS[3].identity)
    taken = known.take_updates()
    assert taken.updates == (
        IdentityUpdated(KEYS[0].identity, IdentityRecord(KEYS[0].identity, advert(0, version=2))),
        IdentityUpdated(KEYS[1].identity, None),
    )
    assert taken.lost == 1
    put(known, advert(3))
    assert [each.identity for each in known.take_updates().updates] == [KEYS[3].identity]
    assert known.take_updates() == ((), 0)
    assert known.statistics().lost == 1


def test_limits_leave_a_place_for_known_identities() -> None:
    with pytest.raises(ValueError, match="max_unknown must be below max_identities, which is 5"):
        DirectoryLimits(max_identities=5, max_unknown=5)
    with pytest.raises(ValueError, match="max_unknown_size"):
        DirectoryLimits(max_unknown_size=1)


@dataclass
class Known:
    """An identity of the model."""

    shelf: str
    advert: tuple[int, int] | None = None
    trust: int = TRUST_DEFAULT
    marked: bool = False


class Model:
    """A directory that looks at everything each time; the first of a shelf is the oldest."""

    def __init__(self, limits: DirectoryLimits) -> None:
        self.limits = limits
        self.known: dict[int, Known] = {}
        self.changed: list[int] = []

    def put(self, number: int, version: int, content: int, source: AdvertSource) -> PutOutcome:
        known = self.known.get(number)
        if known is not None and known.trust == TRUST_BANNED:
            return PutOutcome.BANNED
        old = None if known is None else known.advert
        if old is not None and known is not None:
            if old == (version, content):
                self.use(number, source)
                return PutOutcome.KNOWN
            if version < old[0]:
                return PutOutcome.OLDER
            if version == old[0]:
                if not known.marked:
                    known.marked = True
                    known.trust = 255 if known.trust == 255 else max(1, known.trust - 64)
                    self.change(number)
                return PutOutcome.EQUIVOCATION
        if known is None:
            known = self.known[number] = Known("unknown")
            self.trim()
        known.advert = (version, content)
        self.use(number, source)
        self.change(number)
        return PutOutcome.STORED if old is None else PutOutcome.REPLACED

    def use(self, number: int, source: AdvertSource) -> None:
        if source is not NETWORK and self.known[number].shelf != "held":
            self.move(number, "used")

    def move(self, number: int, shelf: str) -> None:
        known = self.known.pop(number, None) or Known(shelf)
        known.shelf = shelf
        self.known[number] = known
        self.trim()

    def set_trust(self, number: int, trust: int) -> ResultCode:
        known = self.known.get(number)
        if trust == TRUST_DEFAULT:
            if known is not None:
                changed = known.trust != trust
                known.trust = trust
                if known.advert is None:
                    del self.known[number]
                elif known.shelf == "held":
                    self.move(number, "used")
                if changed:
                    self.change(number)
            return ResultCode.OK
        held = [each for each in self.known.values() if each.shelf == "held"]
        if (known is None or known.shelf != "held") and len(held) >= self.limits.max_known:
            return ResultCode.OVERFLOW
        changed = known is None or known.trust != trust
        if known is not None:
            known.trust = trust
        self.move(number, "held")
        self.known[number].trust = trust
        if changed:
            self.change(number)
        return ResultCode.OK

    def forget(self, number: int) -> None:
        if self.known.pop(number, None) is not None:
            self.change(number)

    def change(self, number: int) -> None:
        if number not in self.changed:
            self.changed.append(number)

    def shelf(self, *names: str) -> list[int]:
        return [number for number, known in self.known.items() if known.shelf in names]

    def trim(self) -> None:
        while self.shelf("used") and len(self.shelf("used", "held")) > self.limits.max_known:
            oldest = self.shelf("used")[0]
            known = self.known.pop(oldest)
            known.shelf = "unknown"
            self.known[oldest] = known
        while len(self.shelf("unknown")) > self.limits.max_unknown:
            oldest = self.shelf("unknown")[0]
            del self.known[oldest]
            if oldest in self.changed:
                self.changed.remove(oldest)


numbers = st.integers(0, 9)
steps = st.one_of(
    st.tuples(
        st.just("put"), numbers, st.integers(0, 3), st.integers(0, 1), st.sampled_from(AdvertSource)
    ),
    st.tuples(st.just("look"), numbers),
    st.tuples(st.just("trust"), numbers, st.sampled_from([0, 64, 128, 192, 255])),
    st.tuples(st.just("forget"), numbers),
    st.tuples(st.just("take")),
)


@given(st.lists(steps, max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_a_directory_is_as_a_naive_one(
    walk: list[tuple[object, ...]], most_unknown: int, most_known: int
) -> None:
    limits = DirectoryLimits(max_identities=most_unknown + most_known, max_unknown=most_unknown)
    model, known = Model(limits), directory(limits)
    for step in walk:
        match step:
            case ("put", int(number), int(version), int(content), AdvertSource() as source):
                outcome = put(known, advert(number, version, content), source)
                assert outcome is model.put(number, version, content, source)
            case ("look", int(number)):
                found = known.lookup(KEYS[number].identity, NOW)
                assert (found is None) == (number not in model.known)
                if found is not None:
                    model.use(number, ANSWER)
            case ("trust", int(number), int(trust)):
                code = known.set_trust(KEYS[number].identity, trust)
                assert code is model.set_trust(number, trust)
            case ("forget", int(number)):
                known.forget(KEYS[number].identity)
                model.forget(number)
            case _:
                taken = known.take_updates().updates
                assert [each.identity for each in taken] == [
                    KEYS[number].identity for number in model.changed
                ]
                model.changed.clear()
        expected = {
            KEYS[number].identity: (
                None if it.advert is None else advert(number, *it.advert),
                it.trust,
                it.marked,
            )
            for name in ("unknown", "used", "held")
            for number in model.shelf(name)
            for it in [model.known[number]]
        }
        found_rows = [Identity(row.identity) for row in known.snapshot()]
        assert found_rows == list(expected)
        for identity, (kept, trust, marked) in expected.items():
            record = known.peek(identity, NOW)
            assert record is not None
            assert (record.advert, record.local.trust, record.equivocated) == (kept, trust, marked)
        assert len(known) <= limits.max_identities
