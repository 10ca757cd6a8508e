"""Dispatch by name: consumers, producers and the outcomes of messages, over a network of nodes.

```python
dispatcher = await Dispatcher.attach(node)
await dispatcher.consume("orders", handle)
answer = await node.request("34#orders", b"12 apples")
```
"""

from ._access import PrincipalOf
from ._circuit_consumer import CircuitConsumer, CircuitDelivery
from ._circuit_container import CircuitContainer, ContainerEnded
from ._circuit_ends import AcceptCircuit, CircuitLinkEnd
from ._circuit_link import CircuitLink
from ._circuit_producer import CircuitProducer
from ._circuit_worker import CircuitHandler
from ._consumer import Consumer, Handler, Received
from ._consumer_record import Accept
from ._dispatch_worker import DISPATCH
from ._dispatcher import Dispatcher
from ._ends import ConsumerEnd, ConsumerLink, OutcomeCallback, ProducerEnd, ProducerLink
from ._errors import (
    CircuitClosed,
    ConsumerRefused,
    HoldStoreFailed,
    HoldStoreInUse,
    ProducerClosed,
)
from ._inspection import DispatcherStatistics, NameStatistics, NetworkNode
from ._options import DispatchOptions
from ._producer import AnonymousProducer, Producer
from ._watches import WatchFunction

__all__ = [
    "DISPATCH",
    "Accept",
    "AcceptCircuit",
    "AnonymousProducer",
    "CircuitClosed",
    "CircuitConsumer",
    "CircuitContainer",
    "CircuitDelivery",
    "CircuitHandler",
    "CircuitLink",
    "CircuitLinkEnd",
    "CircuitProducer",
    "Consumer",
    "ConsumerEnd",
    "ConsumerLink",
    "ConsumerRefused",
    "ContainerEnded",
    "DispatchOptions",
    "Dispatcher",
    "DispatcherStatistics",
    "Handler",
    "HoldStoreFailed",
    "HoldStoreInUse",
    "NameStatistics",
    "NetworkNode",
    "OutcomeCallback",
    "PrincipalOf",
    "Producer",
    "ProducerClosed",
    "ProducerEnd",
    "ProducerLink",
    "Received",
    "WatchFunction",
]
