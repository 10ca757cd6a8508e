"""What the page says of what may be believed: whether all adds up, and what the logs lack."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Audit", "AuditRow", "Hole"]


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One broker, or one link, over the day; the columns of the report `audit`.

    Attributes:
        src: The broker, or the sending node.
        dst: The link; empty for a broker.
        sent: What was read from requesters, or put on the link; `None` if that end keeps no log.
        received: What was handed on, or came over the link; `None` if that end keeps no log.
        going: Whether its run goes on, so that what is missing may be in hand.
        earlier: Whether its run was there before what was counted, so that what ended twice may
            have been in hand then.
        untold: Whether nothing was recorded as taken, though requests ended: nothing can be said of
            what is missing or ended twice, and both are 0.
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
    """What one log lacks.

    Attributes:
        log: The log's name.
        absent: How many of its numbers are not in the lake.
        unrecorded: How many events it says it could not take.
        reasons: Why, some of them.
    """

    log: str
    absent: int
    unrecorded: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Audit:
    """Whether all that came has gone somewhere.

    Attributes:
        rows: The brokers and links, those out of balance first.
        more: How many rows are not shown; they are in balance, unless `missing` says otherwise.
        missing: What is unaccounted for, over all rows.
        duplicated: What ended more than once, over all rows.
        open: How much of `missing` is of runs that go on, so that it may be in hand.
        before: How much of `duplicated` is of runs that were there before what was counted, so that
            it may have been in hand then.
        holes: The logs that lack something, those that lack most first.
        more_holes: How many of them are not shown.
        absent: Numbers that are not in the lake, over all logs.
        unrecorded: Events that could not be recorded, over all logs.
        untold: Requests that ended at brokers of which no request was recorded as taken.
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
        """Whether no log lacks anything; if one does, a balance says nothing."""
        return not (self.absent or self.unrecorded or self.untold)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to audit."""
        return not self.rows and self.whole
