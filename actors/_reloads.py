"""The parts of a program that are read anew while it runs: certificates, users, rules."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from ..protocol import OnwardError, counted

__all__ = ["PrepareReload", "ReloadFailed", "ReloadStatistics", "Reloads"]

_logger = logging.getLogger("onward.actors")

PrepareReload: TypeAlias = Callable[[], Awaitable[Callable[[], object]]]
"""Reads a part anew, off the loop, and checks it; returns the function that applies it.

That function cannot fail. The first one raises `OSError`, `ValueError` or `OnwardError` if the part
cannot be used; the old one stays then.
"""


class ReloadFailed(OnwardError):
    """A reload was refused; nothing has changed.

    Args:
        errors: The error of each part that cannot be used, by its name.
    """

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        """Return the errors on one line."""
        return "; ".join(f"{name}: {error}" for name, error in self.errors.items())


@dataclass(frozen=True, slots=True)
class ReloadStatistics:
    """The figures of reloads.

    Attributes:
        parts: The parts that are read anew.
        done: Reloads that were applied, since the start.
        failed: Reloads that were refused, since the start.
        error: The text of the last error; empty after a reload that was applied.
        applied: The time of the last reload that was applied, in seconds since the Unix epoch;
            before the first one that of the start.
    """

    parts: int
    done: int
    failed: int
    error: str
    applied: float = 0.0


class Reloads:
    """The parts that are read anew together: all of them, or none if one cannot be used.

    All parts are read and checked. Then all are applied in one turn of the loop. A reload that is
    requested meanwhile follows.
    """

    def __init__(self) -> None:
        self._parts: dict[str, PrepareReload] = {}
        self._one_at_a_time = asyncio.Lock()
        self._done = 0
        self._failed = 0
        self._error = ""
        self._applied = time.time()

    def add(self, name: str, prepare: PrepareReload) -> Callable[[], None]:
        """Add a part and return the function that removes it.

        Args:
            name: Its name in errors, such as `certificates of rsocket+tls://0.0.0.0:8001`.
            prepare: See `PrepareReload`.

        Raises:
            ValueError: There is a part of this name.
        """
        if name in self._parts:
            raise ValueError(f"there is a part {name!r} already")
        self._parts[name] = prepare

        def remove() -> None:
            self._parts.pop(name, None)

        return remove

    async def reload(self) -> tuple[str, ...]:
        """Read all parts anew, and apply them if all can be used.

        Returns:
            The names of the parts.

        Raises:
            ReloadFailed: Some cannot be used; nothing has changed.
        """
        async with self.prepared() as apply:
            return apply()

    @asynccontextmanager
    async def prepared(self) -> AsyncGenerator[Callable[[], tuple[str, ...]]]:
        """Read all parts anew, and hold other reloads back until the end.

        Yields:
            The function that applies them all, and returns their names. Without its call nothing
            changes.

        Raises:
            ReloadFailed: Some cannot be used; nothing has changed.
        """
        async with self._one_at_a_time:
            parts = dict(self._parts)
            applied, errors = list[Callable[[], object]](), dict[str, str]()
            for name, prepare in parts.items():
                try:
                    applied.append(await prepare())
                except (OSError, ValueError, OnwardError) as error:
                    errors[name] = str(error)
            if errors:
                raise self.refused(errors)
            yield partial(self._apply, tuple(parts), applied)

    def refused(self, errors: dict[str, str]) -> ReloadFailed:
        """Count and log that a reload is refused, and return the error.

        Args:
            errors: The error of each part that cannot be used, by its name.
        """
        self._failed += 1
        failed = ReloadFailed(errors)
        self._error = str(failed)
        _logger.error(
            "reload refused, nothing has changed: %s",
            failed,
            extra={"event": "reload.refused"},
        )
        return failed

    def _apply(
        self, parts: tuple[str, ...], applied: list[Callable[[], object]]
    ) -> tuple[str, ...]:
        for apply in applied:
            apply()
        self._done += 1
        self._error = ""
        self._applied = time.time()
        _logger.info(
            "reloaded %s",
            ", ".join(parts) or counted(0, "part"),
            extra={"event": "reload.done"},
        )
        return parts

    def statistics(self) -> ReloadStatistics:
        """Return the current figures."""
        return ReloadStatistics(
            len(self._parts), self._done, self._failed, self._error, self._applied
        )
