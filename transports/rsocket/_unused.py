"""The connections of a listener that may be closed in favour of new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ._options import LinkOptions

if TYPE_CHECKING:
    from ..streams._source import Places
    from ._link import Link

__all__ = ["UnusedConnections"]


class UnusedConnections:
    """The connections that were unused at the last check, by source.

    Args:
        places: The places of the listener.
        options: `unused_timeout`.
        clock: Tells the time, in seconds.
    """

    def __init__(self, places: Places, options: LinkOptions, clock: Callable[[], float]) -> None:
        self._places = places
        self._options = options
        self._clock = clock
        # With the time of their creation; the oldest first.
        self._unused: dict[str, dict[Link, float]] = {}

    def spare(self, source: str) -> Link | None:
        """Return a connection to close in favour of a new one, or `None`.

        It is unused for `unused_timeout`: it is no destination and has sent no request. It is of
        the same source, unless all places are taken; then of the source with the most connections.
        """
        if self._places.full and self._unused:
            source = max(self._unused, key=self._places.taken_by)
        links = self._unused.get(source)
        if links is None:
            return None
        limit = self._clock() - self._options.unused_timeout
        for link, since in list(links.items()):
            if since > limit:
                return None
            self.discard(link)
            if not link.session.used:
                return link
        return None

    def add(self, link: Link) -> None:
        """Add a new connection."""
        self._unused.setdefault(link.source, {})[link] = self._clock()

    def discard(self, link: Link) -> None:
        """Remove a connection that has ended or is used."""
        links = self._unused.get(link.source)
        if links is not None:
            links.pop(link, None)
            if not links:
                del self._unused[link.source]
