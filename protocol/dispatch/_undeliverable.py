"""The chain for messages that no consumer takes: hold and retry, redirect, and the last part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ._outcomes import ACCEPTED, RELEASED, Outcome, Rejected
from ._semantics import Undeliverable
from ._semantics_parts import Last, Redirect, Retry

__all__ = ["UNDELIVERABLE", "last_outcome", "next_part"]

UNDELIVERABLE: Final = Rejected("onward:undeliverable", "no consumer took it")
"""The outcome of an undeliverable message of a name that rejects those."""


def next_part(
    chain: Sequence[Undeliverable], after: Retry | Redirect | None, *, redirected: bool
) -> Undeliverable:
    """Return the part of a chain that applies next.

    Args:
        chain: The chain of the semantics, with release, drop or reject at its end.
        after: The part that was used up; `None` at first.
        redirected: Whether the message was redirected before, so that it does not go back and
            forth between two names.
    """
    rest = chain if after is None else chain[chain.index(after) + 1 :]
    return next(part for part in rest if not (redirected and isinstance(part, Redirect)))


def last_outcome(last: Last, *, settled: bool) -> Outcome | None:
    """Return the outcome at the end of a chain; `None` for a pre-settled message, which is dropped.

    Args:
        last: The last part of the chain.
        settled: Whether the message is pre-settled.
    """
    if settled:
        return None
    if last is Last.DROP:
        return ACCEPTED
    return RELEASED if last is Last.RELEASE else UNDELIVERABLE
