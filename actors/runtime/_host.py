"""The base classes of what a cell needs besides the run queue: its host and its worker.

The runtime imports neither `Node` nor `Worker`. The node's registry of workers is a `Host`, and
`Worker` is a `HostedActor`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from ..pykka._actor import Actor
from ._policy import MailboxOptions

if TYPE_CHECKING:
    import pykka

    from ...protocol import Address, Message, OnwardError
    from ..pykka._inbox import Identity
    from ._cell import Cell
    from ._room import Room

__all__ = ["Host", "HostedActor"]


class Host:
    """The base class of the part of a node that a cell reports to and asks.

    Its methods are called when something out of the ordinary happens, and not for each message.
    """

    __slots__ = ()

    def join(self, cell: Cell, worker: HostedActor) -> None:
        """Give a new instance of a worker its node and its address."""
        raise NotImplementedError

    def forget(self, cell: Cell) -> None:
        """Remove a worker that has stopped."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Count a worker that did not stop in time, or could not."""
        raise NotImplementedError

    def lose(self, message: Message, error: OnwardError) -> None:
        """Make a message a dead letter, and report the error to its sender."""
        raise NotImplementedError

    def dead_letter(self, message: Message, reason: str | OnwardError) -> None:
        """Make a message a dead letter."""
        raise NotImplementedError

    def return_to_sender(
        self, message: Message | None, error: OnwardError, own: tuple[Address, ...]
    ) -> bool:
        """Lose the message of an error that a worker has raised, and report it to its sender.

        Returns:
            Whether the lost message is the given one, which the worker has in hand.
        """
        raise NotImplementedError

    def link_of(self, message: Message) -> Cell | None:
        """Return the link that a message came over, if it came over one."""
        raise NotImplementedError

    def share_of(self, message: Message) -> Cell | None:
        """Return the link that a waiting message counts for, if it came over one."""
        raise NotImplementedError


class HostedActor(Actor):
    """The part of `Worker` that its cell knows; see there for the attributes."""

    _cell: Cell | None = None
    _identity: Identity | None = None
    leaves_node: ClassVar[bool] = False
    is_connection: ClassVar[bool] = False
    notices_end: ClassVar[bool] = False
    stops_last: ClassVar[bool] = False
    has_flows: ClassVar[bool] = True
    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions()
    _needs_thread: ClassVar[bool] = False

    if TYPE_CHECKING:
        # `Worker` has them; here they would hide those of `pykka.Actor`.

        @property
        def actor_ref(self) -> pykka.ActorRef[Any]: ...

        def handle_message(self, message: Message) -> Awaitable[None] | None: ...

        def on_start(self) -> Awaitable[None] | None: ...

        def on_stop(self) -> Awaitable[None] | None: ...

        def on_failure(
            self,
            exception_type: type[BaseException] | None,
            exception_value: BaseException | None,
            traceback: TracebackType | None,
        ) -> Awaitable[None] | None: ...

    def _use(self, node: Any, out: Any) -> None:
        """Store the node, and the object that the worker sends through."""
        raise NotImplementedError

    def _join(self, cell: Cell) -> None:
        """Store the cell, and the address."""
        raise NotImplementedError

    def _has_start(self) -> bool:
        """Whether the worker has an `on_start` of its own."""
        raise NotImplementedError

    def _send_through(self, guard: Any) -> None:
        """Send through a guard from now on, in place of the router."""
        raise NotImplementedError

    def _largest(self) -> int | None:
        """Return the bytes of the largest message, routes included, if this link has a limit."""
        return None

    def _wait_for_room(self, room: Room) -> bool:
        """Keep a message that came over this link until there is room, if this is a link."""
        del room
        return False

    def _until_moved(self, room: Room) -> asyncio.Future[None] | None:
        """Return a future for the end of a message's wait, if this link has stopped reading."""
        del room
        return None

    def _inside_shrunk(self, size: int) -> None:
        """Handle a decrease of the waiting bytes that came over this link."""
