"""The values that an annotation accepts: a function that checks them, and the text of an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set as AbstractSet
from enum import Enum
from functools import partial
from math import isfinite
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    cast,
    get_args,
    get_origin,
)

from ._ranges import Range

__all__ = ["REFUSED", "ValueKind", "fold", "kind_of", "spelling"]

Read: TypeAlias = Callable[[Any], object]
"""Return the value as it is kept, or `REFUSED`."""


class Refusal(Enum):
    """The type of `REFUSED`."""

    REFUSED = "refused"


REFUSED: Final = Refusal.REFUSED
"""The result of a reader for a value that it does not accept, as `None` may be accepted."""


_NONE: Final = "None"


class ValueKind(NamedTuple):
    """The values that a field accepts.

    Attributes:
        text: The accepted values, in the words of an error.
        read: Returns the value as it is kept, or `REFUSED`.
        shown: Returns the text of a value in the notation of the limits; empty: that of Python.
    """

    text: str
    read: Read
    shown: Callable[[object], str] | None = None


def fold(text: str) -> str:
    """Return a word in the form that spellings are compared in: case, `-` and `_` do not matter."""
    return text.casefold().replace("-", "").replace("_", "")


def spelling(member: Enum) -> str:
    """Return the word for a member of an enum as files and commands write it: `drop-oldest`."""
    return member.name.lower().replace("_", "-")


def kind_of(hint: Any) -> ValueKind:
    """Return what an annotation accepts.

    Raises:
        TypeError: Values cannot be checked against it.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        return _union([kind_of(each) for each in arguments])
    if origin is Literal:
        words = {fold(word): word for word in cast("tuple[str, ...]", arguments)}
        return ValueKind(_choice(words.values()), partial(_word, words, ()))
    if origin is not None:
        return _generic(hint, origin, arguments)
    return _plain(hint)


def _plain(hint: Any) -> ValueKind:
    if hint in (Any, object):
        return ValueKind("any value", _any)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type):
        found = cast("type[Any]", hint)
        if issubclass(found, Enum):
            members = {fold(each.name): each for each in found}
            text = _choice(spelling(each) for each in found)
            return ValueKind(text, partial(_word, members, (found,)))
        return ValueKind(found.__name__, partial(_instance, found))
    raise TypeError(f"no value can be checked against {hint!r}")


def _generic(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> ValueKind:
    if origin is tuple and arguments[-1:] == (Ellipsis,):
        each = kind_of(arguments[0])
        return ValueKind(f"a tuple, of which each is {each.text}", partial(_many, each.read))
    if origin is tuple:
        parts = [kind_of(each) for each in arguments]
        text = "; ".join(part.text for part in parts)
        return ValueKind(
            f"a tuple of {len(parts)} ({text})", partial(_row, [part.read for part in parts])
        )
    if origin is Callable:
        return ValueKind("a function", _callable)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, value = map(kind_of, arguments)
        text = f"a mapping from {key.text} to {value.text}"
        return ValueKind(text, partial(_mapping, key.read, value.read))
    if isinstance(origin, type) and issubclass(origin, AbstractSet):
        each = kind_of(arguments[0])
        return ValueKind(f"a set, of which each is {each.text}", partial(_set, each.read))
    if isinstance(origin, type):
        return ValueKind(origin.__name__, partial(_instance, origin))
    raise TypeError(f"no value can be checked against {hint!r}")


def _annotated(hint: Any, marks: Iterable[object]) -> ValueKind:
    kind = kind_of(hint)
    for mark in marks:
        if isinstance(mark, Range):
            kind = ValueKind(f"{kind.text}{mark}", partial(_in_range, kind.read, mark), mark.shown)
    return kind


def _union(kinds: list[ValueKind]) -> ValueKind:
    kinds.sort(key=lambda kind: kind.text != _NONE)  # first, as what it is may have a comma
    text = " or ".join(kind.text for kind in kinds)
    return ValueKind(text, partial(_first, [kind.read for kind in kinds]))


def _choice(words: Iterable[str]) -> str:
    return "one of " + ", ".join(words)


# --- readers ------------------------------------------------------------------------------


def _any(value: object) -> object:
    return value


def _instance(wanted: type, value: object) -> object:
    return value if isinstance(value, wanted) else REFUSED


def _whole(value: object) -> object:
    # `True` is an `int`, and so is a member of an `IntEnum`.
    return value if isinstance(value, int) and not isinstance(value, bool | Enum) else REFUSED


def _number(value: object) -> object:
    if isinstance(value, float):
        return value if isfinite(value) else REFUSED
    try:
        # A whole number that no float has room for fails later, where it is computed with.
        return value if _whole(value) is not REFUSED and isfinite(cast("int", value)) else REFUSED
    except OverflowError:
        return REFUSED


def _callable(value: object) -> object:
    return value if callable(value) else REFUSED


def _in_range(read: Read, allowed: Range, value: object) -> object:
    made = read(value)
    return made if made is not REFUSED and cast("float", made) in allowed else REFUSED


def _word(words: Mapping[str, object], kept: tuple[type, ...], value: object) -> object:
    if kept and isinstance(value, kept):
        return value
    return words.get(fold(value), REFUSED) if isinstance(value, str) else REFUSED


def _first(readers: list[Read], value: object) -> object:
    for read in readers:
        made = read(value)
        if made is not REFUSED:
            return made
    return REFUSED


def _many(read: Read, value: object) -> object:
    if not isinstance(value, tuple | list):  # lists are what files have
        return REFUSED
    made = tuple(map(read, cast("Iterable[object]", value)))
    return REFUSED if REFUSED in made else made


def _row(readers: list[Read], value: object) -> object:
    given = cast("Iterable[object]", value) if isinstance(value, tuple | list) else ()
    row = tuple(given)
    if len(row) != len(readers):
        return REFUSED
    made = tuple(read(each) for read, each in zip(readers, row, strict=True))
    return REFUSED if REFUSED in made else made


def _mapping(key: Read, of: Read, value: object) -> object:
    if not isinstance(value, Mapping):
        return REFUSED
    given = cast("Mapping[object, object]", value)
    pairs = [(key(k), of(v), k, v) for k, v in given.items()]
    if any(k is REFUSED or v is REFUSED for k, v, _, _ in pairs):
        return REFUSED
    if all(k is old_key and v is old for k, v, old_key, old in pairs):
        return given
    made = {k: v for k, v, _, _ in pairs}
    return made if len(made) == len(given) else REFUSED  # two spellings of one key


def _set(read: Read, value: object) -> object:
    if not isinstance(value, AbstractSet):
        return REFUSED
    given = cast("AbstractSet[object]", value)
    pairs = [(read(each), each) for each in given]
    if any(made is REFUSED for made, _ in pairs):
        return REFUSED
    if all(made is each for made, each in pairs):
        return given
    return frozenset(made for made, _ in pairs)


_PLAIN: Final[dict[object, ValueKind]] = {
    bool: ValueKind("True or False", partial(_instance, bool)),
    int: ValueKind("a whole number", _whole),
    float: ValueKind("a number", _number),
    str: ValueKind("a text", partial(_instance, str)),
    bytes: ValueKind("bytes", partial(_instance, bytes)),
    NoneType: ValueKind(_NONE, partial(_instance, NoneType)),
}
