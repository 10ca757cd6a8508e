"""Transit addresses, tokens and dispositions, against the vectors of the page."""

from __future__ import annotations

import re
from pathlib import Path

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol import MAX_ADDRESS_VALUE
from onward.protocol.dispatch import (
    ACCEPTED,
    MAX_CONDITION,
    MAX_DESCRIPTION,
    MAX_DISPOSITION,
    MAX_PATH,
    MAX_TRANSIT,
    MODIFIED,
    RECEIVED,
    RELEASED,
    BadTransit,
    Disposition,
    LaterVersion,
    Modified,
    Rejected,
    Tally,
    Transit,
    _transit,
    circuit_address,
    decode_disposition,
    decode_transit,
    disposition_address,
    encode_disposition,
    encode_transit,
    ended_address,
    milliseconds,
    next_wait,
    node_digest,
    read_end,
    read_token,
    return_address,
)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "protocol-dispatch.md"
ID, INSTANCE = bytes(range(8)), bytes(range(16, 24))

TRANSITS = {
    "transit": Transit("orders", "a", INSTANCE, ID),
    "transit of a pre-settled message": Transit(
        "_eu/prices",
        "a",
        INSTANCE,
        ID,
        settled=True,
        ttl=1500,
        path=(node_digest("a"), node_digest("b")),
    ),
    "transit of a redirected message": Transit(
        "orders", "a", INSTANCE, ID, redirected=True, wait=27000
    ),
}
DISPOSITIONS = {
    "accepted": Disposition(ACCEPTED),
    "rejected": Disposition(Rejected("amqp:not-found", "no such name")),
    "released": Disposition(RELEASED),
    "modified": Disposition(MODIFIED),
    "modified, not here again": Disposition(Modified(failed=False, undeliverable_here=True)),
    "received": Disposition(RECEIVED, settled=False),
    "accepted of several": Disposition(ACCEPTED, tally=Tally(3, 0, 1, 300)),
}


def vectors() -> dict[str, bytes]:
    rows = re.findall(
        r"^\| ([\w ,-]+) \| `((?:[0-9a-f]{2} ?)+)` \|", PAGE.read_text(), re.MULTILINE
    )
    return {name: bytes.fromhex(written) for name, written in rows}


@pytest.mark.parametrize("name", TRANSITS)
def test_a_transit_is_as_the_page_shows(name: str) -> None:
    value = vectors()[name]
    assert encode_transit(TRANSITS[name]) == value
    assert decode_transit(value) == TRANSITS[name]
    assert TRANSITS[name].identity == ("a", INSTANCE, ID)


@pytest.mark.parametrize("name", DISPOSITIONS)
def test_a_disposition_is_as_the_page_shows(name: str) -> None:
    frame = vectors()[name]
    assert encode_disposition(DISPOSITIONS[name]) == frame
    assert decode_disposition(frame) == DISPOSITIONS[name]


def test_a_digest_is_as_the_page_shows() -> None:
    assert node_digest("a") == vectors()["digest of a"]


@pytest.mark.parametrize("transit", TRANSITS.values(), ids=TRANSITS)
def test_a_transit_that_is_cut_short_or_goes_on_is_refused(transit: Transit) -> None:
    value = encode_transit(transit)
    for broken in [*(value[:size] for size in range(len(value))), value + b"\0", value + value]:
        with pytest.raises(BadTransit):
            decode_transit(broken)


@pytest.mark.parametrize("disposition", DISPOSITIONS.values(), ids=DISPOSITIONS)
def test_a_disposition_that_is_cut_short_or_goes_on_is_refused(disposition: Disposition) -> None:
    frame = encode_disposition(disposition)
    for broken in [*(frame[:size] for size in range(len(frame))), frame + b"\0", frame + frame]:
        with pytest.raises(BadTransit):
            decode_disposition(broken)


GOOD: list[object] = [1, "orders", "a", INSTANCE, ID, 0, 0, 0, b""]


