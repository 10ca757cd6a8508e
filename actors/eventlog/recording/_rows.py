"""The rows of flow counters on their way into the log: in parts, and again if they are lost.

Rows are under way until the receipt of their block says that they are written, or are not. The
block that the disk failed with is in doubt until the segment that broke off has been read again,
up to `retry_seconds` later: written again before, it could be there twice.
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
"""Bytes after which the rest of the flows has to wait for the loop's next turn."""

_pack_flow: Final = FLOW.pack


class FlowRows:
    """Writes the rows of a table, and has those written again that the disk took and lost.

    Args:
        table: Whose rows.
        output: Where they are written.
        limit: Most rows that are under way to the disk.
    """

    __slots__ = ("_flight", "_flying", "_limit", "_output", "_table")

    def __init__(self, table: FlowTable, output: Output, limit: int) -> None:
        self._table: Final = table
        self._output: Final = output
        self._limit: Final = limit
        # Blocks that may be lost yet, the oldest first, and how many rows are in them.
        self._flight: list[tuple[Receipt, list[FlowRow]]] = []
        self._flying = 0

    def write(self, seq: int) -> int:
        """Write a block of rows.

        What cannot be written now stays, and is written later: see `FlowTable.rows`.

        Args:
            seq: The last number that was given.

        Returns:
            How many numbers were taken: one by each that was written, and by one that cannot be.
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
        except Exception as error:  # noqa: BLE001 - the loop is not to fail with us
            output.failed(error)
            # Without names it fits; else nothing does.
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
        # Nothing else has taken a number meanwhile.
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
        """Let go of what is written, and take back what the disk took and lost."""
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
        """Forget what is under way: there is no later time to write it again."""
        self._flight.clear()
        self._flying = 0

    def drop_rest(self) -> int:
        """Drop the rows that are left, as there will be no other time; return how many."""
        rows = self._table.rows
        count = len(rows)
        if count:
            self._output.drop(FLOWS, count)
            rows.clear()
        return count
