"""Options of listeners and links, as far as somebody knows what the transport understands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from onward.protocol.toml import one_of
from onward.protocol.topology import (
    KindOptions,
    Option,
    OptionType,
    TopologyError,
    TopologyPlan,
    read_topology,
)


@dataclass
class Inner:
    low: int = 1
    high: int = 2

    def __post_init__(self) -> None:
        if self.low < 1:
            raise ValueError(f"low must be at least 1, not {self.low}")
        if self.low > self.high:
            raise ValueError("there is nothing between")


def outer(size: int = 1, wait: float | None = 1, **_: Any) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size}")
    if wait == 0:
        raise TypeError("wait cannot be nothing")


INNER = KindOptions({"low": Option(OptionType.SIZE), "high": Option(OptionType.SIZE)}, make=Inner)
OUTER = KindOptions(
    {
        "size": Option(OptionType.SIZE),
        "wait": Option(OptionType.SECONDS, can_be_off=True),
        "names": Option(OptionType.TEXTS),
        "more": Option(OptionType.TABLE),
        "way": Option(OptionType.TEXT, choices=("in", "out"), convert=str.upper),
        "inner": Option(
            OptionType.TABLE, can_be_off=True, table=INNER, convert=lambda read: Inner(**read)
        ),
    },
    make=outer,
)

FILE = """
[nodes.a]
[nodes.b.listeners]
main = {{ uri = "x://b", options = {{ {0} }} }}
[[links]]
from = "a"
to = "b"
options = {{ {1} }}
[[links]]
from = "a"
to = "y://out"
as = "out"
options = {{ {2} }}
"""


def plan_of(listener: str = "", link: str = "", outside: str = "") -> TopologyPlan:
    return read_topology(
        FILE.format(listener, link, outside),
        "t",
        kinds={},
        transports=lambda scheme: OUTER if scheme == "x" else None,
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", {}),
        ("size = 1", {"size": 1}),
        ("wait = 2", {"wait": 2.0}),
        ("wait = false", {"wait": None}),
        ("names = ['a', 'b']", {"names": ("a", "b")}),
        ("way = 'in'", {"way": "IN"}),
        ("inner = {}", {"inner": Inner()}),
        ("inner = { high = 5 }", {"inner": Inner(1, 5)}),
        ("inner = false", {"inner": None}),
        ("more = { a = { b = 1 } }", {"more": {"a": {"b": 1}}}),
        ("error_replies = true", {"error_replies": True}),
        ("error_replies = true, size = 2", {"error_replies": True, "size": 2}),
    ],
)
def test_options_are_read_as_what_they_are(written: str, read: dict[str, object]) -> None:
    plan = plan_of(written, written)
    assert plan.listeners[0].options == read
    assert plan.links[0].options == read


@pytest.mark.parametrize(
    ("written", "problems"),
    [
        ("size = 0", ["size: size must be at least 1, not 0"]),
        ("size = -1", ["size: -1 is not a whole number of at least 0"]),
        ("size = true", ["size: true is not a whole number of at least 0"]),
        ("size = false", ["size: false is not a whole number of at least 0"]),
        ("wait = 'soon'", ["wait: 'soon' is not a number of seconds, 0 or more"]),
        (
            "size = 0, wait = 0",
            ["size: size must be at least 1, not 0", "wait: wait cannot be nothing"],
        ),
        ("names = 'a'", ["names: 'a' is not a list of texts"]),
        ("way = 'up'", ["way: 'up' is not one of in, out"]),
        ("inner = 3", ["inner: 3 is not a table"]),
        ("more = 3", ["more: 3 is not a table"]),
        ("inner = true", ["inner: true is not a table"]),
        ("inner = { low = 0 }", ["inner.low: low must be at least 1, not 0"]),
        ("inner = { low = 3 }", ["inner: there is nothing between"]),
        ("inner = { lo = 3 }, size = 0", ["inner.lo: unknown key; there are: high, low"]),
        ("error_replies = 1", ["error_replies: 1 is not true or false"]),
        (
            "expose = ['x']",
            ["expose: unknown key; there are: error_replies, inner, more, names, size, wait, way"],
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_key(written: str, problems: list[str]) -> None:
    with pytest.raises(TopologyError) as caught:
        plan_of(written, written)
    told = [str(problem).split("; did you mean")[0] for problem in caught.value.problems]
    assert told == [
        *(f"t:4: nodes.b.listeners.main.options.{each}" for each in problems),
        *(f"t:8: links[0].options.{each}" for each in problems),
    ]


def test_what_nobody_knows_is_passed_on() -> None:
    plan = plan_of(outside="size = 'x', error_replies = false")
    assert plan.links[1].options == {"size": "x", "error_replies": False}


@pytest.mark.parametrize("key", ["expose", "uri"])
def test_what_stands_beside_the_options_is_no_option(key: str) -> None:
    with pytest.raises(TopologyError) as caught:
        plan_of(outside=f"{key} = 1")
    told = f"t:13: links[1].options.{key}: {key} stands beside options, not in them"
    assert str(caught.value) == told


def test_by_default_nothing_is_known_of_transports() -> None:
    plan = read_topology(FILE.format("size = 'x'", "", ""), kinds={})
    assert plan.listeners[0].options == {"size": "x"}


def test_words_are_read_in_any_spelling() -> None:
    read = one_of("round-robin", "least-outstanding")
    for text in ("round-robin", "round_robin", "RoundRobin", "ROUND_ROBIN"):
        assert read(text) == "round-robin"
    with pytest.raises(ValueError, match="'robin' is not one of round-robin, least-outstanding"):
        read("robin")
