"""Topology files: nodes, workers, listeners and links as values, read from TOML.

```python
text = '''
[nodes.far]
workers.echo = "echo"
listeners.main = { uri = "tcp://127.0.0.1:0", expose = ["echo"] }

[nodes.near]

[[links]]
from = "near"
to = "far"
'''
plan = read_topology(text, "two.toml", kinds={"echo": KindOptions()})
assert str(plan.links[0].address) == "0#far"  # what workers of `near` call the link
```

What is wrong with a file is a `TopologyError`, which tells all of it at once, each with file, line
and key. `onward.actors.topology` runs plans.
"""

from ._containers import ContainerLinkPlan, ContainerPlan
from ._errors import Problem, TopologyError
from ._identities import IdentityPlan, engine_name, put_identities, put_references
from ._identity_groups import DomainPlan, KeyPlan, ServicePlan, SubscriptionPlan, TopicPlan
from ._kinds import KindOptions, Option, OptionType
from ._options import TransportOptions
from ._plan import (
    BrokerPlan,
    ConsumerPlan,
    DestinationPlan,
    DispatcherPlan,
    LinkPlan,
    ListenerPlan,
    MailboxPlan,
    NodePlan,
    OptionValue,
    Position,
    SupervisionPlan,
    TopologyLimits,
    TopologyPlan,
    WorkerPlan,
)
from ._read import read_topology
from ._simulation import EventKind, EventPlan, FaultsPlan, RequestPlan, SimulationPlan

__all__ = [
    "BrokerPlan",
    "ConsumerPlan",
    "ContainerLinkPlan",
    "ContainerPlan",
    "DestinationPlan",
    "DispatcherPlan",
    "DomainPlan",
    "EventKind",
    "EventPlan",
    "FaultsPlan",
    "IdentityPlan",
    "KeyPlan",
    "KindOptions",
    "LinkPlan",
    "ListenerPlan",
    "MailboxPlan",
    "NodePlan",
    "Option",
    "OptionType",
    "OptionValue",
    "Position",
    "Problem",
    "RequestPlan",
    "ServicePlan",
    "SimulationPlan",
    "SubscriptionPlan",
    "SupervisionPlan",
    "TopicPlan",
    "TopologyError",
    "TopologyLimits",
    "TopologyPlan",
    "TransportOptions",
    "WorkerPlan",
    "engine_name",
    "put_identities",
    "put_references",
    "read_topology",
]
