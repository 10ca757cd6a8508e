"""In which line of a TOML text each key stands, which `tomllib` does not tell.

It reads the structure and nothing else: `tomllib` has read the same text before, so whatever
is here is well-formed, and strings, numbers and dates only have to be stepped over. A path is
keys and, in arrays, numbers from 0: `("links", 1, "from")`.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, TypeAlias, cast

__all__ = ["Lines", "Path", "deep_key", "deep_path", "path_text"]

Path: TypeAlias = tuple[str | int, ...]
"""How one gets to a value: keys, and numbers in arrays, from 0."""

_SPACE: Final = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_BLANK: Final = re.compile(r"[ \t]*")
_KEY: Final = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_DOT: Final = re.compile(r"[ \t]*\.[ \t]*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")

# Strings first: what looks like structure inside one is none. The two further quotes after the
# three that end a long string belong to its content. A date may have a space before the time.
_SCALAR: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|\d{4}-\d\d-\d\d \d\d:[^,\]}\s#]*"
    r"|[^,\]}\s#]+",
    re.DOTALL,
)


def deep_key(text: str, most: int) -> int | None:
    """Return where a dotted key begins that has more parts than there may be; `None`: nowhere.

    Before anything else reads the text: `tomllib` takes the square of the parts.
    """
    # What is not closed goes on to where it could be, so that nothing is looked at twice.
    part = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?)"""
    token = re.compile(
        r"#[^\n]*+"
        r'|"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}'
        r"|'''(?:[^']|'(?!''))*+'{0,5}"
        rf"|(?P<deep>{part}(?:[ \t]*+\.[ \t]*+{part}){{{most}}})|{part}",
        re.DOTALL,
    )
    for match in token.finditer(text):
        if match["deep"] is not None:
            return match.start()
    return None


def deep_path(document: Mapping[str, object], most: int) -> Path | None:
    """Return the path of a value that is in more tables and lists than there may be, or `None`."""
    waiting: list[tuple[Path, object]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > most:
            return path
        if isinstance(value, dict):
            pairs = cast("dict[str, object]", value).items()
            waiting.extend(((*path, key), each) for key, each in pairs)
        elif isinstance(value, list):
            listed = enumerate(cast("list[object]", value))
            waiting.extend(((*path, index), each) for index, each in listed)
    return None


class Lines:
    """The lines of the keys of a text.

    Args:
        text: What `tomllib` reads without an error.
        depth: Of a path with more keys than this only so many are looked at.
    """

    def __init__(self, text: str, depth: int = 64) -> None:
        self._depth: Final = depth
        self._text = text.replace("\r\n", "\n")
        self._starts = [0, *(match.end() for match in re.finditer("\n", self._text))]
        self._found: dict[Path, int] = {}
        self._arrays: dict[Path, int] = {}
        self._at = 0
        self._document()

    def of(self, path: Path) -> int:
        """Return the line of a key, from 1; of a key that is not there, that of what it is in."""
        while path and path not in self._found:
            path = path[:-1]
        return self._found.get(path, 1)

    # --- the document -----------------------------------------------------------------------

    def _document(self) -> None:
        table: Path = ()
        while self._skip(_SPACE) < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        line = self._line()
        is_array = self._text.startswith("[[", self._at)
        self._at += 1 + is_array
        self._skip(_BLANK)
        *parents, last = self._keys()
        self._skip(_BLANK)
        self._at += 1 + is_array
        path: Path = ()
        for key in parents:
            path = self._note((*path, key), line)
            if path in self._arrays:
                path = (*path, self._arrays[path])
        path = self._note((*path, last), line)
        if is_array:
            self._arrays[path] = self._arrays.get(path, -1) + 1
            path = self._note((*path, self._arrays[path]), line)
        return path

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = table
        for key in self._keys():
            path = self._note((*path, key), line)
        self._skip(_BLANK)
        self._at += 1  # the equals sign
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        start = self._text[self._at]
        if start == "[":
            self._at += 1
            index = 0
            while self._more("]"):
                item = self._note((*path, index), self._line())
                self._value(item)
                index += 1
        elif start == "{":
            self._at += 1
            while self._more("}"):
                self._pair(path)
        else:
            self._skip(_SCALAR)

    def _more(self, end: str) -> bool:
        """Step over what separates; tell whether there is something before the end."""
        self._skip(_SPACE)
        if self._text[self._at] == ",":
            self._at += 1
            self._skip(_SPACE)
        if self._text[self._at] == end:
            self._at += 1
            return False
        return True

    def _keys(self) -> list[str]:
        keys = [self._key()]
        while match := _DOT.match(self._text, self._at):
            self._at = match.end()
            keys.append(self._key())
        return keys

    def _key(self) -> str:
        start = self._at
        text = self._text[start : self._skip(_KEY)]
        if _BARE.fullmatch(text):
            return text
        return str(tomllib.loads(f"key = {text}")["key"])

    # --- where it is ------------------------------------------------------------------------

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise AssertionError(f"unexpected text in line {self._line()}")
        self._at = match.end()
        return self._at

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)

    def _note(self, path: Path, line: int) -> Path:
        if len(path) > self._depth:
            # What is deeper has the line of what it is in; a path grows no further.
            return path[:-1]
        self._found.setdefault(path, line)
        return path


def path_text(path: Path) -> str:
    """Write a path for people: `nodes.front.workers.echo`, `links[1].from`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
            continue
        name = step if _BARE.fullmatch(step) else f'"{step}"'
        text += f".{name}" if text else name
    return text
