"""Elements of a route stream: their bytes, and that nothing else is read as one."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from onward.protocol.broker import Dialect, RouteAdd
from onward.protocol.cluster import (
    ELEMENT_HEADER_SIZE,
    MAX_ELEMENT,
    ClusterFrameError,
    Element,
    ElementKind,
    ElementTooBig,
    Position,
)
from tests.protocol.cluster.streams import HOME, INSTANCE, added, removed, route_id

S, C, M = ElementKind.SNAPSHOT, ElementKind.CHANGES, ElementKind.MARK
ADD = added(1).serialize(Dialect.SPECIFICATION)
REMOVE = removed(1).serialize(Dialect.SPECIFICATION)
HEAD = HOME.hex() + INSTANCE.to_bytes(8).hex()
ELEMENTS = [
    (Element(M, HOME, INSTANCE, 7), f"03 00 {HEAD} 0000000000000007"),
    (Element(S, HOME, INSTANCE, 0, (), True), f"01 01 {HEAD} 0000000000000000"),
    (
        Element(C, HOME, INSTANCE, 9, (ADD, REMOVE)),
        f"02 00 {HEAD} 0000000000000009 00{len(ADD):04x} {ADD.hex()} 00002e {REMOVE.hex()}",
    ),
    (
        Element(S, HOME, INSTANCE, 9, (ADD,)),
        f"01 00 {HEAD} 0000000000000009 00{len(ADD):04x} {ADD.hex()}",
    ),
]
MANY = Element(C, HOME, INSTANCE, 100, (ADD, REMOVE) * 40)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "protocol-cluster.md"
VECTORS = {
    name: bytes.fromhex(text)
    for name, text in re.findall(
        r"<!-- vector: ([\w-]+) -->\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
}


def test_the_vectors_of_the_page_are_what_they_say() -> None:
    both = (ADD, REMOVE)
    assert VECTORS["position"] == Position(INSTANCE, 255).serialize()
    assert VECTORS["mark"] == Element(M, HOME, INSTANCE, 7).serialize()
    assert VECTORS["empty-snapshot"] == Element(S, HOME, INSTANCE, 0, (), True).serialize()
    assert VECTORS["changes"] == Element(C, HOME, INSTANCE, 9, both).serialize()
    filter_part = Element(ElementKind.FILTER, HOME, INSTANCE, 2, (VECTORS["filter"],), last=True)
    assert VECTORS["filter-part"] == filter_part.serialize()
    ids = Element(ElementKind.IDS, HOME, INSTANCE, 4, (route_id(3), route_id(4)))
    assert VECTORS["ids"] == ids.serialize()
    assert [Element.parse(VECTORS[name]) for name in ("filter-part", "ids")] == [filter_part, ids]
    # What is compressed may have other bytes: it depends on the library.
    assert Element.parse(VECTORS["compressed"]) == Element(C, HOME, INSTANCE, 100, both * 40)


@pytest.mark.parametrize(("element", "text"), ELEMENTS, ids=lambda value: str(value)[:20])
def test_an_element_has_these_bytes(element: Element, text: str) -> None:
    data = bytes.fromhex(text)
    assert element.serialize() == data
    assert Element.parse(data) == Element.parse(memoryview(data)) == element


@pytest.mark.parametrize("element", [*(element for element, _ in ELEMENTS), MANY])
def test_no_beginning_of_an_element_is_read_as_that_element(element: Element) -> None:
    data = element.serialize()
    for size in range(len(data)):
        try:
            # What ends between two frames is an element of fewer.
            found = Element.parse(data[:size])
        except ClusterFrameError:
            continue
        assert len(found.frames) < len(element.frames)


def test_many_frames_are_compressed_and_few_are_not() -> None:
    data = MANY.serialize()
    assert data[1] == 2
    assert len(data) < len(MANY.serialize(compress=False)) // 4
    assert Element.parse(data) == MANY
    assert Element.parse(MANY.serialize(compress=False)) == MANY
    assert ELEMENTS[2][0].serialize()[1] == 0


def test_what_does_not_become_smaller_is_not_compressed() -> None:
    frame = b"".join(zlib.crc32(bytes([n])).to_bytes(4) for n in range(255)) * 2
    noise = zlib.compress(frame, 9)
    element = Element(C, HOME, INSTANCE, 1, (noise,))
    assert element.serialize()[1] == 0
    assert Element.parse(element.serialize()) == element


@pytest.mark.parametrize(
    ("element", "extra"),
    [(ELEMENTS[0][0], b"\0"), (ELEMENTS[2][0], b"\0\0\0"), (ELEMENTS[3][0], b"\xff"), (MANY, b"x")],
)
def test_bytes_that_follow_an_element_are_refused(element: Element, extra: bytes) -> None:
    with pytest.raises(ClusterFrameError):
        Element.parse(element.serialize() + extra)


def head(kind: int = 2, flags: int = 0, sequence: int = 5, instance: int = INSTANCE) -> bytes:
    return bytes([kind, flags]) + HOME + instance.to_bytes(8) + sequence.to_bytes(8)


FRAME = len(REMOVE).to_bytes(3) + REMOVE
ID = b"\0\0\x10" + bytes(16)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes"),
        (head()[:-1], "33 bytes"),
        (head(kind=0) + FRAME, "no element of kind 0"),
        (head(kind=6) + FRAME, "no element of kind 6"),
        (head(kind=4), "0 pieces in a part of a filter"),
        (head(kind=4) + FRAME * 2, "2 pieces in a part of a filter"),
        (head(kind=5, flags=1) + FRAME, "last part of what is no snapshot"),
        (head(kind=5), "0 ids up to the number 5"),
        (head(kind=5, sequence=1) + ID * 2, "2 ids up to the number 1"),
        (head(kind=5) + FRAME, "an id that has not 16 bytes"),
        (head(flags=4) + FRAME, "unknown flags 0x04"),
        (head(flags=0x80) + FRAME, "unknown flags 0x80"),
        (head(flags=1) + FRAME, "last part of what is no snapshot"),
        (head(kind=3, flags=1), "last part of what is no snapshot"),
        (head(kind=3) + FRAME, "a mark with frames"),
        (head(), "0 changes up to the number 5"),
        (head(sequence=1) + FRAME * 2, "2 changes up to the number 1"),
        (head(kind=1), "without frames that is not the last"),
        (head(instance=0) + FRAME, "of no instance"),
        (head() + b"\0\0", "cut short"),
        (head() + b"\0\0\x05hello", "a frame of 5 bytes"),
        (head() + b"\xff\xff\xff" + REMOVE, "cut short"),
        (head(flags=2) + b"\0\1\2", "cannot be inflated"),
        (head(flags=2) + zlib.compress(FRAME)[:-1], "cut short"),
        (head(flags=2), "cut short"),
        (head(flags=2) + zlib.compress(FRAME) + b"ab", "2 bytes after"),
    ],
)
def test_what_is_no_element_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ClusterFrameError, match=reason):
        Element.parse(data)


def test_no_more_is_inflated_than_an_element_may_have() -> None:
    bomb = zlib.compress(bytes(100_000_000), 9)
    assert len(bomb) < MAX_ELEMENT
    with pytest.raises(ElementTooBig, match=str(MAX_ELEMENT)):
        Element.parse(head(flags=2) + bomb)
    most = MAX_ELEMENT - ELEMENT_HEADER_SIZE
    full = (most - 3).to_bytes(3) + bytes(most - 3)
    assert Element.parse(head(flags=2) + zlib.compress(full)).frames == (bytes(most - 3),)


def test_a_long_element_is_neither_read_nor_written() -> None:
    with pytest.raises(ElementTooBig):
        Element.parse(head() + bytes(MAX_ELEMENT))
    with pytest.raises(ElementTooBig):
        Element(C, HOME, INSTANCE, 1, (bytes(MAX_ELEMENT),)).serialize()


def test_the_longest_route_fits_into_an_element() -> None:
    tags = tuple((f"{n:0127}", "v" * 127) for n in range(256))
    route = RouteAdd(HOME, HOME, 1, "s" * 255, tags).serialize(Dialect.SPECIFICATION)
    element = Element(C, HOME, INSTANCE, 1, (route,))
    assert Element.parse(element.serialize(compress=False)) == element


def test_an_element_that_could_not_be_read_is_not_written() -> None:
    with pytest.raises(ClusterFrameError):
        Element(C, HOME[1:], INSTANCE, 1, (REMOVE,)).serialize()


@given(st.binary(max_size=200))
def test_any_bytes_are_an_element_or_refused(data: bytes) -> None:
    try:
        element = Element.parse(data)
    except ClusterFrameError:
        return
    assert Element.parse(element.serialize()) == element


def test_a_position_has_two_numbers() -> None:
    data = bytes.fromhex("0000000000000005 00000000000000ff")
    assert Position(5, 255).serialize() == data
    assert Position.parse(data) == Position(5, 255)
    assert Position().serialize() == bytes(16)


@pytest.mark.parametrize("size", [0, 1, 15, 17])
def test_a_position_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ClusterFrameError, match=str(size)):
        Position.parse(bytes(size))
