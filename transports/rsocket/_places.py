"""The connection slots of a listener, shared among the sources of connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..streams._source import Places as SharedPlaces
from ._options import LinkOptions

if TYPE_CHECKING:
    from ._link import Link

__all__ = ["Places"]


class Places(SharedPlaces):
    """The count of connections by source, and the connections that are unused.

    Args:
        options: `max_connections`, `max_connections_per_source` and `unused_timeout`.
        clock: Tells the time, in seconds.
    """

    def __init__(self, options: LinkOptions, clock: Callable[[], float]) -> None:
        super().__init__(options.max_connections, options.max_connections_per_source)
        self._options = options
        self._clock = clock
        # Connections unused at the last check, by source, with the time of their creation; the
        # oldest first.
        self._unused: dict[str, dict[Link, float]] = {}

    def spare(self, source: str) -> Link | None:
        """Return a connection to close in favour of a new one, or `None`.

        It is unused for `unused_timeout`: it is no destination and has sent no request. It is of
        the same source, unless all slots are taken; then of the source with the most connections.
        """
        if self.taken >= self._options.max_connections and self._unused:
            source = max(self._unused, key=lambda each: self._by_source.get(each, 0))
        links = self._unused.get(source)
        if links is None:
            return None
        limit = self._clock() - self._options.unused_timeout
        for link, since in list(links.items()):
            if since > limit:
                return None
            self._use(source, link)
            if not link.session.used:
                return link
        return None

    def begin(self, link: Link) -> None:
        """Add a new connection, which is unused."""
        self._unused.setdefault(link.source, {})[link] = self._clock()

    def end(self, link: Link) -> None:
        """Remove a connection that has ended."""
        self._use(link.source, link)
        self.give_up(link.source)

    def _use(self, source: str, link: Link) -> None:
        links = self._unused.get(source)
        if links is not None:
            links.pop(link, None)
            if not links:
                del self._unused[source]
