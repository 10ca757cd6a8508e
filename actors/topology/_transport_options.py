"""Options of transports in topology files, from the fields of the transports' options classes.

A transport is found by its entry point, as a node finds it, and its attribute `options_class` is
a dataclass. So names, types and ranges are defined once.
"""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from importlib.metadata import entry_points
from types import NoneType, UnionType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from ...protocol.topology import KindOptions, Option, OptionType
from .._transports import GROUP

__all__ = ["options_of", "transport_options"]

_PLAIN: Final[dict[object, OptionType]] = {
    bool: OptionType.FLAG,
    int: OptionType.SIZE,
    float: OptionType.SECONDS,
    str: OptionType.TEXT,
    tuple[str, ...]: OptionType.TEXTS,
}


def transport_options(scheme: str) -> KindOptions | None:
    """Return the options of a scheme's transport; `None` if it has no options class."""
    for entry in entry_points(group=GROUP, name=scheme):
        try:
            found = getattr(entry.load(), "options_class", None)
            return None if found is None else options_of(found)
        except Exception:  # noqa: BLE001 - reported when the node uses it
            return None
    return None


@cache
def options_of(options: type) -> KindOptions:
    """Return the options of a dataclass for a file.

    Fields without a TOML type, such as functions, are left out. A field that may be `None` is
    `false` then. Fields that are dataclasses themselves are tables.
    """
    hints = get_type_hints(options)
    known: dict[str, Option] = {}
    for field in fields(options):
        option = _option(hints[field.name])
        if option is not None and field.init:
            has_default = field.default is not MISSING or field.default_factory is not MISSING
            known[field.name] = replace(option, required=not has_default)
    return KindOptions(known, make=options)


def _option(hint: object) -> Option | None:
    """Return the option of a type; `None` if TOML has no such type."""
    if get_origin(hint) in (Union, UnionType):
        parts = get_args(hint)
        found = [option for part in parts if (option := _option(part)) is not None]
        # Of several types, a table is used if there is one.
        found.sort(key=lambda option: option.type is not OptionType.TABLE)
        return replace(found[0], can_be_off=NoneType in parts) if found else None
    if hint in _PLAIN:
        return Option(_PLAIN[hint])
    if not isinstance(hint, type):
        return None
    made = cast("type[Any]", hint)
    if issubclass(made, Enum):
        members = {each.name.lower().replace("_", "-"): each for each in made}
        return Option(OptionType.TEXT, choices=tuple(members), convert=members.__getitem__)
    if is_dataclass(made):

        def convert(read: dict[str, Any]) -> object:
            return made(**read)

        return Option(OptionType.TABLE, table=options_of(made), convert=convert)
    return None
