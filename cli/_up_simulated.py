"""`onward up --simulated`: a topology in a simulated network, on a clock that does not wait."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass

from ..actors.topology import RequestOutcome, Topology
from ..protocol.topology import EventPlan, TopologyPlan
from ..transports.simulated import Faults, SimulatedNetwork, Traffic, simulate
from ._run import Interrupted
from ._show import printable, table

__all__ = ["run_simulated"]


@dataclass(frozen=True, slots=True)
class _Run:
    """A run that has ended."""

    outcomes: tuple[RequestOutcome, ...]
    traffic: Traffic
    seconds: float
    brokers: str


def run_simulated(plan: TopologyPlan, arguments: argparse.Namespace) -> tuple[RequestOutcome, ...]:
    """Run a topology, print what has happened, and return the outcomes of its requests.

    Raises:
        Interrupted: The command was interrupted.
        TopologyError: A class of a worker cannot be used.
        TopologyFailed: A part cannot be started.
    """
    duration: float | None = arguments.duration
    seed = plan.simulation.seed if arguments.seed is None else arguments.seed

    async def scenario(network: SimulatedNetwork) -> _Run:
        clock = asyncio.get_running_loop().time
        began = clock()

        def told(event: EventPlan) -> None:
            print(f"at {clock() - began:.3f} s: {printable(str(event))}", flush=True)

        async with await Topology.start(plan, network=network) as topology:
            outcomes = await topology.check(told)
            if duration is not None:
                await asyncio.sleep(began + duration - clock())
            return _Run(outcomes, network.traffic(), clock() - began, _brokers(topology))

    try:
        faults = Faults(**plan.simulation.faults.given())
        run = simulate(scenario, seed=seed, faults=faults)
    except KeyboardInterrupt:
        raise Interrupted from None
    traffic = run.traffic
    print(
        f"simulated with seed {seed}: {run.seconds:.3f} s; messages over links: {traffic.sent} "
        f"sent, {traffic.lost} lost, {traffic.copied} copied, {traffic.overtaken} overtaken"
    )
    if run.brokers:
        print(f"writes over links of brokers: {traffic.parts}, {traffic.resent} sent again")
        print(run.brokers, flush=True)
    return run.outcomes


def _brokers(topology: Topology) -> str:
    """Return a table of the brokers that are in a cluster, at the end; empty if there are none."""
    running = {each.name: each.cluster for each in topology.brokers()}
    rows: list[tuple[str, str, int, int]] = []
    for node in topology.plan.nodes:
        if node.broker is None or not node.broker.cluster:
            continue
        cluster = running.get(node.name)
        if cluster is None:
            rows.append((node.name, "killed", 0, 0))
            continue
        peers = cluster.peers()
        up = sum(peer.state == "up" for peer in peers)
        peer_routes = sum(peer.routes for peer in peers)
        losses = sum(peer.losses for peer in peers)
        rows.append((node.name, f"{up} of {len(peers)}", peer_routes, losses))
    return table(("BROKER", "PEERS UP", "PEER ROUTES", "LINKS LOST"), rows) if rows else ""
