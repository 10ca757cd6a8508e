"""Sessions without I/O: the state machine that says when a session is up, down and over.

```python
end = Opener(LivenessOptions(), random=random.random)
for action in end.start(now):  # Action.ATTEMPT: send encode_frame(Open(session, end.epoch, 10_000))
    ...
end.opened(now, 1)  # Action.UP
end.tick(end.wake_at)  # Action.PING
```
"""

from ._frames import (
    MAX_IDENTITY,
    MAX_REASON,
    VERSION,
    Close,
    CloseAck,
    Frame,
    FrameKind,
    OpenSession,
    Ping,
    Pong,
    SessionData,
    SessionFrameError,
    SessionOpened,
    SessionRefused,
    decode_frame,
    encode_frame,
)
from ._liveness import Acceptor, Action, Actions, Opener
from ._options import LivenessOptions
from ._states import SESSION, SessionInput, SessionState

__all__ = [
    "MAX_IDENTITY",
    "MAX_REASON",
    "SESSION",
    "VERSION",
    "Acceptor",
    "Action",
    "Actions",
    "Close",
    "CloseAck",
    "Frame",
    "FrameKind",
    "LivenessOptions",
    "OpenSession",
    "Opener",
    "Ping",
    "Pong",
    "SessionData",
    "SessionFrameError",
    "SessionInput",
    "SessionOpened",
    "SessionRefused",
    "SessionState",
    "decode_frame",
    "encode_frame",
]
