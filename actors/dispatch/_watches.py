"""Functions of a program that are called when a name gains or loses consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol.dispatch import Name
from .._errors import LimitReached

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["WatchFunction", "Watches"]

WatchFunction: TypeAlias = Callable[[str, int], object]
"""Function that is called with a name and the number of its consumers here and of other nodes with
consumers, each time that there is a change. On the loop; it must not block."""


class Watches:
    """The functions that watch names.

    Args:
        core: The dispatcher.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core
        self._functions: Final[dict[str, list[WatchFunction]]] = {}

    def __contains__(self, text: str) -> bool:
        """Whether a name is watched."""
        return text in self._functions

    def add(self, name: Name, function: WatchFunction) -> Callable[[], None]:
        """Call a function from now on; return a function that ends that.

        Raises:
            LimitReached: There are `DispatchOptions.max_names`.
        """
        names, text = self._core.names, name.text
        # Only names with a state are told of consumers at other nodes.
        if names.find(name) is None:
            raise LimitReached("names", self._core.options.max_names)
        functions = self._functions.setdefault(text, [])
        functions.append(function)

        def unwatch() -> None:
            if function in functions:
                functions.remove(function)
            if not functions and self._functions.get(text) is functions:
                del self._functions[text]
                if (state := names.states.get(text)) is not None:
                    names.tidy(state)

        return unwatch

    def changed(self, state: NameState) -> None:
        """Call the functions that watch a name."""
        for function in tuple(self._functions.get(state.name.text, ())):
            try:
                function(state.name.text, state.paths)
            except Exception as error:  # noqa: BLE001 - user code
                self._core.fault("watching a name", error)
