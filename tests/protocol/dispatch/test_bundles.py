"""Bundles: what is written is read again, as the page shows it, and nothing else is."""

from __future__ import annotations

from struct import Struct

import pytest
from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    ANSWERS,
    BUNDLES_TAKEN,
    MAX_BUNDLE,
    MAX_BUNDLE_SIZE,
    MAX_BUNDLED,
    MESSAGES,
    SETTLED,
    BadTransit,
    Transit,
    bundle_address,
    bundle_return_address,
    encode_bundle,
    encode_transit,
    read_bundle,
    read_bundle_number,
    read_tokens,
    takes_bundles,
)
from tests.protocol.dispatch.page import rows

ID, OTHER = bytes(range(8)), bytes(range(8, 16))
TOKEN, LAST = b"token--1", b"token--2"
SHAPES = {"messages": MESSAGES, "pre-settled": SETTLED, "answers": ANSWERS}
PAGE = {what: (address, payload) for what, address, payload in rows("| what | address | payload |")}


def shown(what: str) -> tuple[bytes, bytes]:
    """Return an address and a payload of the page."""
    address, payload = (each.strip("`") for each in PAGE[what])
    return bytes.fromhex(address), bytes.fromhex(payload)


def written(shape: Struct, *each: tuple[bytes, bytes]) -> bytes:
    """Return the payload of a bundle, of records without their size and payloads."""
    records = [record + len(payload).to_bytes(2) for record, payload in each]
    return encode_bundle(records, [payload for _, payload in each])


def read(payload: bytes, shape: Struct) -> list[tuple[bytes, bytes]]:
    records, at = read_bundle(payload, shape)
    found: list[tuple[bytes, bytes]] = []
    for *values, size in records:
        found.append((b"".join(values), payload[at : at + size]))
        at += size
    return found


@pytest.mark.parametrize(
    ("what", "settled", "shape", "parts"),
    [
        ("unsettled messages", False, MESSAGES, [(ID + TOKEN, b"one"), (OTHER + LAST, b"")]),
        ("pre-settled messages", True, SETTLED, [(ID, b"one"), (OTHER, b"")]),
    ],
)
def test_messages_are_as_the_page_shows(
    what: str, settled: bool, shape: Struct, parts: list[tuple[bytes, bytes]]
) -> None:
    transit = encode_transit(Transit("orders", "a", bytes(range(16, 24)), ID, settled=settled))
    head, tail = transit.split(ID)
    address, payload = shown(what)
    assert bundle_address(head, tail, settled=settled) == address
    assert written(shape, *parts) == payload
    assert read(payload, shape) == parts


def test_acceptances_are_as_the_page_shows() -> None:
    address, payload = shown("acceptances with an answer")
    assert address == b"a"
    answers = [(TOKEN, b"yes"), (LAST, b"")]
    assert written(ANSWERS, *answers) == payload
    assert read(payload, ANSWERS) == answers
    address, payload = shown("acceptances without one")
    assert (address, payload) == (b"n", TOKEN + LAST)
    assert read_tokens(payload) == [TOKEN, LAST]


def test_the_other_addresses_are_as_the_page_shows() -> None:
    assert shown("bundles are taken") == (BUNDLES_TAKEN, b"")
    address, _ = shown("return address of a bundle")
    assert bundle_return_address(258) == address
    assert read_bundle_number(address) == 258


@given(st.sampled_from(list(SHAPES)), st.data())
def test_a_bundle_is_read_as_it_was_written(name: str, data: st.DataObject) -> None:
    shape = SHAPES[name]
    size = shape.size - 2
    part = st.tuples(st.binary(min_size=size, max_size=size), st.binary(max_size=MAX_BUNDLED))
    parts = data.draw(st.lists(part, min_size=1, max_size=MAX_BUNDLE))
    payload = written(shape, *parts)
    assert read(payload, shape) == parts
    for broken in (payload[:-1], payload + b"x", payload[1:]):
        with pytest.raises(BadTransit):
            read_bundle(broken, shape)


def test_a_full_bundle_does_not_count_in_the_bytes_of_a_mailbox() -> None:
    assert 2 + MAX_BUNDLE * MESSAGES.size + MAX_BUNDLE_SIZE + MAX_BUNDLED <= 16 * 1024


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\0",
        b"\0\0",
        written(ANSWERS, *[(TOKEN, b"")] * (MAX_BUNDLE + 1)),
        written(ANSWERS, (TOKEN, bytes(MAX_BUNDLED + 1))),
        written(ANSWERS, (TOKEN, b"yes"))[:-4],
        b"\0\1" + TOKEN,
    ],
)
def test_what_is_no_bundle_is_refused(payload: bytes) -> None:
    with pytest.raises(BadTransit):
        read_bundle(payload, ANSWERS)


@pytest.mark.parametrize("payload", [b"", TOKEN[1:], TOKEN * (MAX_BUNDLE + 1), TOKEN + b"x"])
def test_what_are_no_tokens_is_refused(payload: bytes) -> None:
    with pytest.raises(BadTransit):
        read_tokens(payload)


@pytest.mark.parametrize("value", [b"", b"v", b"v\1\0", b"n\1"])
def test_what_says_nothing_of_bundles_is_refused(value: bytes) -> None:
    with pytest.raises(BadTransit):
        takes_bundles(value)


def test_a_node_that_takes_later_bundles_takes_these() -> None:
    assert takes_bundles(BUNDLES_TAKEN)
    assert takes_bundles(b"v\2")
    assert not takes_bundles(b"v\0")


@pytest.mark.parametrize("value", [b"", b"b", b"b1234567", b"b123456789", b"r12345678"])
def test_what_is_no_number_of_a_bundle_is_refused(value: bytes) -> None:
    with pytest.raises(BadTransit):
        read_bundle_number(value)
