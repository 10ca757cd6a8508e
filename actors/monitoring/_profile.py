"""A profile of a thread: its stack, taken many times a second by another thread.

It says where the time goes without a change of the program. Code compiled by mypyc has no frames of
Python: its time counts for the frame that has called it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Final

__all__ = ["MAX_STACKS", "StackSampler", "profile"]

RATE: Final = 100
"""Samples a second."""

MAX_STACKS: Final = 10_000
"""The maximum number of different stacks; further ones count as `(other)`."""

MAX_DEPTH: Final = 128
"""The maximum number of frames of a stack; the outer ones of a deeper one are left out."""

OTHER: Final = "(other)"


class StackSampler:
    """A count of the stacks of one thread.

    Args:
        thread_id: The thread, as `threading.get_ident` returns it.
    """

    def __init__(self, thread_id: int) -> None:
        self._thread_id = thread_id
        self._counts: dict[str, int] = {}
        self._names: dict[CodeType, str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="profile", daemon=True)

    def start(self) -> None:
        """Start the thread that takes samples."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end: at most one sample."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            # Samples that are missed as others hold the interpreter are not made up for.
            due = max(due + 1 / RATE, time.monotonic())
            if self._stop.wait(due - time.monotonic()):
                return
            self.take()

    def take(self) -> None:
        """Take a sample."""
        stack = self._stack(sys._current_frames().get(self._thread_id))
        if stack not in self._counts and len(self._counts) >= MAX_STACKS:
            stack = OTHER
        self._counts[stack] = self._counts.get(stack, 0) + 1

    def _stack(self, frame: FrameType | None) -> str:
        names: list[str] = []
        while frame is not None and len(names) < MAX_DEPTH:
            code = frame.f_code
            name = self._names.get(code)
            if name is None:
                name = self._names[code] = _name(code)
            names.append(name)
            frame = frame.f_back
        return ";".join(reversed(names)) or "(no frame)"

    def folded(self) -> str:
        """Return a line for each stack: its frames, outermost first, and its count.

        Tools that draw flame graphs read this form.
        """
        rows = sorted(self._counts.items(), key=lambda row: (-row[1], row[0]))
        return "".join(f"{stack} {count}\n" for stack, count in rows)


def _name(code: CodeType) -> str:
    folder, _, file = code.co_filename.replace("\\", "/").rpartition("/")
    place = f"{folder.rpartition('/')[2]}/{file}" if folder else file
    return f"{code.co_qualname} ({place}:{code.co_firstlineno})".replace(";", ":")


async def profile(seconds: float) -> str:
    """Return the stacks of this event loop's thread over some seconds, folded.

    Args:
        seconds: How long samples are taken, `RATE` of them a second.
    """
    sampler = StackSampler(threading.get_ident())
    sampler.start()
    try:
        await asyncio.sleep(seconds)
    finally:
        sampler.stop()
    return sampler.folded()
