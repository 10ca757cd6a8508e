"""Brokers with an overdue answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._link import ClientLink

__all__ = ["Suspicion"]


class Suspicion:
    """The suspicion that a broker is dead, after which requests prefer other connections.

    The broker is closed only after its lifetime in silence, by the connection's own timer.

    Args:
        link: The connection.
    """

    __slots__ = ("_asked", "_due", "_link")

    def __init__(self, link: ClientLink) -> None:
        self._link = link
        self._due: float | None = None  # since when an answer is due
        self._asked = False  # whether a KEEPALIVE was sent since

    def end(self) -> None:
        """Clear the suspicion: the broker has sent something."""
        self._due = None
        self._asked = False

    def expect(self) -> None:
        """Expect an answer of the broker from now on."""
        if self._due is None:
            self._due = self._link.time()

    def suspected(self) -> bool:
        """Return whether the broker is silent for `suspect_after` with an answer due.

        The delay may be the destination's. So a suspected broker is sent a KEEPALIVE, which it
        answers at once.
        """
        since = self._due
        link = self._link
        if since is None or link.time() - since <= link.suspect_after:
            return False
        if not self._asked:
            self._asked = True
            link.send_keepalive()
        return True
