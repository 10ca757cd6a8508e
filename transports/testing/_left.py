"""The resources left by a case: descriptors, tasks, timers and unclosed objects."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
import warnings
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["Resources", "descriptors", "more_open", "unclosed"]

_FOLDERS: Final = ("/proc/self/fd", "/dev/fd")
"""The folders in which systems list the descriptors of a process; Windows has none."""

_KINDS: Final = {
    stat.S_IFSOCK: "socket",
    stat.S_IFIFO: "pipe",
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFCHR: "device",
}


class Resources:
    """The descriptors, tasks and timers at one moment."""

    def __init__(self) -> None:
        self.descriptors = descriptors()
        self.tasks = _tasks()
        self.timers = _timers()

    def more_than(self, before: Resources, *, alone: bool = False) -> str:
        """Return a text about the resources added since an earlier moment, or "".

        Args:
            before: An earlier moment.
            alone: Whether nothing else runs: then each task and timer must be one of `before`.
                The descriptors are left to `more_open`, as a loop keeps some until its end.
        """
        said: list[str] = []
        if len(self.tasks) > len(before.tasks) or (alone and self.tasks - before.tasks):
            said.append(f"tasks are left: {_some(self.tasks - before.tasks)}")
        if len(self.timers) > len(before.timers) or (alone and self.timers - before.timers):
            said.append(f"timers are left: {_some(self.timers - before.timers)}")
        more = "" if alone else more_open(self.descriptors, before.descriptors)
        return "; ".join([*said, more] if more else said)


def more_open(now: Counter[str], before: Counter[str]) -> str:
    """Return a text about the descriptors added, or ""."""
    if sum(now.values()) <= sum(before.values()):
        return ""
    more = sorted((now - before).items())
    return "descriptors are left: " + ", ".join(f"{number} of {name}" for name, number in more)


def descriptors() -> Counter[str]:
    """Count the open descriptors of this process, by kind and name, where the system lists them."""
    found: Counter[str] = Counter()
    folder = next((each for each in _FOLDERS if os.path.isdir(each)), None)  # noqa: PTH112 - no symlinks to resolve
    for number in os.listdir(folder) if folder else ():  # noqa: PTH208 - names, many times
        try:
            kind = _KINDS.get(stat.S_IFMT(os.fstat(int(number)).st_mode), "other")
            name = "" if kind == "socket" else _name(f"{folder}/{number}")
        except OSError:
            continue  # closed meanwhile, as that of the folder itself
        found[f"{kind} {name}".strip()] += 1
    return found


def _name(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - may not be a path
    except OSError:  # on systems without links there
        return ""


def _tasks() -> set[asyncio.Task[Any]]:
    """Return the tasks of the running loop, except the current one."""
    return asyncio.all_tasks() - {asyncio.current_task()}


def _timers() -> set[asyncio.TimerHandle]:
    """Return the timers of the running loop, if it is one of asyncio's own."""
    scheduled: list[asyncio.TimerHandle] = getattr(asyncio.get_running_loop(), "_scheduled", [])
    return {timer for timer in scheduled if not timer.cancelled()}


def _some(things: set[Any]) -> str:
    return ", ".join(repr(each) for each in list(things)[:3])


@contextmanager
def unclosed() -> Generator[list[str]]:
    """Collect warnings about objects that were dropped without being closed.

    Yields:
        The warnings, complete after the block. Objects from before it do not count.
    """
    noted: list[str] = []
    freezes = not gc.get_freeze_count()
    if freezes:
        gc.freeze()  # excludes older objects, which would also take long
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            yield noted
            gc.collect()
    finally:
        if freezes:
            gc.unfreeze()
    for each in caught:
        if issubclass(each.category, ResourceWarning):
            noted.append(str(each.message))
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
