"""Every class of options refuses a value of a wrong type or out of range when it is made."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import pkgutil
import re
import ssl
import tomllib
from collections.abc import Callable, Iterator, Mapping, Set as AbstractSet
from enum import Enum
from math import inf, nan
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from onward.protocol.options import Range, spelling

ROOT = Path(__file__).resolve().parent.parent
PACKAGES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
    "packages"
]
NAMES = ("Options", "Limits", "Config")
OTHERS = {"Backoff", "Faults", "MailboxOptions", "RestartBackoff", "Supervision"}
MAY_BE_NEGATIVE = {("Options", "since"), ("Options", "until")}
"""Microseconds of an event log before 1970, and after."""

REQUIRED: dict[str, dict[str, Any]] = {
    "TlsOptions": {"authority": "ca.pem"},
    "LogOptions": {"directory": Path("logs"), "name": "log"},
    "Options": {"path": Path("logs"), "table": "hops", "columns": {"at": "bigint"}},
    "SinkOptions": {
        "uri": "tcp://h:1",
        "destination": None,
        "column": "route",
        "payload": "payload",
        "id": "a",
        "epoch": 0,
        "chunk_rows": 1,
        "chunk_bytes": 1,
        "window": 1,
        "timeout": 1.0,
        "retries": 0,
        "max_destinations": 1,
        "max_buffered": 1,
    },
}


def option_classes() -> Iterator[type]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        for each in pkgutil.iter_modules(package.__path__):
            if each.name.startswith("_") and each.name != "__main__" and not each.ispkg:
                module = importlib.import_module(f"{name}.{each.name}")
                for thing in vars(module).values():
                    if (
                        inspect.isclass(thing)
                        and dataclasses.is_dataclass(thing)
                        and thing.__module__ == module.__name__
                        and (thing.__name__.endswith(NAMES) or thing.__name__ in OTHERS)
                    ):
                        yield thing


CLASSES = sorted(set(option_classes()), key=lambda made: (made.__module__, made.__name__))
FIELDS = [
    pytest.param(made, field.name, id=f"{made.__name__}.{field.name}")
    for made in CLASSES
    for field in dataclasses.fields(made)
]

Hint = Any
ANYTHING = [
    object(),
    nan,
    inf,
    -inf,
    -1,
    -0.5,
    True,
    "nonsense",
    b"x",
    None,
    10**400,
    [None],
    {5: 5},
]
"""Each is wrong for nearly every field."""


def wrong_for(hint: Hint, ranges: tuple[Range, ...] = ()) -> list[Any]:
    """List values that a field must not take: those that it cannot be by its annotation."""
    origin: Any = get_origin(hint)
    if origin is Annotated:
        inner, *marks = get_args(hint)
        return wrong_for(inner, tuple(mark for mark in marks if isinstance(mark, Range)))
    if origin in (Union, UnionType):
        parts = [wrong_for(each) for each in get_args(hint)]
        return [each for each in parts[0] if all(any(each is x for x in part) for part in parts)]
    return [value for value in ANYTHING if not accepts(hint, value, ranges)]


def accepts(hint: Hint, value: Any, ranges: tuple[Range, ...]) -> bool:
    origin: Any = get_origin(hint) or hint
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and number and all(_allows(each, value) for each in ranges)
    if origin is float:
        return False  # all there are have a bound, and none of the values is a finite positive one
    if origin is str:
        return isinstance(value, str)
    if origin is Literal:
        return value in get_args(hint)
    if origin is NoneType:
        return value is None
    if origin is tuple:
        return False
    if inspect.isclass(origin) and issubclass(origin, Enum):
        return False
    if origin is Callable:
        return callable(value)
    assert inspect.isclass(origin), hint
    if issubclass(origin, Mapping | AbstractSet):
        return False
    assert dataclasses.is_dataclass(origin) or origin in (bool, Path, os.PathLike, ssl.SSLContext)
    return isinstance(value, origin)


def _allows(allowed: Range, value: int) -> bool:
    # Written again, and not by `in`, as it is `Range` that is tested.
    assert allowed.least is not None
    assert allowed.above is None
    return value >= allowed.least and (allowed.most is None or value <= allowed.most)


def make(made: type, **given: Any) -> Any:
    return made(**REQUIRED.get(made.__name__, {}) | given)


def hints_of(made: type) -> dict[str, Any]:
    return get_type_hints(made, include_extras=True)


def test_all_of_them_are_found() -> None:
    assert len(CLASSES) >= 40
    found = {made.__name__ for made in CLASSES}
    assert found >= {
        "BrokerOptions",
        "ClientOptions",
        "ConnectionLimits",
        "MailboxOptions",
        "SinkOptions",
    }


@pytest.mark.parametrize("made", CLASSES, ids=lambda made: str(made.__name__))
def test_a_class_of_options_is_frozen_and_its_defaults_are_allowed(made: type) -> None:
    options = make(made)
    name = dataclasses.fields(made)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, name, 1)
    assert dataclasses.replace(options) == options


@pytest.mark.parametrize(("made", "name"), FIELDS)
def test_a_wrong_value_is_refused_when_it_is_made(made: type, name: str) -> None:
    wrong = wrong_for(hints_of(made)[name])
    assert len(wrong) > 6, "hardly anything is wrong for this field"
    for value in wrong:
        with pytest.raises(ValueError, match=rf"^{made.__name__}\.{name} must be .*, not "):
            make(made, **{name: value})


@pytest.mark.parametrize(("made", "name"), FIELDS)
def test_a_number_has_a_lower_bound(made: type, name: str) -> None:
    hint = hints_of(made)[name]
    numbers = [int, float]
    plain = [hint] if get_origin(hint) not in (Union, UnionType) else list(get_args(hint))
    assert (made.__name__, name) in MAY_BE_NEGATIVE or not any(each in numbers for each in plain)


@pytest.mark.parametrize(("made", "name"), FIELDS)
def test_an_enum_is_taken_in_the_spelling_of_topology_files(made: type, name: str) -> None:
    hint = hints_of(made)[name]
    if inspect.isclass(hint) and issubclass(hint, Enum):
        for member in hint:
            for text in (spelling(member), member.name, member.name.lower()):
                assert getattr(make(made, **{name: text}), name) is member
    elif get_origin(hint) is Literal:
        for word in get_args(hint):
            assert getattr(make(made, **{name: word.upper()}), name) == word


def test_the_message_names_class_field_value_and_what_is_accepted() -> None:
    from onward.actors import MailboxOptions, OnFailure, Overflow, Supervision

    text = "Supervision.on_failure must be one of resume, restart, stop, escalate, not 'again'"
    with pytest.raises(ValueError, match=re.escape(text)):
        Supervision("again")  # type: ignore[arg-type]
    text = "Supervision.max_restarts must be a whole number of at least 0, not '3'"
    with pytest.raises(ValueError, match=re.escape(text)):
        Supervision(max_restarts="3")  # type: ignore[arg-type]
    assert Supervision("restart") == Supervision(OnFailure.RESTART)  # type: ignore[arg-type]
    assert MailboxOptions(1, "drop-oldest") == MailboxOptions(1, Overflow.DROP_OLDEST)  # type: ignore[arg-type]
