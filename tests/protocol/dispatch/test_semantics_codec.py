"""Semantics as bytes: all that the words of the file can say, and nothing else."""

from __future__ import annotations

import re

import pytest
from cbor2 import dumps, loads
from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    ALL,
    MAX_SEMANTICS,
    Access,
    BadSemantics,
    Gate,
    Hold,
    Last,
    Mechanism,
    Overflow,
    Reattach,
    Redirect,
    Reliability,
    Retry,
    RoutingPattern,
    Second,
    Semantics,
    Settlement,
    Weigh,
    decode_semantics,
    encode_semantics,
)
from tests.protocol.dispatch.page import PAGE

RETRY = Retry(rounds=5, first=0.5, longest=10.0, hold=Hold(messages=9, size=99, age=7, disk=True))
DEADLINE = Reliability(accepts=ALL, deadline=5.0, deduplicate=60.0)
ALL_OF_IT: dict[str, Semantics] = {
    "the defaults": Semantics(),
    "direct": Semantics(
        pattern=RoutingPattern.DIRECT,
        second=Second.STANDBY,
        window=50,
        gate=Gate.OPEN,
        undeliverable=(RETRY, Redirect("34#orders.failed"), Last.REJECT),
        access=Access(producers=frozenset({"shop"}), consumers=frozenset({"billing", "audit"})),
    ),
    "multicast": Semantics(pattern=RoutingPattern.MULTICAST, reliability=DEADLINE),
    "balanced": Semantics(
        weigh=Weigh.TIME,
        overflow=Overflow.NEWEST,
        undeliverable=(Redirect("34#x"), Retry(), Last.DROP),
    ),
    "settled at once": Semantics(reliability=Reliability(settle=Settlement.AT_ONCE)),
    "settled in time": Semantics(settle_time=7_200.0),
    "to tags": Semantics(tags="service=mail"),
    "circuits": Semantics(
        pattern=RoutingPattern.CLOSEST, mechanism=Mechanism.LINK, reattach=Reattach.RESUME
    ),
    "unavailable": Semantics(pattern=RoutingPattern.UNAVAILABLE),
}


@pytest.mark.parametrize("name", ALL_OF_IT)
def test_what_is_written_is_read(name: str) -> None:
    semantics = ALL_OF_IT[name]
    data = encode_semantics(semantics)
    assert decode_semantics(data) == semantics
    for size in range(len(data)):
        with pytest.raises(BadSemantics):
            decode_semantics(data[:size])
    for more in (b"\0", data):
        with pytest.raises(BadSemantics):
            decode_semantics(data + more)


def test_only_what_differs_from_the_defaults_is_written() -> None:
    assert encode_semantics(Semantics()) == b"\xa0"
    assert loads(encode_semantics(ALL_OF_IT["direct"])) == {
        "routing": "direct",
        "window": 50,
        "gate": "open",
        "second": "standby",
        "producers": ["shop"],
        "consumers": ["audit", "billing"],
        "undeliverable": [
            {
                "hold": 9,
                "size": 99,
                "age": 7.0,
                "disk": True,
                "rounds": 5,
                "first": 0.5,
                "longest": 10.0,
            },
            {"redirect": "34#orders.failed"},
        ],
        "last": "reject",
    }


def test_semantics_have_the_bytes_of_the_page() -> None:
    text = PAGE.read_text().partition("### Semantics as bytes")[2]
    vectors = re.findall(r"<!-- vector: semantics-(\w+) -->\n```text\n(.*?)```", text, re.DOTALL)
    found = {name: bytes.fromhex(data) for name, data in vectors}
    assert found == {
        "direct": encode_semantics(ALL_OF_IT["direct"]),
        "multicast": encode_semantics(ALL_OF_IT["multicast"]),
    }


WRONG: list[object] = [
    [],
    5,
    {"routing": "nearest"},
    {"routing": 5},
    {"routing": []},
    {"later": 1},
    {1: 2},
    {"window": 0},
    {"window": "many"},
    {"window": 10**30},
    {"deadline": -1.0},
    {"deadline": float("nan")},
    {"producers": "shop"},
    {"producers": [5]},
    {"producers": [[]]},
    {"tags": 5},
    {"undeliverable": 5},
    {"undeliverable": [5]},
    {"undeliverable": [{}]},
    {"undeliverable": [{"hold": 0}]},
    {"undeliverable": [{"hold": 1, "later": 1}]},
    {"undeliverable": [{"redirect": "34#x", "hold": 1}]},
    {"undeliverable": [{"redirect": 5}]},
    {"undeliverable": [{"redirect": ""}]},
    {"undeliverable": [{"redirect": "34#x"}, {"redirect": "34#y"}]},
    {"undeliverable": [{"hold": 1, "first": 9.0, "longest": 1.0}]},
    {"last": "keep"},
    {"last": []},
    {"routing": "multicast", "mechanism": "link"},
]


@pytest.mark.parametrize("value", WRONG)
def test_what_cannot_be_read_is_refused(value: object) -> None:
    with pytest.raises(BadSemantics):
        decode_semantics(dumps(value))


@given(st.binary(max_size=40))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    try:
        found = decode_semantics(data)
    except BadSemantics:
        return
    assert decode_semantics(encode_semantics(found)) == found


def test_semantics_have_a_limit_of_bytes() -> None:
    roles = frozenset(f"{number:0100}" for number in range(21))
    with pytest.raises(BadSemantics, match=f"over the limit of {MAX_SEMANTICS}"):
        encode_semantics(Semantics(access=Access(producers=roles)))
