"""Pipes without I/O: the frames of a pipe, and the state machines at its two ends.

A pipe adds to a route what is asked of it: an order, confirmation and repetition, no duplicates.
[`Sender`][onward.protocol.pipes.Sender] numbers messages and sends them again until they are
confirmed; [`Receiver`][onward.protocol.pipes.Receiver] says what is to be handed on, and when.

```python
sender = Sender(PipeOptions(), lambda: os.urandom(16))
sender.send(Message(route("printer"), (), b"hi"))
for frame in sender.frames(now):
    ...  # to the receiver, by whatever way
```
"""

from ._errors import PipeBroken, PipeClosed, PipeFrameError, PipeFull, PipeMissed
from ._frame_reader import PipeFrameReader, decode_frame, frame_identity
from ._frames import (
    EPOCH_SIZE,
    IDENTITY_SIZE,
    NO_EPOCH,
    Abort,
    Confirm,
    End,
    Ended,
    Frame,
    Hello,
    OpenPipe,
    PipeData,
    PipeFrameKind,
    PipeOpened,
    PipeRefusal,
    PipeRefused,
    Ranges,
    Unknown,
    Welcome,
    encode_frame,
    message_size,
)
from ._options import MAX_WINDOW, Mode, Ordering, PipeOptions, PipeReceiverOptions
from ._receiver import Receiver
from ._receiver_events import Gap, ReceiverEvent, WindowOverflow, answer_to_stranger
from ._round_trip import RoundTrip
from ._sender import Sender
from ._sender_events import Broken, Missed, Overdue, SenderClosed, SenderEvent
from ._states import RECEIVER, SENDER, ReceiverInput, ReceiverState, SenderInput, SenderState

__all__ = [
    "EPOCH_SIZE",
    "IDENTITY_SIZE",
    "MAX_WINDOW",
    "NO_EPOCH",
    "RECEIVER",
    "SENDER",
    "Abort",
    "Broken",
    "Confirm",
    "End",
    "Ended",
    "Frame",
    "Gap",
    "Hello",
    "Missed",
    "Mode",
    "OpenPipe",
    "Ordering",
    "Overdue",
    "PipeBroken",
    "PipeClosed",
    "PipeData",
    "PipeFrameError",
    "PipeFrameKind",
    "PipeFrameReader",
    "PipeFull",
    "PipeMissed",
    "PipeOpened",
    "PipeOptions",
    "PipeReceiverOptions",
    "PipeRefusal",
    "PipeRefused",
    "Ranges",
    "Receiver",
    "ReceiverEvent",
    "ReceiverInput",
    "ReceiverState",
    "RoundTrip",
    "Sender",
    "SenderClosed",
    "SenderEvent",
    "SenderInput",
    "SenderState",
    "Unknown",
    "Welcome",
    "WindowOverflow",
    "answer_to_stranger",
    "decode_frame",
    "encode_frame",
    "frame_identity",
    "message_size",
]
