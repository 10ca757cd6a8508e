"""A route to the router of another node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....protocol import Route
from ....protocol.identity import Identity, LinkHandshake
from ...runtime._timer import Timer

if TYPE_CHECKING:
    from ._session import Session

__all__ = ["Way"]


class Way:
    """A route to the router of another node, and what goes on over it.

    Args:
        route: The route.

    Attributes:
        route: The route; its first address is a link of this node.
        dialled: Whether this node dials over it, and dials again after a loss.
        expected: The identity that the other node must have; `None` for any.
        handshake: The handshake that is under way, if one is.
        hello: The first message of a handshake that this node has begun; empty for another.
        session: The session, once there is one.
        node: The node that was at the other end last, and had proved its key; `None` before.
        waiting: The callers that wait for a session.
        failures: The handshakes that have failed since the last session.
        again: The time before which no handshake is begun after a loss or a failure, or because
            of what the other node says, in seconds of the loop.
        repeats: Whether a handshake is wanted because of what the other node says, or of lost
            frames, until one has come to its end.
        dialled_else: When the other node last dialled another link while this one was kept, in
            seconds of the loop.
        silent_since: When the other node began to dial another link, if nothing has come over this
            one since, in seconds of the loop; else `None`.
        due: The time of the timer, in seconds of the loop.
        timer: The timer of the handshakes, or of the next one.
        unwatch: Functions that end the watches of the link.
    """

    __slots__ = (
        "again",
        "dialled",
        "dialled_else",
        "due",
        "expected",
        "failures",
        "handshake",
        "hello",
        "node",
        "repeats",
        "route",
        "session",
        "silent_since",
        "timer",
        "unwatch",
        "waiting",
    )

    def __init__(self, route: Route) -> None:
        self.route: Final = route
        self.dialled = False
        self.expected: Identity | None = None
        self.handshake: LinkHandshake | None = None
        self.hello = b""
        self.session: Session | None = None
        self.node: Identity | None = None
        self.waiting: Final[list[asyncio.Future[Identity]]] = []
        self.failures = 0
        self.again = 0.0
        self.repeats = False
        self.dialled_else = 0.0
        self.silent_since: float | None = None
        self.due = 0.0
        self.timer: Timer | None = None
        self.unwatch: tuple[Callable[[], None], ...] = ()
