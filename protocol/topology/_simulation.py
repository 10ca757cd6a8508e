"""Requests, and simulated runs, as values: what is asked, and what happens to the network."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .._address import Route
from ..toml import Position

__all__ = ["EventKind", "EventPlan", "FaultsPlan", "RequestPlan", "SimulationPlan"]


@dataclass(frozen=True, slots=True)
class FaultsPlan:
    """The faults of a simulated link, in both directions; `None`: the default of the network.

    Attributes:
        latency: The least and the greatest latency, in seconds.
        loss: Probability that a message is lost.
        duplicate: Probability that a message arrives twice.
        reorder: Probability that a message may be overtaken.
        reorder_by: Greatest delay of such a message, in seconds.
    """

    latency: tuple[float, float] | None = None
    loss: float | None = None
    duplicate: float | None = None
    reorder: float | None = None
    reorder_by: float | None = None

    def given(self) -> dict[str, Any]:
        """Return what the file says, by name."""
        values = {
            "latency": self.latency,
            "loss": self.loss,
            "duplicate": self.duplicate,
            "reorder": self.reorder,
            "reorder_by": self.reorder_by,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """One request, and what has to come of it.

    Attributes:
        place: Its place in the file.
        node: The name of the node that asks.
        route: The onward route.
        payload: What.
        expect: The answer's payload; `None`: any.
        error: The reason it has to fail with, as `no answer in time` or, from an error reply,
            `not exposed`; empty: it has to succeed.
        timeout: Time to wait for the answer, in seconds.
        within: For how long it is asked again while it does not come out as it has to, in
            seconds; 0: it is asked once.
        at: The time at which it is made, in seconds since all parts have started; of those of a
            simulated run.
        name: The name that a producer sends to, in place of a route; empty: it is a request.
        messages: Messages that the producer sends.
        every: Time from one message to the next, in seconds; 0: each once the one before has its
            outcome.
        outcome: The outcome that each must have: `accepted`, `rejected`, `released`, `modified`, or
            `any`; `refused`: the name takes no such producer.
    """

    place: Position
    node: str
    route: Route
    payload: bytes = b""
    expect: bytes | None = None
    error: str = ""
    timeout: float = 5.0
    within: float = 0.0
    at: float = 0.0
    name: str = ""
    messages: int = 1
    every: float = 0.0
    outcome: str = "accepted"


class EventKind(StrEnum):
    """A kind of event in a simulated network; the values are the keys of a topology file."""

    CUT = "cut"
    SLOW = "slow"
    HEAL = "heal"
    KILL = "kill"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class EventPlan:
    """An event of a simulated run.

    Attributes:
        place: Its place in the file.
        at: Its time, in seconds since all parts have started.
        kind: What happens.
        node: The name of the node that is killed or started again; empty for the other kinds.
        sides: The names of the nodes on either side of what is cut, slow or healed; both empty:
            all nodes are healed.
        faults: The faults of what is slow, in place of those of the network.
    """

    place: Position
    at: float
    kind: EventKind
    node: str = ""
    sides: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    faults: FaultsPlan = field(default=FaultsPlan())

    def __str__(self) -> str:
        told = self.node or " | ".join(", ".join(side) for side in self.sides if side) or "all"
        return f"{self.kind.value} {told}"


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """The settings of a simulated run.

    Attributes:
        seed: The seed of all random numbers of the run.
        faults: The faults of every link that has none of its own.
        events: What happens to the network, in the order of the file.
        requests: What is asked in a simulated run only, each at its time, in the order of the file.
    """

    seed: int = 1
    faults: FaultsPlan = field(default=FaultsPlan())
    events: tuple[EventPlan, ...] = ()
    requests: tuple[RequestPlan, ...] = ()

    def in_order(self) -> tuple[EventPlan, ...]:
        """Return the events by their time, those of one time in the order of the file."""
        return tuple(sorted(self.events, key=lambda event: event.at))
