"""Reading a TOML document within limits of size and depth."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from ._fields import Problems
from ._locate import deep_key, deep_path

__all__ = ["read_toml"]

_DECODE_LINE: Final = re.compile(r"\(at line (\d+), column \d+\)$")


def read_toml(text: str | bytes, problems: Problems, *, size: int, depth: int) -> dict[str, object]:
    """Read a TOML document, and give the problems its lines.

    Args:
        text: The content of the file; bytes are UTF-8.
        problems: The problems of the file, to add to.
        size: Most bytes of the file.
        depth: Most tables and lists in one another, and most parts of a dotted key.

    Returns:
        The document; an empty one if it cannot be read, which is then among the problems.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    if len(raw) > size:
        problems.add((), f"{len(raw)} bytes are over the limit of {size}")
        return {}
    try:
        written = raw.decode("utf-8")
        if (deep := deep_key(written, depth)) is not None:
            line = written.count("\n", 0, deep) + 1
            problems.add_at(line, "", f"a key of more than {depth} parts")
            return {}
        document: dict[str, object] = tomllib.loads(written)
        problems.locate(written, depth)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problems.add_at(line, "", "not UTF-8")
    except tomllib.TOMLDecodeError as error:
        line, told = _where(str(error), raw)
        problems.add_at(line, "", f"not TOML: {told}")
    except RecursionError:
        problems.add((), "not TOML that can be read: lists or tables are nested too deeply")
    else:
        path = deep_path(document, depth)
        if path is None:
            return document
        problems.add(path, f"nested more than {depth} deep")
    return {}


def _where(told: str, raw: bytes) -> tuple[int, str]:
    """Return the line of an error of `tomllib`, and its text as we write it."""
    match = _DECODE_LINE.search(told)
    line = int(match[1]) if match else raw.count(b"\n") + 1
    return line, told[:1].lower() + told[1:]
