"""Names by tags: their consumers are the destinations of the node's broker that match a query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ...protocol import TAGS, Address, Route, UnknownAddress
from ...protocol.dispatch import Name, Provision
from ..broker import Broker
from ._consumer import Consumer
from ._errors import ConsumerRefused

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["TagConsumers"]

_FIRST: Final = 1.0
_LONGEST: Final = 60.0
"""Seconds until the destinations are followed again after a failure: `_FIRST`, then twice as long
each time, at most `_LONGEST`."""

_CHANGES: Final = frozenset({"joined", "left", "replaced"})

Attach = Callable[[Name, Route], Consumer]


class TagConsumers:
    """The consumers of names that are provisioned by tags.

    A destination is a consumer as long as it is registered with tags that match. It accepts a
    message by its answer.

    Args:
        core: The dispatcher.
        broker: The broker of the node. Destinations of its peer brokers are no consumers here:
            dispatchers of those nodes have them.
        attach: Attaches a consumer with a route.
    """

    def __init__(self, core: DispatchCore, broker: Broker, attach: Attach) -> None:
        self._core: Final = core
        self._broker: Final = broker
        self._attach: Final = attach
        self._asked: dict[str, Address] = {}
        self._consumers: Final[dict[str, dict[tuple[bytes, Route], Consumer]]] = {}
        self._task: Final = core.node.loop.create_task(self._follow())

    async def _follow(self) -> None:
        """Follow the broker until it stops; what fails is counted and logged, and done again."""
        wait = _FIRST
        while True:
            try:
                await self._follow_events()
            except Exception as error:  # noqa: BLE001 - else consumers would not change any more
                self._core.counts["failures to follow the destinations of the broker"] += 1
                self._core.fault("names by tags", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST)
            else:
                return

    async def _follow_events(self) -> None:
        with self._broker.events.subscribe() as events:
            self.refresh()
            async for event in events:
                if event.kind in _CHANGES or event.missed:
                    self.refresh()

    def stop(self) -> None:
        """End to follow the broker."""
        self._task.cancel()

    def provisioned(self, provisions: Iterable[Provision]) -> None:
        """Replace the names that are by tags."""
        self._asked = {
            each.pattern.written: Address(TAGS, each.semantics.tags.encode())
            for each in provisions
            if each.semantics.tags and each.pattern.is_exact
        }
        self.refresh()

    def refresh(self) -> None:
        """Attach the destinations that match now, and detach others."""
        for text in {*self._asked, *self._consumers}:
            asked = self._asked.get(text)
            ways = {} if asked is None else self._broker.index.own_ways(asked)
            wanted = {(route_id, way) for route_id, way in ways.items()}
            consumers = self._consumers.setdefault(text, {})
            for key in [each for each in consumers if each not in wanted]:
                consumers.pop(key).close()
            for key in wanted:
                if key not in consumers or consumers[key].reason:
                    # The worker of a destination may have just stopped, which is another event; at
                    # a limit the name goes on with the consumers that it has.
                    with suppress(ConsumerRefused, UnknownAddress):
                        consumers[key] = self._attach(self._core.parse(text), key[1])
            if not consumers and asked is None:
                del self._consumers[text]
