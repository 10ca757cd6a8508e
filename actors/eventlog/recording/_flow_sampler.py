"""Flows of workers and links, from the differences of their own counters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from ....protocol import NotExposed, UnknownAddress, UnknownAddressType
from ....protocol.eventlog import Kind, Outcome

if TYPE_CHECKING:
    from ..._node import Node
    from ..._worker import Worker
    from ...instruments._instrument import Linked
    from ...runtime._cell import Cell
    from ._recorder import Recorder

__all__ = ["FlowSampler"]

MAX_PASSING: Final = 256
"""Most workers with a name in the log that started and stopped between two samples. Further ones
are counted for the node, as a worker for each request would fill the log with names."""

_UNREACHED: Final = (UnknownAddress.reason, UnknownAddressType.reason, NotExposed.reason)
"""Reasons of dead letters that no worker counts."""

_Counts: TypeAlias = "tuple[int, int, int, int]"
_NOTHING: Final = (0, 0, 0, 0)


class FlowSampler:
    """A sampler of a node's flows.

    Each worker is a destination of messages: those it handled, failed on and dropped. A worker
    is counted a last time when it stops. Messages that reached no worker are counted without
    one. Each message is `RECEIVED` as well, so that a log balances.

    Args:
        recorder: The recorder of flows.
        node: The node.
    """

    __slots__ = ("_cells", "_letters", "_links", "_node", "_passing", "_recorder", "_shown")

    def __init__(self, recorder: Recorder, node: Node) -> None:
        self._recorder: Final = recorder
        self._node: Final = node
        # The known workers with their last counts; no more than the node has.
        self._cells: dict[Cell, _Counts] = {cell: _of(cell) for cell in node.parts.table.cells()}
        self._passing = 0
        self._letters = {reason: self._letters_of(reason) for reason in _UNREACHED}
        self._links: dict[Linked, tuple[int, int, int]] = {}
        # The last recorded name of the direction in, by link.
        self._shown: dict[Linked, str] = {}
        recorder.flows.before_window.append(self.take)

    def take(self) -> None:
        """Take a sample: count the differences since the last one."""
        self._take_workers()
        for reason, before in list(self._letters.items()):
            now = self._letters[reason] = self._letters_of(reason)
            self._add("", int(Outcome.UNROUTABLE), now - before)
        for link in list(self._links):
            over = link.over
            self.settle(link)
            self._show(link)
            if over:
                del self._links[link]
                self._shown.pop(link, None)

    # --- workers --------------------------------------------------------------------------

    def stopped(self, worker: Worker) -> None:
        """Count a worker that is being removed, for the last time; on the loop's thread."""
        cell = worker._placed
        before = self._cells.pop(cell, None)
        if before is None and cell.worker.has_flows:
            self._passing += 1
        named = self._passing <= MAX_PASSING or before is not None
        self._count_worker(cell, _of(cell), before or _NOTHING, named=named)

    def _take_workers(self) -> None:
        known = self._cells
        self._cells = {}
        self._passing = 0
        for cell in self._node.parts.table.cells():
            self._cells[cell] = counts = _of(cell)
            before = known.get(cell, _NOTHING)
            if counts != before:
                self._count_worker(cell, counts, before, named=True)

    def _count_worker(self, cell: Cell, counts: _Counts, before: _Counts, *, named: bool) -> None:
        if not cell.worker.has_flows:
            return
        more = [now - then for now, then in zip(counts, before, strict=True)]
        name = self._recorder.messages.name_of(cell.address if named else None)
        self._count(name, more[0], more[1], more[2], more[3])

    def _count(self, dest: str, handled: int, failed: int, refused: int, dropped: int) -> None:
        # The action of a timer can fail as well, without a handled message.
        failed = max(0, min(failed, handled))
        self._add(dest, int(Outcome.DELIVER), handled - failed)
        self._add(dest, int(Outcome.FAILED), failed)
        self._add(dest, int(Outcome.REJECTED), refused)
        self._add(dest, int(Outcome.DROP), dropped)

    def _add(self, dest: str, outcome: int, frames: int) -> None:
        if frames > 0:
            flows = self._recorder.flows
            for each in (int(Outcome.RECEIVED), outcome):
                flows.cell(int(Kind.MESSAGE), each, dest=dest).add(0, frames)

    # --- links ----------------------------------------------------------------------------

    def link(self, link: Linked) -> None:
        """Count a link from now on."""
        self._links[link] = (0, 0, 0)

    def settle(self, link: Linked) -> None:
        """Count a link's messages so far, for example before its name changes."""
        before = self._links.get(link)
        if before is None:
            return
        # The log counts a dropped message as forwarded first.
        now = self._links[link] = (link.taken - link.queued, link.arrived, link.dropped)
        there, back = link.ways
        flows = self._recorder.flows
        name = self._node.name
        for dest, outcome, frames in (
            (there, Outcome.FORWARD, now[0] - before[0]),
            (back, Outcome.RECEIVED, now[1] - before[1]),
            (there, Outcome.DROP, now[2] - before[2]),
        ):
            if frames > 0:
                cell = flows.cell(int(Kind.LINK), int(outcome), origin=name, dest=dest)
                cell.add(0, frames)

    def _show(self, link: Linked) -> None:
        """Record that this end counts the link, even if nothing has arrived over it.

        A link that lost everything then differs from one without a log at the other end.
        """
        back = link.ways[1]
        if all(link.ends) and self._shown.get(link) != back:
            self._shown[link] = back
            kind, outcome = int(Kind.LINK), int(Outcome.RECEIVED)
            self._recorder.flows.cell(kind, outcome, origin=self._node.name, dest=back).show()

    # --- what the node counts -------------------------------------------------------------

    def _letters_of(self, reason: str) -> int:
        return self._node.dead_letters.by_reason.get(reason, 0)


def _of(cell: Cell) -> _Counts:
    return cell.handled, cell.failed, cell.refused, cell.dropped
