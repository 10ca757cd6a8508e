"""What a worker and a node may use, and what happens at the limit: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ...protocol.options import Count, SecondsOrZero, Size, check_options

__all__ = ["MailboxOptions", "NodeLimits", "OnFailure", "Overflow", "Supervision"]


class Overflow(Enum):
    """What a mailbox at its limit does with one more message."""

    FAIL = auto()
    """The sender gets `MailboxFull`."""

    WAIT = auto()
    """A sender that awaits (`send_wait`, `route_wait`, `request`) waits for room, and so does what
    a worker passes on or answers with (`forward`, `redirect`, `step`, `route`, `reply`). Other
    senders get `MailboxFull`."""

    DROP_OLDEST = auto()
    """The message that has waited longest becomes a dead letter."""

    DROP_NEWEST = auto()
    """The message that came becomes a dead letter."""


@dataclass(frozen=True, slots=True)
class MailboxOptions:
    """How many messages may wait for a worker, and how many bytes.

    Attributes:
        limit: Messages that may wait. Checked without a lock: each other thread that sends
            at the same instant can exceed it by one.
        overflow: What happens at the limit.
        max_bytes: Bytes that may wait, of the payloads that are larger than 16 KiB; of a link
            that waits for its peer to read, larger than 512 bytes. One such message may always
            wait, however large. Not counted are payloads that a worker has
            made larger and passes on by `forward` or `step`, of messages without a context, as
            `send` makes them: those are bounded by `limit` only. Requests and what comes over
            a link have a context.

    Raises:
        ValueError: The limit is less than 1, or the bytes are negative.
    """

    limit: Count = 1000
    overflow: Overflow = Overflow.FAIL
    max_bytes: Size = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        check_options(self)


class OnFailure(Enum):
    """What becomes of a worker whose handler raised."""

    RESUME = auto()
    """Log and count it; go on with the next message and the same instance."""

    RESTART = auto()
    """Go on with a new instance at the same address, with the same mailbox."""

    STOP = auto()
    """Stop the worker; what waits in its mailbox becomes dead letters."""

    ESCALATE = auto()
    """Stop the worker and treat the failure as its parent's. Without a parent: stop it."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """What becomes of a worker that fails.

    Attributes:
        on_failure: The policy.
        max_restarts: Restarts allowed within the window; one more is treated as `ESCALATE`.
        within: Length of the window, in seconds.
    """

    on_failure: OnFailure = OnFailure.RESUME
    max_restarts: Size = 5
    within: SecondsOrZero = 60.0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class NodeLimits:
    """Everything in a node that could grow, and how far it may.

    Attributes:
        addresses: Addresses of workers in the table. More: `LimitReached`.
        batch: Messages a worker handles before the next worker has its turn.
        drain: Messages a node handles before its event loop does other things.
        reroutes: Times the rules may rewrite one message. More: `RoutingLoop`.
        requests: Requests that wait for an answer. More: `TooManyRequests`.
        late_answers: Requests given up that are remembered, so that an answer to one is
            known to be late. Older ones are forgotten: their answer has no such worker.
        timers: Timers of one worker. More: `LimitReached`.
        waiting_senders: Senders waiting for room in one mailbox. More: `MailboxFull`.
        waiting_messages: Messages of one worker, passed on or answered with in one turn, that
            wait for room in one mailbox. More: `MailboxFull`. Where workers wait for one another
            in a circle, a mailbox takes as many beyond its limit, as none would go on otherwise.
        room_timeout: Time a worker waits for room in a mailbox that takes nothing, in seconds.
            Then the messages that it would put there are lost: `MailboxFull`.
        waiting_bytes: Bytes of the payloads larger than 16 KiB that wait in all mailboxes
            together, and of those larger than 512 bytes that wait for a link while it waits for
            its peer to read. A mailbox that has none of them still takes one. More: as at a
            mailbox's own limit.
        dead_letters: Dead letters kept; all are counted.
        dead_letter_reasons: Distinct reasons counted; further ones count as "other".
        hops: Times a message may be passed on inside the node with no trace of it on the return
            route, as by `Worker.step`. More: `RoutingLoop`.
        exposed: Addresses exposed at run time (`Node.expose`) at one link or listener. More:
            `LimitReached`.
        error_replies: Error replies sent in a second; those beyond are dropped and counted.
        link_error_replies: Error replies sent in a second for what came over one link, and for
            what came over none; those beyond are dropped and counted.
        payload: Size of a payload sent from this node, in bytes. More: `PayloadTooBig`.
        stop_timeout: Time a worker that stops by itself gives its children, in seconds.
    """

    addresses: Count = 1_000_000
    batch: Count = 64
    drain: Count = 1024
    reroutes: Size = 8
    requests: Size = 100_000
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
