"""Search for event logs under a path, and checks of their format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from ..protocol.eventlog import (
    OPEN,
    SEALED,
    EventLogError,
    EventName,
    Segment,
    is_segment_name,
    parse_segment_name,
    read_segment,
)
from ._status import CommandError

__all__ = ["Check", "check_log", "compare", "find_logs", "read_file"]

MAX_LOST_NOTES: Final = 20
"""Most notes about losses of one log; further ones are counted."""

_WHY_MISSING: Final = "deleted, or its disk failed and kept nothing"


def find_logs(path: Path) -> dict[Path, list[Path]]:
    """Return the logs at a path, each with its sealed segments in order.

    Args:
        path: A segment, the folder of a log, or a folder of such folders. Other files in it are
            ignored.

    Raises:
        CommandError: There is no log, or no such path.
        OSError: It cannot be read.
    """
    if not path.exists():
        raise CommandError(f"there is no {path}: give the DIR of --event-log")
    if path.is_file():
        return {path.parent: [path]}
    found = _segments(path)
    if found:
        return {path: found}
    logs = {each: _segments(each) for each in sorted(path.iterdir()) if each.is_dir()}
    logs = {folder: segments for folder, segments in logs.items() if segments}
    if not logs:
        raise CommandError(
            f"no sealed segment under {path}: one is sealed each minute, and as the broker stops"
        )
    return logs


def _segments(folder: Path) -> list[Path]:
    return sorted(each for each in folder.glob(f"*{SEALED}") if is_segment_name(each.name))


def read_file(path: Path) -> Segment | None:
    """Return a segment; `None` if it has been deleted since it was found, as the oldest are.

    Raises:
        CommandError: It is damaged, unfinished or of a later format.
        OSError: It cannot be read.
    """
    try:
        return read_segment(path.read_bytes())
    except FileNotFoundError:
        return None
    except EventLogError as error:
        raise CommandError(f"{path}: {error}") from error


@dataclass(slots=True)
class Check:
    """The result of checking a log."""

    identities: set[bytes] = field(default_factory=set[bytes])
    names: set[str] = field(default_factory=set[str])
    epochs: set[int] = field(default_factory=set[int])
    """The epochs with a segment, even a damaged one."""
    lost: int = 0
    """Losses that the log itself reports."""
    deleted: int = 0
    """Segments deleted since they were found."""

    segments: int = 0
    hops: int = 0
    flows: int = 0
    events: int = 0
    missing: int = 0
    notes: list[str] = field(default_factory=list[str])
    """Observations that are not faults."""
    problems: list[str] = field(default_factory=list[str])


def check_log(folder: Path, segments: list[Path]) -> Check:
    """Check every record of a log, and the sequence of its segments.

    Raises:
        OSError: A file cannot be read.
    """
    check = Check()
    at: tuple[int, int] | None = None
    for path in segments:
        try:
            segment = read_segment(path.read_bytes())
            segment.check()
        except FileNotFoundError:
            # Those before it are gone too, even if they were read: the oldest are deleted first.
            check.deleted += 1
            check.epochs |= _epoch_of(path.name)
            at = None
            continue
        except EventLogError as error:
            check.problems.append(f"{path.name}: {error}")
            check.epochs |= _epoch_of(path.name)
            at = None
            continue
        header, footer = segment.header, segment.footer
        check.segments += 1
        check.hops += footer.hops
        check.flows += footer.flows
        check.events += footer.events
        check.missing += segment.missing
        check.identities.add(header.log)
        check.names.add(header.broker)
        for event in segment.events:
            if event.name is EventName.LOST:
                check.lost += 1
                if check.lost <= MAX_LOST_NOTES:
                    check.notes.append(f"{path.name}: lost: {event.reason}")
        if is_segment_name(path.name) and (header.epoch, header.first_seq) != parse_segment_name(
            path.name
        ):
            check.problems.append(f"{path.name}: it is another segment, renamed")
        check.epochs.add(header.epoch)
        check.problems += _between(path, at, header.epoch, header.first_seq)
        at = header.epoch, footer.last_seq + 1
    if check.lost > MAX_LOST_NOTES:
        check.notes.append(f"the log reports {check.lost - MAX_LOST_NOTES} more losses")
    if len(check.identities) > 1:
        check.problems.append("segments of several logs: two brokers have written under one name")
    for name in sorted(check.names - {folder.name}):
        check.notes.append(f"segments say that the log is called {name}")
    if check.deleted:
        check.notes.append(f"{check.deleted} segments were deleted during this check")
    read = {path.name for path in segments}
    check.problems += _epochs_missing(folder, check.epochs, read)
    check.notes += _others(folder)
    return check


def compare(checks: Mapping[Path, Check]) -> Iterator[str]:
    """Yield the logs that cannot be told apart: a reader of all would confuse their events."""
    for what, of in _SAME.items():
        folders: dict[bytes | str, list[Path]] = {}
        for folder, check in checks.items():
            for each in of(check):
                folders.setdefault(each, []).append(folder)
        for each, found in folders.items():
            # A copy of a log has its name as well; that is reported once.
            same = {frozenset(checks[folder].identities) for folder in found}
            if len(found) > 1 and (isinstance(each, bytes) or len(same) > 1):
                shown = each.hex() if isinstance(each, bytes) else each
                there = " and ".join(folder.name for folder in found)
                yield f"{there} {what.format(shown)}"


_SAME: Final[dict[str, Callable[[Check], set[bytes] | set[str]]]] = {
    "are one log, {}: leave one of them": lambda check: check.identities,
    "are two logs of one name, {}: each writer needs its own name": (lambda check: check.names),
}


def _between(path: Path, at: tuple[int, int] | None, epoch: int, first: int) -> Iterator[str]:
    """Yield gaps and repetitions before a segment; before the first one nothing is known."""
    if at is None:
        return
    due = at[1] if at[0] == epoch else 1
    if first > due:
        yield f"{path.name}: the events {due} to {first - 1} before it are missing"
    elif first < due:
        yield f"{path.name}: the events {first} to {due - 1} are there twice"


def _epochs_missing(folder: Path, epochs: set[int], read: set[str]) -> Iterator[str]:
    """Yield the runs after the first that are missing; older ones were deleted for their age.

    Args:
        folder: The log's folder. A run with a file of any sort in it is not missing.
        epochs: The epochs of the segments that were checked.
        read: The names of their files. Their contents count, not their names.
    """
    others = {
        epoch
        for path in folder.iterdir()
        if path.name not in read
        for epoch in _epoch_of(path.name)
        if epoch > min(epochs, default=epoch)
    }
    for before, after in pairwise(sorted(epochs | others)):
        if after == before + 2:
            yield f"the epoch {before + 1} is missing: {_WHY_MISSING}"
        elif after > before + 2:
            yield f"the epochs {before + 1} to {after - 1} are missing: {_WHY_MISSING}"


def _epoch_of(name: str) -> set[int]:
    """Return the epoch in the name of a segment's file, with any ending; or an empty set."""
    try:
        return {parse_segment_name(name.partition(".")[0] + SEALED)[0]}
    except EventLogError:
        return set()


def _others(folder: Path) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".bad"):
            yield f"{path.name} was set aside, as it could not be read"
        elif path.name.endswith(OPEN) and is_segment_name(path.name):
            yield f"{path.name} is being written, or was left open"
