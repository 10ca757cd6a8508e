"""Services of a node for other nodes: relays, publish/subscribe, discovery, watches, management.

All but the last have clients:

```python
await hub.start(StaticRelayService, address="static_forwarding_service")

relay = await RelayClient.on(
    device, "1#hub:4000 => static_forwarding_service", alias="printer"
)
await relay.until_up()  # from anywhere: 1#hub:4000 => forward_to_printer => echo
```
"""

from ._discovery import DiscoveryService
from ._discovery_client import Announcer, DiscoveryClient
from ._errors import RelayClosed, RelayDown, RequestRefused
from ._management import ManagementService
from ._options import (
    DiscoveryOptions,
    PubSubOptions,
    RelayServiceOptions,
    RemoteWatchOptions,
    WatchServiceOptions,
)
from ._pub_sub import PubSubService, Topic, TopicSubscription
from ._relay import Relay, RelayService, StaticRelayService
from ._relay_client import RelayClient
from ._remote_watch import RemoteWatch, WatchEnd, WatchOutcome
from ._service import Service
from ._subscriber import REFRESH, Subscriber
from ._watch_service import WatchService

__all__ = [
    "REFRESH",
    "Announcer",
    "DiscoveryClient",
    "DiscoveryOptions",
    "DiscoveryService",
    "ManagementService",
    "PubSubOptions",
    "PubSubService",
    "Relay",
    "RelayClient",
    "RelayClosed",
    "RelayDown",
    "RelayService",
    "RelayServiceOptions",
    "RemoteWatch",
    "RemoteWatchOptions",
    "RequestRefused",
    "Service",
    "StaticRelayService",
    "Subscriber",
    "Topic",
    "TopicSubscription",
    "WatchEnd",
    "WatchOutcome",
    "WatchService",
    "WatchServiceOptions",
]
