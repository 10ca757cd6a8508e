"""Access controls: predicates of messages, and functions that combine them.

A control decides by fields that cannot be forged. `Message.source` is the primary address of the
local worker that sent the message; for a message from another node, of the link. The onward route
is the route that the message takes. The return route is an unverified claim of the sender.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import Address, AddressLike, Message, address as address_of

if TYPE_CHECKING:
    from ..routing._table import AddressTable

__all__ = [
    "Access",
    "AccessControl",
    "all_of",
    "allow_all",
    "any_of",
    "deny_all",
    "from_source",
    "local_only",
    "not_",
    "to_next",
]

AccessControl: TypeAlias = Callable[[Message], bool]
"""A predicate that permits a message by `True` and denies it by `False`.

It is called on the sender's thread, before the message is in any mailbox, and must not block. A
control that raises, or returns another value, denies the message; that is logged at intervals.
"""


class NamedControl:
    """A control with a readable representation, which may depend on its node."""

    __slots__ = ()

    def __call__(self, message: Message) -> bool:
        """Whether the control permits a message."""
        raise AssertionError(f"unexpected call of {self!r} for {message}")

    def on(self, _table: AddressTable) -> AccessControl:
        """Return the control for a node."""
        return self


class _All(NamedControl):
    __slots__ = ()

    def __call__(self, message: Message) -> bool:
        return True

    def __repr__(self) -> str:
        return "allow_all"


class _None(NamedControl):
    __slots__ = ()

    def __call__(self, message: Message) -> bool:
        return False

    def __repr__(self) -> str:
        return "deny_all"


class _LocalOnly(NamedControl):
    __slots__ = ("_table",)

    def __init__(self, table: AddressTable | None) -> None:
        self._table = table

    def __call__(self, message: Message) -> bool:
        source, table = message[3], self._table
        if source is None:
            return True
        return table is not None and table.is_inside(source)

    def __repr__(self) -> str:
        return "local_only"

    def on(self, table: AddressTable) -> AccessControl:
        return _LocalOnly(table)


@dataclass(frozen=True, slots=True, repr=False)
class _FromSource(NamedControl):
    addresses: frozenset[Address]

    def __call__(self, message: Message) -> bool:
        return message[3] in self.addresses

    def __repr__(self) -> str:
        return f"from_source({_names(self.addresses)})"


@dataclass(frozen=True, slots=True, repr=False)
class _ToNext(NamedControl):
    addresses: frozenset[Address]

    def __call__(self, message: Message) -> bool:
        return message[0][0] in self.addresses

    def __repr__(self) -> str:
        return f"to_next({_names(self.addresses)})"


@dataclass(frozen=True, slots=True, repr=False)
class _AllOf(NamedControl):
    controls: tuple[AccessControl, ...]

    def __call__(self, message: Message) -> bool:
        return all(passes(control, message) for control in self.controls)

    def __repr__(self) -> str:
        return f"all_of({', '.join(map(_name, self.controls))})"

    def on(self, table: AddressTable) -> AccessControl:
        return _AllOf(tuple(on_node(control, table) for control in self.controls))


@dataclass(frozen=True, slots=True, repr=False)
class _AnyOf(NamedControl):
    controls: tuple[AccessControl, ...]

    def __call__(self, message: Message) -> bool:
        return any(passes(control, message) for control in self.controls)

    def __repr__(self) -> str:
        return f"any_of({', '.join(map(_name, self.controls))})"

    def on(self, table: AddressTable) -> AccessControl:
        return _AnyOf(tuple(on_node(control, table) for control in self.controls))


@dataclass(frozen=True, slots=True, repr=False)
class _Not(NamedControl):
    control: AccessControl

    def __call__(self, message: Message) -> bool:
        return not passes(self.control, message)

    def __repr__(self) -> str:
        return f"not_({_name(self.control)})"

    def on(self, table: AddressTable) -> AccessControl:
        return _Not(on_node(self.control, table))


allow_all: Final[AccessControl] = _All()
"""Permits every message. An address with no other control has no overhead."""

deny_all: Final[AccessControl] = _None()
"""Permits no message."""

local_only: Final[AccessControl] = _LocalOnly(None)
"""Permits messages sent by workers of the node other than links, and by code outside of workers.
Only the last hop counts: a message from another node that an exposed forwarder passed on was sent
by the forwarder."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access controls of an address.

    Attributes:
        incoming: The control for messages to the address, which is their first onward address.
        outgoing: The control for messages that the worker sends, with itself as the source and
            the next hop as the first onward address.
    """

    incoming: AccessControl = allow_all
    outgoing: AccessControl = allow_all


def from_source(*addresses: AddressLike) -> AccessControl:
    """Return a control that permits messages from some workers, by their primary addresses.

    The address of a link permits messages that came over that link.
    """
    return _FromSource(frozenset(map(address_of, addresses)))


def to_next(*addresses: AddressLike) -> AccessControl:
    """Return a control that permits messages with one of some addresses as the next hop."""
    return _ToNext(frozenset(map(address_of, addresses)))


def all_of(*controls: AccessControl) -> AccessControl:
    """Return a control that permits messages that all controls permit; without controls, all.

    The controls are called in order.
    """
    return _AllOf(controls)


def any_of(*controls: AccessControl) -> AccessControl:
    """Return a control that permits messages that any control permits; without controls, none.

    The controls are called in order.
    """
    return _AnyOf(controls)


def not_(control: AccessControl) -> AccessControl:
    """Return a control that permits messages that another denies. If that raises, it denies too."""
    return _Not(control)


def on_node(control: AccessControl, table: AddressTable) -> AccessControl:
    """Return a control in its form for a node."""
    return control.on(table) if isinstance(control, NamedControl) else control


class NoDecision(TypeError):
    """A control returned a value other than `True` and `False`."""


def passes(control: AccessControl, message: Message) -> bool:
    """Whether a control permits a message.

    Raises:
        NoDecision: It returned neither `True` nor `False`. A coroutine is true, so a control
            written with `async def` would permit every message.
    """
    answer: object = control(message)
    if answer is True or answer is False:
        return answer
    close = getattr(answer, "close", None)
    if callable(close):
        close()  # a coroutine that will not be awaited
    raise NoDecision(f"{_name(control)} returned {type(answer).__name__}, not True or False")


def _names(addresses: frozenset[Address]) -> str:
    return ", ".join(sorted(map(str, addresses)))


def _name(control: AccessControl) -> str:
    if isinstance(control, NamedControl):
        return repr(control)
    name = getattr(control, "__qualname__", None)
    return name if isinstance(name, str) else repr(control)
