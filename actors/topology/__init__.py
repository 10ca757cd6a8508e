"""Topologies that run: the nodes, workers, listeners and links of a file.

```python
plan = read(Path("two.toml").read_bytes(), "two.toml")
async with await Topology.start(plan) as topology:
    answer = await topology.node("near").request("far => echo", b"hi")
```

A worker in a file is of a *kind*, `KINDS`, or of a class of your own. `onward up` runs the same
files as processes.
"""

from ._brokers import RunningBroker
from ._errors import TopologyFailed
from ._kinds import KINDS, WorkerKind
from ._load import Factories, factories, read
from ._running import RequestOutcome, RunningNode
from ._topology import Network, Topology
from ._workers import Print, Record

__all__ = [
    "KINDS",
    "Factories",
    "Network",
    "Print",
    "Record",
    "RequestOutcome",
    "RunningBroker",
    "RunningNode",
    "Topology",
    "TopologyFailed",
    "WorkerKind",
    "factories",
    "read",
]
