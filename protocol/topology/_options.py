"""Reading tables of options: those of a kind of worker, and those of a transport."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from ..toml import FileTable
from . import _values as values
from ._kinds import KindOptions, Option, read_option
from ._plan import OptionValue

__all__ = ["TransportOptions", "any_options", "read_options", "read_transport_options"]

TransportOptions: TypeAlias = Callable[[str], KindOptions | None]
"""The options of the transport of a scheme; `None`: not known."""

_BESIDE: Final = ("allow", "expose", "uri")
"""Keys that stand beside the options, not in them."""


def any_options(_scheme: str) -> None:
    """Know nothing of transports: whatever a file gives them is passed on as it is."""


def read_transport_options(
    table: FileTable, uri: str, transports: TransportOptions
) -> dict[str, OptionValue]:
    """Read the options of a listener or a link.

    Args:
        table: That of the listener or link.
        uri: Its URI, or that of the listener it goes to; empty if it is not known.
        transports: The options of transports.
    """
    options = table.table("options")
    if not options.keys():
        return {}
    # This one is the node's, whatever the transport.
    replies = options.maybe("error_replies", values.flag)
    known = transports(uri.partition("://")[0]) if uri else None
    if known is None:
        read = options.rest()
        for key in _BESIDE:
            if key in read:
                options.add(key, f"{key} stands beside options, not in them")
    else:
        read = read_options(options, known)
    return read if replies is None else {**read, "error_replies": replies}


def read_options(table: FileTable, known: KindOptions) -> dict[str, OptionValue]:
    """Read a table of options, and say all that is wrong with it."""
    read: dict[str, OptionValue] = {}
    for name, option in known.options.items():
        found = _nested(table, name, option)
        if found is not None:
            (read[name],) = found
    table.finish()
    if known.make is not None and not table.has_problem:
        _make(table, known.make, read)
    return read


def _plain(table: FileTable, name: str, option: Option) -> tuple[object] | None:
    def convert(value: object) -> tuple[object]:
        # In a tuple, as it may be `None`.
        return (read_option(option, value),)

    take = table.need if option.required else table.maybe
    return take(name, convert)


def _nested(table: FileTable, name: str, option: Option) -> tuple[object] | None:
    if option.table is None or not isinstance(table.peek(name), dict):
        # It is not there, it is off, or it is wrong.
        return _plain(table, name, option)
    inner = table.table(name)
    read = read_options(inner, option.table)
    if inner.has_problem:
        table.has_problem = True
        return None
    return (read if option.convert is None else option.convert(read),)


def _make(table: FileTable, make: Callable[..., object], read: Mapping[str, object]) -> None:
    """Report problems of options that each have the right type."""
    left = dict(read)
    while True:
        try:
            make(**left)
        except (ValueError, TypeError) as error:
            told = str(error)
            key = next((name for name in left if re.search(rf"\b{name}\b", told)), "")
            table.add(key, told)
            if not key:
                return
            del left[key]
        else:
            return
