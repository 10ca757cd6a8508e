"""Identities and destinations, as bytes and as text."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given, strategies as st

from onward.protocol.identity import (
    IDENTITY_SIZE,
    IDENTITY_TEXT_SIZE,
    MAX_ENGINE_NAME,
    BadIdentity,
    Destination,
    DestinationKind,
    SigningKey,
    derived_engine,
    destination_text,
    identity_of_key,
    identity_text,
    is_derived,
    parse_destination,
    parse_identity,
    parse_identity_bytes,
    public_key_of,
    short_text,
)

NODE = SigningKey(bytes(range(32))).identity
TEXT = "aeb2cb576phbbpq5odorrz2lycmwpzgwgcn2kdk7dxoimzaskuy3q6c6"
ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


def test_an_identity_is_a_kind_and_a_key() -> None:
    key = bytes.fromhex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8")
    assert identity_of_key(key) == NODE == b"\x01" + key
    assert public_key_of(NODE) == key
    assert not is_derived(NODE)
    assert len(NODE) == IDENTITY_SIZE


def test_the_text_is_base32_with_a_checksum() -> None:
    checksum = hashlib.sha256(b"onward/identity/checksum/1" + NODE).digest()[:2]
    assert identity_text(NODE) == base64.b32encode(NODE + checksum).decode().lower() == TEXT
    assert len(TEXT) == IDENTITY_TEXT_SIZE
    assert parse_identity(TEXT) == NODE
    assert parse_identity(f"  {TEXT.upper()}\n") == NODE
    assert short_text(NODE) == TEXT[:12]


def test_each_change_of_a_character_is_found() -> None:
    # One in 65,536 may pass by the checksum; of the 1,736 of this text none does.
    for place in range(IDENTITY_TEXT_SIZE):
        for character in ALPHABET:
            if character != TEXT[place]:
                with pytest.raises(BadIdentity, match=r"the checksum differs|there is no kind"):
                    parse_identity(TEXT[:place] + character + TEXT[place + 1 :])


def test_two_characters_in_each_others_place_are_found() -> None:
    for place in range(IDENTITY_TEXT_SIZE - 1):
        one, other = TEXT[place], TEXT[place + 1]
        if one != other:
            with pytest.raises(BadIdentity):
                parse_identity(TEXT[:place] + other + one + TEXT[place + 2 :])


# Two of these are letters of the alphabet in upper case: a dotless i and a long s.
@pytest.mark.parametrize("character", [*"018-_é=\x00", "\u0131", "\u017f", "\uff12", "ß"])
def test_a_character_outside_the_alphabet_is_no_text(character: str) -> None:
    for place in range(IDENTITY_TEXT_SIZE):
        with pytest.raises(BadIdentity) as raised:
            parse_identity(TEXT[:place] + character + TEXT[place + 1 :])
        assert raised.value.reason == "its characters are a to z and 2 to 7"


@pytest.mark.parametrize("text", ["", "a", TEXT[:-1], TEXT + "a", TEXT + "=" * 8, TEXT * 1000])
def test_a_text_has_one_length(text: str) -> None:
    with pytest.raises(BadIdentity) as raised:
        parse_identity(text)
    assert raised.value.reason == f"one has 56 characters, not {len(text)}"
    assert len(str(raised.value)) < 160


@pytest.mark.parametrize("size", [0, 1, 32, 34, 66])
def test_an_identity_has_one_size(size: int) -> None:
    with pytest.raises(BadIdentity) as raised:
        parse_identity_bytes(b"\x01" * size)
    assert raised.value.reason == f"it has 33 bytes, not {size}"


@pytest.mark.parametrize("kind", [0, 3, 0x7F, 0xFF])
def test_there_are_two_kinds_of_identities(kind: int) -> None:
    with pytest.raises(BadIdentity, match=f"is no identity: there is no kind {kind}"):
        parse_identity_bytes(bytes((kind,)) + NODE[1:])
    data = bytes((kind,)) + NODE[1:]
    checksum = hashlib.sha256(b"onward/identity/checksum/1" + data).digest()[:2]
    with pytest.raises(BadIdentity, match=f"is no identity: there is no kind {kind}"):
        parse_identity(base64.b32encode(data + checksum).decode())


def test_a_key_has_one_size() -> None:
    with pytest.raises(BadIdentity, match="it has 33 bytes, not 34"):
        identity_of_key(bytes(33))


def test_an_engine_without_a_key_has_the_digest_of_its_node_and_name() -> None:
    printer = derived_engine(NODE, b"printer")
    digest = hashlib.sha256(b"onward/identity/engine/1" + NODE + b"printer").digest()
    assert printer == b"\x02" + digest
    assert printer.hex() == "0248df7fc4cf481099c5e8cb847842788f95a0b03fed31216552b107d77e3192a3"
    assert is_derived(printer)
    assert parse_identity(identity_text(printer)) == printer
    with pytest.raises(BadIdentity, match="an engine that is derived has no key"):
        public_key_of(printer)


def test_each_node_and_name_has_an_engine_of_its_own() -> None:
    other = SigningKey(bytes(32)).identity
    names = [b"a", b"b", b"aa", b"\x00", b"a" * MAX_ENGINE_NAME]
    engines = {derived_engine(node, name) for node in (NODE, other) for name in names}
    assert len(engines) == 10


@pytest.mark.parametrize("name", [b"", b"a" * (MAX_ENGINE_NAME + 1)])
def test_the_name_of_an_engine_has_limits(name: bytes) -> None:
    with pytest.raises(BadIdentity, match="the name of an engine has 1 to 1024 bytes"):
        derived_engine(NODE, name)


@pytest.mark.parametrize(
    ("kind", "number", "word"),
    [
        (DestinationKind.ENGINE, 0, "engine"),
        (DestinationKind.NODE, 1, "node"),
        (DestinationKind.TOPIC, 2, "topic"),
        (DestinationKind.RELAY, 3, "relay"),
        (DestinationKind.DOMAIN, 4, "domain"),
    ],
)
def test_a_destination_is_a_kind_and_an_identity(
    kind: DestinationKind, number: int, word: str
) -> None:
    destination = Destination(kind, NODE)
    assert kind == number
    assert destination_text(destination) == f"{word}:{TEXT}"
    assert parse_destination(f" {word.upper()}:{TEXT} ") == destination


@pytest.mark.parametrize("text", ["", TEXT, f":{TEXT}", f"actor:{TEXT}", f"engine {TEXT}"])
def test_a_destination_begins_with_its_kind(text: str) -> None:
    with pytest.raises(BadIdentity) as raised:
        parse_destination(text)
    assert raised.value.reason == (
        "it begins with one of engine, node, topic, relay, domain, and a colon"
    )


def test_the_rest_of_a_destination_is_an_identity() -> None:
    with pytest.raises(BadIdentity, match="one has 56 characters, not 5"):
        parse_destination("node:alice")


@given(st.binary(min_size=32, max_size=32), st.sampled_from([1, 2]))
def test_any_identity_is_read_from_its_text(rest: bytes, kind: int) -> None:
    identity = parse_identity_bytes(bytes((kind,)) + rest)
    assert parse_identity(identity_text(identity)) == identity


@given(st.text(max_size=80) | st.text(ALPHABET, min_size=56, max_size=56))
def test_any_text_is_an_identity_or_none(text: str) -> None:
    try:
        assert identity_text(parse_identity(text)) == text.strip().lower()
    except BadIdentity:
        with pytest.raises(BadIdentity):
            parse_destination(f"node:{text}")
