"""A node that fails the test in which something went wrong that nobody looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from .._node import Node

__all__ = ["checked_node"]

_SHOWN = 5  # dead letters in the text of an error


@asynccontextmanager
async def checked_node(
    name: str = "node",
    *,
    allow: Iterable[str] = (),
    allow_failures: bool = False,
    settle: float = 0.0,
    **options: Any,
) -> AsyncGenerator[Node]:
    """Run a node, and raise `AssertionError` in the end if something went wrong in it.

    What went wrong: a dead letter, unless its reason is allowed, and a handler that raised. Both
    are counted before the node stops: what a stop leaves undone is no fault. When the body
    raises, that is raised and nothing else.

    Args:
        name: Of the node.
        allow: Reasons of dead letters that are no fault here.
        allow_failures: Whether workers may fail.
        settle: How long to let the workers finish before looking, in seconds.
        **options: As for `Node`.

    Raises:
        AssertionError: Something went wrong.
    """
    async with Node(name, **options) as node:
        yield node
        await asyncio.sleep(settle)
        wrong = _wrong(node, frozenset(allow), allow_failures)
    if wrong:
        raise AssertionError(f"on the node {name!r}:\n  " + "\n  ".join(wrong))


def _wrong(node: Node, allowed: frozenset[str], allow_failures: bool) -> list[str]:
    found: list[str] = []
    statistics = node.statistics()
    if statistics.failed and not allow_failures:
        found.append(f"workers failed: {statistics.failed} times")
        found += [
            f"  {each.kind} {each.address}: {each.failed}"
            for each in statistics.workers
            if each.failed
        ]
    bad = {
        reason: count
        for reason, count in statistics.dead_letter_reasons.items()
        if reason not in allowed
    }
    found += [f"dead letters, {reason!r}: {count}" for reason, count in sorted(bad.items())]
    letters = [letter for letter in node.dead_letters.recent if letter.reason in bad]
    found += [f"  {letter.reason}: {letter.message}" for letter in letters[:_SHOWN]]
    return found
