"""Errors of sessions.

```
DeliveryError
├── NotDelivered
│   ├── SessionDown      the route is broken; the message was not sent
│   └── SessionClosed    the session is over; the message was not sent
└── InDoubt
    └── SessionLost      the other end was lost after messages were sent to it
```
"""

from __future__ import annotations

from ...protocol import InDoubt, NotDelivered

__all__ = ["SessionClosed", "SessionDown", "SessionLost"]


class SessionDown(NotDelivered):
    """The route of a session is broken, and the message was not sent, nor kept any longer."""

    reason = "session down"


class SessionClosed(NotDelivered):
    """The session is over."""

    reason = "session closed"


class SessionLost(InDoubt):
    """The other end of a session was lost, or was told that it is over, while a reply was due."""

    reason = "session lost"
