"""What the links of one connection have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from ._attaches import QUARTERS
from ._engine import AmqpEngine
from ._options import AmqpOptions
from ._proton import Proton

__all__ = ["LinkHost", "called_by_dispatcher"]


@dataclass(slots=True, eq=False)
class LinkHost:
    """The connection of links, as they know it.

    Attributes:
        engine: Its engine.
        options: The limits.
        wake: Called when there is something to send.
        drop: Called with the reason when a message is dropped.
        fail: Called with an error of a call by the dispatcher: it ends the connection.
        gathered: The bytes of messages that have come in part.
    """

    engine: AmqpEngine
    options: AmqpOptions
    wake: Callable[[], object]
    drop: Callable[[str], object]
    fail: Callable[[Exception], object]
    gathered: int = 0

    @property
    def window(self) -> int:
        """How many bytes may be on the way to one link that is tied to a circuit."""
        return max(QUARTERS, self.options.max_unsent // QUARTERS)

    @property
    def proton(self) -> Proton:
        """The engine's module."""
        return self.engine.proton


class HasHost(Protocol):
    """A link of a connection."""

    @property
    def host(self) -> LinkHost:
        """Its connection."""
        ...


P = ParamSpec("P")
Link = TypeVar("Link", bound=HasHost)


def called_by_dispatcher(
    call: Callable[Concatenate[Link, P], None],
) -> Callable[Concatenate[Link, P], None]:
    """Turn an error of a call into the end of the connection of the link that is called.

    The dispatcher calls in the turn of the connection that has sent, which is another one.
    """

    @wraps(call)
    def guarded(link: Link, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(link, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the caller is not the one that has failed
            link.host.fail(error)

    return guarded
