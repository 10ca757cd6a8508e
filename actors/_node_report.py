"""Reports about a node for its operator: workers, links and dead letters, in bounded JSON.

They have routes, sizes and counters, and no payload.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast

from ..protocol import Address, format_route
from .runtime._slices import in_slices

if TYPE_CHECKING:
    from ._node import Node
    from ._worker import Worker
    from .runtime._cell import Cell

__all__ = [
    "LETTERS",
    "LINKS",
    "NODE",
    "WORKERS",
    "json_row",
    "link_figures",
    "link_row",
    "node_report",
    "read_report",
]

WORKERS: Final = "workers"
LINKS: Final = "links"
LETTERS: Final = "dead-letters"
NODE: Final = "node"

MAX_REPORT: Final = 48 * 1024
"""Most characters of the rows of a report; further rows are only counted."""

MAX_TEXT: Final = 256
"""Most characters of a text in a report; a longer one is cut."""

_CUT: Final = "…"

_logger = logging.getLogger("onward.actors")

_Row = Mapping[str, Any]


def node_report(node: Node, question: str) -> bytes | None:
    """Return a report as JSON in UTF-8; `None` if the question is none of the known ones.

    A report has the name of the `node`, the `total` of rows, and as many `rows` as there is room
    for:

    - `workers`: the statistics of each worker, those with the most waiting messages first.
    - `links`: the statistics of each link and listener, in the order of spawning.
    - `dead-letters`: the kept dead letters, the last one first, with their `age` in seconds; and
      the number of all by `reasons`.
    - `node`: the statistics of the node, as one row.
    - what its workers report, such as the `network` of a dispatcher.

    Call it on the node's loop. What is read in slices only `read_report` returns.
    """
    asked = _REPORTS.get(question)
    if asked is not None:
        total, rows, more = asked(node)
    elif (own := node.parts.reports.get(question)) is not None:
        total, rows, more = len(found := own()), found, {}
    else:
        return None
    return _report(node, total, rows, more)


async def read_report(node: Node, question: str) -> bytes | None:
    """Return a report, or one that is read in slices, such as the `addresses` of a dispatcher."""
    long = node.parts.long_rows.get(question)
    if long is None:
        return node_report(node, question)
    found = await in_slices(long())
    return _report(node, len(found), map(_row, found), {})


def _report(node: Node, total: int, rows: Iterable[_Row], more: Mapping[str, Any]) -> bytes:
    fitting = ",".join(_fitting(rows))
    head = json.dumps({"node": _text(node.name), "total": total, **more}, separators=(",", ":"))
    return f'{head[:-1]},"rows":[{fitting}]}}'.encode()


def _fitting(rows: Iterable[_Row]) -> Iterator[str]:
    """Yield rows as JSON, up to the limit."""
    left = MAX_REPORT
    for row in rows:
        written = json.dumps(_value(row), separators=(",", ":"))
        left -= len(written) + 1
        if left < 0:
            return
        yield written


_Report = tuple[int, Iterable[_Row], dict[str, Any]]


def _workers(node: Node) -> _Report:
    found = node.statistics().workers
    rows = sorted(found, key=lambda worker: -worker.waiting)
    return len(found), map(_row, rows), {}


def _links(node: Node) -> _Report:
    found: list[tuple[Address, Worker, dict[str, Any]]] = []
    for cell in node.parts.table.cells():
        figures = link_figures(cell.worker)
        if figures is not None:
            found.append((cell.address, cell.worker, figures))
    rows = (
        {"address": address, "kind": type(worker).__name__, **figures}
        for address, worker, figures in found
    )
    return len(found), rows, {}


def link_row(cell: Cell) -> dict[str, Any] | None:
    """Return the statistics of a link as values that JSON can represent; `None` if it is none."""
    figures = link_figures(cell.worker)
    if figures is None or "peer" not in figures:
        return None
    row = {"address": cell.address, "kind": type(cell.worker).__name__, **figures}
    return {name: _value(each) for name, each in row.items()}


def _letters(node: Node) -> _Report:
    letters = node.dead_letters
    now = letters.clock()
    recent = letters.recent
    rows = (
        {
            "age": round(now - letter.at, 3),
            "reason": letter.reason,
            "onward_route": format_route(letter.message.onward_route),
            "return_route": format_route(letter.message.return_route),
            "source": letter.message.source,
            "size": letter.size,
        }
        for letter in reversed(recent)
    )
    return letters.total, rows, {"reasons": dict(letters.by_reason)}


def _node(node: Node) -> _Report:
    row = _row(node.statistics(workers=False))
    del row["workers"]
    return 1, (row,), {}


_REPORTS: Final[dict[str, Callable[[Node], _Report]]] = {
    WORKERS: _workers,
    LINKS: _links,
    LETTERS: _letters,
    NODE: _node,
}


def link_figures(worker: Worker) -> dict[str, Any] | None:
    """Return the statistics of a link or a listener, which has a peer or a URI; else `None`."""
    statistics = getattr(worker, "statistics", None)
    if not callable(statistics):
        return None
    try:
        found = statistics()
    except Exception:
        _logger.exception(
            "%s has no statistics", worker, extra={"event": "worker.statistics_failed"}
        )
        return None
    if not is_dataclass(found) or isinstance(found, type):
        return None
    figures = _row(found)
    return figures if "peer" in figures or "uri" in figures else None


def json_row(statistics: Any) -> dict[str, Any]:
    """Return statistics, which are a dataclass, as values that JSON can represent."""
    return {name: _value(each) for name, each in _row(statistics).items()}


def _row(statistics: Any) -> dict[str, Any]:
    return {field.name: getattr(statistics, field.name) for field in fields(statistics)}


def _value(value: Any) -> Any:
    """Return a value as JSON can represent it."""
    if isinstance(value, Address):
        return _text(str(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        counts = cast("Mapping[str, Any]", value)
        return {name: _value(each) for name, each in counts.items()}
    if isinstance(value, list | tuple):
        return [_value(each) for each in cast("Sequence[Any]", value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _text(str(value))


def _text(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + _CUT
