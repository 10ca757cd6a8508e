"""The messages that the nodes of a run send each other, in trouble and when all is well."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Final

from onward.protocol import OnwardError
from onward.protocol.identity import FreshnessRefusal, Identity, identity_text
from tests.simulated.identity_ledger import Ledger, Sent
from tests.simulated.identity_places import Place, Places
from tests.simulated.identity_plan import Plan
from tests.support.domains import DOMAIN, domain_text
from tests.support.identities import engine_text, key_of, node_text

__all__ = ["Tasks", "Traffic"]

LONGEST: Final = 8.0
"""Longest time for which an answer is awaited, in seconds."""


class Tasks:
    """What is under way in a run beside it, such as requests and moves."""

    def __init__(self) -> None:
        self._tasks: Final[set[asyncio.Task[None]]] = set()

    def do(self, what: Coroutine[Any, Any, None]) -> None:
        """Do something beside the run."""
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for all that is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)


class Traffic:
    """The messages of a run.

    Args:
        plan: What was drawn for the run.
        draw: What is drawn for it meanwhile.
        ledger: Where they are noted.
        places: The nodes.
        tasks: Where requests wait for their answers.

    Attributes:
        stranger: The identity of the hostile node with a key, if there is one, which is sent
            messages as well.
    """

    def __init__(
        self, plan: Plan, draw: random.Random, ledger: Ledger, places: Places, tasks: Tasks
    ) -> None:
        self.stranger: Identity | None = None
        self._plan: Final = plan
        self._draw: Final = draw
        self._ledger: Final = ledger
        self._places: Final = places
        self._tasks: Final = tasks

    def send(self, place: Place) -> None:
        """Send a message from somewhere at a node to somewhere."""
        draw, plan, counts = self._draw, self._plan, self._ledger.counts
        others = [each for each in self._places if each is not place]
        targets: list[tuple[Identity, bool]] = [(key.identity, False) for key in plan.movers]
        for other in others:
            targets.append((other.identities.own, True))
            targets += [(each, False) for each in other.engines]
        if self.stranger is not None:
            targets.append((self.stranger, True))
        target, is_node = draw.choice(targets)
        route = route_to(target, is_node)
        if plan.relays and draw.random() < 0.4:
            relays = [key_of(each).identity for each in self._draw_relays(place.node.name)]
            route = f"{relay_text(*relays)} => {route}"
            counts["messages over relays"] += 1
        elif plan.domain and draw.random() < 0.2:
            target, route = DOMAIN.identity, domain_text()
            counts["messages to a domain"] += 1
        self._tell(place, target, route, draw.choice(("ask", "ask", "post", "drop")))

    def _draw_relays(self, host: str) -> list[str]:
        """Draw one or two relays for a node: such as are joined in this order, or any."""
        draw, plan = self._draw, self._plan
        others = [each for each in plan.hosts if each != host]
        if draw.random() < 0.3:
            return draw.sample(others, draw.choice((1, 1, 2)))
        first = draw.choice(sorted(plan.joined(host) - {host}))
        following = sorted(plan.joined(first) - {first, host})
        return [first, *draw.sample(following, draw.choice((0, min(1, len(following)))))]

    def _tell(self, place: Place, target: Identity, route: str, how: str) -> Sent:
        """Send a message: a request, a message with a return route, or one without."""
        senders = [each for name, each in place.takers.items() if name != "domain"]
        own, sender = place.identities.own, self._draw.choice([None, *senders])
        # A worker without an identity of its own sends by that of its node.
        sent = self._ledger.make(own if sender is None else sender.identity, target)
        if target == DOMAIN.identity:
            sent.nodes = frozenset(each.identity for each in self._plan.keys.values())
        timeout = self._draw.choice((0.5, 3.0, LONGEST))
        by = place.node if sender is None else sender
        self._ledger.counts[f"messages: {how}"] += 1
        if how == "ask":
            sent.asks = True
            asked = by.request(route, sent.payload, timeout=timeout)
            self._tasks.do(self._ledger.ask(sent, asked, timeout))
            return sent
        try:
            if sender is not None and how == "post":
                sender.send(route, sent.payload)
            else:
                by.send(route, sent.payload, return_route=())
        except OnwardError as error:
            error.lost = None
            sent.ends.append(f"certain: {error}")
        return sent

    # --- when all is well ---------------------------------------------------------------------

    async def calm(self) -> None:
        """Send from all nodes to all that they are joined with: all has to come."""
        plan, draw, places = self._plan, self._draw, self._places.of
        await self._tasks.settle()
        before = self._without_window()
        for host, place in places.items():
            joined = plan.joined(host) - {host}
            known = {key_of(each).identity for each in joined}
            if not known <= set(place.identities.peers()):
                self._ledger.complain(f"{host} is not joined with all of {sorted(joined)}")
                continue
            for other in sorted(joined):
                there = places[other]
                targets = [(there.identities.own, route_to(there.identities.own, True))]
                targets += [(each, route_to(each, False)) for each in there.engines]
                if plan.domain and other in plan.members:
                    targets.append((DOMAIN.identity, domain_text()))
                if plan.relays:
                    targets += self._by_relay(host, other)
                # What was told of an engine while it was banned was refused: the first message may
                # go where it was, and then its sender is told so.
                for engine in there.engines:
                    self._tell(place, engine, route_to(engine, False), "ask")
                    await self._tasks.settle()
                targets += self._far_targets(host, other)
                for target, route in targets:
                    how = draw.choice(("ask", "ask", "post"))
                    self._tell(place, target, route, how).calm = True
                    await self._tasks.settle()
        await asyncio.sleep(1)
        self._ledger.excused = self._without_window() - before

    def _without_window(self) -> int:
        """Return how many messages were refused as the tables of windows were full.

        In some runs a node has 64 windows, for more pairs of identities. Then the window that
        expires first is let go, and what expires before that is refused: "What has no window is not
        accepted if it expires before."
        """
        tables = [each.identities._router.incoming._windows for each in self._places]
        reasons = FreshnessRefusal.FORGOTTEN, FreshnessRefusal.FULL
        return sum(each.refused[reason] for each in tables for reason in reasons if each.let_go)

    def _by_relay(self, host: str, relay: str) -> list[tuple[Identity, str]]:
        """Return an identity that is reached over a relay, if there is one, and the route."""
        ends = sorted(self._plan.joined(relay) - {host, relay})
        if not ends:
            return []
        target = key_of(self._draw.choice(ends)).identity
        by = relay_text(key_of(relay).identity)
        return [(target, f"{by} => {route_to(target, True)}")]

    def _far_targets(self, host: str, near: str) -> list[tuple[Identity, str]]:
        """Return nodes that one is not joined with, which a node that it is joined with knows."""
        plan = self._plan
        if not plan.far:
            return []
        names = sorted(plan.joined(near) - plan.joined(host))
        far = [self._places.of[each].identities for each in names]
        if plan.far == "reservations":
            far = [each for each in far if key_of(near).identity in each.reserved_at()]
        self._ledger.counts[f"far nodes reached: {plan.far}"] += len(far)
        return [(each.own, route_to(each.own, True)) for each in far]

    async def look_again(self) -> None:
        """Send to nodes that one is not joined with, twice.

        A node that was started again refuses the first message over relays, as what is known of it
        is of before, and a further one has it looked up, ten seconds later at the earliest.
        """
        for _ in range(2):
            for host, place in self._places.of.items():
                for other in sorted({*self._plan.hosts} - self._plan.joined(host)):
                    node = self._places.of[other].identities.own
                    self._tell(place, node, route_to(node, True), "ask")
            await self._tasks.settle()
            await asyncio.sleep(11)


def route_to(target: Identity, is_node: bool) -> str:
    """Return the route to an engine, or to the open worker of a node."""
    return f"{node_text(target)} => open" if is_node else engine_text(target)


def relay_text(*relays: Identity) -> str:
    """Return the addresses of relays, as a route."""
    return " => ".join(f"36#relay:{identity_text(each)}" for each in relays)
