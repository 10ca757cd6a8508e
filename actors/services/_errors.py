"""Errors of services.

```
DeliveryError
└── NotDelivered
    ├── RelayDown         no relay leads to this node at the moment
    ├── RelayClosed       the relay was taken away for good
    └── RequestRefused    a service answered that it will not do what was asked
```
"""

from __future__ import annotations

from ...protocol import NotDelivered
from ...protocol.services import Status

__all__ = ["RelayClosed", "RelayDown", "RequestRefused"]


class RelayDown(NotDelivered):
    """There is no relay that leads here, and none could be had in time."""

    reason = "relay down"


class RelayClosed(NotDelivered):
    """The client of a relay service is closed."""

    reason = "relay closed"


class RequestRefused(NotDelivered):
    """A service answered that it will not do what was asked.

    Attributes:
        status: What it answered.
    """

    reason = "refused by the service"

    def __init__(self, target: object, status: Status) -> None:
        super().__init__(target, f"{status.value} {status.name.lower().replace('_', ' ')}")
        self.status = status
