"""The reader of a stream: each batch continues after the last one in every broker's log.

An offset has the position in each broker's log: see `LogPosition`. It is made from the headers and
footers of the batch's segments, so segments deleted unread are detected before the batch is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from .._errors import DuplicateBroker, SegmentGone
from ._listing import SegmentInfo, brokers_in, describe, sealed_in
from ._options import Options
from ._position import LogPosition, check_behind, check_kept
from ._reading import SegmentPaths, pack, read_partition

__all__ = ["EventLogStream"]

Offset = dict[str, Any]

MAX_KNOWN: Final = 10_000
"""Most segments with cached header and footer."""


class EventLogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader of sealed segments, batch by batch.

    Args:
        options: The options.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: dict[str, str] | None = None
        self._known: dict[tuple[str, str], SegmentInfo] = {}

    # --- called by Spark ------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset before all segments."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the option `maxSegments` sets."""
        limit = self._options.max_segments
        return ReadAllAvailable() if limit is None else ReadMaxFiles(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the newest segments, after which this run reads none."""
        self._target = {
            broker: names[-1]
            for broker in self._brokers()
            if (names := sealed_in(self._options.path, broker))
        }

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset at the end of the next batch.

        Raises:
            LogError: The segments do not follow the ones read before: see `onward.pipeline`.
        """
        budget = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        waiting = {broker: self._after(self._at(start, broker)) for broker in self._brokers()}
        end = dict(start)
        for broker, names in _shares(waiting, budget).items():
            at = self._at(start, broker)
            for name in names:
                at = self._advance(at, name)
            end[broker] = at.plain()
        for broker, changed in self._changed(start).items():
            end[broker] = replace(self._at(end, broker), again=changed).plain()
        return end

    def reportLatestOffset(self) -> None:  # noqa: N802 - Spark's name
        """Return nothing: a report would cost another listing."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the segments between two offsets; repeated calls return the same.

        Raises:
            SegmentGap: Segments were deleted since the second offset was made.
            LogError: The segments do not follow each other.
        """
        infos: list[SegmentInfo] = []
        for broker in sorted(end):
            at, last = self._at(start, broker), self._at(end, broker)
            changed = sorted(name for name, *_ in set(last.again) - set(at.again))
            infos.extend(self._describe(broker, name) for name in changed)
            for name in self._names(at, last.segment):
                info = self._describe(broker, name)
                at = self._follow(at, info)
                infos.append(info)
            if at.segment != last.segment and not self._options.skip_gaps:
                raise SegmentGone(str(self._options.path / broker / last.segment))
        # A repeated batch does not need the segments after it.
        self._known.clear()
        ends_only = self._options.table == "segments" and not self._options.check
        parts = pack([(info.path, info.size) for info in infos], ends_only=ends_only)
        return list[InputPartition](parts) or [SegmentPaths(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition as Arrow batches."""
        return read_partition(self._options, partition)

    def commit(self, end: Offset) -> None:
        """Ignore the call: it comes a batch late, and not for the last batch of a run."""

    # --- segments -------------------------------------------------------------------------

    def _brokers(self) -> list[str]:
        return brokers_in(self._options.path, self._options.brokers)

    def _at(self, offset: Mapping[str, Any], broker: str) -> LogPosition:
        plain = offset.get(broker)
        return LogPosition(broker) if plain is None else LogPosition.of(broker, plain)

    def _after(self, at: LogPosition) -> list[str]:
        """Return the names after a position, and check the segments before it."""
        path = self._options.path
        names = sealed_in(path, at.broker)
        if names and at.log_id:
            # A skipped segment has no log id; whether it may be skipped was checked before.
            lowest = describe(path, at.broker, names[0], skip_damaged=True)
            if lowest.log_id and lowest.log_id != at.log_id:
                raise DuplicateBroker(
                    at.broker,
                    f"the one of which {at.segment} was read (log id {at.log_id})",
                    f"the one of {path / lowest.path} (log id {lowest.log_id})",
                )
            check_behind(path, at, names)
            if not self._options.skip_gaps:
                check_kept(at, names)
        target = None if self._target is None else self._target.get(at.broker, "")
        return [name for name in names if at.segment < name and (target is None or name <= target)]

    def _changed(self, start: Offset) -> dict[str, tuple[tuple[str, int, int], ...]]:
        """Return, by broker, the skipped segments that were or have to be read again."""
        found: dict[str, tuple[tuple[str, int, int], ...]] = {}
        for broker, then in _skipped(self._options.again).items():
            at = self._at(start, broker)
            before = {name: look for name, *look in at.again if name in then}
            now = dict(before)
            for name, look in then.items():
                path = self._options.path / broker / name
                if name > at.segment or not path.is_file():
                    continue
                status = path.stat()
                seen = [status.st_size, status.st_mtime_ns]
                if seen != look:
                    now[name] = seen
            if now != before:
                found[broker] = tuple((name, a, b) for name, (a, b) in sorted(now.items()))
        return found

    def _names(self, at: LogPosition, last: str) -> list[str]:
        names = sealed_in(self._options.path, at.broker)
        return [name for name in names if at.segment < name <= last]

    def _describe(self, broker: str, name: str) -> SegmentInfo:
        key = (broker, name)
        if (info := self._known.get(key)) is None:
            options = self._options
            info = describe(options.path, broker, name, skip_damaged=options.skip_damaged)
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = info
        return info

    def _advance(self, at: LogPosition, name: str) -> LogPosition:
        return self._follow(at, self._describe(at.broker, name))

    def _follow(self, at: LogPosition, info: SegmentInfo) -> LogPosition:
        return at.advance(info, log=self._options.path, skip_gaps=self._options.skip_gaps)


def _skipped(path: Path | None) -> dict[str, dict[str, list[int]]]:
    """Return size and time of the skipped segments, by broker and name."""
    if path is None or not path.is_file():
        return {}
    plain: dict[str, dict[str, list[int]]] = json.loads(path.read_text(encoding="utf-8"))
    return plain


def _shares(waiting: Mapping[str, Sequence[str]], budget: int | None) -> dict[str, Sequence[str]]:
    """Divide a batch's budget: a short list is taken whole, the others get equal shares."""
    if budget is None:
        return {broker: names for broker, names in waiting.items() if names}
    shares: dict[str, Sequence[str]] = {}
    left = sorted((broker for broker in waiting if waiting[broker]), key=lambda b: len(waiting[b]))
    for place, broker in enumerate(left):
        # Rounded up, so that a budget smaller than the number of brokers is used.
        share = min(len(waiting[broker]), -(-budget // (len(left) - place)))
        budget -= share
        if share:
            shares[broker] = waiting[broker][:share]
    return shares
