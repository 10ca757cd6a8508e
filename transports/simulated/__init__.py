"""A simulated network: latency, loss, disorder, partitions and crashes, all from one seed.

```python
from onward.transports.simulated import Faults, SimulatedNetwork, simulate


async def scenario(network: SimulatedNetwork) -> None:
    a, b = await network.node("a"), await network.node("b")
    await b.start(Echo, address="echo")
    await b.listen("sim://b", expose=["echo"])
    link = await a.connect("sim://b")
    assert (await a.request([link, "echo"], b"hi")).payload == b"hi"


simulate(scenario, seed=7, faults=Faults(latency=(0.01, 0.2)))
```
"""

from ._faults import NO_FAULTS, Event, Faults, SimulationOptions, Traffic
from ._network import SimulatedNetwork
from ._simulate import MAX_SIMULATED_TIME, Scenario, simulate, simulate_many
from ._transport import SIMULATED, SimulatedListener, SimulatedTransport

__all__ = [
    "MAX_SIMULATED_TIME",
    "NO_FAULTS",
    "SIMULATED",
    "Event",
    "Faults",
    "Scenario",
    "SimulatedListener",
    "SimulatedNetwork",
    "SimulatedTransport",
    "SimulationOptions",
    "Traffic",
    "simulate",
    "simulate_many",
]
