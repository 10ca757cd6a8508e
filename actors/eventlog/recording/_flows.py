"""Flow counters: frames and bytes by origin, destination, query, kind and outcome.

A *cell* is kept by its user, and counting is two additions. A cell adds itself to the list of cells
to be written when it is first used. At the end of a window the cells in the list are written and
reset to 0, so it does not matter how long they are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from ....protocol.eventlog import FLOW, Asked
from ...broker._instrument import RequestCell
from ..storage._output import FLOWS, Output

__all__ = ["FlowCell", "FlowTable"]

FLOWS_A_BLOCK: Final = 64
"""Most flows in a block: with their definitions it takes less than 512 KiB. The rest waits for the
loop's next turn."""

_pack_flow: Final = FLOW.pack

Key: TypeAlias = "tuple[str, str, bytes | None, Asked | None, int, int]"
"""Origin, dest, route, query, kind, outcome."""


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
        limit: Most cells of one window. Beyond it counts have kind and outcome only, so that the
            totals stay right.

    Attributes:
        folded: Cells beyond the limit, since the start.
        full: Whether there is no room for another cell in this window.
        before_window: Called before a window ends, for users that count by differences.
        on_window: Called when a window is over, for users to release their cells.
    """

    __slots__ = (
        "_cells",
        "_dirty",
        "_limit",
        "_rows",
        "before_window",
        "folded",
        "full",
        "on_window",
    )

    def __init__(self, limit: int) -> None:
        self._limit: Final = limit
        self._cells: dict[Key, FlowCell] = {}
        self._dirty: list[FlowCell] = []
        # Start and length of the window, key, frames and bytes of each.
        self._rows: deque[tuple[int, int, Key, int, int]] = deque()
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
        key: Key = (origin, dest, route, asked, kind, outcome)
        found = self._cells.get(key)
        if found is None and self.full:
            self.folded += 1
            key = ("", "", None, None, kind, outcome)
            found = self._cells.get(key)
        if found is not None:
            return found
        made = self._cells[key] = FlowCell(key, self._dirty)
        self.full = len(self._cells) >= self._limit
        return made

    def pair(self, first: FlowCell, second: FlowCell) -> FlowCell:
        """Return a cell that counts in two cells at once; both have the kind of the second."""
        return FlowCell(second.key, self._dirty, first)

    def end_window(self, start_us: int, length_ms: int) -> None:
        """Turn the counts into rows, and reset the cells.

        Args:
            start_us: The start of the window, in microseconds since the Unix epoch.
            length_ms: The length of the window, in milliseconds.
        """
        for settle in self.before_window:
            settle()
        for cell in self._dirty:  # the list grows in the loop
            if cell.also is not None:
                cell.also.add(cell.bytes, cell.frames)
            self._rows.append((start_us, length_ms, cell.key, cell.frames, cell.bytes))
            cell.frames = cell.bytes = 0
        self._dirty.clear()
        self._cells.clear()
        self.full = False
        for release in self.on_window:
            release()

    def write(self, output: Output, seq: int) -> int:
        """Write a block of rows, or drop it; return the number of its rows.

        Args:
            output: The output for the block.
            seq: The last number in use; each row takes one, written or not.
        """
        rows = [self._rows.popleft() for _ in range(min(FLOWS_A_BLOCK, len(self._rows)))]

        def pack() -> bytes:
            naming, packed = output.naming, list[bytes]()
            for number, (start, length, key, frames, size) in enumerate(rows, seq + 1):
                origin, dest, route, asked, kind, outcome = key
                ends = naming.name(origin), naming.name(dest)
                route_number, tagset = naming.route(route), naming.tagset(asked)
                packed.append(
                    _pack_flow(
                        number,
                        start,
                        length,
                        *ends,
                        route_number,
                        tagset,
                        kind,
                        outcome,
                        0,
                        frames,
                        size,
                    )
                )
            return b"".join(packed)

        if rows:
            output.put(FLOWS, len(rows), pack)
        return len(rows)
