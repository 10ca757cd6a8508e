from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol import PayloadTooBig
from onward.protocol.rsocket import (
    WELL_KNOWN_MIME_IDS,
    WELL_KNOWN_MIME_TYPES,
    CompositeEntry,
    LocalProtocolError,
    MalformedComposite,
    build_composite,
    composite_entry,
    entry_finder,
    find_entry,
    iterate_composite,
)

BROKER = "message/x.rsocket.broker.frame.v0"
ROUTING = "message/x.rsocket.routing.v0"

NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=128)
TYPES = st.sampled_from(sorted(WELL_KNOWN_MIME_TYPES.values())) | NAMES | st.integers(0, 127)
ENTRIES = st.lists(st.tuples(TYPES, st.binary(max_size=40)), max_size=6)


def test_the_bytes_of_an_entry() -> None:
    assert composite_entry(BROKER, b"ab") == b"\x20" + BROKER.encode() + b"\0\0\x02ab"
    assert composite_entry(ROUTING, b"") == b"\xfe\0\0\0"
    assert composite_entry(0x50, b"x") == b"\xd0\0\0\x01x"


@settings(deadline=None)
@given(ENTRIES)
def test_building_and_reading_are_inverse(entries: list[tuple[str | int, bytes]]) -> None:
    metadata = build_composite(entries)
    # A well-known id is read as its name, if it has one.
    expected = [
        (WELL_KNOWN_MIME_TYPES.get(mime, mime) if isinstance(mime, int) else mime, content)
        for mime, content in entries
    ]
    assert [(entry.mime, bytes(entry.content)) for entry in iterate_composite(metadata)] == expected


@settings(deadline=None)
@given(ENTRIES, st.binary(max_size=5), st.binary(max_size=5))
def test_finding_agrees_with_reading(
    entries: list[tuple[str | int, bytes]], before: bytes, after: bytes
) -> None:
    metadata = build_composite(entries)
    buffer = before + metadata + after
    start, end = len(before), len(before) + len(metadata)
    wanted = BROKER, ROUTING, "text/plain"
    read = list(iterate_composite(metadata))
    for mime in wanted:
        first = next((bytes(entry.content) for entry in read if entry.mime == mime), None)
        found = find_entry(buffer, mime.encode(), start, end)
        assert (None if found is None else buffer[slice(*found)]) == first
    find = entry_finder(*(mime.encode() for mime in wanted))
    chosen = next((entry for entry in read if entry.mime in wanted), None)
    which = find(buffer, start, end)
    if which is None:
        assert chosen is None
    else:
        assert chosen == CompositeEntry(wanted[which[0]], memoryview(buffer)[which[1] : which[2]])


def test_finding_by_name_and_by_id() -> None:
    name = ROUTING.encode()
    literal = bytes((len(name) - 1,)) + name + b"\0\0\x01a"
    assert find_entry(literal, name) == (len(literal) - 1, len(literal))
    assert find_entry(composite_entry(ROUTING, b"a"), name) == (4, 5)
    find = entry_finder(BROKER.encode(), name)
    assert find(literal, 0, len(literal)) == (1, len(literal) - 1, len(literal))
    assert find(b"\xfe\0\0\x01a", 0, 5) == (1, 4, 5)
    assert WELL_KNOWN_MIME_IDS[name] == 0x7E


def test_a_name_of_the_same_length_is_not_the_same() -> None:
    assert find_entry(composite_entry("abc", b"1") + composite_entry("abd", b"2"), b"abd") == (
        15,
        16,
    )
    assert find_entry(b"", b"abd") is None


@pytest.mark.parametrize(
    "broken",
    [
        b"\xfe",
        b"\xfe\0\0",
        b"\xfe\0\0\x01",
        b"\x03abc",
        b"\x03abcd",
        b"\x03abcd\0\0",
        b"\x03abcd\0\0\x02x",
        b"\x7f",
        composite_entry("x", b"y") + b"\xd0\0\0\x01",
    ],
)
def test_an_entry_that_runs_past_the_end(broken: bytes) -> None:
    with pytest.raises(MalformedComposite, match=f"past its {len(broken)} bytes"):
        list(iterate_composite(broken))
    with pytest.raises(MalformedComposite):
        find_entry(broken, b"none")
    with pytest.raises(MalformedComposite):
        entry_finder(b"none")(broken, 0, len(broken))
    # The bytes after the end are not part of it.
    with pytest.raises(MalformedComposite):
        find_entry(broken + bytes(200), b"none", 0, len(broken))


def test_names_that_are_not_ascii_survive_reading() -> None:
    (entry,) = iterate_composite(b"\x00\xff\0\0\0")
    assert entry.mime == "\udcff"
    assert composite_entry(entry.mime, b"") == b"\x00\xff\0\0\0"


@pytest.mark.parametrize("mime", ["", "x" * 129, "é", -1, 128])
def test_a_type_that_cannot_be_written(mime: str | int) -> None:
    with pytest.raises(LocalProtocolError):
        composite_entry(mime, b"")


def test_content_over_24_bits() -> None:
    with pytest.raises(PayloadTooBig):
        composite_entry("x", bytes(2**24))
