"""The rules of a node, by which it resolves addresses of other types than its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Final, TypeAlias

from ...protocol import LOCAL, Message
from .._errors import RuleInUse
from ._pending import Pending

__all__ = ["Rule", "Rules"]

Rule: TypeAlias = Callable[[Message], Message | list[Message] | Pending | None]
"""A function that resolves the first address of a message; see `Node.add_rule`."""


class Rules:
    """The rules of a node and their owners, by address type.

    Attributes:
        made: The rules that have been added.
        load: Function that adds the rule for a type, if there is one that is not loaded yet.
    """

    __slots__ = ("_lock", "_owners", "load", "made")

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self.made: Final[dict[int, Rule]] = {}
        self._owners: dict[int, object] = {}
        self.load: Callable[[int], object] | None = None

    def find(self, address_type: int) -> Rule | None:
        """Return the rule for a type; load it if necessary."""
        rule = self.made.get(address_type)
        if rule is None and address_type != LOCAL and self.load is not None:
            self.load(address_type)
            rule = self.made.get(address_type)
        return rule

    def add(self, address_type: int, rule: Rule, owner: object = None) -> None:
        """Add a rule; see `Node.add_rule`.

        Raises:
            ValueError: The type is out of range.
            RuleInUse: The type has a rule of another owner.
        """
        if not LOCAL < address_type <= 255:
            raise ValueError(f"a rule cannot have the address type {address_type}")
        new = rule if owner is None else owner
        with self._lock:
            present = self._owners.setdefault(address_type, new)
            if present is not new and present != new:  # a method is another object each time
                raise RuleInUse(address_type, _owner_text(present))
            # Routing protocol, Destination types: "A router SHOULD be able to register new types,
            # defining new routing rules."
            self.made[address_type] = rule

    def remove(self, address_type: int, owner: object = None) -> bool:
        """Remove the rule for a type, if it is the owner's; see `Node.remove_rule`."""
        with self._lock:
            present = self._owners.get(address_type)
            expected = self.made.get(address_type) if owner is None else owner
            if present is None or (present is not expected and present != expected):
                return False
            del self._owners[address_type]
            del self.made[address_type]
            return True


def _owner_text(owner: object) -> str:
    """Return the owner of a rule as a text for errors: `the function shop.resolve`."""
    if isinstance(owner, (FunctionType, MethodType)):
        return f"the function {owner.__module__}.{owner.__qualname__}"
    kind = type(owner)
    plain = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return f"the {kind.__name__} of the node" if plain else str(owner)
