"""The worker of the router of identities: its rule, and what comes from other nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from ...protocol import IDENTITY, Message
from ...protocol.identity import SigningKey
from .._worker import Worker
from ._options import IdentityOptions
from ._router import Router

__all__ = ["RouterWorker"]


class RouterWorker(Worker):
    """The worker of the router of a node.

    Args:
        key: The key of the node.
        options: The options.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.

    Attributes:
        router: The router, once the worker has started.
    """

    def __init__(
        self, key: SigningKey, options: IdentityOptions, milliseconds: Callable[[], int]
    ) -> None:
        super().__init__()
        self._given: Final = key, options, milliseconds
        self.router: Router

    def on_start(self) -> None:
        """Add the rule."""
        self.router = Router(self, *self._given)
        self.node.add_rule(IDENTITY, self.router.resolve, owner=self._placed)

    def on_stop(self) -> None:
        """Remove the rule, and end the links to other nodes."""
        self.node.remove_rule(IDENTITY, owner=self._placed)
        self.router.close()

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Receive a frame of another node."""
        self.router.peers.receive(message)
        return None
