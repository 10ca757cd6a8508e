"""The record of messages to names: flows by name, consumer and outcome, of a node's dispatcher."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...dispatch._recorded import NameInstrument

if TYPE_CHECKING:
    from ._flows import FlowCell, FlowTable

__all__ = ["NameLog"]


class NameLog(NameInstrument):
    """The record of a dispatcher.

    Args:
        flows: The flow counters.
    """

    __slots__ = ("_cells", "_flows")

    def __init__(self, flows: FlowTable) -> None:
        self._flows: Final = flows
        self._cells: dict[tuple[int, int, str, str], FlowCell] = {}
        flows.on_window.append(self._cells.clear)

    def count(self, kind: int, outcome: int, name: str, to: str, size: int) -> None:
        """Count a message to a name, or a copy of one."""
        key = (kind, outcome, name, to)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._flows.cell(kind, outcome, origin=name, dest=to)
            # At the limit of a window cells are shared, and keeping each name would have none.
            if not self._flows.full:
                self._cells[key] = cell
        cell.add(size)
