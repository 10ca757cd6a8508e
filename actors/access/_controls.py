"""Access controls: functions of a message that say whether it may pass, and how to combine them.

A control decides by what cannot be forged: `Message.source`, the primary address of the local
worker that sent the message (for one from another node: its link's), and the onward route,
which is where the message really goes. The return route is anybody's claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import Address, AddressLike, Message, address as address_of

if TYPE_CHECKING:
    from .._workers import Workers

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
"""Tells whether a message may pass; only `True` lets it.

It is called on the sender's thread, before the message is in any mailbox, and must not block. One
that raises, or returns anything but `True` and `False`, denies, and that is logged now and then.
"""


class Control:
    """A control that can be shown and, if need be, adapts to the node it is used on."""

    __slots__ = ()

    def __call__(self, message: Message) -> bool:
        """Tell whether a message may pass."""
        raise AssertionError(f"unexpected call of {self!r} for {message}")

    def on(self, _node: Workers) -> AccessControl:
        """Return what decides on that node."""
        return self


class _All(Control):
    __slots__ = ()

    def __call__(self, message: Message) -> bool:
        return True

    def __repr__(self) -> str:
        return "allow_all"


class _None(Control):
    __slots__ = ()

    def __call__(self, message: Message) -> bool:
        return False

    def __repr__(self) -> str:
        return "deny_all"


class _LocalOnly(Control):
    __slots__ = ("_node",)

    def __init__(self, node: Workers | None) -> None:
        self._node = node

    def __call__(self, message: Message) -> bool:
        source, node = message[3], self._node
        if source is None:
            return True
        return node is not None and node.is_inside(source)

    def __repr__(self) -> str:
        return "local_only"

    def on(self, node: Workers) -> AccessControl:
        return _LocalOnly(node)


@dataclass(frozen=True, slots=True, repr=False)
class _FromSource(Control):
    addresses: frozenset[Address]

    def __call__(self, message: Message) -> bool:
        return message[3] in self.addresses

    def __repr__(self) -> str:
        return f"from_source({_names(self.addresses)})"


@dataclass(frozen=True, slots=True, repr=False)
class _ToNext(Control):
    addresses: frozenset[Address]

    def __call__(self, message: Message) -> bool:
        return message[0][0] in self.addresses

    def __repr__(self) -> str:
        return f"to_next({_names(self.addresses)})"


@dataclass(frozen=True, slots=True, repr=False)
class _AllOf(Control):
    controls: tuple[AccessControl, ...]

    def __call__(self, message: Message) -> bool:
        return all(passes(control, message) for control in self.controls)

    def __repr__(self) -> str:
        return f"all_of({', '.join(map(_name, self.controls))})"

    def on(self, node: Workers) -> AccessControl:
        return _AllOf(tuple(on_node(control, node) for control in self.controls))


@dataclass(frozen=True, slots=True, repr=False)
class _AnyOf(Control):
    controls: tuple[AccessControl, ...]

    def __call__(self, message: Message) -> bool:
        return any(passes(control, message) for control in self.controls)

    def __repr__(self) -> str:
        return f"any_of({', '.join(map(_name, self.controls))})"

    def on(self, node: Workers) -> AccessControl:
        return _AnyOf(tuple(on_node(control, node) for control in self.controls))


@dataclass(frozen=True, slots=True, repr=False)
class _Not(Control):
    control: AccessControl

    def __call__(self, message: Message) -> bool:
        return not passes(self.control, message)

    def __repr__(self) -> str:
        return f"not_({_name(self.control)})"

    def on(self, node: Workers) -> AccessControl:
        return _Not(on_node(self.control, node))


allow_all: Final[AccessControl] = _All()
"""Lets every message pass. An address with no other control costs nothing."""

deny_all: Final[AccessControl] = _None()
"""Lets no message pass."""

local_only: Final[AccessControl] = _LocalOnly(None)
"""Lets pass what a worker of the node sent that is no link, and what code outside of workers
sent. It looks at the last hop: what comes from another node by way of a forwarder that is
exposed was sent by that forwarder."""


@dataclass(frozen=True, slots=True)
class Access:
    """What may come in at an address, and what its worker may send from it.

    Attributes:
        incoming: Decides about messages for the address. Its worker is the first onward address.
        outgoing: Decides about what the worker sends, with itself as the source: the first
            onward address is where it goes.
    """

    incoming: AccessControl = allow_all
    outgoing: AccessControl = allow_all


def from_source(*addresses: AddressLike) -> AccessControl:
    """Let pass what these workers of the node sent, by their primary addresses.

    With the address of a link: what came over that link.
    """
    return _FromSource(frozenset(map(address_of, addresses)))


def to_next(*addresses: AddressLike) -> AccessControl:
    """Let pass what goes to these addresses next."""
    return _ToNext(frozenset(map(address_of, addresses)))


def all_of(*controls: AccessControl) -> AccessControl:
    """Let pass what every one of these lets pass, asked in order; with none: everything."""
    return _AllOf(controls)


def any_of(*controls: AccessControl) -> AccessControl:
    """Let pass what one of these lets pass, asked in order; with none: nothing."""
    return _AnyOf(controls)


def not_(control: AccessControl) -> AccessControl:
    """Let pass what a control does not let pass. If that raises, nothing passes."""
    return _Not(control)


def on_node(control: AccessControl, node: Workers) -> AccessControl:
    """Return what a control is on a node."""
    return control.on(node) if isinstance(control, Control) else control


class NoDecision(TypeError):
    """A control returned something that is neither `True` nor `False`."""


def passes(control: AccessControl, message: Message) -> bool:
    """Ask a control.

    Raises:
        NoDecision: It returned no decision. A coroutine would count as true, so that whoever
            writes a control with `async def` would let everything pass.
    """
    answer: object = control(message)
    if answer is True or answer is False:
        return answer
    close = getattr(answer, "close", None)
    if callable(close):
        close()  # a coroutine that nobody will await
    raise NoDecision(f"{_name(control)} returned {type(answer).__name__}, not True or False")


def _names(addresses: frozenset[Address]) -> str:
    return ", ".join(sorted(map(str, addresses)))


def _name(control: AccessControl) -> str:
    if isinstance(control, Control):
        return repr(control)
    name = getattr(control, "__qualname__", None)
    return name if isinstance(name, str) else repr(control)
