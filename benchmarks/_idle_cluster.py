"""Brokers that are a cluster without clients, and what they cost in CPU."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from _rawload import cpu_seconds
from _rivals import onward_at

__all__ = ["BROKERS", "idle_brokers", "idle_shares"]

BROKERS = 9
LISTEN = "rsocket+tcp://127.0.0.1:0"
WORDS = ("--cluster-allow", "rsocket+tcp://127.0.0.1:*", "--log", "error")
PATIENCE = 60.0
"""Seconds until all links are up."""


@contextmanager
def idle_brokers(count: int, settling: float) -> Generator[list[int]]:
    """Start brokers, each with a link to each other; yield their process ids.

    Args:
        count: How many.
        settling: Seconds of rest before that, in which what has begun at the start ends.

    Raises:
        RuntimeError: They are not linked in time.
    """
    with ExitStack() as stack:
        pids = list[int]()
        alone = list[int]()
        seed = ("--cluster-advertise", LISTEN)
        for _ in range(count):
            pid, (uri,) = stack.enter_context(onward_at(LISTEN, words=(*WORDS, *seed)))
            pids.append(pid)
            alone.append(_sockets(pid))
            if len(pids) == 1:
                seed = ("--cluster-seed", uri)
        # One that dials at its start may have sockets of links already.
        least = min(alone)
        deadline = time.monotonic() + PATIENCE
        while any(_sockets(pid) != least + count - 1 for pid in pids):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all brokers are linked after {PATIENCE} s")
            time.sleep(0.1)
        time.sleep(settling)
        yield pids


def idle_shares(pids: Sequence[int], seconds: float) -> list[float]:
    """Return the share of a core that each process uses in a time without load, in per cent."""
    before = [cpu_seconds(pid) for pid in pids]
    started = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - started
    return [(cpu_seconds(pid) - at) / took * 100 for pid, at in zip(pids, before, strict=True)]


def _sockets(pid: int) -> int:
    """Return how many sockets a process has open."""
    count = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(each.readlink()).startswith("socket:")
    return count
