"""The messages of engines and for relays: their bytes, their signers, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    MAX_BODY,
    MAX_ENGINE_NAME,
    MAX_NUMBER,
    MAX_RECORD,
    MAX_SEALED,
    SCOPE_ANY,
    SCOPE_LOCAL,
    SIGNED_OVERHEAD,
    BadKey,
    BadRecord,
    Destination,
    DestinationKind,
    EngineMessage,
    EngineOrigin,
    Identity,
    Ordering,
    Protocol,
    RecordTooBig,
    RelayMessage,
    Reliability,
    RoutingPrefs,
    RoutingScope,
    ScopeKind,
    Security,
    SignedKind,
    SigningKey,
    TransportPrefs,
    Verifiers,
    derived_engine,
    identity_of_key,
    open_engine_message,
    open_relay_message,
    parse_engine_message,
    parse_relay_message,
    serialize_engine_message,
    serialize_relay_message,
    sign,
    sign_engine_message,
    sign_relay_message,
)
from tests.support.records import check_bits, check_bytes, check_kinds

NODE = SigningKey(bytes(range(32)))
ENGINE = SigningKey(bytes(range(1, 33)))
DOMAIN = SigningKey(bytes(range(2, 34)))
PRINTER = derived_engine(NODE.identity, b"printer")

N, E, D, P = (each.hex() for each in (NODE.identity, ENGINE.identity, DOMAIN.identity, PRINTER))

BARE = EngineMessage(
    ENGINE.identity,
    Destination(DestinationKind.TOPIC, DOMAIN.identity),
    0,
    Protocol("wire", 1),
    b"",
)
FULL = EngineMessage(
    PRINTER,
    Destination(DestinationKind.ENGINE, ENGINE.identity),
    2**32,
    Protocol("dé", 256),
    b"hello",
    reply_to=24,
    expiry=1_800_000_000_000,
    rprefs=RoutingPrefs(RoutingScope(ScopeKind.DOMAIN, DOMAIN.identity)),
    tprefs=TransportPrefs(Ordering.UNORDERED, Reliability.UNRELIABLE, Security.ONION, 3),
    origin=EngineOrigin(NODE.identity, b"printer"),
)
RELAY = RelayMessage(NODE.identity, ENGINE.identity, 1_800_000_000_000, b"sealed")
RELAY_FULL = replace(RELAY, tprefs=TransportPrefs(security=Security.MIXNET))

BARE_BYTES = (
    f"8a 5821{E}"  # an array of ten; src
    f"82 02 5821{D}"  # dst: a topic
    "00 f6 f6 f6 f6"  # id; neither reply_to, expiry, rprefs nor tprefs
    "82 6477697265 01"  # protocol
    "40 f6"  # body; no origin
)
FULL_BYTES = (
    f"8a 5821{P}"
    f"82 00 5821{E}"
    "1b0000000100000000 1818 1b000001a3185c5000"  # id, reply_to, expiry
    f"81 82 01 5821{D}"  # rprefs: the scope of a domain
    "83 01 01 82 01 03"  # tprefs: onion routing by three hops
    "82 6364c3a9 190100"
    "4568656c6c6f"
    f"82 5821{N} 477072696e746572"  # origin
)
ENGINES = [(BARE, BARE_BYTES, ENGINE), (FULL, FULL_BYTES, NODE)]
RELAYS = [
    (RELAY, f"85 5821{N} 5821{E} f6 1b000001a3185c5000 467365616c6564"),
    (RELAY_FULL, f"85 5821{N} 5821{E} 83 00 00 81 02 1b000001a3185c5000 467365616c6564"),
]


@pytest.mark.parametrize(("message", "written", "key"), ENGINES)
def test_the_message_of_an_engine_has_these_bytes(
    message: EngineMessage, written: str, key: SigningKey
) -> None:
    data = bytes.fromhex(written)
    check_bytes(parse_engine_message, serialize_engine_message, message, data)
    assert message.signer == key.identity
    read, refused = check_bits(parse_engine_message, serialize_engine_message, data)
    assert read
    assert refused


@pytest.mark.parametrize(("message", "written"), RELAYS)
def test_a_message_for_a_relay_has_these_bytes(message: RelayMessage, written: str) -> None:
    data = bytes.fromhex(written)
    check_bytes(parse_relay_message, serialize_relay_message, message, data)
    read, refused = check_bits(parse_relay_message, serialize_relay_message, data)
    assert read
    assert refused


def test_no_item_of_a_message_is_of_another_kind() -> None:
    data = serialize_engine_message(FULL)
    nullable = ((3,), (4,), (5,), (6,))
    assert check_kinds(parse_engine_message, serialize_engine_message, data, *nullable) > 300
    data = serialize_relay_message(RELAY_FULL)
    assert check_kinds(parse_relay_message, serialize_relay_message, data, (2,)) > 100


@pytest.mark.parametrize("kind", DestinationKind)
def test_only_engines_are_without_a_key(kind: DestinationKind) -> None:
    message = replace(BARE, dst=Destination(kind, ENGINE.identity))
    assert parse_engine_message(serialize_engine_message(message)) == message
    data = serialize_engine_message(BARE)
    data = data.replace(b"\x02\x58\x21" + DOMAIN.identity, bytes((kind,)) + b"\x58\x21" + PRINTER)
    if kind is DestinationKind.ENGINE:
        assert parse_engine_message(data).dst.identity == PRINTER
        return
    with pytest.raises(BadRecord, match="the destination has no key"):
        parse_engine_message(data)
    with pytest.raises(BadRecord, match="the destination has no key"):
        replace(BARE, dst=Destination(kind, PRINTER))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"id": -1}, "the id is -1, not 0 to 18446744073709551615"),
        ({"id": MAX_NUMBER + 1}, "the id is 18446744073709551616, not 0 to"),
        ({"reply_to": -1}, "the id that is answered is -1, not 0 to"),
        ({"expiry": MAX_NUMBER + 1}, "the expiry is 18446744073709551616, not 0 to"),
        ({"body": bytes(MAX_BODY + 1)}, "the body has 1044481 bytes, not 0 to 1044480"),
        ({"origin": None}, "an engine has an origin if it has no key, and only then"),
        ({"src": ENGINE.identity}, "an engine has an origin if it has no key, and only then"),
        (
            {"origin": EngineOrigin(NODE.identity, b"plotter")},
            "the source is not the engine of its origin",
        ),
        (
            {"origin": EngineOrigin(ENGINE.identity, b"printer")},
            "the source is not the engine of its origin",
        ),
        ({"origin": EngineOrigin(PRINTER, b"printer")}, "the node of the engine has no key"),
        (
            {"origin": EngineOrigin(NODE.identity, b"")},
            "the name of an engine has 1 to 1024 bytes",
        ),
        (
            {"origin": EngineOrigin(NODE.identity, bytes(MAX_ENGINE_NAME + 1))},
            "the name of an engine has 1 to 1024 bytes",
        ),
    ],
)
def test_a_message_of_an_engine_has_limits(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        replace(FULL, **changed)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"src": PRINTER}, "the source has no key"),
        ({"dst": PRINTER}, "the relay has no key"),
        ({"expiry": -1}, "the expiry is -1, not 0 to"),
        ({"expiry": MAX_NUMBER + 1}, "the expiry is 18446744073709551616, not 0 to"),
        ({"sealed": b""}, "what is sealed has 0 bytes, not 1 to 73728"),
        ({"sealed": bytes(MAX_SEALED + 1)}, "what is sealed has 73729 bytes, not 1 to 73728"),
    ],
)
def test_a_message_for_a_relay_has_limits(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRecord, match=reason):
        replace(RELAY, **changed)


def test_the_greatest_messages_fit() -> None:
    greatest = replace(
        FULL,
        id=MAX_NUMBER,
        reply_to=MAX_NUMBER,
        expiry=MAX_NUMBER,
        protocol=Protocol("p" * 32, MAX_NUMBER),
        body=bytes(MAX_BODY),
        src=derived_engine(NODE.identity, bytes(MAX_ENGINE_NAME)),
        origin=EngineOrigin(NODE.identity, bytes(MAX_ENGINE_NAME)),
    )
    envelope = sign_engine_message(greatest, NODE)
    # What is left is for the message between nodes.
    assert len(envelope) < MAX_RECORD - 2048
    assert open_engine_message(envelope, Verifiers()) == greatest
    sealed = replace(RELAY_FULL, sealed=bytes(MAX_SEALED))
    assert open_relay_message(sign_relay_message(sealed, NODE), Verifiers()) == sealed


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("8a5821", "895821", "the message has 9 items, not 10"),
        (f"5821{P}", f"5820{P[:-2]}", "the source has 32 bytes, not 33"),
        (f"5821{P}", f"582103{P[2:]}", "the source is of no kind of identity"),
        (f"82005821{E}", f"82055821{E}", "the kind of the destination is 5, over 4"),
        (f"82005821{E}", "8100", "the destination has 1 items, not 2"),
        (f"8182015821{D}", "80", "the routing preferences has 0 items, not 1"),
        (f"8182015821{D}", "818103", "the kind of the scope is 3, over 2"),
        (f"8182015821{D}", "818101", "a scope has a domain if it is of one, and only then"),
        (f"8182015821{D}", f"8182025821{D}", "a scope has a domain if it is of one, and only then"),
        (f"8182015821{D}", f"8182015821{P}", "the domain of the scope has no key"),
        ("830101820103", "83020181", "the ordering is 2, over 1"),
        ("830101820103", "83010281", "the reliability is 2, over 1"),
        ("830101820103", "8301018103", "the kind of the security is 3, over 2"),
        ("830101820103", "8301018101", "the security has a number of hops if it is onion routing"),
        ("830101820103", "830101820203", "the security has a number of hops if it is onion"),
        ("830101820103", "830101820000", "the security has a number of hops if it is onion"),
        ("830101820103", "830101820100", "onion routing has 1 to 8 hops, not 0"),
        ("830101820103", "830101820109", "the number of hops is 9, over 8"),
        ("826364c3a9190100", "8260190100", "the name of the protocol has 0 bytes, not 1 to 32"),
        ("826364c3a9190100", "826364c328190100", "the name of the protocol is not UTF-8"),
        (
            "826364c3a9190100",
            f"827821{'61' * 33}190100",
            "the name of the protocol has 33 bytes, not 1 to 32",
        ),
        (f"825821{N}477072696e746572", "f6", "an engine has an origin if it has no key"),
        (f"825821{N}477072696e746572", f"825821{N}40", "the name of the engine has 0 bytes"),
        (f"825821{N}477072696e746572", f"825821{P}477072696e746572", "the node of the engine has"),
        (
            f"825821{N}477072696e746572",
            f"825821{N}477072696e746573",
            "the source is not the engine",
        ),
    ],
)
def test_bytes_that_are_no_message_of_an_engine_are_refused(
    old: str, new: str, reason: str
) -> None:
    data = serialize_engine_message(FULL).hex()
    assert data.count(old) == 1
    with pytest.raises(BadRecord, match=reason):
        parse_engine_message(bytes.fromhex(data.replace(old, new)))


def test_a_message_is_signed_by_its_engine_or_the_node_of_it() -> None:
    verifiers = Verifiers()
    for message, key in [(BARE, ENGINE), (FULL, NODE)]:
        envelope = sign_engine_message(message, key)
        record = serialize_engine_message(message)
        assert envelope == sign(SignedKind.ENGINE, record, key)
        assert len(envelope) <= len(record) + SIGNED_OVERHEAD
        assert open_engine_message(envelope, verifiers) == message
        with pytest.raises(BadKey, match="not of the engine, nor of the node"):
            sign_engine_message(message, DOMAIN)
        # The wrong key, and the wrong kind.
        assert open_engine_message(sign(SignedKind.ENGINE, record, DOMAIN), verifiers) is None
        for kind in SignedKind:
            opened = open_engine_message(sign(kind, record, key), verifiers)
            assert (opened == message) is (kind is SignedKind.ENGINE)


def test_a_node_signs_for_no_engine_with_a_key() -> None:
    record = serialize_engine_message(BARE)
    assert open_engine_message(sign(SignedKind.ENGINE, record, NODE), Verifiers()) is None


def test_a_message_for_a_relay_is_signed_by_its_source() -> None:
    verifiers = Verifiers()
    once = SigningKey(bytes(32))
    message = replace(RELAY, src=once.identity)
    record = serialize_relay_message(message)
    envelope = sign_relay_message(message, once)
    assert envelope == sign(SignedKind.RELAY, record, once)
    assert open_relay_message(envelope, verifiers) == message
    with pytest.raises(BadKey, match="not of the source of the message"):
        sign_relay_message(message, NODE)
    assert open_relay_message(sign(SignedKind.RELAY, record, NODE), verifiers) is None
    for kind in SignedKind:
        opened = open_relay_message(sign(kind, record, once), verifiers)
        assert (opened == message) is (kind is SignedKind.RELAY)


def test_each_bit_of_a_signed_message_counts() -> None:
    verifiers = Verifiers()
    engine = sign_engine_message(FULL, NODE)
    relay = sign_relay_message(RELAY_FULL, NODE)
    for bit in range(8 * len(engine)):
        assert not is_opened(open_engine_message, flipped(engine, bit), verifiers)
    for bit in range(8 * len(relay)):
        assert not is_opened(open_relay_message, flipped(relay, bit), verifiers)
    # Nothing of this has put a key in the place of another.
    assert len(verifiers) == 0


def test_no_message_is_another() -> None:
    verifiers = Verifiers()
    for envelope in (sign_relay_message(RELAY, NODE), sign(SignedKind.ENGINE, b"\x80", NODE), b""):
        with pytest.raises(BadRecord):
            open_engine_message(envelope, verifiers)
    for envelope in (sign_engine_message(BARE, ENGINE), sign(SignedKind.RELAY, b"\x80", NODE), b""):
        with pytest.raises(BadRecord):
            open_relay_message(envelope, verifiers)
    with pytest.raises(RecordTooBig):
        open_engine_message(bytes(MAX_RECORD + 1), verifiers)


identities = st.binary(min_size=32, max_size=32).map(identity_of_key)
numbers = st.integers(0, MAX_NUMBER)
scopes = st.sampled_from([SCOPE_LOCAL, SCOPE_ANY]) | identities.map(
    lambda each: RoutingScope(ScopeKind.DOMAIN, each)
)
transports = st.builds(
    TransportPrefs,
    st.sampled_from(Ordering),
    st.sampled_from(Reliability),
    st.sampled_from([Security.DIRECT, Security.MIXNET]),
) | st.builds(
    TransportPrefs,
    st.sampled_from(Ordering),
    st.sampled_from(Reliability),
    st.just(Security.ONION),
    st.integers(1, 8),
)


@st.composite
def engine_messages(draw: st.DrawFn) -> EngineMessage:
    origin = draw(st.none() | st.builds(EngineOrigin, identities, st.binary(min_size=1)))
    src: Identity = draw(identities) if origin is None else derived_engine(origin.node, origin.name)
    return EngineMessage(
        src,
        Destination(draw(st.sampled_from(DestinationKind)), draw(identities)),
        draw(numbers),
        Protocol(draw(st.text("aé€", min_size=1, max_size=10)), draw(numbers)),
        draw(st.binary(max_size=300)),
        draw(st.none() | numbers),
        draw(st.none() | numbers),
        draw(st.none() | st.builds(RoutingPrefs, scopes)),
        draw(st.none() | transports),
        origin,
    )


@given(engine_messages())
def test_any_message_of_an_engine_is_read_as_it_was_written(message: EngineMessage) -> None:
    assert parse_engine_message(serialize_engine_message(message)) == message


@given(identities, identities, numbers, st.binary(min_size=1, max_size=300), transports)
def test_any_message_for_a_relay_is_read_as_it_was_written(
    src: Identity, dst: Identity, expiry: int, sealed: bytes, tprefs: TransportPrefs
) -> None:
    message = RelayMessage(src, dst, expiry, sealed, tprefs)
    assert parse_relay_message(serialize_relay_message(message)) == message


def is_opened(open_message: Any, envelope: bytes, verifiers: Verifiers) -> bool:
    """Whether an envelope is one and its signature right."""
    try:
        return open_message(envelope, verifiers) is not None
    except BadRecord:
        return False


def flipped(data: bytes, bit: int) -> bytes:
    """Return data with one other bit."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)
