"""What the tests of the simulated network share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from onward.actors import Node, Worker
from onward.actors.testing import Probe
from onward.protocol import Address, Message
from onward.transports.simulated import (
    NO_FAULTS,
    Faults,
    SimulatedNetwork,
    SimulationOptions,
    simulate,
)

__all__ = ["Relay", "kinds", "simulated", "two_nodes"]


OPTIONS = SimulationOptions()


class Relay(Worker):
    """Forwards."""

    def handle_message(self, message: Message) -> None:
        self.forward(message)


def simulated(
    *, faults: Faults = NO_FAULTS, options: SimulationOptions = OPTIONS, seed: int = 1
) -> Callable[[Callable[[SimulatedNetwork], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Make a scenario a test."""

    def made(
        scenario: Callable[[SimulatedNetwork], Coroutine[Any, Any, None]],
    ) -> Callable[[], None]:
        # Not `wraps`: the test would ask for a fixture `network`.
        def test() -> None:
            simulate(scenario, seed=seed, faults=faults, options=options)

        test.__name__ = scenario.__name__
        return test

    return made


async def two_nodes(network: SimulatedNetwork) -> tuple[Node, Node, Address, Probe, Probe]:
    """Start `a` and `b`, a link from one to the other, and a probe on each."""
    a, b = await network.node("a"), await network.node("b")
    near, far = await Probe.on(a, "near"), await Probe.on(b, "far")
    await b.listen("sim://b", expose=["far"])
    return a, b, await a.connect("sim://b"), near, far


def kinds(network: SimulatedNetwork) -> list[str]:
    """Return what happened, in order, without the starts."""
    return [event.kind for event in network.history if event.kind != "started"]
