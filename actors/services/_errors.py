"""Errors of services.

```
DeliveryError
└── NotDelivered
    ├── RelayDown         no relay leads to this node at the moment
    ├── RelayClosed       the client of the relay was closed
    └── RequestRefused    a service refused the request
```
"""

from __future__ import annotations

from ...protocol import NotDelivered
from ...protocol.services import ResponseStatus

__all__ = ["RelayClosed", "RelayDown", "RequestRefused"]


class RelayDown(NotDelivered):
    """No relay leads to this node, and none was registered in time."""

    reason = "relay down"


class RelayClosed(NotDelivered):
    """The client of a relay service is closed."""

    reason = "relay closed"


class RequestRefused(NotDelivered):
    """A service refused a request.

    Attributes:
        status: The status of its answer.
    """

    reason = "refused by the service"

    def __init__(self, target: object, status: ResponseStatus) -> None:
        super().__init__(target, f"{status.value} {status.name.lower().replace('_', ' ')}")
        self.status = status
