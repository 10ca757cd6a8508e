"""The audit section of the page: the balance of requests, and the holes in the logs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Audit", "AuditRow", "Hole"]


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One broker, or one link, over the day; the columns of the report `audit`.

    Attributes:
        src: The broker, or the sending node.
        dst: The link; empty for a broker, `FROM_PEERS` for what other brokers have forwarded to it.
        sent: Messages read from requesters, or sent over the link; `None` if that end has no log.
        received: Messages forwarded, or received over the link; `None` if that end has no log.
        going: Whether the run continues, so that missing requests may be open.
        earlier: Whether the run began before the audit, so that duplicated requests may have been
            open at its start.
        untold: Whether requests ended but none was recorded as read: `missing` and `duplicated`
            are not known, and 0.
    """

    src: str
    dst: str
    sent: int | None
    received: int | None
    delivered: int
    dropped: int
    unroutable: int
    missing: int
    duplicated: int
    going: bool = False
    earlier: bool = False
    untold: bool = False


@dataclass(frozen=True, slots=True)
class Hole:
    """The events that one log lacks.

    Attributes:
        log: The log's name.
        absent: The number of sequence numbers that are not in the lake.
        unrecorded: The number of events that the log reports as not recorded.
        reasons: Some of the reasons.
    """

    log: str
    absent: int
    unrecorded: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """The balance of requests and outcomes.

    Attributes:
        rows: The brokers and links, those out of balance first.
        more: The number of rows that are not shown; the totals below include them.
        missing: Requests without an outcome, over all rows.
        duplicated: Requests with more than one outcome, over all rows.
        open: The part of `missing` at runs that continue: these requests may be open.
        before: The part of `duplicated` at runs that began before the audit: these requests may
            have been open at its start.
        holes: The logs that lack events, those that lack most first.
        more_holes: The number of such logs that are not shown.
        absent: Sequence numbers that are not in the lake, over all logs.
        unrecorded: Events that could not be recorded, over all logs.
        untold: Requests that ended at brokers with no request recorded as read.
    """

    rows: tuple[AuditRow, ...]
    more: int
    missing: int
    duplicated: int
    open: int = 0
    before: int = 0
    holes: tuple[Hole, ...] = ()
    more_holes: int = 0
    absent: int = 0
    unrecorded: int = 0
    untold: int = 0

    @property
    def balanced(self) -> bool:
        """Whether nothing is missing and nothing ended twice."""
        return not (self.missing or self.duplicated)

    @property
    def whole(self) -> bool:
        """Whether no log lacks events; otherwise a balance proves nothing."""
        return not (self.absent or self.unrecorded or self.untold)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to audit."""
        return not self.rows and self.whole
