"""The statistics of a recorder."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RecorderStatistics"]


@dataclass(frozen=True, slots=True)
class RecorderStatistics:
    """The counters of a recorder since the start.

    Attributes:
        hops: Hops recorded, those dropped later included; `flows` and `events` likewise.
        flows: Rows of flow counters.
        events: Route events, those about the log itself included.
        segments: Segments begun.
        dropped: Records that did not get into the log, by reason.
        marks_left_out: Marks of messages that arrived over links and were ignored: beyond
            `max_marked_per_second`, or any at a `sample_rate` of 0.
        rejects_left_out: `REJECT` events beyond `max_rejects_per_second`, or of too many bytes.
            Flows count these requests.
        changes_left_out: Events of destinations beyond `max_event_bytes_per_second`. The last
            state of each destination is recorded.
        foreign_left_out: Requests with a sampled trace id of their own beyond
            `max_foreign_per_second`. They are sampled like requests without an id.
        without_number: Names, routes and tag sets without a number, because the segment had too
            many or they were too long.
        folded: Flow counters beyond the limit, counted in rows without names.
    """

    hops: int
    flows: int
    events: int
    segments: int
    dropped: dict[str, int]
    marks_left_out: int
    rejects_left_out: int
    changes_left_out: int
    foreign_left_out: int
    without_number: int
    folded: int
