"""The check of options: which annotations it reads, and what its errors say."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from math import inf, nan
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import pytest

from onward.protocol.options import (
    Count,
    Probability,
    Range,
    Seconds,
    SecondsOrZero,
    Size,
    check_options,
    check_timeout,
    check_value,
    fold,
    spelling,
)


class Colour(Enum):
    LIGHT_RED = auto()
    BLUE = auto()


class Level(IntEnum):
    LOW = 1


@dataclass(frozen=True, slots=True)
class Inner:
    size: Size = 0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class ThingOptions:
    limit: Count = 1
    colour: Colour = Colour.BLUE
    names: tuple[str, ...] = ()
    inner: Inner = Inner()

    def __post_init__(self) -> None:
        check_options(self)


MODE = Annotated[int, Range(least=0, most=0o777, octal=True)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Count, 1),
        (Size, 0),
        (Size, 2**70),
        (Seconds, 1),
        (Seconds, 1e-9),
        (SecondsOrZero, 0),
        (Probability, 1),
        (Seconds | None, None),
        (bool, True),
        (str, ""),
        (bytes, b""),
        (Any, object),
        (object, None),
        (Colour, Colour.BLUE),
        (Mapping[str, Count], {"a": 1}),
        (frozenset[str], frozenset({"a"})),
        (Callable[[], int], int),
        (Inner, Inner()),
        (list[int], [1]),
        (Annotated[int, "a mark that says nothing here"], -1),
    ],
)
def test_what_is_accepted_is_returned_as_it_is(kind: Any, value: object) -> None:
    assert check_value("it", value, kind) is value


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        (Colour, "light-red", Colour.LIGHT_RED),
        (Colour, "LIGHT_RED", Colour.LIGHT_RED),
        (Colour, "LightRed", Colour.LIGHT_RED),
        (Level, "low", Level.LOW),
        (Literal["quiet", "error"], "Quiet", "quiet"),
        (tuple[str, ...], ["a", "b"], ("a", "b")),
        (tuple[int, str], (1, "a"), (1, "a")),
        (tuple[Seconds, Seconds], [1, 2], (1, 2)),
        (
            Mapping[str, Colour],
            {"a": "light-red", "b": Colour.BLUE},
            {"a": Colour.LIGHT_RED, "b": Colour.BLUE},
        ),
        (Mapping[Colour, int], {"light-red": 1}, {Colour.LIGHT_RED: 1}),
        (frozenset[Colour], {"light-red", Colour.BLUE}, frozenset(Colour)),
    ],
)
def test_spellings_of_files_are_read(kind: Any, value: object, kept: object) -> None:
    assert check_value("it", value, kind) == kept


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Count, 0, "a whole number of at least 1, not 0"),
        (Count, True, "a whole number of at least 1, not True"),
        (Count, Level.LOW, "a whole number of at least 1, not <Level.LOW: 1>"),
        (Count, 1.0, "a whole number of at least 1, not 1.0"),
        (Seconds, 0.0, "a number of seconds, more than 0, not 0.0"),
        pytest.param(
            Seconds, 10**400, "a number of seconds, more than 0, not 100000", id="more than a float"
        ),
        (Seconds, nan, "a number of seconds, more than 0, not nan"),
        (Seconds, False, "a number of seconds, more than 0, not False"),
        (SecondsOrZero, inf, "a number of seconds, at least 0, not inf"),
        (SecondsOrZero, "1", "a number of seconds, at least 0, not '1'"),
        (Seconds | None, -1, "None or a number of seconds, more than 0, not -1"),
        (Probability, 1.5, "a number from 0 to 1, not 1.5"),
        (MODE, 0o1000, "a whole number from 0 to 0o777, not 0o1000"),
        (MODE, "600", "a whole number from 0 to 0o777, not '600'"),
        (Annotated[int, Range(most=5)], 6, "a whole number of at most 5, not 6"),
        (
            Annotated[float, Range(above=0, most=2.5, unit="seconds")],
            3,
            "a number of seconds, more than 0, at most 2.5, not 3",
        ),
        (bool, 1, "True or False, not 1"),
        (str, b"a", "a text, not b'a'"),
        (Colour, "red", "one of light-red, blue, not 'red'"),
        (Colour, Level.LOW, "one of light-red, blue, not <Level.LOW: 1>"),
        (Literal["quiet", "error"], 1, "one of quiet, error, not 1"),
        (tuple[str, ...], "abc", "a tuple, of which each is a text, not 'abc'"),
        (tuple[str, ...], ["a", 1], "a tuple, of which each is a text, not ['a', 1]"),
        (tuple[str, Count], ("a", 0), "a tuple of 2 (a text; a whole number of at least 1), not"),
        (tuple[str, Count], ("a",), "a tuple of 2 (a text; a whole number of at least 1), not"),
        (tuple[str, Count], 5, "a tuple of 2 (a text; a whole number of at least 1), not 5"),
        (Mapping[str, Count], {"a": 0}, "a mapping from a text to a whole number of at least 1"),
        (Mapping[str, Count], {1: 1}, "a mapping from a text to a whole number of at least 1"),
        (
            Mapping[Level, Count],
            {"low": 1, "LOW": 2},
            "a mapping from one of low to a whole number",
        ),
        (Mapping[str, Count], [], "a mapping from a text to a whole number of at least 1"),
        (frozenset[str], {1}, "a set, of which each is a text, not {1}"),
        (frozenset[str], "a", "a set, of which each is a text, not 'a'"),
        (Callable[[], int], 5, "a function, not 5"),
        (Inner, 5, "Inner, not 5"),
        (Inner, Inner, "Inner, not <class"),
        (list[int], (), "list, not ()"),
    ],
)
def test_what_is_not_accepted_is_named(kind: Any, value: object, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'it must be {text}')}"):
        check_value("it", value, kind)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(ValueError, match=f"not '{'x' * 79}…$"):
        check_value("it", "x" * 1000, int)


@pytest.mark.parametrize("kind", [TypeVar("T"), ClassVar[int], 5, "text"])
def test_a_type_that_cannot_be_checked_is_an_error_of_the_program(kind: Any) -> None:
    with pytest.raises(TypeError, match="no value can be checked against"):
        check_value("it", 5, kind)


def test_options_are_checked_and_keep_what_was_read() -> None:
    options = ThingOptions(2, "light_red", ["a"], Inner(3))  # type: ignore[arg-type]
    assert options == ThingOptions(2, Colour.LIGHT_RED, ("a",), Inner(3))
    text = r"^ThingOptions\.inner must be Inner, not 5$"
    with pytest.raises(ValueError, match=text):
        ThingOptions(inner=5)  # type: ignore[arg-type]


def test_a_class_that_is_derived_is_checked_whole() -> None:
    @dataclass(frozen=True, slots=True)
    class MoreOptions(ThingOptions):
        more: Count = 1

    cases: tuple[dict[str, Any], ...] = ({"more": 0}, {"limit": 0})
    for wrong in cases:
        with pytest.raises(ValueError, match=f"^MoreOptions.{next(iter(wrong))} must be"):
            MoreOptions(**wrong)


def test_a_timeout_is_finite_and_not_negative() -> None:
    assert [check_timeout(each) for each in (0, 0.0, 1, 2.5)] == [0, 0.0, 1, 2.5]
    for wrong in (nan, inf, -inf, -0.1, True, "1", None):
        with pytest.raises(ValueError, match=r"^patience must be a number of seconds, at least 0"):
            check_timeout(wrong, "patience")  # type: ignore[arg-type]


def test_spellings() -> None:
    assert spelling(Colour.LIGHT_RED) == "light-red"
    assert {fold(each) for each in ("light-red", "Light_Red", "LIGHTRED")} == {"lightred"}
