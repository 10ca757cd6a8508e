"""The limits and policies of workers and nodes, as plain values."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Annotated

from ...protocol.options import (
    Count,
    Probability,
    Range,
    Seconds,
    SecondsOrZero,
    Size,
    check_options,
)

__all__ = [
    "MailboxOptions",
    "NodeLimits",
    "OnFailure",
    "Overflow",
    "RestartBackoff",
    "Supervision",
]


class Overflow(Enum):
    """The policy of a mailbox at its limit for one more message."""

    FAIL = auto()
    """The sender gets `MailboxFull`."""

    WAIT = auto()
    """A sender that awaits (`send_wait`, `route_wait`, `request`) waits for room. So does a message
    that a worker passes on or answers with (`forward`, `redirect`, `step`, `route`, `reply`).
    Other senders get `MailboxFull`."""

    DROP_OLDEST = auto()
    """The message that has waited longest becomes a dead letter."""

    DROP_NEWEST = auto()
    """The new message becomes a dead letter."""


@dataclass(frozen=True, slots=True)
class MailboxOptions:
    """The limits of a mailbox and its policy when they are reached.

    Attributes:
        limit: Messages that may wait. Checked without a lock: each other thread that sends
            at the same instant can exceed it by one.
        overflow: The policy at the limit.
        max_bytes: Bytes that may wait, of the payloads larger than 16 KiB. For a link that waits
            for its peer to read: larger than 512 bytes. One such message may always wait,
            however large. A payload that a worker replaces itself, by `message._replace`, is
            not counted if the message has no context, as `send` makes them; it is bounded by
            `limit` only. One given to `forward`, `step` or `redirect` is counted.

    Raises:
        ValueError: The limit is less than 1, or the bytes are negative.
    """

    limit: Count = 1000
    overflow: Overflow = Overflow.FAIL
    max_bytes: Size = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)


class OnFailure(Enum):
    """The policy for a worker after its handler has raised."""

    RESUME = auto()
    """Log and count the failure; continue with the next message and the same instance."""

    RESTART = auto()
    """Continue with a new instance at the same address, with the same mailbox."""

    STOP = auto()
    """Stop the worker; the messages in its mailbox become dead letters."""

    ESCALATE = auto()
    """Stop the worker and treat the failure as its parent's. Without a parent, only stop it."""


@dataclass(frozen=True, slots=True)
class RestartBackoff:
    """The waits of a worker before its restarts.

    The wait before the n-th restart in a row is `first * factor ** (n - 1)`, at most `longest`,
    and shorter by a random part. After the worker has run for `Supervision.within` without a
    failure, the waits begin anew.

    Attributes:
        first: Wait before the first restart, in seconds.
        factor: Ratio of each wait to the one before.
        longest: Upper limit of every wait, in seconds.
        jitter: Largest part of a wait that is left out at random, so that workers that fail
            together do not restart together.
        random: Returns numbers from 0 up to 1; replace it for repeatable waits.
    """

    first: Seconds = 0.1
    factor: Annotated[float, Range(least=1)] = 2.0
    longest: Seconds = 30.0
    jitter: Probability = 0.2
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        check_options(self)

    def wait(self, restarts: int) -> float:
        """Return the wait after this many restarts in a row, in seconds."""
        try:
            grown = self.first * self.factor**restarts
        except OverflowError:
            grown = self.longest
        return min(self.longest, grown) * (1 - self.jitter * self.random())


@dataclass(frozen=True, slots=True)
class Supervision:
    """The supervision of a worker.

    Attributes:
        on_failure: The policy after a failure.
        max_restarts: Restarts allowed within the window; one more is treated as `ESCALATE`.
        within: Length of the window, in seconds.
        backoff: The waits before restarts. `None`: a worker is restarted at once.
    """

    on_failure: OnFailure = OnFailure.RESUME
    max_restarts: Size = 5
    within: SecondsOrZero = 60.0
    backoff: RestartBackoff | None = None

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """The limits of a node.

    Attributes:
        addresses: Addresses of workers in the table. More: `LimitReached`.
        batch: Messages a worker handles before the next worker has its turn.
        drain: Messages a node handles before its event loop does other things.
        reroutes: Times the rules may rewrite one message. More: `RoutingLoop`.
        requests: Requests that wait for an answer. More: `TooManyRequests`.
        pending: Messages that wait until a rule can resolve their addresses (`Pending`). Those
            that came over one link or connection may be as many as there are free places. More:
            `Unresolved`.
        pending_bytes: Bytes of these messages, routes included. More: `Unresolved`.
        pending_timeout: Time that such a message waits, in seconds, unless the rule gives another.
            Then the message is lost: `Unresolved`.
        late_answers: Given-up requests that are remembered, so that their answers are known to
            be late. An answer to an older one is for an unknown address.
        timers: Timers of one worker. More: `LimitReached`.
        waiting_senders: Senders waiting for room in one mailbox. More: `MailboxFull`.
        waiting_messages: Messages that one worker has passed on or answered with in one turn and
            that wait for room in one mailbox. More: `MailboxFull`. If workers wait for one
            another in a circle, a mailbox accepts as many beyond its limit.
        room_timeout: Time a worker waits for room in a mailbox that accepts no message, in
            seconds. Then its messages for that mailbox are lost: `MailboxFull`.
        waiting_bytes: Bytes of the payloads larger than 16 KiB that wait in all mailboxes
            together, and of those larger than 512 bytes that wait for a link while it waits for
            its peer to read. A mailbox without any of them still accepts one. More: as at a
            mailbox's own limit.
        dead_letters: Dead letters kept; all are counted.
        dead_letter_reasons: Distinct reasons counted; further ones count as "other".
        hops: Times a message may be passed on inside the node without a change of its return
            route, as by `Worker.step`. More: `RoutingLoop`.
        exposed: Addresses exposed at run time (`Node.expose`) at one link or listener. More:
            `LimitReached`.
        error_replies: Error replies sent in a second; those beyond are dropped and counted.
        link_error_replies: Error replies sent in a second for messages that came over one link or
            connection, and for messages that came over none; those beyond are dropped and counted.
        payload: Size of a payload sent from this node, in bytes. More: `PayloadTooBig`.
        stop_timeout: Time that the children of a worker that stops by itself have to stop, in
            seconds.
    """

    addresses: Count = 1_000_000
    batch: Count = 64
    drain: Count = 1024
    reroutes: Size = 8
    requests: Size = 100_000
    pending: Size = 10_000
    pending_bytes: Size = 16 * 1024 * 1024
    pending_timeout: SecondsOrZero = 5.0
    late_answers: Size = 10_000
    timers: Size = 10_000
    waiting_senders: Size = 1000
    waiting_messages: Size = 1000
    room_timeout: SecondsOrZero = 30.0
    waiting_bytes: Size = 256 * 1024 * 1024
    dead_letters: Size = 100
    dead_letter_reasons: Size = 64
    hops: Size = 64
    exposed: Size = 10_000
    error_replies: Size = 1000
    link_error_replies: Size = 100
    payload: Size = 16 * 1024 * 1024
    stop_timeout: SecondsOrZero = 5.0

    def __post_init__(self) -> None:
        check_options(self)
