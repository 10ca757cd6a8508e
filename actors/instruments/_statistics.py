"""Statistics of a node and its workers, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...protocol import Address

__all__ = ["NodeStatistics", "WorkerStatistics"]


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """The statistics of one worker at one moment."""

    address: Address
    """Its primary address."""

    kind: str
    """Name of its class."""

    state: str
    """`starting`, `idle`, `busy` (a coroutine or a restart is under way), `waiting to restart` or
    `stopping`."""

    waiting: int
    """Messages in its mailbox."""

    limit: int
    """Limit of its mailbox in messages."""

    handled: int
    """Messages it has taken from its mailbox, including those that failed."""

    failed: int
    """Times a handler, a timer's action or an escalated child failed."""

    refused: int
    """Messages refused with `MailboxFull`."""

    dropped: int
    """Messages dropped by its mailbox's overflow policy or after their deadline; each is a dead
    letter."""

    restarts: int
    """Restarts with a new instance."""

    children: int
    """Workers it has spawned that have not stopped."""

    timers: int
    """Timers it has set that are still active."""


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """The statistics of one node at one moment. Counts include workers that have stopped."""

    name: str
    """The node's name."""

    worker_count: int
    """Workers that have not stopped."""

    requests: int
    """Requests waiting for an answer."""

    pending: int
    """Messages waiting until a rule can resolve their addresses."""

    handled: int
    """Messages taken from mailboxes."""

    failed: int
    """Failures of workers."""

    refused: int
    """Messages refused with `MailboxFull` by all mailboxes."""

    dropped: int
    """Messages dropped by overflow policies."""

    restarts: int
    """Restarts of workers."""

    abandoned: int
    """Workers that did not stop in time, not even when cancelled."""

    dead_letters: int
    """Dead letters in all."""

    dead_letter_reasons: Mapping[str, int]
    """Dead letters by reason."""

    denied: int
    """Messages that access controls denied."""

    error_replies: int
    """Error replies sent."""

    error_replies_dropped: int
    """Error replies not sent because there were too many in a second."""

    routes_cut: int
    """Messages answered by a worker that was not the last of their route."""

    workers: tuple[WorkerStatistics, ...]
    """Each worker, in the order of spawning; empty if not requested."""
