"""What a recorder has recorded, as a value for everybody."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RecorderStatistics"]


@dataclass(frozen=True, slots=True)
class RecorderStatistics:
    """What a recorder has recorded since the start.

    Attributes:
        hops: Hops recorded; `flows` and `events` likewise. Those that were dropped later count.
        flows: Rows of flow counters.
        events: Route events, those about the log itself included.
        segments: Segments begun.
        dropped: What did not get into the log, by reason.
        marks_left_out: Marks of messages that came over links and were not believed: beyond
            `max_marked_per_second`, or any at a `sample_rate` of 0.
        rejects_left_out: `REJECT` events beyond `max_rejects_per_second`, or of too many bytes.
            Flows count them.
        changes_left_out: Destinations that came, changed or went beyond
            `max_event_bytes_per_second`. What each is in the end is told.
        foreign_left_out: Trace ids that came with requests and were chosen by their hash, beyond
            `max_foreign_per_second`. Such a request is drawn for as one without an id is.
        without_number: Times a name, a route or a tag set got no number, as there were as many
            in the segment as may be, or it was too long.
        folded: Flow counters there was no room for; their counts are in rows without names.
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
