"""Sessions as workers: a stable address in front of a route that may have to be replaced.

```python
await there.start(lambda: SessionService(expose=["echo"]), address="sessions")

session = await SessionClient.on(here, "there", "1#127.0.0.1:4000 => sessions")
await session.until_up()
await here.request("there => echo", b"hi")
```
"""

from ._client import SessionClient
from ._end import BAD_FRAME, FOREIGN_FRAME, SessionEnd
from ._errors import SessionClosed, SessionDown, SessionLost
from ._liveness import Hook, LivenessWorker
from ._options import SessionOptions, SessionServiceOptions, WhileDown
from ._route_provider import MAX_LEAVE_TIME, Found, RouteSource, route_over
from ._service import AcceptedSession, SessionService
from ._statistics import SessionServiceStatistics, SessionStatistics

__all__ = [
    "BAD_FRAME",
    "FOREIGN_FRAME",
    "MAX_LEAVE_TIME",
    "AcceptedSession",
    "Found",
    "Hook",
    "LivenessWorker",
    "RouteSource",
    "SessionClient",
    "SessionClosed",
    "SessionDown",
    "SessionEnd",
    "SessionLost",
    "SessionOptions",
    "SessionService",
    "SessionServiceOptions",
    "SessionServiceStatistics",
    "SessionStatistics",
    "WhileDown",
    "route_over",
]