@pytest.mark.parametrize(
    ("index", "value"),
    [
        (0, 0),
        (0, 24),
        (0, "1"),
        (1, ""),
        (1, "x" * 513),
        (1, b"orders"),
        (1, 7),
        (2, ""),
        (2, "x" * 257),
        (3, b"short"),
        (4, b"short"),
        (4, b"123456789"),
        (5, 4),
        (5, -1),
        (6, 1 << 32),
        (7, 1 << 32),
        (8, b"12345"),
        (8, b"1234" * (MAX_PATH + 1)),
    ],
)
def test_a_transit_with_a_bad_field_is_refused(index: int, value: object) -> None:
    fields = [*GOOD[:index], value, *GOOD[index + 1 :]]
    with pytest.raises(BadTransit):
        decode_transit(b"t" + cbor2.dumps(fields))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"t",
        b"r12345678",
        b"t" + cbor2.dumps([*GOOD, 1]),
        b"t" + cbor2.dumps(GOOD[:8]),
        b"t\x9f" + cbor2.dumps(GOOD)[1:] + b"\xff",
        b"t" + cbor2.dumps(GOOD[:3]),
        b"t\x89\x01\x78\x06" + cbor2.dumps(GOOD)[3:],
        b"t\x89\x01\x61\xff" + cbor2.dumps(GOOD)[9:],
        b"t" + b"\0" * MAX_TRANSIT,
    ],
)
def test_no_transit_is_refused(value: bytes) -> None:
    with pytest.raises(BadTransit) as caught:
        decode_transit(value)
    assert caught.value.reason in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "transit",
    [
        Transit("", "a", INSTANCE, ID),
        Transit("\ud800", "a", INSTANCE, ID),
        Transit("x", "a" * 257, INSTANCE, ID),
        Transit("x", "a", INSTANCE, b"1"),
        Transit("x", "a", b"1", ID),
        Transit("x", "a", INSTANCE, ID, path=(b"1",)),
        Transit("x", "a", INSTANCE, ID, path=(b"1234",) * (MAX_PATH + 1)),
        Transit("x", "a", INSTANCE, ID, ttl=-1),
        Transit("x", "a", INSTANCE, ID, wait=1 << 32),
    ],
)
def test_a_transit_out_of_range_is_not_written(transit: Transit) -> None:
    with pytest.raises(BadTransit):
        encode_transit(transit)


@pytest.mark.parametrize(
    "fields",
    [
        [0, 4, True, [], []],
        [24, 4, True, [], []],
        [1, 2, True, [], []],
        [1, 8, True, [], []],
        [1, 4, 1, [], []],
        [1, 4, True, ["x"], []],
        [1, 5, True, [], []],
        [1, 5, True, ["x", "x" * 513], []],
        [1, 5, True, ["x", 7], []],
        [1, 6, True, ["a", "b"], []],
        [1, 7, True, [True], []],
        [1, 7, True, ["a", "b"], []],
        [1, 4, True, [], [1, 2, 3]],
        [1, 4, True, [], [0, 2, 3, 1]],
        [1, 6, True, [], [1, 2, 3, 0]],
        [1, 3, True, [], [1, 1, 1, 1]],
        [1, 4, True, [], [0, 0, 0, 0]],
        [1, 4, True, [], [1, 2, 3, 4, 5]],
        [1, 4, True, [], [1, 2, 3, 1 << 32]],
        [1, 4, True, []],
        [1],
        {},
    ],
)
def test_a_bad_disposition_is_refused(fields: object) -> None:
    with pytest.raises(BadTransit):
        decode_disposition(cbor2.dumps(fields))


def test_a_disposition_of_other_text_or_size_is_refused() -> None:
    for frame in (b"\x85\x01\x05\xf5\x82\x61\xff\x60\x80", b"\0" * (MAX_DISPOSITION + 1)):
        with pytest.raises(BadTransit):
            decode_disposition(frame)


