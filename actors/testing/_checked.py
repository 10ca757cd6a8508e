"""A node that fails the test in which something went wrong that nobody looked at."""

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
"""Longest that a `checked_node` waits for its workers to finish unless it is told otherwise, in
seconds; what they do later goes unnoticed, but for failures while the node stops."""

_SHOWN: Final = 5  # dead letters in the text of an error
_LONGEST_LOOK: Final = 0.02  # seconds from one look at the workers to the next


@asynccontextmanager
async def checked_node(
    name: str = "node",
    *,
    allow: Iterable[str] = (),
    allow_failures: bool = False,
    settle: float = MAX_SETTLE,
    **options: Any,
) -> AsyncGenerator[Node]:
    """Run a node, and raise `AssertionError` in the end if something went wrong in it.

    What went wrong: a dead letter, unless its reason is allowed, and a worker that failed. The
    node first lets its workers finish: until no message waits and no handler is in hand, or for
    as long as `settle`. Messages that a stop leaves undone and handlers that it cuts off are no
    fault; a worker that fails while the node stops is one. When the body raises, that is raised
    and nothing else.

    What is not seen to be under way is not waited for: a timer that has not gone off, a task
    that a worker has made itself, a message between two nodes.

    Args:
        name: Of the node.
        allow: Reasons of dead letters that are no fault here.
        allow_failures: Whether workers may fail.
        settle: How long to let the workers finish at most, in seconds of the loop's clock.
        **options: As for `Node`.

    Raises:
        AssertionError: Something went wrong.
    """
    async with Node(name, **options) as node:
        yield node
        await _settled(node, settle)
        cells = node._cells()
        in_hand = {cell: cell.task for cell in cells if cell.task is not None}
        wrong = _lost(node, frozenset(allow))
    cut_off = {cell for cell, task in in_hand.items() if task.cancelled()}
    if not allow_failures:
        wrong = _failed(node, cells, cut_off) + wrong
    if wrong:
        raise AssertionError(f"on the node {name!r}:\n  " + "\n  ".join(wrong))


async def _settled(node: Node, longest: float) -> None:
    """Wait until no message waits and no handler is in hand."""
    loop = asyncio.get_running_loop()
    end = loop.time() + longest
    wait = 0.0
    await asyncio.sleep(0)  # for what others have asked the loop to do
    while _at_work(node) and loop.time() < end:  # no event says so, as every hop would pay
        await asyncio.sleep(min(wait, end - loop.time()))
        wait = min(2 * wait or _LONGEST_LOOK / 16, _LONGEST_LOOK)


def _at_work(node: Node) -> bool:
    return any(cell.queue or cell.state != RUNNING for cell in node._cells())


def _failed(node: Node, cells: list[Cell], cut_off: set[Cell]) -> list[str]:
    """Say which workers failed; to be cut off by the stop counts as a failure of theirs."""
    total = node.statistics(workers=False).failed - len(cut_off)
    if not total:
        return []
    counts = [(cell, cell.failed - (cell in cut_off)) for cell in cells]
    return [
        f"workers failed: {counted(total, 'time')}",
        *(f"  {cell}: {count}" for cell, count in counts if count),
    ]


def _lost(node: Node, allowed: frozenset[str]) -> list[str]:
    """Say which messages became dead letters."""
    reasons = node.dead_letters.by_reason
    bad = {reason: count for reason, count in reasons.items() if reason not in allowed}
    found = [f"dead letters, {reason!r}: {count}" for reason, count in sorted(bad.items())]
    letters = [letter for letter in node.dead_letters.recent if letter.reason in bad]
    return found + [f"  {letter.reason}: {letter.message}" for letter in letters[:_SHOWN]]
