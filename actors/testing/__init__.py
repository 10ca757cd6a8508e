"""Tools for tests of workers: a virtual clock, probes, a node that reports faults.

```python
from onward.actors.testing import Probe, checked_node, virtual_time


@virtual_time
async def test_the_doubler() -> None:
    async with checked_node() as node:
        await node.start(Doubler, address="doubler")
        probe = await Probe.on(node)
        probe.send("doubler", b"21")
        assert (await probe.next()).payload == b"42"
```

`onward.transports.simulated` adds a network with faults that all come from one seed.
"""

from ._checked import MAX_SETTLE, checked_node
from ._crash import crash
from ._probe import MAX_PROBED, Answer, Probe
from ._virtual import (
    EPOCH,
    MAX_PASSES,
    MAX_VIRTUAL_TIME,
    Deadlock,
    VirtualLoop,
    run_virtual,
    virtual_time,
)

__all__ = [
    "EPOCH",
    "MAX_PASSES",
    "MAX_PROBED",
    "MAX_SETTLE",
    "MAX_VIRTUAL_TIME",
    "Answer",
    "Deadlock",
    "Probe",
    "VirtualLoop",
    "checked_node",
    "crash",
    "run_virtual",
    "virtual_time",
]
