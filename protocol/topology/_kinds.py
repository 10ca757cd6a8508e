"""The vocabulary of topology files: kinds of worker, and the types of options.

The runtime defines the kinds of worker and the options of transports. The caller of `read_topology`
passes them in, so that problems are reported with their place in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, cast

from .._address import Address, Route
from ..options import check_options
from . import _values as values

__all__ = ["KindOptions", "Option", "OptionType", "local_heads", "read_option"]


class OptionType(Enum):
    """The type of an option in the file, and its conversion."""

    TEXT = "text"
    """Text, as it is."""

    COUNT = "count"
    """A whole number of at least 1."""

    SECONDS = "seconds"
    """A number of at least 0."""

    SIZE = "size"
    """A whole number of at least 0."""

    FLAG = "flag"
    """A truth value."""

    TEXTS = "texts"
    """A list of texts that becomes a tuple."""

    TABLE = "table"
    """A table: of further options, which are in `Option.table`, or of anything."""

    ADDRESS = "address"
    """Text that becomes an `Address`."""

    ADDRESSES = "addresses"
    """A list of texts that becomes a tuple of `Address`."""

    ROUTE = "route"
    """Text that becomes a `Route`; a local address at its front has to be one of the node."""

    ROUTES = "routes"
    """A list of texts that becomes a tuple of `Route`, each as with `ROUTE`."""

    LISTENERS = "listeners"
    """A list of names of the node's listeners that becomes a tuple of `ListenerPlan.address`."""


_READERS: Final[dict[OptionType, Callable[[object], object]]] = {
    OptionType.TEXT: values.text,
    OptionType.COUNT: values.count,
    OptionType.SECONDS: values.seconds,
    OptionType.SIZE: values.size,
    OptionType.FLAG: values.flag,
    OptionType.TEXTS: values.texts,
    OptionType.TABLE: values.table,
    OptionType.ADDRESS: values.address,
    OptionType.ADDRESSES: values.addresses,
    OptionType.ROUTE: values.route,
    OptionType.ROUTES: values.routes,
    OptionType.LISTENERS: values.listeners,
}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a kind of worker, of a transport, or in a table of those.

    Attributes:
        type: What it is.
        required: Whether it has to be there.
        choices: For a TEXT: what it can be; empty: anything.
        can_be_off: Whether `false` may stand in its place, which becomes `None`.
        table: For a TABLE: what is in it; by default anything, which is left as it is.
        convert: What makes of it what it becomes; what it is read as by default.
    """

    type: OptionType
    required: bool = False
    choices: tuple[str, ...] = ()
    can_be_off: bool = False
    table: KindOptions | None = None
    convert: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True)
class KindOptions:
    """The options of a kind of worker, or of a transport.

    Attributes:
        options: Its options, by name.
        passes_on: Whether what comes to it goes on along the rest of the onward route, so that
            the next address has to be known where it is.
        make: What is made of all options, called with them by name: a `ValueError` of it is a
            problem of the file, with the option that its text names. By default nothing is.
    """

    options: Mapping[str, Option] = field(default_factory=dict[str, Option])
    passes_on: bool = False
    make: Callable[..., object] | None = None

    def __post_init__(self) -> None:
        check_options(self)


def read_option(option: Option, value: object) -> object:
    """Make of a value of TOML what the option is.

    Raises:
        ValueError: It is of another type, or out of range; an `AddressError` is one too.
    """
    if option.can_be_off and value is False:
        return None
    reader = values.one_of(*option.choices) if option.choices else _READERS[option.type]
    read = reader(value)
    return read if option.convert is None else option.convert(read)


def local_heads(option: Option, value: object) -> tuple[Address, ...]:
    """Return the addresses that what an option was read as needs on the worker's node."""
    if not value:
        return ()
    if option.type is OptionType.ROUTE:
        return (cast("Route", value)[0],)
    if option.type is OptionType.ROUTES:
        return tuple(route[0] for route in cast("tuple[Route, ...]", value))
    if option.type is OptionType.LISTENERS:
        return cast("tuple[Address, ...]", value)
    return ()
