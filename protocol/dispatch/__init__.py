"""Dispatch by name over a network of nodes, without I/O.

```python
table = PatternTable[str]()
table.add(NamePattern.of_prefix("orders"), "balanced")  # orders/#
table.add(NamePattern.parse("orders.*.audit"), "multicast")
table.find(parse_name("amqp://host/orders/eu/audit", "node-a").text)  # "multicast"
```
"""

from ._choice import (
    Chooser,
    ConsumerTarget,
    LinkTarget,
    RemoteNode,
    Target,
)
from ._errors import (
    BadName,
    BadPattern,
    BadSemantics,
    DispatchError,
    PatternInUse,
    TooManyProvisions,
    UnknownProvision,
)
from ._graph import (
    Graph,
    LinkStates,
    Paths,
    join_links,
)
from ._limits import (
    DispatchLimits,
    NameSize,
)
from ._names import (
    ALL_NODES,
    MAX_NODE_NAME,
    Name,
    NameKind,
    check_node_name,
    parse_name,
    temporary_name,
)
from ._outcomes import (
    ACCEPTED,
    ALL,
    MODIFIED,
    RECEIVED,
    RELEASED,
    Accepted,
    DeliveryState,
    FanOut,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    Tally,
)
from ._patterns import (
    NamePattern,
    PatternTable,
)

__all__ = [
    "ACCEPTED",
    "ALL",
    "ALL_NODES",
    "MAX_NODE_NAME",
    "MODIFIED",
    "RECEIVED",
    "RELEASED",
    "Accepted",
    "BadName",
    "BadPattern",
    "BadSemantics",
    "Chooser",
    "ConsumerTarget",
    "DeliveryState",
    "DispatchError",
    "DispatchLimits",
    "FanOut",
    "Graph",
    "LinkStates",
    "LinkTarget",
    "Modified",
    "Name",
    "NameKind",
    "NamePattern",
    "NameSize",
    "Outcome",
    "Paths",
    "PatternInUse",
    "PatternTable",
    "Received",
    "Rejected",
    "Released",
    "RemoteNode",
    "Tally",
    "Target",
    "TooManyProvisions",
    "UnknownProvision",
    "check_node_name",
    "join_links",
    "parse_name",
    "temporary_name",
]
