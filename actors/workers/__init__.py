"""Composable workers: forwarders, proxies, taps, spreaders, pools and spawners.

Each makes one change to the routes of a message, so they can be combined in any order. The
docstrings show the routes as `[onward…] <- [return…]`, before and after.

```python
await node.start(Echo, address="echo-1")
await node.start(Echo, address="echo-2")
await node.start(lambda: Spreader(["echo-1", "echo-2"]), address="echoes")
await node.start(lambda: Proxy("echoes"), address="echo")
answer = await node.request("echo", b"hi")
```
"""

from ._echo import Answer, Echo, Replier
from ._forwarder import Forwarder
from ._proxy import Proxy
from ._spawner import AtLimit, Spawner, SpawnerOptions, TooManyWorkers
from ._spreader import Spread, Spreader, SpreaderOptions
from ._tap import Tap, TapStatistics
from ._two_sided import TwoSidedWorker
from ._worker_pool import REPLACE_AFTER, WorkerPool, WorkerPoolStatistics

__all__ = [
    "REPLACE_AFTER",
    "Answer",
    "AtLimit",
    "Echo",
    "Forwarder",
    "Proxy",
    "Replier",
    "Spawner",
    "SpawnerOptions",
    "Spread",
    "Spreader",
    "SpreaderOptions",
    "Tap",
    "TapStatistics",
    "TooManyWorkers",
    "TwoSidedWorker",
    "WorkerPool",
    "WorkerPoolStatistics",
]