def test_long_texts_and_numbers_of_a_disposition_are_cut() -> None:
    state = Rejected("é" * MAX_CONDITION, "\ud800" + "x" * 2 * MAX_DESCRIPTION)
    frame = encode_disposition(Disposition(state, tally=Tally(1 << 40, 1)))
    assert len(frame) <= MAX_DISPOSITION
    read = decode_disposition(frame)
    assert read.state == Rejected("é" * (MAX_CONDITION // 2), "x" * MAX_DESCRIPTION)
    assert read.tally == Tally((1 << 32) - 1, 1)


def test_a_return_address_turns_into_that_of_a_disposition() -> None:
    value = return_address(ID)
    assert value == b"r" + ID
    assert ended_address(ID, settled=True) == b"s" + ID
    for settled in (True, False):
        assert read_end(ended_address(ID, settled=settled)) == (ID, settled)
    assert read_end(value) is None
    for broken in (b"s", b"e" + ID + b"\0"):
        with pytest.raises(BadTransit):
            read_end(broken)
    assert disposition_address(value) == b"d" + ID
    assert read_token(b"d" + ID, b"d") == ID
    for broken in (b"", b"r", b"d" + ID, value + b"\0", value[:-1]):
        with pytest.raises(BadTransit):
            disposition_address(broken)


def test_the_address_of_a_circuit_is_no_other() -> None:
    value = circuit_address(ID)
    assert value == b"c" + ID
    assert read_end(value) is None
    with pytest.raises(BadTransit):
        disposition_address(value)


def test_all_of_a_transit_fits_into_an_address_together() -> None:
    most = (1 << 32) - 1
    path = (b"1234",) * MAX_PATH
    transit = Transit("x" * 512, "a" * 256, INSTANCE, ID, True, True, most, most, path)
    value = encode_transit(transit)
    assert len(value) <= MAX_TRANSIT <= MAX_ADDRESS_VALUE
    assert decode_transit(value) == transit


def test_a_broken_transit_is_read_in_one_way_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change each byte, and cut it at each: the straight line reads what the other one reads."""
    long = encode_transit(
        Transit("é" * 20, "b", INSTANCE, ID, True, False, 300, 70_000, (b"1234",))
    )
    short = encode_transit(Transit("x", "a", INSTANCE, ID, ttl=24, path=(b"1234",) * 7))
    values = (0, 23, 24, 0x40, 0x57, 0x58, 0x59, 0x60, 0x77, 0x78, 0xFF)
    inputs: list[bytes] = []
    for told in (long, short):
        places = range(1, len(told))
        inputs += [told[:at] + bytes((byte,)) + told[at + 1 :] for at in places for byte in values]
        inputs += [told[:at] for at in places] + [told + b"\0"]
    straight = [_outcome(each) for each in inputs]
    monkeypatch.setattr(_transit, "_usual_transit", _not_usual)
    assert straight == [_outcome(each) for each in inputs]
    assert any(isinstance(each, Transit) for each in straight)


def _not_usual(value: bytes) -> None:
    del value


def _outcome(value: bytes) -> Transit | type[Exception]:
    try:
        return decode_transit(value)
    except (BadTransit, LaterVersion) as error:
        return type(error)


def test_a_later_version_is_told_from_what_is_malformed() -> None:
    for version in (2, 23):
        with pytest.raises(LaterVersion, match=f"version {version} is later than 1") as caught:
            decode_transit(b"t" + cbor2.dumps([version, "another", {"shape": 1}]))
        assert caught.value.version == version
        with pytest.raises(LaterVersion):
            decode_disposition(cbor2.dumps([version, 9]))


def test_a_next_node_waits_for_a_shorter_time() -> None:
    assert next_wait(30.0) == 27_000
    assert next_wait(0.0) == next_wait(-1.0) == milliseconds(0.0001) == 1
    assert milliseconds(1e12) == (1 << 32) - 1


@given(data=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (decode_transit, decode_disposition):
        for value in (data, b"t" + data, b"\x85\x01" + data):
            try:
                read(value)
            except (BadTransit, LaterVersion):
                continue


@given(
    name=st.text(min_size=1, max_size=60),
    ingress=st.text(min_size=1, max_size=30),
    path=st.lists(st.binary(min_size=4, max_size=4), max_size=8),
    ttl=st.integers(0, (1 << 32) - 1),
)
def test_a_transit_is_read_as_it_was_written(
    name: str, ingress: str, path: list[bytes], ttl: int
) -> None:
    transit = Transit(name, ingress, INSTANCE, ID, ttl=ttl, path=tuple(path))
    assert decode_transit(encode_transit(transit)) == transit
