"""The forwarder for unicast and shard: one destination out of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol import Message
from .._worker import Worker

if TYPE_CHECKING:
    from .table._index import TagIndexWorker

__all__ = ["Unicast"]


class Unicast(Worker):
    """Rewrite the route to the one destination that the selector picks.

    A message arrives with this worker first and the tag query second on its onward route;
    both give way to the route that was picked. Each query has its own selector, so two
    services that are asked in alternation do not disturb each other.
    """

    def __init__(self, index: TagIndexWorker) -> None:
        super().__init__()
        self._index = index

    def handle_message(self, message: Message) -> None:
        """Replace the query by the destination that is picked."""
        index = self._index
        chosen = index.chosen(index.asked(message.onward_route[1]), message)
        if chosen is None:  # the last destination left in the meantime; wait for the next
            self.node.carry_or_bury(message.step())
            return
        self.node.carry_or_bury(message.step().redirect(chosen))
