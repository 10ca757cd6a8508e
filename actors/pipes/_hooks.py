"""What the two ends of a pipe tell the program that uses them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from .._worker import Worker

__all__ = ["call_hook"]

logger: Final = logging.getLogger("onward")

T = TypeVar("T")


def call_hook(hook: Callable[[T], object] | None, worker: Worker, what: T) -> None:
    """Call a hook if there is one; what it raises is logged, as there is no one to raise it to."""
    if hook is None:
        return
    try:
        hook(what)
    except Exception:
        logger.exception("a hook of %s failed", worker.address)
