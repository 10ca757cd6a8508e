"""Work on many names that leaves the loop free: a bounded number of steps in each turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["Slices"]

T = TypeVar("T")


class Slices:
    """Work that is under way, of which `DispatchOptions.name_slice` steps are done in a turn.

    Args:
        core: The dispatcher.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core
        self._most: Final = core.options.name_slice
        self._works: Final = deque[tuple[Callable[[], bool], Callable[[], object]]]()
        self._running = False

    def begin(
        self,
        items: Iterator[T],
        perform: Callable[[T], object],
        then: Callable[[], object] | None = None,
    ) -> None:
        """Begin work. Its first steps are done at once, unless other work is under way.

        Args:
            items: What there is to do.
            perform: Does one of it. If it raises, that is logged, and the rest is done.
            then: It is called at the end.
        """
        self._works.append((partial(self._step, items, perform), then or _nothing))
        if not self._running:
            self._run()

    def _step(self, items: Iterator[T], perform: Callable[[T], object]) -> bool:
        """Perform a step of a work; return whether there was one."""
        for item in items:
            self._try(partial(perform, item))
            return True
        return False

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the rest must be done too
            self._core.fault("work on the names of a dispatcher", error)

    def _run(self) -> None:
        self._running = True
        for _ in range(self._most):
            if not self._works:
                break
            step, then = self._works[0]
            if not step():
                self._works.popleft()
                self._try(then)
        self._running = bool(self._works)
        if self._works:
            self._works.rotate(-1)
            self._core.schedule.soon(self._run)


def _nothing() -> None:
    """Leave it at that: most works have no end of their own."""
