"""A node that fails its test for unexpected dead letters and failed workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from ...protocol import counted
from .._node import Node
from ..runtime._state import RUNNING

if TYPE_CHECKING:
    from ..runtime._cell import Cell

__all__ = ["MAX_SETTLE", "checked_node"]

MAX_SETTLE: Final = 1.0
"""Default of the longest time that a `checked_node` waits for its workers to finish, in seconds.
Later faults go unnoticed, except failures while the node stops."""

_SHOWN: Final = 5  # dead letters in the text of an error
_LONGEST_LOOK: Final = 0.02  # seconds between two checks of the workers


@asynccontextmanager
async def checked_node(
    name: str = "node",
    *,
    allow: Iterable[str] = (),
    allow_failures: bool = False,
    settle: float = MAX_SETTLE,
    **options: Any,
) -> AsyncGenerator[Node]:
    """Run a node, and raise `AssertionError` at the end if something went wrong in it.

    Faults are dead letters, unless their reason is allowed, and workers that failed. The node
    first lets its workers finish: until no message waits and no handler runs, for at most
    `settle`. Messages left over by a stop and handlers cancelled by it are no faults; a worker
    that fails while the node stops is one. An exception of the body is raised instead.

    Work that the node does not see is not waited for: a timer that has not fired, a task started
    by a worker, a message between two nodes.

    Args:
        name: The name of the node.
        allow: Reasons of dead letters that are no faults here.
        allow_failures: Whether workers may fail.
        settle: The longest time for the workers to finish, in seconds of the loop's clock.
        **options: As for `Node`.

    Raises:
        AssertionError: Something went wrong.
    """
    async with Node(name, **options) as node:
        yield node
        await _settled(node, settle)
        cells = node.parts.table.cells()
        in_hand = {cell: cell.task for cell in cells if cell.task is not None}
        wrong = _lost(node, frozenset(allow))
    cut_off = {cell for cell, task in in_hand.items() if task.cancelled()}
    if not allow_failures:
        wrong = _failed(node, cells, cut_off) + wrong
    if wrong:
        raise AssertionError(f"on the node {name!r}:\n  " + "\n  ".join(wrong))


async def _settled(node: Node, longest: float) -> None:
    """Wait until no message waits and no handler runs."""
    loop = asyncio.get_running_loop()
    end = loop.time() + longest
    wait = 0.0
    await asyncio.sleep(0)  # for callbacks that the loop has been given
    while _at_work(node) and loop.time() < end:  # polled: an event would cost every hop
        await asyncio.sleep(min(wait, end - loop.time()))
        wait = min(2 * wait or _LONGEST_LOOK / 16, _LONGEST_LOOK)


def _at_work(node: Node) -> bool:
    return any(cell.queue or cell.state != RUNNING for cell in node.parts.table.cells())


def _failed(node: Node, cells: list[Cell], cut_off: set[Cell]) -> list[str]:
    """Describe the workers that failed; being cancelled by the stop does not count."""
    total = node.statistics(workers=False).failed - len(cut_off)
    if not total:
        return []
    counts = [(cell, cell.failed - (cell in cut_off)) for cell in cells]
    return [
        f"workers failed: {counted(total, 'time')}",
        *(f"  {cell}: {count}" for cell, count in counts if count),
    ]


def _lost(node: Node, allowed: frozenset[str]) -> list[str]:
    """Describe the messages that became dead letters."""
    reasons = node.dead_letters.by_reason
    bad = {reason: count for reason, count in reasons.items() if reason not in allowed}
    found = [f"dead letters, {reason!r}: {count}" for reason, count in sorted(bad.items())]
    letters = [letter for letter in node.dead_letters.recent if letter.reason in bad]
    return found + [f"  {letter.reason}: {letter.message}" for letter in letters[:_SHOWN]]
