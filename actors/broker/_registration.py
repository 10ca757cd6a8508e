"""The handle for a destination of a broker."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ...protocol import Address
from ...protocol._closed import close_class
from ...protocol.broker import Entry
from .table._index import TagIndexWorker
from .table._leaving import WITHDRAWN
from .table._remote import AnyRoute, own_route
from .table._route import BrokerRoute

__all__ = ["Registration"]


class Registration:
    """A handle for a destination in the table, which withdraws it."""

    __slots__ = ("_entry", "_index")

    def __init__(self, index: TagIndexWorker, entry: Entry[AnyRoute]) -> None:
        self._index = index
        self._entry = entry

    @property
    def _route(self) -> BrokerRoute:
        return own_route(self._entry)

    @property
    def route_id(self) -> UUID:
        """The destination's identity."""
        return UUID(bytes=self._entry.route_id)

    @property
    def address(self) -> Address:
        """The address of the worker that takes its requests."""
        return self._entry.target.to

    @property
    def current(self) -> bool:
        """Whether it is still in the table and has not been replaced."""
        return self._index.table.get(self._entry.route_id) is self._entry

    def pass_over(self) -> None:
        """Prefer other destinations from now on, where a request can go to another."""
        self._route.pass_over()

    def suspend(self) -> bool:
        """Hide the destination, as its session is suspended; return False if it has left."""
        return self._index.suspend(self._entry)

    def resume(self) -> bool:
        """Show the destination again; return False if it has left meanwhile."""
        resumed = self._index.resume(self._entry)
        if resumed is not None:
            self._entry = resumed
        return resumed is not None

    def on_leave(self, callback: Callable[[], None]) -> None:
        """Set the one function that is called when the destination leaves the table."""
        self._route.unwatch = callback

    def withdraw(self, reason: str = WITHDRAWN) -> bool:
        """Remove the destination from the table at once.

        Args:
            reason: Why, in a few words, for the event log.

        Returns:
            Whether it was still in the table. A destination that has been replaced was not;
            its replacement stays.
        """
        return self._index.leave(self._entry, reason)


close_class(Registration)
