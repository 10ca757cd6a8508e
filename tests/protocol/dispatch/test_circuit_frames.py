"""Frames of circuits: their bytes, and that nothing else is read as one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cbor2 import dumps
from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    CIRCUIT_VERSION,
    MAX_CIRCUIT_FRAME,
    MAX_CREDIT,
    MAX_PATH,
    MAX_STATE,
    MAX_TAG,
    MAX_UNSETTLED,
    CircuitAlive,
    CircuitAttach,
    CircuitAttached,
    CircuitDetach,
    CircuitDisposition,
    CircuitDrained,
    CircuitFlow,
    CircuitFrame,
    CircuitFrameError,
    CircuitFrameKind,
    CircuitRefused,
    CircuitTransfer,
    DetachKind,
    Disposition,
    LaterVersion,
    Rejected,
    Tally,
    encode_disposition,
    parse_circuit_frame,
    serialize_circuit_frame,
)

KEY = bytes(range(16))
PATH = bytes.fromhex("a1a1a1a1 b2b2b2b2")
UNSETTLED = ((b"t1", b""), (b"t2", b"\x81\x00"))

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "protocol-dispatch.md"
VECTORS = {
    name: bytes.fromhex(text)
    for name, text in re.findall(
        r"<!-- vector: circuit-([\w-]+) -->\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
}

FRAMES: dict[str, CircuitFrame] = {
    "attach": CircuitAttach("orders", True, KEY, PATH, 250, b"p", source=b"\xc3" * 8),
    "anonymous": CircuitAttach("orders", False, KEY, source=b"\xc3" * 8, anonymous=True),
    "resume": CircuitAttach("orders", False, KEY, b"", 250, b"", UNSETTLED),
    "attached": CircuitAttached(1024),
    "resumed": CircuitAttached(16, b"p", UNSETTLED),
    "refused": CircuitRefused("no-route"),
    "flow": CircuitFlow(20, drain=True),
    "drained": CircuitDrained(14),
    "transfer": CircuitTransfer(b"t1", b"hi"),
    "first-part": CircuitTransfer(b"t1", b"hi", more=True, settled=True),
    "aborted": CircuitTransfer(b"t1", b"", aborted=True),
    "disposition": CircuitDisposition(b"t1", b"\x81\x00", settled=True),
    "detached": CircuitDetach(DetachKind.DETACHED),
    "closed": CircuitDetach(DetachKind.CLOSED, "amqp:resource-deleted", "gone"),
    "lost": CircuitDetach(DetachKind.LOST, "route-lost"),
    "alive": CircuitAlive(),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_has_the_bytes_of_the_page(name: str) -> None:
    assert serialize_circuit_frame(FRAMES[name]) == VECTORS[name]
    assert parse_circuit_frame(VECTORS[name]) == FRAMES[name]


def test_the_page_shows_each_frame() -> None:
    assert VECTORS.keys() == FRAMES.keys()
    assert {type(frame) for frame in FRAMES.values()} == set(CircuitFrame.__args__)
    assert {data[2] if data[1] == 1 else 0 for data in VECTORS.values()} == set(CircuitFrameKind)


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_that_is_cut_short_or_longer_is_refused(name: str) -> None:
    data = VECTORS[name]
    for size in range(len(data)):
        with pytest.raises(CircuitFrameError):
            parse_circuit_frame(data[:size])
    for behind in (b"\0", data):
        with pytest.raises(CircuitFrameError, match="behind the item"):
            parse_circuit_frame(data + behind)


ATTACH: list[Any] = [1, 1, "orders", True, KEY, b"", 1, b"", None, b"", False]


def attach(at: int, value: object) -> list[Any]:
    return [*ATTACH[:at], value, *ATTACH[at + 1 :]]


WRONG: list[tuple[Any, str]] = [
    ({}, "it is no array"),
    (7, "it is no array"),
    ([], "fields are missing"),
    ([True, 9], "the version is no number"),
    ([0, 9], "the version is no number"),
    ([1], "fields are missing"),
    ([1, "9"], "the kind is no number"),
    ([1, 0], "there is no kind 0"),
    ([1, 10], "there is no kind 10"),
    ([1, 9, 0], "3 fields, not 2"),
    ([[1, [9]], 9], "over 2 deep"),
    (ATTACH[:-1], "fields are missing"),
    (attach(2, b"orders"), "the name is no text"),
    (attach(2, ""), "the name has not 1 to 512 bytes"),
    (attach(2, "é" * 257), "the name has not 1 to 512 bytes"),
    (attach(3, 1), "producer is no truth value"),
    (attach(4, KEY[1:]), "the key of 15 bytes, not 16 to 16"),
    (attach(5, "x"), "the path is not of bytes"),
    (attach(5, b"abcde"), "the path is not of whole digests"),
    (attach(5, bytes(4 * MAX_PATH + 4)), "the path of 196 bytes"),
    (attach(6, 0), "the limit is no number from 1 to 1024"),
    (attach(6, MAX_UNSETTLED + 1), "the limit is no number from 1 to 1024"),
    (attach(7, bytes(16385)), "the properties of 16385 bytes"),
    (attach(8, []), "the unsettled deliveries are no map"),
    (attach(8, {"t": b""}), "a tag is not of bytes"),
    (attach(8, {b"t": 1}), "a state is not of bytes"),
    (attach(8, {bytes(33): b""}), "a tag of 33 bytes"),
    (attach(8, {b"t": bytes(769)}), "a state of 769 bytes"),
    (attach(8, {bytes((n >> 8, n & 255)): b"" for n in range(1025)}), "over 1024 unsettled"),
    (attach(9, ""), "the source is not of bytes"),
    (attach(9, bytes(7)), "a source of 7 bytes"),
    (attach(9, bytes(9)), "the source of 9 bytes, not 0 to 8"),
    (attach(10, 1), "anonymous is no truth value"),
    ([1, 3, "", ""], "the condition has not 1 to 128 bytes"),
    ([1, 3, "c" * 129, ""], "the condition has not 1 to 128 bytes"),
    ([1, 3, "c", "d" * 513], "the description has not 0 to 512 bytes"),
    ([1, 4, -1, False], "the credit is no number"),
    ([1, 4, MAX_CREDIT + 1, False], "the credit is no number"),
    ([1, 5, 1.0], "the credit is no number"),
    ([1, 6, bytes(33), 0, b""], "the tag of 33 bytes, not 0 to 32"),
    ([1, 6, b"t", 8, b""], "the flags is no number from 0 to 7"),
    ([1, 6, b"t", 3, b""], "a delivery that is given up has no more and no payload"),
    ([1, 6, b"t", 2, b"x"], "a delivery that is given up has no more and no payload"),
    ([1, 7, b"t", bytes(769), True], "the state of 769 bytes"),
    ([1, 8, 3, "", ""], "how it ends is no number from 0 to 2"),
]


@pytest.mark.parametrize(("items", "reason"), WRONG)
def test_what_is_wrong_is_said(items: object, reason: str) -> None:
    with pytest.raises(CircuitFrameError, match=f"^no frame of a circuit: {reason}"):
        parse_circuit_frame(dumps(items))


def test_a_later_version_is_told_from_a_bad_frame() -> None:
    with pytest.raises(LaterVersion, match="version 2 is later than 1") as caught:
        parse_circuit_frame(dumps([2, "another", 0]))
    assert caught.value.version == 2
    assert caught.value.args == (2,)
    assert CIRCUIT_VERSION == 1


def test_what_is_too_long_is_not_written() -> None:
    with pytest.raises(CircuitFrameError, match="the tag of 33 bytes"):
        serialize_circuit_frame(CircuitTransfer(bytes(33), b""))
    with pytest.raises(CircuitFrameError, match="over the limit of 1048576"):
        serialize_circuit_frame(CircuitTransfer(b"t", bytes(MAX_CIRCUIT_FRAME)))
    with pytest.raises(CircuitFrameError, match="over the limit of 1048576"):
        parse_circuit_frame(bytes(MAX_CIRCUIT_FRAME + 1))


def test_the_longest_unsettled_map_fits_in_a_frame() -> None:
    full = tuple((n.to_bytes(MAX_TAG), bytes(MAX_STATE)) for n in range(MAX_UNSETTLED))
    frame = CircuitAttach("n" * 512, True, KEY, bytes(4 * MAX_PATH), 1024, bytes(16384), full)
    data = serialize_circuit_frame(frame)
    assert parse_circuit_frame(data) == frame
    assert len(data) < MAX_CIRCUIT_FRAME


def test_each_outcome_is_a_state_that_fits() -> None:
    longest = Disposition(Rejected("é" * 200, "é" * 600), tally=Tally(2**32 - 1, 2**32 - 1, 1, 1))
    assert len(encode_disposition(longest)) <= MAX_STATE


@given(st.binary(max_size=64))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        frame = parse_circuit_frame(data)
    except CircuitFrameError:
        return
    assert parse_circuit_frame(serialize_circuit_frame(frame)) == frame


@given(
    st.builds(
        CircuitTransfer, st.binary(max_size=32), st.binary(), st.booleans(), settled=st.booleans()
    )
    | st.builds(CircuitDisposition, st.binary(max_size=32), st.binary(max_size=512), st.booleans())
    | st.builds(CircuitFlow, st.integers(0, MAX_CREDIT), st.booleans())
)
def test_each_frame_is_read_as_it_was_written(frame: CircuitFrame) -> None:
    assert parse_circuit_frame(serialize_circuit_frame(frame)) == frame
