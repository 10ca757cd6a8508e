"""Pykka's `Actor`, as type checkers are to see it.

Pykka declares its hooks, such as `on_start`, to return `None`. A worker's may be
coroutines, and a checker would call each of them an incompatible override. So checkers are
shown a base without the hooks; at run time a worker is a `pykka.Actor` like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Actor"]

if TYPE_CHECKING:
    from typing import Any

    from pykka import ActorRef

    class Actor:
        """What a worker takes over from `pykka.Actor` as it is."""

        @classmethod
        def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Any]:
            """Start it as in Pykka, on a node in the background."""
            ...

        def on_receive(self, message: Any) -> Any:
            """Handle a message of Pykka's `tell` or `ask`."""
            ...

        def _handle_receive(self, message: Any) -> Any: ...

else:
    from pykka import Actor
