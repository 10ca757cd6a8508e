"""The destinations of the node's broker that are consumers of names.

A name that is provisioned by tags has the destinations that match a query. And a destination may
ask for a name, by a tag with the key `DispatchOptions.consume_key`: the name is the value.
The rules of the broker decide which of them may register that tag, and the roles of the name apply.

Names follow the destinations after a pause that grows while these change (`NetworkLimits.pause`, up
to `longest_pause`), and in slices of `DispatchOptions.name_slice` steps: a step looks at a name, or
attaches or detaches one destination.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ...protocol import TAGS, Address, AddressError, Route, UnknownAddress
from ...protocol.broker import parse_tag
from ...protocol.dispatch import BadName, Name, Provision, Throttle
from ...protocol.security import Principal
from ..broker import Broker
from ._consumer import Consumer
from ._errors import ConsumerRefused
from ._schedule import Alarm

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["TagConsumers"]

_FIRST: Final = 1.0
_LONGEST: Final = 60.0
"""Seconds until the destinations are followed again after a failure: `_FIRST`, then twice as long
each time, at most `_LONGEST`."""

_CHANGES: Final = frozenset({"joined", "left", "replaced"})

_FAILURES: Final = "failures to follow the destinations of the broker"

Attach = Callable[[Name, Route, Principal | None, bool], Consumer]
_Key: TypeAlias = tuple[bytes, Route, bool]
"""The route id and the route of a destination, and whether it has asked for the name itself: one
that the node has chosen has no roles of the name, and is attached anew if it is to have them."""

_Consumers: TypeAlias = dict[_Key, Consumer]


class TagConsumers:
    """The consumers of names that are destinations.

    A destination is a consumer as long as it is registered with the tags for that. It accepts a
    message by its answer.

    Args:
        core: The dispatcher.
        broker: The broker of the node. Destinations of its peer brokers are no consumers here:
            dispatchers of those nodes have them.
        attach: Attaches a destination as a consumer: the name, its route, its principal, and
            whether it has asked for the name itself, which it may not be allowed to have.
    """

    def __init__(self, core: DispatchCore, broker: Broker, attach: Attach) -> None:
        self._core: Final = core
        self._broker: Final = broker
        self._attach: Final = attach
        self._asked: dict[str, Address] = {}
        self._key: Final = core.options.consume_key
        self._wished: dict[str, list[Address]] = {}
        limits = core.options.network
        self._pause: Final = Throttle(limits.pause, limits.longest_pause)
        self._alarm: Final = Alarm(core.worker, self._due)
        self._steps: Final = deque[Callable[[], object]]()
        self._under_way = self._again = self._failed = False
        self._wait = _FIRST
        self._consumers: Final[dict[str, _Consumers]] = {}
        self._task: Final = core.node.loop.create_task(self._follow())

    async def _follow(self) -> None:
        """Follow the broker until it stops; what fails is counted and logged, and done again."""
        wait = _FIRST
        while True:
            try:
                await self._follow_events()
            except Exception as error:  # noqa: BLE001 - else consumers would not change any more
                self._core.counts[_FAILURES] += 1
                self._core.fault("names by tags", error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, _LONGEST)
            else:
                return

    async def _follow_events(self) -> None:
        with self._broker.events.subscribe() as events:
            self._due()
            async for event in events:
                if event.kind in _CHANGES or event.missed:
                    self._changed()

    def _changed(self) -> None:
        """Follow a change of a destination, after a pause."""
        if self._asked or self._key:
            self._alarm.set(self._pause.next(self._core.now()))

    def _due(self) -> None:
        """Follow the destinations as they are now."""
        self._pause.used(self._core.now())
        self._look() if self._key else self.refresh()

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

    def _look(self) -> None:
        """Find the names that destinations ask for by a tag."""
        self._wished = {}
        for value in sorted(self._broker.index.own_values(self._key)):
            try:
                _, name = parse_tag(f"{self._key}={value}")
                text = self._core.parse(name or "").text
            except (AddressError, BadName):
                self._core.counts["names of destinations that cannot be read"] += 1
            else:
                # It may be written in several ways.
                asked = Address(TAGS, f"{self._key}={value}".encode())
                self._wished.setdefault(text, []).append(asked)
        self.refresh()

    def refresh(self) -> None:
        """Attach the destinations that match now, and detach others, in slices."""
        if self._under_way:
            self._again = True
            return
        self._under_way = True
        self._again = self._failed = False
        names = sorted({*self._asked, *self._wished, *self._consumers})
        self._steps.extend(partial(self._name, text) for text in names)
        self._core.slices.begin(self._next_steps(), self._step, self._refreshed)

    def _next_steps(self) -> Iterator[Callable[[], object]]:
        while self._steps:
            yield self._steps.popleft()

    def _step(self, step: Callable[[], object]) -> None:
        """Perform a step; what fails is counted and logged, and done again later."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - else consumers would not change any more
            self._failed = True
            self._core.counts[_FAILURES] += 1
            self._core.fault("names by tags", error)

    def _refreshed(self) -> None:
        self._under_way = False
        if self._failed:
            self._alarm.set(self._core.now() + self._wait)
            self._wait = min(2 * self._wait, _LONGEST)
        else:
            self._wait = _FIRST
        if self._again:
            self._alarm.set(self._pause.next(self._core.now()))

    def _name(self, text: str) -> None:
        """Find the destinations that match for a name, and what there is to do for them."""
        wished = text not in self._asked
        asked = self._wished.get(text, []) if wished else [self._asked[text]]
        wanted = {
            (route_id, way.route, wished): way.principal
            for each in asked
            for route_id, way in self._broker.index.own_ways(each).items()
        }
        consumers = self._consumers.setdefault(text, {})
        steps: list[Callable[[], object]] = [
            partial(self._let_go, consumers, key) for key in consumers if key not in wanted
        ]
        for key, principal in wanted.items():
            if key not in consumers or consumers[key].reason:
                steps.append(partial(self._attach_one, consumers, text, key, principal))
        steps.append(partial(self._tidy, text))
        self._steps.extendleft(reversed(steps))

    @staticmethod
    def _let_go(consumers: _Consumers, key: _Key) -> None:
        consumers.pop(key).close()

    def _attach_one(
        self,
        consumers: _Consumers,
        text: str,
        key: _Key,
        principal: Principal | None,
    ) -> None:
        _, route, wished = key
        if wished is not (text not in self._asked):
            return  # The name has changed in kind since, and is followed again behind these steps.
        # The worker of a destination may have just stopped, which is another event; at a limit the
        # name goes on with the consumers that it has.
        try:
            consumers[key] = self._attach(self._core.parse(text), route, principal, wished)
        except (ConsumerRefused, UnknownAddress):
            self._core.counts["destinations that were refused as consumers"] += 1

    def _tidy(self, text: str) -> None:
        """Forget a name without consumers that is not by tags any more."""
        asked = text in self._asked or text in self._wished
        if not asked and not self._consumers.get(text):
            self._consumers.pop(text, None)
