"""Hooks of the two ends of a pipe."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from .._worker import Worker

__all__ = ["call_hook"]

logger: Final = logging.getLogger("onward")

T = TypeVar("T")


def call_hook(hook: Callable[[T], object] | None, worker: Worker, what: T) -> None:
    """Call a hook, if there is one, and log its exception: no caller could handle it."""
    if hook is None:
        return
    try:
        hook(what)
    except Exception:
        logger.exception("a hook of %s failed", worker.address, extra={"event": "hook.failed"})
