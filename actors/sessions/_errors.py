"""Errors of sessions.

```
DeliveryError
├── NotDelivered
│   ├── SessionDown      the way is broken; the message was not sent
│   └── SessionClosed    the session is over; the message was not sent
└── InDoubt
    └── SessionLost      the other end went with what it had been sent
```
"""

from __future__ import annotations

from ...protocol import InDoubt, NotDelivered

__all__ = ["SessionClosed", "SessionDown", "SessionLost"]


class SessionDown(NotDelivered):
    """The way of a session is broken, and the message was not, or no longer, kept for later."""

    reason = "session down"


class SessionClosed(NotDelivered):
    """The session is over."""

    reason = "session closed"


class SessionLost(InDoubt):
    """The other end of a session is gone, or was told that it is over, while an answer was due."""

    reason = "session lost"
