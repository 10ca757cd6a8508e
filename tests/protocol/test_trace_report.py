from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import cbor2
import pytest
from hypothesis import given, strategies as st

from onward.protocol import (
    MAX_HOP_NAME,
    MAX_HOP_REPORT,
    MAX_MARK_DEPTH,
    MAX_ROUTE_LENGTH,
    Address,
    HopOutcome,
    HopReport,
    MalformedMessage,
    decode_hop_report,
    encode_hop_report,
    route,
)

REPORT = HopReport(
    trace="0123456789abcdef" * 2,
    hop="fedcba9876543210",
    before="0" * 16,
    depth=1,
    node_id="00000000000000aa",
    node="near",
    worker=Address(0, b"relay"),
    kind="Forward",
    taken=1_700_000_000_000_000_001,
    handled=1500,
    outcome=HopOutcome.HANDLED,
    onward_route=route("relay => echo"),
    return_route=route("app"),
    size=5,
)


def items(**changed: Any) -> list[Any]:
    decoded: list[Any] = cbor2.loads(encode_hop_report(replace(REPORT, **changed)))
    return decoded


def test_a_report_is_an_array_of_fifteen() -> None:
    assert items() == [
        1,
        bytes.fromhex("0123456789abcdef" * 2),
        bytes.fromhex("fedcba9876543210"),
        bytes(8),
        1,
        bytes.fromhex("00000000000000aa"),
        "near",
        [0, b"relay"],
        "Forward",
        1_700_000_000_000_000_001,
        1500,
        0,
        [[0, b"relay"], [0, b"echo"]],
        [[0, b"app"]],
        5,
    ]


hexadecimal = st.binary(min_size=8, max_size=8).map(bytes.hex)
routes = st.lists(
    st.builds(Address, st.integers(0, 255), st.binary(min_size=1, max_size=9)), max_size=9
).map(tuple)


@given(
    st.builds(
        HopReport,
        trace=st.binary(min_size=16, max_size=16).map(bytes.hex),
        hop=hexadecimal,
        before=hexadecimal,
        depth=st.integers(0, MAX_MARK_DEPTH),
        node_id=hexadecimal,
        node=st.text(max_size=MAX_HOP_NAME),
        worker=st.builds(Address, st.integers(0, 255), st.binary(min_size=1, max_size=9)),
        kind=st.text(max_size=MAX_HOP_NAME),
        taken=st.integers(0, (1 << 63) - 1),
        handled=st.none() | st.integers(0, (1 << 63) - 1),
        outcome=st.sampled_from(HopOutcome),
        onward_route=routes,
        return_route=routes,
        size=st.integers(0, 1 << 24),
    )
)
def test_what_is_written_is_read_again(report: HopReport) -> None:
    assert decode_hop_report(encode_hop_report(report)) == report


def test_names_are_cut() -> None:
    report = decode_hop_report(encode_hop_report(replace(REPORT, node="é" * 500, kind="k" * 500)))
    assert report.node == "é" * MAX_HOP_NAME
    assert report.kind == "k" * MAX_HOP_NAME


def test_the_longest_routes_fit() -> None:
    longest = (Address(0, bytes(1024)),) * MAX_ROUTE_LENGTH
    report = replace(REPORT, onward_route=longest, return_route=longest)
    payload = encode_hop_report(report)
    assert len(payload) < MAX_HOP_REPORT
    assert decode_hop_report(payload) == report


def test_elements_of_a_later_version_are_passed_over() -> None:
    assert decode_hop_report(cbor2.dumps([*items(), "more", {1: 2}])) == REPORT


def test_every_cut_is_malformed() -> None:
    payload = encode_hop_report(REPORT)
    for size in range(len(payload)):
        with pytest.raises(MalformedMessage):
            decode_hop_report(payload[:size])
    for count in range(15):
        with pytest.raises(MalformedMessage):
            decode_hop_report(cbor2.dumps(items()[:count]))


@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        (0, 2),
        (0, "1"),
        (1, bytes(15)),
        (1, bytes(17)),
        (2, "x" * 8),
        (4, -1),
        (4, 1 << 63),
        (6, b"near"),
        (6, "x" * (4 * MAX_HOP_NAME + 1)),
        (7, [0, b""]),
        (9, None),
        (10, "1"),
        (11, 3),
        (12, [[0, b"x"]] * (MAX_ROUTE_LENGTH + 1)),
        (13, None),
        (14, 1.5),
    ],
)
def test_a_wrong_element_is_malformed(index: int, wrong: object) -> None:
    given = items()
    given[index] = wrong
    with pytest.raises(MalformedMessage):
        decode_hop_report(cbor2.dumps(given))


def test_a_name_that_is_not_utf8_is_malformed() -> None:
    payload = encode_hop_report(REPORT).replace(b"\x64near", b"\x64nea\xff")
    with pytest.raises(MalformedMessage, match="not UTF-8"):
        decode_hop_report(payload)


def test_what_is_too_long_or_has_a_tail_is_malformed() -> None:
    payload = encode_hop_report(REPORT)
    with pytest.raises(MalformedMessage, match="behind"):
        decode_hop_report(payload + b"\x00")
    with pytest.raises(MalformedMessage, match="over"):
        decode_hop_report(bytes(MAX_HOP_REPORT + 1))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_report_or_malformed(payload: bytes) -> None:
    with suppress(MalformedMessage):
        decode_hop_report(payload)
