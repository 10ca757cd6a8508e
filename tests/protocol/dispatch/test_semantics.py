"""Semantics: the values, what contradicts, and the text form."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from onward.protocol import route
from onward.protocol.dispatch import (
    ALL,
    CONTRADICTIONS,
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
    read_hint,
)
from tests.protocol.dispatch.page import rows

DIRECT, CLOSEST = RoutingPattern.DIRECT, RoutingPattern.CLOSEST
BALANCED, MULTICAST = RoutingPattern.BALANCED, RoutingPattern.MULTICAST
UNAVAILABLE = RoutingPattern.UNAVAILABLE
LINK = Mechanism.LINK
AT_ONCE = Reliability(settle=Settlement.AT_ONCE)
HOLD: tuple[Retry, Last] = (Retry(), Last.RELEASE)
ELSEWHERE = (Redirect("34#x"), Last.RELEASE)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        *(
            ({"pattern": pattern, "reliability": Reliability(accepts=accepts)}, "accepts other")
            for pattern in (DIRECT, CLOSEST, BALANCED)
            for accepts in (ALL, 2)
        ),
        ({"reliability": Reliability(deadline=5)}, "a deadline needs"),
        ({"pattern": MULTICAST, "gate": Gate.CREDIT}, "a multicast with a gate by credit"),
        *(({"pattern": each, "second": Second.STANDBY}, "second") for each in (CLOSEST, MULTICAST)),
        *(({"pattern": each, "weigh": Weigh.LOAD}, "the load") for each in (DIRECT, BALANCED)),
        *(({"pattern": each, "weigh": Weigh.TIME}, "the time") for each in (DIRECT, MULTICAST)),
        ({"pattern": DIRECT, "tags": "service=a"}, "direct has one"),
        ({"gate": Gate.CREDIT, "tags": "service=a"}, "give no credit"),
        (
            {
                "pattern": MULTICAST,
                "reliability": Reliability(settle=Settlement.AT_ONCE, accepts=2),
            },
            "does not wait for accepts",
        ),
        (
            {
                "pattern": MULTICAST,
                "reliability": Reliability(settle=Settlement.AT_ONCE, deadline=5),
            },
            "no outcome that a deadline",
        ),
        ({"reliability": AT_ONCE, "weigh": Weigh.TIME}, "no time of settlement"),
        ({"reliability": AT_ONCE, "undeliverable": (Last.REJECT,)}, "cannot be rejected"),
        ({"mechanism": LINK, "pattern": MULTICAST}, "cannot be a multicast"),
        ({"mechanism": LINK, "undeliverable": HOLD}, "cannot hold one"),
        ({"mechanism": LINK, "undeliverable": ELSEWHERE}, "cannot be redirected"),
        ({"mechanism": LINK, "undeliverable": (Last.DROP,)}, "no message to drop"),
        ({"mechanism": LINK, "undeliverable": (Last.REJECT,)}, "no message to drop"),
        ({"mechanism": LINK, "reliability": AT_ONCE}, "reliability is theirs"),
        ({"mechanism": LINK, "window": 1}, "no window and no gate"),
        ({"mechanism": LINK, "gate": Gate.OPEN}, "no window and no gate"),
        ({"mechanism": LINK, "overflow": Overflow.NEWEST}, "could overflow"),
        ({"mechanism": LINK, "weigh": Weigh.TIME}, "is not weighed"),
        ({"mechanism": LINK, "tags": "service=a"}, "no circuits"),
        ({"reattach": Reattach.AGAIN}, "messages have no circuit"),
        *(
            ({"pattern": UNAVAILABLE, **each}, "unavailable names")
            for each in (
                {"window": 1},
                {"mechanism": LINK},
                {"undeliverable": HOLD},
                {"reliability": AT_ONCE},
                {"tags": "service=a"},
                {"access": Access(producers=frozenset({"a"}))},
            )
        ),
        ({"undeliverable": ()}, "does not end with"),
        ({"undeliverable": (Retry(),)}, "does not end with"),
        ({"undeliverable": (Last.DROP, Retry(), Last.DROP)}, "something follows"),
        ({"undeliverable": (Retry(), *HOLD)}, "more than one retry"),
        ({"undeliverable": (Redirect("a"), *ELSEWHERE)}, "more than one redirect"),
        ({"tags": "=="}, "the query of tags cannot be read"),
    ],
)
def test_contradictions(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSemantics) as caught:
        Semantics(**values)
    assert [each for each in caught.value.reasons if reason in each]


def test_all_contradictions_at_once() -> None:
    with pytest.raises(BadSemantics) as caught:
        Semantics(pattern=MULTICAST, second=Second.NEWEST, gate=Gate.CREDIT, undeliverable=())
    assert len(caught.value.reasons) == 3
    assert str(caught.value).count("; ") == 2


def test_the_page_has_all_contradictions() -> None:
    assert [row[0] for row in rows("| refused |")] == [each for _, each in CONTRADICTIONS]


@pytest.mark.parametrize(
    "values",
    [
        {"pattern": DIRECT, "mechanism": LINK, "second": Second.NEWEST},
        {"pattern": CLOSEST, "mechanism": LINK, "reattach": Reattach.RESUME},
        {"pattern": MULTICAST, "undeliverable": HOLD},
        {"pattern": MULTICAST, "undeliverable": ELSEWHERE, "tags": "service=a"},
        {"reliability": AT_ONCE, "undeliverable": HOLD},
        {"undeliverable": (Redirect("34#x"), Retry(), Last.DROP), "gate": Gate.OPEN},
        {"pattern": UNAVAILABLE},
    ],
)
def test_what_can_be_combined(values: dict[str, Any]) -> None:
    assert Semantics(**values)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: Semantics(window=0), "window must be a whole number"),
        (lambda: Semantics(settle_time=0), "settle_time must be"),
        (lambda: Hold(messages=0), "messages must be"),
        (lambda: Hold(age=0), "age must be"),
        (lambda: Retry(first=0), "first must be"),
        (lambda: Retry(first=90), "longest time of a retry, 60 s, is less than the first"),
        (lambda: Reliability(accepts=-1), "accepts must be"),
        (lambda: Redirect(""), "a redirect has no route"),
        (lambda: Redirect("999#x"), "a redirect cannot be read"),
        (lambda: Access(producers="shop"), "producers must be a set"),  # type: ignore[arg-type]
    ],
)
def test_out_of_range(made: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        made()


def test_chain() -> None:
    retry, redirect = Retry(rounds=3), Redirect("34#orders.failed => x")
    semantics = Semantics(undeliverable=(retry, redirect, Last.REJECT))
    assert (semantics.retry, semantics.redirect, semantics.last) == (retry, redirect, Last.REJECT)
    assert redirect.route == route("34#orders.failed", "x")
    bare = Semantics()
    assert (bare.retry, bare.redirect, bare.last) == (None, None, Last.RELEASE)


@pytest.mark.parametrize(
    ("semantics", "text"),
    [
        (Semantics(), "balanced"),
        (Semantics(undeliverable=HOLD), "balanced, hold 1000 for 60 s, then release"),
        (Semantics(pattern=UNAVAILABLE), "unavailable"),
        (Semantics(pattern=CLOSEST, weigh=Weigh.LOAD), "closest by load"),
        (Semantics(pattern=DIRECT, second=Second.NEWEST), "direct, the newest wins"),
        (Semantics(reliability=AT_ONCE), "balanced, settled at once"),
        (Semantics(gate=Gate.CREDIT), "balanced, gate by credit"),
        (Semantics(settle_time=0.5), "balanced, settled within 0.5 s"),
        (
            Semantics(pattern=MULTICAST, reliability=Reliability(accepts=3)),
            "multicast, 3 accept",
        ),
        (Semantics(undeliverable=(Last.DROP,)), "balanced, drop what is undeliverable"),
        (Semantics(undeliverable=(Last.REJECT,)), "balanced, reject what is undeliverable"),
        (
            Semantics(mechanism=LINK, reattach=Reattach.AGAIN),
            "balanced circuits, attached again",
        ),
        (
            Semantics(undeliverable=(Retry(rounds=1, hold=Hold(age=0.5)), Last.DROP)),
            "balanced, hold 1000 for 0.5 s and 1 round, then drop",
        ),
    ],
)
def test_text(semantics: Semantics, text: str) -> None:
    assert str(semantics) == text


def test_hints() -> None:
    known: dict[int, Semantics] = {}
    for pattern in RoutingPattern:
        for mechanism in Mechanism:
            try:
                semantics = Semantics(pattern=pattern, mechanism=mechanism)
            except BadSemantics:
                continue
            known[semantics.hint] = semantics
    assert len(known) == 8
    assert known[0].pattern is DIRECT
    assert known[9] == Semantics(pattern=CLOSEST, mechanism=LINK)
    assert {number: read_hint(number) for number in known} == known


@given(st.integers())
def test_numbers_that_are_no_hint(number: int) -> None:
    semantics = read_hint(number)
    assert semantics is None or semantics.hint == number


@pytest.mark.parametrize("number", [-1, 5, 7, 11, 12, 13, 16])
def test_unknown_hints(number: int) -> None:
    assert read_hint(number) is None
