"""Pipes as workers: ordered, confirmed, effectively-once delivery over any route.

```python
# On one node: the receiving ends of pipes.
await far.start(PipeService, address="pipes")

# On another: a message sent to "pipe" arrives in order, once, or is reported.
await near.start(lambda: PipeSender("1#127.0.0.1:4000 => pipes"), address="pipe")
near.send("pipe => printer", b"one")
near.send("pipe => printer", b"two")
```

A [`PipeChannel`][onward.actors.pipes.PipeChannel] is two pipes, so that replies return through it.
"""

from ._channel import PipeChannel, PipeChannelOptions
from ._channel_service import PipeChannelService
from ._receiver import PipeReceiver
from ._receiving import MAX_RETIRED, PipeReceiverStatistics
from ._sender import PipeSender
from ._sending import PipeSenderStatistics
from ._service import PipeService, PipeServiceOptions

__all__ = [
    "MAX_RETIRED",
    "PipeChannel",
    "PipeChannelOptions",
    "PipeChannelService",
    "PipeReceiver",
    "PipeReceiverStatistics",
    "PipeSender",
    "PipeSenderStatistics",
    "PipeService",
    "PipeServiceOptions",
]
