"""Classes without subclasses outside of the package."""

from __future__ import annotations

from typing import Any

__all__ = ["close_class"]

OURS = "onward."


def close_class(cls: type) -> None:
    """Refuse subclasses in other packages of a class of ours.

    A class that mypyc compiles cannot have subclasses that are interpreted: they raise TypeError
    when an instance is made. Closed, the class refuses them in both builds alike, and when they
    are defined. It is called after the class, as mypyc leaves classes with a decorator interpreted.

    Args:
        cls: The class.
    """

    def refuse(subclass: type, /, **_options: Any) -> None:
        if not subclass.__module__.startswith(OURS):
            raise TypeError(f"{cls.__qualname__} cannot have subclasses")

    # By name, as the type checkers know the hook by its definition in a class only.
    setattr(cls, "__init_subclass__", classmethod(refuse))  # noqa: B010
