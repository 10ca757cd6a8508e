"""The times of a trial without trouble, in which each fire-and-forget has to arrive."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from tests.peers.loads import Handled, Load, Told
from tests.peers.networked import NetworkedBroker, until

__all__ = ["Calm"]


class Calm:
    """The present time without trouble, and what was told in it and in those before.

    It begins once all links are up, all routes are known, and each client has had an answer by the
    connection that it has then.

    Attributes:
        sure: The texts of the fire-and-forgets that had to arrive, and have.

    Args:
        made: The brokers by name, each with a destination of the service `at-NAME`.
        loads: The clients, also those to come.
        handled: What the destinations got.
        joined: Waits until all links are up.
    """

    def __init__(
        self,
        made: dict[str, NetworkedBroker],
        loads: Sequence[Load],
        handled: Handled,
        joined: Callable[[], Awaitable[None]],
    ) -> None:
        self.sure: set[str] = set()
        self._services = [f"at-{name}" for name in made]
        self._made = made
        self._loads = loads
        self._handled = handled
        self._joined = joined
        self._since: dict[str, int] = {}

    @asynccontextmanager
    async def broken(self) -> AsyncGenerator[None]:
        """Have trouble, and calm behind it."""
        await self.end()
        yield
        await self.begin()

    async def begin(self) -> None:
        """Wait until it has begun."""
        await self._joined()
        await until(self._wrong_routes, [], "routes")
        await asyncio.gather(*(load.one_more() for load in self._loads))
        self._since = {load.name: load.sent for load in self._loads}

    async def end(self) -> None:
        """Check that what is told since it began arrives, as much as there are clients at least."""

        async def much() -> bool:
            return len(self._told()) >= len(self._since) or all(load.over for load in self._loads)

        await until(much, about="told in calm")
        told = self._told()
        self._since = {}
        await self.arrived(told)

    def _told(self) -> list[Told]:
        """Return what was told since it began, to destinations at brokers of ours."""
        told = [
            each for load in self._loads for each in load.told_since(self._since.get(load.name))
        ]
        return [each for each in told if each.service in self._services]

    async def arrived(self, told: Sequence[Told]) -> None:
        """Wait until each destination has got what it was told."""

        async def missing() -> list[Told]:
            return [each for each in told if not self._handled.at[each.service][each.text]]

        await until(missing, [], "told, and not handled")
        self.sure.update(each.text for each in told)

    async def _wrong_routes(self) -> list[str]:
        """Return the services that a broker has more routes of than one, or none."""
        tables = [Counter(name for _, name in await at.routes()) for at in self._made.values()]
        return [name for name in self._services if {table[name] for table in tables} != {1}]
