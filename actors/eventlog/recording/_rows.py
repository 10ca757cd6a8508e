"""The rows of flow counters on their way into the log, in parts and with retries.

Rows are in flight until the receipt of their block is set. A block on which the disk failed is in
doubt until its segment has been read again, up to `retry_seconds` later. Written again before, it
could be in the log twice.
"""

from __future__ import annotations

from typing import Final

from ....protocol.eventlog import FLOW
from ..storage._output import FLOWS, Output
from ._flows import FlowRow, FlowTable
from ._losses import BROKEN
from ._sink import Receipt

__all__ = ["FlowRows"]

FLOWS_A_BLOCK: Final = 1024
"""Most flows in a block."""

TURN: Final = 256 * 1024
"""Bytes after which the rest of the flows waits for the loop's next turn."""

_pack_flow: Final = FLOW.pack


class FlowRows:
    """A writer for the rows of a flow table, which writes lost rows again.

    Args:
        table: The table.
        output: The output for the blocks.
        limit: Most rows in flight to the disk.
    """

    __slots__ = ("_flight", "_flying", "_limit", "_output", "_table")

    def __init__(self, table: FlowTable, output: Output, limit: int) -> None:
        self._table: Final = table
        self._output: Final = output
        self._limit: Final = limit
        # Blocks in flight, the oldest first, and the number of their rows.
        self._flight: list[tuple[Receipt, list[FlowRow]]] = []
        self._flying = 0

    def write(self, seq: int) -> int:
        """Write a block of rows.

        Rows that cannot be written now are written later; see `FlowTable.rows`.

        Args:
            seq: The last number in use.

        Returns:
            How many numbers were used: one for each row written, and one for a row that cannot be.
        """
        output = self._output
        rows = self._table.rows
        if self._flying >= self._limit:
            return 0
        taken: list[FlowRow] = []
        dropped = 0
        packed: list[bytes] = []
        segment = output.generation
        size = output.size
        try:
            while rows and len(packed) < FLOWS_A_BLOCK and output.size - size < TURN:
                taken.append(rows.popleft())
                packed.append(self._packed(taken[-1], seq + len(taken)))
        except Exception as error:  # noqa: BLE001 - a defect must not stop the loop
            output.failed(error)
            # Try the row without names; if that fails as well, drop it.
            row = taken.pop()
            if any(row[2:6]):
                rows.appendleft((*row[:2], "", "", None, None, *row[6:]))
            else:
                output.drop(FLOWS, 1, BROKEN)
                dropped = 1
        if not taken:
            return dropped
        body = b"".join(packed)
        receipt = Receipt()
        if output.generation == segment and output.write(FLOWS, len(taken), b"F", body, receipt):
            self._flight.append((receipt, taken))
            self._flying += len(taken)
            return len(taken) + dropped
        # No other record has used a number meanwhile.
        self._table.keep(taken)
        return dropped

    def _packed(self, row: FlowRow, seq: int) -> bytes:
        start, length, origin, dest, to, asked, kind, outcome, frames, size = row
        naming = self._output.naming
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

    def look(self) -> None:
        """Remove written rows from those in flight, and return lost ones to the table."""
        waiting: list[tuple[Receipt, list[FlowRow]]] = []
        lost: list[FlowRow] = []
        for each in self._flight:
            receipt, rows = each
            kept = receipt.kept
            if kept is None:
                waiting.append(each)
            elif not kept:
                lost += rows
        self._flight = waiting
        self._flying = sum(len(rows) for _, rows in waiting)
        if lost:
            self._table.keep(lost)

    def let_go(self) -> None:
        """Forget the rows in flight, which cannot be written again."""
        self._flight.clear()
        self._flying = 0

    def drop_rest(self) -> int:
        """Drop the rows that are left; return how many."""
        rows = self._table.rows
        count = len(rows)
        if count:
            self._output.drop(FLOWS, count)
            rows.clear()
        return count
