"""A session of a link: frames with numbers that rise, each of which can be opened once.

```
frame = number (8 bytes, most significant first) ‖ ChaCha20-Poly1305(key of the direction, record)
```

The nonce is four zeros and the number, so a number is used once with a key. Nothing is said about a
frame to the other node: after a failure the caller disconnects. Numbers that are left out are of
frames that were lost, which a route of several links may do.
"""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag

from ._errors import LinkEnded, RecordTooBig
from ._link_keys import SessionKeys
from ._link_states import LinkFailure
from ._number_window import NumberWindow
from ._record_reader import MAX_RECORD

__all__ = [
    "LINK_FRAME_OVERHEAD",
    "MAX_FORGED_FRAMES",
    "MAX_LINK_FRAME",
    "MAX_LINK_FRAMES",
    "LinkChannel",
]

LINK_FRAME_OVERHEAD: Final = 24
"""Bytes that a frame adds to its record: a number of 8, and a tag of 16."""
MAX_LINK_FRAME: Final = MAX_RECORD + LINK_FRAME_OVERHEAD
"""Most bytes of a frame."""
MAX_LINK_FRAMES: Final = 2**24
"""Most frames of a session in each direction. A new handshake is due after seven eighths of them;
beyond them the session ends."""
MAX_FORGED_FRAMES: Final = 64
"""Most frames of a session that cannot be opened, on a route that repeats and reorders. Beyond: the
session ends. On an ordered route the first one ends it."""

_NUMBER_SIZE: Final = 8
_NONCE_HEAD: Final = bytes(4)


class LinkChannel:
    """The two directions of a session.

    Args:
        keys: The keys.
        dialled: Whether this node has dialled.
        window: Numbers up to the highest that may come out of order; `None` if none may.
        limit: Most frames in each direction, the same at both ends.

    Attributes:
        session: The id of the session, the same at both ends and in no other session.
        failure: Why the session has ended; `None` if it has not.
        repeated: The frames that were dropped as repeated, or below the window.
        forged: The frames that could not be opened.
        missed: On an ordered route, the frames that were lost before one that came.
    """

    __slots__ = (
        "_due",
        "_limit",
        "_next",
        "_ordered",
        "_receives",
        "_sends",
        "_window",
        "failure",
        "forged",
        "missed",
        "repeated",
        "session",
    )

    def __init__(
        self,
        keys: SessionKeys,
        *,
        dialled: bool,
        window: int | None = None,
        limit: int = MAX_LINK_FRAMES,
    ) -> None:
        self._sends = keys.of_dialling if dialled else keys.of_dialled
        self._receives = keys.of_dialled if dialled else keys.of_dialling
        self._ordered = window is None
        self._window = NumberWindow(window or 1)
        self._limit = limit
        self._due = limit - limit // 8
        self._next = 0
        self.session = keys.session
        self.failure: LinkFailure | None = None
        self.repeated = 0
        self.forged = 0
        self.missed = 0

    @property
    def is_due(self) -> bool:
        """Whether a new handshake is due, as few frames are left in one direction."""
        return self._next >= self._due or self._window.highest + 1 >= self._due

    def seal(self, record: bytes) -> bytes:
        """Return the frame of a record.

        Raises:
            RecordTooBig: It has more than `MAX_RECORD` bytes.
            LinkEnded: The session has ended, or has had as many frames as it may.
        """
        if len(record) > MAX_RECORD:
            raise RecordTooBig(len(record), MAX_RECORD)
        if self.failure is not None:
            raise LinkEnded(self.failure)
        if self._next >= self._limit:
            raise LinkEnded(LinkFailure.EXHAUSTED)
        number = self._next.to_bytes(_NUMBER_SIZE)
        self._next += 1
        return number + self._sends.encrypt(_NONCE_HEAD + number, record, None)

    def open(self, frame: bytes) -> bytes | LinkFailure:
        """Return the record of a frame, or why it has none.

        `failure` is set if that ends the session, as it always does on an ordered route.
        """
        if self.failure is not None:
            return self.failure
        if not LINK_FRAME_OVERHEAD <= len(frame) <= MAX_LINK_FRAME:
            return self._forged(LinkFailure.BAD_MESSAGE)
        number = int.from_bytes(frame[:_NUMBER_SIZE])
        if number >= self._limit:
            return self._forged(LinkFailure.EXHAUSTED)
        if self._window.is_below(number) or self._window.has_seen(number):
            self.repeated += 1
            return self._ended(LinkFailure.REPEATED, ends=self._ordered)
        try:
            record = self._receives.decrypt(
                _NONCE_HEAD + frame[:_NUMBER_SIZE], frame[_NUMBER_SIZE:], None
            )
        except InvalidTag:
            return self._forged(LinkFailure.FORGED)
        # Recorded after it was opened: a forged number moves no window.
        if self._ordered:
            self.missed += number - self._window.highest - 1
        self._window.add(number)
        return record

    def _forged(self, failure: LinkFailure) -> LinkFailure:
        self.forged += 1
        return self._ended(failure, ends=self._ordered or self.forged > MAX_FORGED_FRAMES)

    def _ended(self, failure: LinkFailure, *, ends: bool) -> LinkFailure:
        if ends:
            self.failure = failure
        return failure
