"""Health checks, in the stages that supervisors of processes know."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .._errors import LimitReached

__all__ = ["CheckResult", "HealthChecks", "Stage"]

_logger = logging.getLogger("onward.actors.monitoring")

MAX_CHECKS: Final = 100
"""The maximum number of checks; one more is refused."""


class Stage(Enum):
    """The subject of a check. A higher stage has more false alarms, so probes use a low one."""

    LIVE = "live"
    """The process works; one that does not is to be restarted."""

    STARTED = "started"
    """The start is over; until then the other stages mean nothing."""

    READY = "ready"
    """The process should get requests."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    Attributes:
        name: The name of the check.
        problem: The reason for which it has failed, in a few words; empty if it has passed.
    """

    name: str
    problem: str

    @property
    def passed(self) -> bool:
        """Whether the check has passed."""
        return not self.problem


class HealthChecks:
    """The checks of a node by stage.

    Readiness must not depend on destinations, or on anything else that several brokers share: all
    of them would drop out together.
    """

    def __init__(self) -> None:
        self._checks: dict[int, tuple[Stage, str, Callable[[], str]]] = {}
        self._last = 0

    def add(self, stage: Stage, name: str, check: Callable[[], str]) -> Callable[[], None]:
        """Add a check.

        Args:
            stage: Its stage.
            name: Its name.
            check: Returns the problem in a few words, or an empty text. It is called on the loop
                for each look, and must not block. One that raises has failed, and is logged.

        Returns:
            The function that removes it.

        Raises:
            LimitReached: There are `MAX_CHECKS` already.
        """
        if len(self._checks) >= MAX_CHECKS:
            raise LimitReached("health checks", MAX_CHECKS)
        self._last = number = self._last + 1
        self._checks[number] = stage, name, check

        def remove() -> None:
            self._checks.pop(number, None)

        return remove

    def run(self, stage: Stage) -> tuple[CheckResult, ...]:
        """Return the result of each check of a stage, in the order they were added."""
        return tuple(
            CheckResult(name, _problem(name, check))
            for of, name, check in self._checks.values()
            if of is stage
        )


def _problem(name: str, check: Callable[[], str]) -> str:
    try:
        return check()
    except Exception:
        _logger.exception(
            "the health check %s has failed", name, extra={"event": "health.check_failed"}
        )
        return "the check itself has failed"
