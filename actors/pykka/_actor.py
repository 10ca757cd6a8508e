"""Pykka's `Actor`, with a declaration for type checkers.

Pykka declares its hooks, such as `on_start`, to return `None`. A worker's hooks may be
coroutines, which a checker would report as incompatible overrides. So checkers see a base class
without the hooks; at run time a worker is an ordinary `pykka.Actor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Actor"]

if TYPE_CHECKING:
    from typing import Any

    from pykka import ActorRef

    class Actor:
        """The methods that a worker inherits unchanged from `pykka.Actor`."""

        @classmethod
        def start(cls, *args: Any, **kwargs: Any) -> ActorRef[Any]:
            """Start the worker as in Pykka, on a node in the background."""
            ...

        def on_receive(self, message: Any) -> Any:
            """Handle a message of Pykka's `tell` or `ask`."""
            ...

        def _handle_receive(self, message: Any) -> Any: ...

else:
    from pykka import Actor
