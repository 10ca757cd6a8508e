"""The messages of other threads, which the router resolves on the loop, as its tables are of it."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from ..routing._pending import Pending

__all__ = ["OtherThreads"]

_LOOK_AGAIN: Final = 0.001
"""Time until it is looked again whether a message of another thread is kept, in seconds."""
_MOST_LOOKS: Final = 100
"""Most of these looks. Then what waits is resolved again, kept or not."""


class OtherThreads:
    """The wait of messages of other threads for the next turn of the loop.

    Args:
        loop: The loop. This is made on its thread.
    """

    __slots__ = ("_lock", "_loop", "_pending", "_thread")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._thread: Final = threading.get_ident()
        self._lock: Final = threading.Lock()
        self._pending: Pending | None = None

    def is_another(self) -> bool:
        """Whether the current thread is another one than that of the loop."""
        return threading.get_ident() != self._thread

    def pending(self) -> Pending:
        """Return what a message of another thread waits for."""
        with self._lock:
            pending = self._pending
            if pending is None:
                pending = Pending()
                self._loop.call_soon_threadsafe(self._resume, pending)
                self._pending = pending  # not if the loop is closed, which that has told
        return pending

    def _resume(self, pending: Pending, looks: int = _MOST_LOOKS) -> None:
        """Resolve the messages again, once one of them is kept.

        Before, their thread would ask again at once, and too often. One that is not kept after some
        looks may have been refused for the limits.
        """
        if not len(pending) and looks:
            self._loop.call_later(_LOOK_AGAIN, self._resume, pending, looks - 1)
            return
        with self._lock:
            self._pending = None
        pending.resume()
