"""Flow counters: frames and bytes by origin, destination, query, kind and outcome.

A *cell* is kept by its user, and counting is two additions. A cell adds itself to the list of cells
to be written when it is first used. At the end of a window the cells in the list are written and
reset to 0, so it does not matter how long they are kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, TypeAlias

from ....protocol.eventlog import FLOW, Asked
from ...broker._instrument import RequestCell
from ..storage._output import BROKEN, FLOWS, Output

__all__ = ["FlowCell", "FlowRow", "FlowTable", "write_rows"]

FLOWS_A_BLOCK: Final = 1024
"""Most flows in a block."""

TURN: Final = 256 * 1024
"""Bytes after which the rest of the flows waits for the loop's next turn."""

_pack_flow: Final = FLOW.pack

Key: TypeAlias = "tuple[str, str, bytes | None, Asked | None, int, int]"

FlowRow: TypeAlias = "tuple[int, int, str, str, bytes | None, Asked | None, int, int, int, int]"
"""Window's start in microseconds, its length in milliseconds, origin, dest, route, query, kind,
outcome, frames, bytes."""


class FlowCell(RequestCell):
    """The counters for one origin, destination, query, kind and outcome.

    Attributes:
        frames: Frames in this window.
        bytes: Their bytes.
        also: Another cell that gets the same counts when the window ends, if any.
    """

    __slots__ = ("_dirty", "also", "key")

    def __init__(self, key: Key, dirty: list[FlowCell], also: FlowCell | None = None) -> None:
        self.key: Final = key
        self.also: Final = also
        self._dirty = dirty
        self.frames = 0
        self.bytes = 0

    def show(self) -> None:
        """Add the cell to those to be written, even if it stays at 0."""
        if not self.frames:
            self._dirty.append(self)

    def add(self, size: int, frames: int = 1) -> None:
        """Count frames and their bytes."""
        if not self.frames:
            self._dirty.append(self)
        self.frames += frames
        self.bytes += size


class FlowTable:
    """The cells of a window, and the unwritten rows of past windows.

    Args:
        limit: Most rows of one window. Beyond it rows have kind and outcome only, so that the
            totals stay right.

    Attributes:
        rows: Rows to be written, oldest first.
        folded: Cells beyond the limit, since the start.
        full: Whether there is no room for another cell in this window.
        before_window: Called before a window ends and before totals are read, for users that
            count by differences.
        on_window: Called when a window is over, for users to release their cells.
    """

    __slots__ = (
        "_cells",
        "_dirty",
        "_limit",
        "_past",
        "before_window",
        "folded",
        "full",
        "on_window",
        "rows",
    )

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._cells: dict[Key, FlowCell] = {}
        self._dirty: list[FlowCell] = []
        self._past: Counter[tuple[int, int]] = Counter()
        self.rows: deque[FlowRow] = deque()
        self.folded = 0
        self.full = False
        self.before_window: list[Callable[[], object]] = []
        self.on_window: list[Callable[[], object]] = []

    def cell(
        self,
        kind: int,
        outcome: int,
        *,
        origin: str = "",
        dest: str = "",
        route: bytes | None = None,
        asked: Asked | None = None,
    ) -> FlowCell:
        """Return a cell to count in; keep it no longer than to the window's end."""
        key = (origin, dest, route, asked, kind, outcome)
        found = self._cells.get(key)
        if found is not None:
            return found
        if self.full:
            self.folded += 1
            return self._rest(kind, outcome)
        made = self._cells[key] = FlowCell(key, self._dirty)
        self.full = len(self._cells) >= self._limit
        return made

    def pair(self, first: FlowCell, second: FlowCell) -> FlowCell:
        """Return a cell that counts in two cells at once; both have the kind of the second."""
        return FlowCell(second.key, self._dirty, first)

    def _rest(self, kind: int, outcome: int) -> FlowCell:
        """Return the cell for counts beyond the limit, one for each kind and outcome."""
        key: Key = ("", "", None, None, kind, outcome)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = FlowCell(key, self._dirty)
        return cell

    def end_window(self, start_us: int, length_ms: int) -> None:
        """Turn the counts into rows, and reset the cells.

        Args:
            start_us: The start of the window, in microseconds since the Unix epoch.
            length_ms: The length of the window, in milliseconds.
        """
        self.settle(start_us, length_ms)
        self._cells.clear()
        self.full = False
        for tell in self.on_window:
            tell()

    @property
    def counted_on(self) -> int:
        """The number of cells with counts that are not in rows yet."""
        return len(self._dirty)

    def settle(self, start_us: int, length_ms: int) -> None:
        """Turn the counts so far into rows; the window goes on.

        Rows of one window are added up by readers, so one cell may have several.
        """
        for tell in self.before_window:
            tell()
        room = self._limit
        rest: Counter[tuple[int, int]] = Counter()
        rest_bytes: Counter[tuple[int, int]] = Counter()
        for cell in self._dirty:  # the list grows in the loop
            if cell.also is not None:
                cell.also.add(cell.bytes, cell.frames)
            origin, dest, route, asked, kind, outcome = cell.key
            self._past[kind, outcome] += cell.frames
            if room > 0:
                room -= 1
                row = (origin, dest, route, asked, kind, outcome, cell.frames, cell.bytes)
                self.rows.append((start_us, length_ms, *row))
            else:
                # Only if cells of earlier windows were used as well.
                self.folded += 1
                rest[kind, outcome] += cell.frames
                rest_bytes[kind, outcome] += cell.bytes
            cell.frames = cell.bytes = 0
        for (kind, outcome), frames in rest.items():
            row = ("", "", None, None, kind, outcome, frames, rest_bytes[kind, outcome])
            self.rows.append((start_us, length_ms, *row))
        self._dirty.clear()

    def totals(self) -> dict[tuple[int, int], int]:
        """Return the counts of frames since the start, by kind and outcome."""
        for tell in self.before_window:
            tell()
        found = Counter(self._past)
        for cell in self._dirty:
            for each in (cell, cell.also):
                if each is not None:
                    found[each.key[4], each.key[5]] += cell.frames
        return dict(found)


def write_rows(rows: deque[FlowRow], output: Output, seq: int) -> int:
    """Write a block of rows, or drop and count it; return how many rows it has.

    Args:
        rows: The rows; those of the block are removed.
        output: The output for the block.
        seq: The last number in use; each row takes one, written or not.
    """
    count = 0
    packed: list[bytes] = []
    size = output.size
    try:
        while rows and count < FLOWS_A_BLOCK and output.size - size < TURN:
            count += 1
            packed.append(_packed(rows.popleft(), output, seq + count))
    except Exception as error:  # noqa: BLE001 - a defect must not stop the loop
        output.failed(error)
        output.drop(FLOWS, count, BROKEN)
    else:
        if count:
            output.put(FLOWS, count, b"F", b"".join(packed))
    return count


def _packed(row: FlowRow, output: Output, seq: int) -> bytes:
    start, length, origin, dest, to, asked, kind, outcome, frames, size = row
    naming = output.naming
    return _pack_flow(
        seq,
        start,
        length,
        naming.name(origin),
        naming.name(dest),
        naming.route(to),
        naming.tagset(asked),
        kind,
        outcome,
        0,
        frames,
        size,
    )
