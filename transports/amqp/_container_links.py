"""The links and routes of a connection to a container: what they are, and what became of each."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, TypeAlias

from ...protocol.options import check_options

__all__ = [
    "AmqpLinkState",
    "AmqpLinkStatistics",
    "AutoLink",
    "LinkRecord",
    "LinkRoute",
    "Plan",
    "plan_of",
]

ROUTE: Final = "route"
"""The kind of a `LinkRoute`; that of an `AutoLink` is its direction."""


@dataclass(frozen=True, slots=True)
class AutoLink:
    """A link between an address of a container and a name.

    Attributes:
        direction: `in`: messages of the address are sent to the name; `out`: messages to the name
            are sent to the address.
        address: The address, as the container knows it: of a queue, for instance.
        name: The name.
    """

    direction: Literal["in", "out"]
    address: str
    name: str

    def __post_init__(self) -> None:
        check_options(self)
        if not (self.address and self.name):
            raise ValueError("an AutoLink needs an address and a name")


@dataclass(frozen=True, slots=True)
class LinkRoute:
    """A name of the mechanism `LINK`: links to it go through to a container.

    Attributes:
        name: The name.
        address: The address, as the container knows it; empty if it is the name.
    """

    name: str
    address: str = ""

    def __post_init__(self) -> None:
        check_options(self)
        if not self.name:
            raise ValueError("a LinkRoute needs a name")


Plan: TypeAlias = AutoLink | LinkRoute
"""What a connection to a container is for."""


class AmqpLinkState(Enum):
    """The state of a link to a container, or of a name with links that go through to it."""

    WAITING = "waiting for the next attempt"
    ATTACHING = "attaching"
    ATTACHED = "attached"


@dataclass(frozen=True, slots=True)
class AmqpLinkStatistics:
    """A link to a container at one moment, or a name with links that go through to it.

    Attributes:
        container: The name of the container.
        kind: `in` or `out`, as `AutoLink.direction`, or `route`.
        address: The address, as the container knows it.
        name: The name.
        state: Its state; of a route `ATTACHED` means that the container serves its name.
        since: The time of the last change of its state, in seconds since the Unix epoch.
        attempts: Attempts since it was attached last, the one under way included.
        reason: Why it has ended last, or was refused; empty: it has not been.
    """

    container: str
    kind: str
    address: str
    name: str
    state: AmqpLinkState
    since: float
    attempts: int
    reason: str


@dataclass(slots=True)
class LinkRecord:
    """The last state of a link or a route, over all connections.

    Attributes:
        state: Its state.
        since: The time of its last change, in seconds since the Unix epoch.
        attempts: Attempts since it was attached last.
        reason: Why it has ended last.
    """

    state: AmqpLinkState = AmqpLinkState.WAITING
    since: float = field(default_factory=time.time)
    attempts: int = 0
    reason: str = ""

    def begin(self) -> None:
        """Record an attempt."""
        self.attempts += 1
        self._change(AmqpLinkState.ATTACHING)

    def attached(self) -> None:
        """Record that it is there."""
        self.attempts = 0
        self._change(AmqpLinkState.ATTACHED)

    def ended(self, reason: str) -> None:
        """Record its end, unless it is known already."""
        if self.state is not AmqpLinkState.WAITING:
            self.reason = reason
            self._change(AmqpLinkState.WAITING)

    def _change(self, state: AmqpLinkState) -> None:
        self.state, self.since = state, time.time()

    def statistics(self, container: str, plan: Plan) -> AmqpLinkStatistics:
        """Return the figures of what it is the record of.

        Args:
            container: The name of the container.
            plan: The link or the route.
        """
        kind = ROUTE if isinstance(plan, LinkRoute) else plan.direction
        return AmqpLinkStatistics(
            container,
            kind,
            plan.address or plan.name,
            plan.name,
            self.state,
            self.since,
            self.attempts,
            self.reason,
        )


def plan_of(kind: str, address: str, name: str) -> Plan:
    """Return a link or a route of a file.

    Args:
        kind: `in`, `out` or `route`.
        address: The address; of a route it may be empty.
        name: The name.

    Raises:
        ValueError: It is none.
    """
    if kind == ROUTE:
        return LinkRoute(name, address)
    if kind == "in":
        return AutoLink("in", address, name)
    if kind == "out":
        return AutoLink("out", address, name)
    raise ValueError(f"a link of a container is in, out or route, not {kind!r}")
