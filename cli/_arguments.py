"""Argument types that several commands use."""

from __future__ import annotations

import argparse
import logging
import math
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

from ..protocol import Address, ProtocolError, Route, parse_route
from ..protocol.options import fold

__all__ = [
    "Commands",
    "add_log",
    "address",
    "no_log",
    "octal",
    "positive",
    "route",
    "seconds",
    "set_up_log",
    "size",
    "word",
]

T = TypeVar("T")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The object that a command adds its parser to."""

_LEVELS: Final = ("debug", "info", "warning", "error")


_AMOUNT: Final = re.compile(r"(.*?[0-9.])\s*([A-Za-z]+)")
_TIMES: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_BYTES: Final = {"B": 1} | {
    f"{prefix}{end}": base**power
    for power, prefix in enumerate("kMGT", 1)
    for end, base in (("B", 1000), ("iB", 1024))
}
_SIZES: Final = {name.upper(): number for name, number in _BYTES.items()}


def seconds(text: str) -> float:
    """Return a duration in seconds, 0 or more: `5`, `5s`, `500ms`, `2m`, `1h`, `7d`.

    Raises:
        ArgumentTypeError: It is not one.
    """
    number, unit = _split(text)
    value = number * _TIMES.get(unit or "s", math.nan)
    if not (math.isfinite(value) and value >= 0):
        units = ", ".join(_TIMES)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds, or one with a unit ({units})"
        )
    return value


def size(text: str) -> int:
    """Return a number of bytes, 1 or more: `1048576`, `1 MiB`, `2GB`.

    Raises:
        ArgumentTypeError: It is not one.
    """
    number, unit = _split(text)
    value = number * _SIZES.get((unit or "B").upper(), math.nan)
    if not (math.isfinite(value) and value >= 1 and value == int(value)):
        units = ", ".join(_BYTES)
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of bytes, or one with a unit ({units})"
        )
    return int(value)


def _split(text: str) -> tuple[float, str]:
    """Return the number of an amount, NaN if it is none, and its unit, which may be empty."""
    match = _AMOUNT.fullmatch(text)
    number, unit = (text, "") if match is None else match.groups()
    try:
        return float(number), unit
    except ValueError:
        return math.nan, unit


def positive(text: str) -> int:
    """Return a number, 1 or more.

    Raises:
        ArgumentTypeError: It is not one.
    """
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return value


def word(*words: str) -> Callable[[str], str]:
    """Return a function that reads one of some words, regardless of case and of `-` or `_`.

    It goes with `choices=words`, which refuses any other word.
    """
    known = {fold(each): each for each in words}
    return lambda text: known.get(fold(text), text)


def octal(text: str) -> int:
    """Return the permissions of a file, given in octal digits.

    Raises:
        ArgumentTypeError: They are not valid.
    """
    if not (0 < len(text) <= 4 and set(text) <= set("01234567") and int(text, 8) <= 0o777):
        raise argparse.ArgumentTypeError(f"{text!r} is not 0 to 777 in octal digits")
    return int(text, 8)


def address(text: str) -> Address:
    """Return an address.

    Raises:
        ArgumentTypeError: It is not one.
    """
    return _read(Address.parse, text)


def route(text: str) -> Route:
    """Return a route of at least one address.

    Raises:
        ArgumentTypeError: It is not one.
    """
    steps = _read(parse_route, text)
    if not steps:
        raise argparse.ArgumentTypeError("the route is empty")
    return steps


def _read(parse: Callable[[str], T], text: str) -> T:
    # argparse shows the text of its own errors only; for a ValueError it shows a function's name.
    try:
        return parse(text)
    except ProtocolError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_log(parser: argparse.ArgumentParser) -> None:
    """Add the option for the log level of stderr."""
    parser.add_argument(
        "--log",
        type=word(*_LEVELS),
        choices=_LEVELS,
        default="warning",
        help="the lowest level to log to stderr (default %(default)s)",
    )


def set_up_log(level: str) -> None:
    """Log to stderr, from a level on."""
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


@contextmanager
def no_log(name: str) -> Generator[None]:
    """Log nothing under a name: the command reports the outcome of its message itself."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
