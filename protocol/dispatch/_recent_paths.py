"""The paths of the network as a node has known them lately.

While a shorter path comes up, some nodes know of it and others do not. A message that is under way
on the longer path has then passed more nodes than a node with the new paths expects, or comes to
one that is on no path any more. Neither makes it undeliverable: for a while the paths before count.
"""

from __future__ import annotations

from typing import Final

from ._graph import Paths

__all__ = ["RecentPaths"]

_MOST_BEFORE: Final = 4
"""Changes of the paths of which those before are kept. Beyond: the oldest are forgotten."""


class RecentPaths:
    """The paths of a node, now and a while before."""

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._now: Paths | None = None
        self._before: tuple[tuple[float, Paths], ...] = ()  # until when, the newest first

    @property
    def radius(self) -> int:
        """The hops to the node that is furthest from here, by the paths now."""
        return 0 if self._now is None else self._now.radius

    def change(self, paths: Paths, now: float, overlap: float) -> None:
        """Replace the paths; nothing happens if they are the same.

        Args:
            paths: The paths.
            now: The time, in seconds.
            overlap: Time for which those before count, in seconds.
        """
        if paths is self._now:
            return
        if self._now is not None:
            self._before = ((now + overlap, self._now), *self._before)[:_MOST_BEFORE]
        self._now = paths

    def before(self, now: float) -> tuple[Paths, ...]:
        """Return the paths before that still count at a time, the newest first."""
        if self._before:
            self._before = tuple(each for each in self._before if now < each[0])
        return tuple(paths for _, paths in self._before)

    def greatest_radius(self, now: float) -> int:
        """Return the greatest radius of the paths now and of those that still count."""
        return max([self.radius, *(each.radius for each in self.before(now))])
