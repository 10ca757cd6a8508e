"""What the demo prints, and how it fails."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

COLOURS = sys.stdout.isatty() and "NO_COLOR" not in os.environ

BAR = 40
"""Most characters of a bar."""


class DemoFailed(Exception):
    """Something did not go as it should."""


def check(condition: bool, what: str) -> None:
    if not condition:
        raise DemoFailed(what)


def paint(text: str, code: int) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOURS else text


def heading(text: str) -> None:
    print(f"\n{paint(text, 1)}")


def say(who: str, text: str) -> None:
    print(f"  {paint(f'{who:<9}', 36)} {text}", flush=True)


def say_bars(counts: Counter[str]) -> None:
    """Print how many each has, as bars."""
    most = max(counts.values())
    for name, count in sorted(counts.items()):
        say(name, f"{paint('█' * max(1, round(BAR * count / most)), 32)} {count}")


def shown(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def signatures(answers: Any) -> Counter[str]:
    """Count the signatures of some answers."""
    check(isinstance(answers, list), f"an answer was expected, not {answers!r}")
    return Counter(str(answer).rpartition(" from ")[2] for answer in answers)


class Table:
    """Rows of text under headings, in columns as wide as they need to be."""

    def __init__(self, *headings: str) -> None:
        self._rows = [headings]

    def add(self, *cells: object) -> None:
        self._rows.append(tuple(map(str, cells)))

    def print(self) -> None:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        for number, row in enumerate(self._rows):
            line = f"  {'   '.join(_padded(row, widths)).rstrip()}"
            print(line if number else paint(line, 2))


def _padded(row: Iterable[str], widths: list[int]) -> Iterable[str]:
    return (cell.ljust(width) for cell, width in zip(row, widths, strict=True))


class Record:
    """The record of the demo: its requests and its processes. Both are printed at the end."""

    def __init__(self) -> None:
        self.done = Table("WHAT", "SENT", "CAME BACK", "BY")
        self.cast = Table("NAME", "IS", "MADE WITH", "CAME BY", "WHAT IT DID")

    def print(self) -> None:
        heading("What was done")
        self.done.print()
        heading("The processes that took part")
        self.cast.print()
