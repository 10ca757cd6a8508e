"""The listing of a directory of logs: its brokers and their sealed segments.

It reads names and the two ends of files only. A folder with a segment is a broker's. All else is
ignored, including segments that are not sealed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...protocol.eventlog import (
    MAX_HEADER,
    SEALED,
    EventLogError,
    SegmentFooter,
    SegmentHeader,
    SegmentNewer,
    is_log_name,
    is_segment_name,
    parse_segment_name,
    read_footer,
    read_header,
)
from .._errors import (
    DuplicateBroker,
    LogError,
    NewerSegment,
    NoEventLog,
    SegmentDamaged,
    SegmentGone,
)
from ._arrow import FIRST_TIME, LAST_TIME

__all__ = ["SegmentInfo", "brokers_in", "describe", "refusal", "sealed_in", "segments_in"]

_HEAD = 2048
_TAIL = 4096


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """The header and footer of a sealed segment.

    Attributes:
        broker: The broker's name.
        name: The file's name.
        epoch: The epoch in the name.
        first_seq: The first number in the name.
        size: In bytes.
        header: Its header; `None` if it cannot be read.
        footer: Its footer; `None` if it cannot be read.
        reason: Why it cannot be read; empty if it can.
    """

    broker: str
    name: str
    epoch: int
    first_seq: int
    size: int
    header: SegmentHeader | None
    footer: SegmentFooter | None
    reason: str = ""

    @property
    def path(self) -> str:
        """The path, relative to the directory of logs."""
        return f"{self.broker}/{self.name}"

    @property
    def last_seq(self) -> int | None:
        """The last number in it; `None` if it cannot be read."""
        return None if self.footer is None else self.footer.last_seq

    @property
    def log_id(self) -> str:
        """The log's identity; empty if it cannot be read."""
        return "" if self.header is None else self.header.log.hex()


def brokers_in(log: Path, only: frozenset[str] | None = None) -> list[str]:
    """Return the names of the folders that can be logs, sorted.

    Raises:
        NoEventLog: There is no such directory.
    """
    try:
        found = [each.name for each in log.iterdir() if each.is_dir() and is_log_name(each.name)]
    except (FileNotFoundError, NotADirectoryError):
        raise NoEventLog(str(log)) from None
    return sorted(name for name in found if only is None or name in only)


def sealed_in(log: Path, broker: str) -> list[str]:
    """Return the file names of a broker's sealed segments, oldest first."""
    try:
        names = [each.name for each in (log / broker).iterdir()]
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(SEALED) and is_segment_name(name))


def segments_in(log: Path, only: frozenset[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield broker and file name of all sealed segments."""
    for broker in brokers_in(log, only):
        for name in sealed_in(log, broker):
            yield broker, name


def describe(log: Path, broker: str, name: str, *, skip_damaged: bool = False) -> SegmentInfo:
    """Read the header and footer of a segment.

    Args:
        log: The directory of logs.
        broker: The folder in it.
        name: The file in the folder.
        skip_damaged: Return a damaged segment with its `reason` instead of raising.

    Raises:
        SegmentDamaged: The segment cannot be read.
        NewerSegment: A newer version of Onward wrote it.
        DuplicateBroker: Its header names another broker than the folder.
        SegmentGone: It was deleted.
    """
    path = log / broker / name
    epoch, first_seq = parse_segment_name(name)
    try:
        head, tail, size = _ends(path)
    except FileNotFoundError:
        raise SegmentGone(str(path)) from None
    try:
        header, footer = read_header(head), read_footer(tail)
        _check_times(header, footer)
    except EventLogError as error:
        refused = refusal(str(path), error)
        if not (skip_damaged and isinstance(refused, SegmentDamaged)):
            raise refused from None
        return SegmentInfo(broker, name, epoch, first_seq, size, None, None, str(error))
    if header.broker != broker:
        raise DuplicateBroker(
            header.broker, f"the one in {log / broker}", f"the one in {log / header.broker}"
        )
    if (header.epoch, header.first_seq) != (epoch, first_seq):
        raise SegmentDamaged(str(path), "the file's name is not the one that its header has")
    return SegmentInfo(broker, name, epoch, first_seq, size, header, footer)


def refusal(path: str, error: EventLogError) -> LogError:
    """Return the pipeline's error for a segment; a newer format is not damage."""
    if isinstance(error, SegmentNewer):
        return NewerSegment(path, error.version)
    return SegmentDamaged(path, str(error))


def _check_times(header: SegmentHeader, footer: SegmentFooter) -> None:
    for what, when in (("begun", header.started_us), ("sealed", footer.ended_us)):
        if not FIRST_TIME <= when < LAST_TIME:
            raise EventLogError(f"{what} at a time outside 1970 to 2200: {when} us")


def _ends(path: Path) -> tuple[bytes, bytes, int]:
    with path.open("rb") as file:
        head = file.read(_HEAD)
        if len(head) == _HEAD and int.from_bytes(head[4:8], "little") > _HEAD - 12:
            head += file.read(MAX_HEADER - _HEAD)
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        return head, file.read(_TAIL), size
