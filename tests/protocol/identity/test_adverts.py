"""Adverts: their bytes, their signers, and what is refused."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    KX_SIZE,
    MAX_ADVERT,
    MAX_ADVERT_ADDRESSES,
    MAX_ADVERT_ENVELOPE,
    MAX_ADVERT_VERSION,
    MAX_DOMAIN_NODES,
    MAX_ENGINE_NAME,
    MAX_NUMBER,
    MAX_ROUTE_TEXT,
    MAX_TAG,
    MAX_TOPIC_PUBLISHERS,
    MAX_TOPIC_TAGS,
    MAX_WEIGHT,
    SCOPE_ANY,
    SCOPE_LOCAL,
    Advert,
    AdvertAddress,
    AdvertEnvelope,
    AdvertKind,
    BadRecord,
    DomainAdvert,
    EngineAdvert,
    Identity,
    NodeAdvert,
    RecordTooBig,
    RoutingScope,
    ScopeKind,
    SignedKind,
    SigningKey,
    TopicAdvert,
    Verifiers,
    derived_engine,
    open_advert,
    parse_advert,
    parse_advert_envelope,
    serialize_advert,
    serialize_advert_envelope,
    sign,
    sign_advert,
    signer_of,
)
from tests.support.records import check_kinds

NODE = SigningKey(bytes(range(32)))
OTHER = SigningKey(bytes(range(1, 33)))
THIRD = SigningKey(bytes(range(2, 34)))
ECHO = derived_engine(NODE.identity, b"echo")
KX = bytes(range(100, 132))

NODE_ADVERT = NodeAdvert(
    NODE.identity, (AdvertAddress("1#a:4000", 200), AdvertAddress("0#relay", 1)), KX, 7, 1000
)
ENGINE_ADVERT = EngineAdvert(OTHER.identity, NODE.identity, None, 1, 2000)
NAMED_ADVERT = EngineAdvert(OTHER.identity, NODE.identity, b"echo", 1, 2000)
DERIVED_ADVERT = EngineAdvert(ECHO, NODE.identity, b"echo", 2**32 - 1, 2**64 - 1)
TOPIC_ADVERT = TopicAdvert(
    OTHER.identity,
    ("news", "é"),
    (ECHO, NODE.identity),
    RoutingScope(ScopeKind.DOMAIN, THIRD.identity),
    9,
    3000,
)
OPEN_TOPIC_ADVERT = TopicAdvert(OTHER.identity, (), None, SCOPE_ANY, 1, 0)
DOMAIN_ADVERT = DomainAdvert(OTHER.identity, (NODE.identity, THIRD.identity), 0, 0)

A, B, C, E = (each.hex() for each in (NODE.identity, OTHER.identity, THIRD.identity, ECHO))

VECTORS: list[tuple[AdvertKind, Advert, str, SigningKey]] = [
    (
        AdvertKind.NODE,
        NODE_ADVERT,
        f"855821{A}8282683123613a3430303018c88267302372656c6179015820{KX.hex()}071903e8",
        NODE,
    ),
    (AdvertKind.ENGINE, ENGINE_ADVERT, f"855821{B}5821{A}f6011907d0", OTHER),
    (AdvertKind.ENGINE, NAMED_ADVERT, f"855821{B}5821{A}446563686f011907d0", OTHER),
    (
        AdvertKind.ENGINE,
        DERIVED_ADVERT,
        f"855821{E}5821{A}446563686f1affffffff1bffffffffffffffff",
        NODE,
    ),
    (
        AdvertKind.TOPIC,
        TOPIC_ADVERT,
        f"865821{B}82646e65777362c3a9825821{E}5821{A}82015821{C}09190bb8",
        OTHER,
    ),
    (AdvertKind.TOPIC, OPEN_TOPIC_ADVERT, f"865821{B}80f681020100", OTHER),
    (AdvertKind.DOMAIN, DOMAIN_ADVERT, f"845821{B}825821{A}5821{C}0000", OTHER),
]

each_vector = pytest.mark.parametrize(("kind", "advert", "written", "key"), VECTORS)


@each_vector
def test_an_advert_has_these_bytes_and_is_refused_when_it_is_cut(
    kind: AdvertKind, advert: Advert, written: str, key: SigningKey
) -> None:
    data = bytes.fromhex(written)
    assert serialize_advert(advert) == data
    assert parse_advert(kind, data) == advert
    assert signer_of(advert) == key.identity
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_advert(kind, data[:size])
    with pytest.raises(BadRecord, match="1 bytes behind the end"):
        parse_advert(kind, data + b"\x00")


@each_vector
def test_a_signed_advert_is_opened_as_its_kind_alone(
    kind: AdvertKind, advert: Advert, written: str, key: SigningKey
) -> None:
    verifiers = Verifiers()
    signed = sign_advert(advert, key)
    assert signed.kind == kind
    assert bytes.fromhex(written) in signed.envelope
    assert open_advert(signed, verifiers) == advert
    # Another kind in the external data is another signature.
    for other in SignedKind:
        envelope = AdvertEnvelope(kind, sign(other, bytes.fromhex(written), key))
        opened = open_advert(envelope, verifiers)
        assert opened == (advert if other == f"{kind.name.lower()}-advert" else None)


@each_vector
def test_an_advert_that_another_key_signs_is_not_opened(
    kind: AdvertKind, advert: Advert, written: str, key: SigningKey
) -> None:
    right = sign_advert(advert, key).envelope
    for wrong in {NODE, OTHER, THIRD} - {key}:
        signed = SignedKind(f"{kind.name.lower()}-advert")
        forged = AdvertEnvelope(kind, sign(signed, bytes.fromhex(written), wrong))
        assert open_advert(forged, Verifiers()) is None
        with pytest.raises(BadRecord, match="an advert is signed by the identity that it is about"):
            sign_advert(advert, wrong)
    # Each byte that is flipped makes it a bad record, or a signature that is wrong.
    for at in range(len(right)):
        flipped = bytearray(right)
        flipped[at] ^= 1
        try:
            assert open_advert(AdvertEnvelope(kind, bytes(flipped)), Verifiers()) is None
        except BadRecord:
            continue


@each_vector
def test_an_envelope_travels_with_its_kind(
    kind: AdvertKind, advert: Advert, written: str, key: SigningKey
) -> None:
    signed = sign_advert(advert, key)
    data = serialize_advert_envelope(signed)
    assert data[:2] == bytes((0x82, kind))
    assert parse_advert_envelope(data) == signed
    for size in range(len(data)):
        with pytest.raises(BadRecord):
            parse_advert_envelope(data[:size])
    with pytest.raises(BadRecord, match="1 bytes behind the end"):
        parse_advert_envelope(data + b"\x00")
    for other in AdvertKind:
        if other != kind:
            try:
                assert open_advert(AdvertEnvelope(other, signed.envelope), Verifiers()) is None
            except BadRecord:
                continue


def test_the_golden_vector_of_an_advert_in_its_envelope() -> None:
    assert serialize_advert_envelope(sign_advert(NODE_ADVERT, NODE)).hex() == (
        f"820158acd28443a10127a05861{VECTORS[0][2]}584071aeee88a3be9b06650a23071577119a19f681877caf"
        "7ff6de7231eed83993d6c4c707fcd612410a80cce7322b3134dc8c65c192716321b16773e8db33743d0b"
    )


def test_there_is_no_other_kind_of_advert() -> None:
    for number in (3, 5, 23):
        with pytest.raises(BadRecord, match=f"there is no kind {number} of adverts"):
            parse_advert_envelope(cbor2.dumps((number, b"")))


def node_record(
    addresses: object = (), kx: bytes = KX, version: object = 0, created: object = 0
) -> bytes:
    return cbor2.dumps((NODE.identity, addresses, kx, version, created))


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (AdvertKind.NODE, cbor2.dumps((ECHO, (), KX, 0, 0)), "the node has no key"),
        (AdvertKind.NODE, node_record(kx=KX[1:]), "the key for sealing has 31 bytes, not 32"),
        (AdvertKind.NODE, node_record(kx=bytes(33)), "the key for sealing has 33 bytes, not 32"),
        (
            AdvertKind.NODE,
            node_record([("1#a", 0)] * (MAX_ADVERT_ADDRESSES + 1)),
            "the list of addresses has 17 items, not 0 to 16",
        ),
        (
            AdvertKind.NODE,
            node_record([("a" * (MAX_ROUTE_TEXT + 1), 0)]),
            "the route has 256 bytes, not 1 to 255",
        ),
        (AdvertKind.NODE, node_record([("", 0)]), "the route has 0 bytes, not 1 to 255"),
        (AdvertKind.NODE, node_record([("1#a", 256)]), "the weight is 256, over 255"),
        (AdvertKind.NODE, node_record([("1#a",)]), "an address has 1 items, not 2"),
        (
            AdvertKind.NODE,
            node_record(version=2**32),
            "the version is 4294967296, over 4294967295",
        ),
        (
            AdvertKind.NODE,
            node_record(created=-1),
            "the time is a negative number, not a number",
        ),
        (
            AdvertKind.ENGINE,
            cbor2.dumps((OTHER.identity, ECHO, None, 0, 0)),
            "the node has no key",
        ),
        (
            AdvertKind.ENGINE,
            cbor2.dumps((OTHER.identity, NODE.identity, b"", 0, 0)),
            "the name has 0 bytes, not 1 to 1024",
        ),
        (
            AdvertKind.ENGINE,
            cbor2.dumps((OTHER.identity, NODE.identity, bytes(MAX_ENGINE_NAME + 1), 0, 0)),
            "the name has 1025 bytes, not 1 to 1024",
        ),
        (
            AdvertKind.ENGINE,
            cbor2.dumps((ECHO, NODE.identity, None, 0, 0)),
            "the engine is not the one of this name at this node",
        ),
        (
            AdvertKind.ENGINE,
            cbor2.dumps((ECHO, NODE.identity, b"other", 0, 0)),
            "the engine is not the one of this name at this node",
        ),
        (
            AdvertKind.ENGINE,
            cbor2.dumps((ECHO, OTHER.identity, b"echo", 0, 0)),
            "the engine is not the one of this name at this node",
        ),
        (
            AdvertKind.TOPIC,
            cbor2.dumps((ECHO, (), None, (2,), 0, 0)),
            "the topic has no key",
        ),
        (
            AdvertKind.TOPIC,
            cbor2.dumps((OTHER.identity, ("",), None, (2,), 0, 0)),
            "a tag has 0 bytes, not 1 to 64",
        ),
        (
            AdvertKind.TOPIC,
            cbor2.dumps((OTHER.identity, ("a" * (MAX_TAG + 1),), None, (2,), 0, 0)),
            "a tag has 65 bytes, not 1 to 64",
        ),
        (
            AdvertKind.TOPIC,
            cbor2.dumps((OTHER.identity, ("a",) * (MAX_TOPIC_TAGS + 1), None, (2,), 0, 0)),
            "the list of tags has 17 items, not 0 to 16",
        ),
        (
            AdvertKind.TOPIC,
            cbor2.dumps((OTHER.identity, (), (ECHO,) * (MAX_TOPIC_PUBLISHERS + 1), (2,), 0, 0)),
            "the list of publishers has 65 items, not 0 to 64",
        ),
        (
            AdvertKind.DOMAIN,
            cbor2.dumps((ECHO, (), 0, 0)),
            "the domain has no key",
        ),
        (
            AdvertKind.DOMAIN,
            cbor2.dumps((OTHER.identity, (ECHO,), 0, 0)),
            "a node has no key",
        ),
        (
            AdvertKind.DOMAIN,
            cbor2.dumps((OTHER.identity, (NODE.identity,) * (MAX_DOMAIN_NODES + 1), 0, 0)),
            "the list of nodes has 65 items, not 0 to 64",
        ),
    ],
)
def test_what_is_over_a_limit_or_contradicts_itself_is_refused(
    kind: AdvertKind, data: bytes, reason: str
) -> None:
    with pytest.raises(BadRecord) as raised:
        parse_advert(kind, data)
    assert raised.value.reason == reason


def test_the_greatest_adverts_fit_into_an_envelope() -> None:
    address = AdvertAddress("é" * (MAX_ROUTE_TEXT // 2) + "e", MAX_WEIGHT)
    adverts: list[Advert] = [
        NodeAdvert(
            NODE.identity,
            (address,) * MAX_ADVERT_ADDRESSES,
            bytes(KX_SIZE),
            MAX_ADVERT_VERSION,
            MAX_NUMBER,
        ),
        EngineAdvert(
            NODE.identity, NODE.identity, bytes(MAX_ENGINE_NAME), MAX_ADVERT_VERSION, MAX_NUMBER
        ),
        TopicAdvert(
            NODE.identity,
            ("é" * (MAX_TAG // 2),) * MAX_TOPIC_TAGS,
            (NODE.identity,) * MAX_TOPIC_PUBLISHERS,
            RoutingScope(ScopeKind.DOMAIN, NODE.identity),
            MAX_ADVERT_VERSION,
            MAX_NUMBER,
        ),
        DomainAdvert(
            NODE.identity, (NODE.identity,) * MAX_DOMAIN_NODES, MAX_ADVERT_VERSION, MAX_NUMBER
        ),
    ]
    for advert in adverts:
        signed = parse_advert_envelope(serialize_advert_envelope(sign_advert(advert, NODE)))
        assert open_advert(signed, Verifiers()) == advert


def test_an_advert_over_a_limit_is_not_signed() -> None:
    for advert in (
        NodeAdvert(NODE.identity, (AdvertAddress("1#a", 256),), KX, 0, 0),
        NodeAdvert(NODE.identity, (AdvertAddress("1#a", 1),) * 17, KX, 0, 0),
        NodeAdvert(NODE.identity, (), KX, 2**32, 0),
    ):
        with pytest.raises(BadRecord):
            sign_advert(advert, NODE)


def test_more_bytes_than_an_advert_may_have_are_not_read() -> None:
    for kind in AdvertKind:
        with pytest.raises(RecordTooBig):
            parse_advert(kind, bytes(MAX_ADVERT + 1))
        with pytest.raises(RecordTooBig):
            open_advert(AdvertEnvelope(kind, bytes(MAX_ADVERT_ENVELOPE + 1)), Verifiers())
    with pytest.raises(RecordTooBig):
        parse_advert_envelope(cbor2.dumps((1, bytes(MAX_ADVERT_ENVELOPE + 1))))
    largest = AdvertEnvelope(AdvertKind.NODE, bytes(MAX_ADVERT_ENVELOPE))
    assert parse_advert_envelope(serialize_advert_envelope(largest)) == largest


versions = st.integers(0, MAX_ADVERT_VERSION)
times = st.integers(0, MAX_NUMBER)
keys = st.sampled_from([NODE.identity, OTHER.identity, THIRD.identity])
addresses = st.builds(AdvertAddress, st.text(min_size=1, max_size=63), st.integers(0, MAX_WEIGHT))
names = st.binary(min_size=1, max_size=40)


def of_derived_engine(node: Identity, name: bytes, version: int, created: int) -> EngineAdvert:
    return EngineAdvert(derived_engine(node, name), node, name, version, created)


adverts: st.SearchStrategy[Advert] = st.one_of(
    st.builds(
        NodeAdvert,
        keys,
        st.lists(addresses, max_size=MAX_ADVERT_ADDRESSES).map(tuple),
        st.binary(min_size=KX_SIZE, max_size=KX_SIZE),
        versions,
        times,
    ),
    st.builds(EngineAdvert, keys, keys, st.none() | names, versions, times),
    st.builds(of_derived_engine, keys, names, versions, times),
    st.builds(
        TopicAdvert,
        keys,
        st.lists(st.text(min_size=1, max_size=16), max_size=MAX_TOPIC_TAGS).map(tuple),
        st.none() | st.lists(keys, max_size=MAX_TOPIC_PUBLISHERS).map(tuple),
        st.sampled_from([SCOPE_LOCAL, SCOPE_ANY])
        | keys.map(lambda key: RoutingScope(ScopeKind.DOMAIN, key)),
        versions,
        times,
    ),
    st.builds(
        DomainAdvert, keys, st.lists(keys, max_size=MAX_DOMAIN_NODES).map(tuple), versions, times
    ),
)
BY_IDENTITY = {each.identity: each for each in (NODE, OTHER, THIRD)}


@each_vector
def test_no_item_of_an_advert_is_of_another_kind(
    kind: AdvertKind, advert: Advert, written: str, key: SigningKey
) -> None:
    def parse(data: bytes) -> Advert:
        return parse_advert(kind, data)

    assert signer_of(advert) == key.identity
    # The name of an engine, and the publishers of a topic.
    nullable = [(2,)] if kind in {AdvertKind.ENGINE, AdvertKind.TOPIC} else []
    assert check_kinds(parse, serialize_advert, bytes.fromhex(written), *nullable)


@given(adverts)
def test_an_advert_that_is_signed_is_opened_as_it_was(advert: Advert) -> None:
    signed = sign_advert(advert, BY_IDENTITY[signer_of(advert)])
    assert open_advert(signed, Verifiers()) == advert


@given(adverts, st.data())
def test_any_bytes_are_an_advert_in_its_one_spelling_or_refused(
    advert: Advert, draw: st.DataObject
) -> None:
    data = bytearray(serialize_advert(advert))
    data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    for kind in AdvertKind:
        try:
            parsed = parse_advert(kind, bytes(data))
        except BadRecord:
            continue
        assert serialize_advert(parsed) == data
