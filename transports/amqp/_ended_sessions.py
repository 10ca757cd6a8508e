"""The sessions of a connection that have ended, for as long as something refers to their links.

Proton 0.40 does not record in the links of a session that it has ended: a link that was not
detached before counts as attached (`pni_unmap_local_channel` in transport.c: "XXX: should really
update link state also"). If the last reference to such a link goes after the last one to its
session, `pni_preserve_child` in engine.c keeps the link, and gives the one back that it has to
the session. That frees the session, and the link with it, which `pn_decref` then frees again: the
memory of the process is damaged. So each session is kept here until nothing refers to a link of it.
The ends of links that the dispatcher knows let go of them (`stray_link`), since it may know them
for as long as a message has no outcome, or a time limit of a circuit is not over.
"""

from __future__ import annotations

from typing import Final

from ._deliveries import Binding
from ._proton import Session

__all__ = ["MAX_ENDED", "EndedSessions"]

MAX_ENDED: Final = 1000
"""Sessions of a connection that have ended while something refers to their links, at most."""


class EndedSessions:
    """The sessions of a connection that have ended.

    Args:
        binding: The functions of the library.
    """

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._kept: list[Session] = []
        self._most = 1  # of them before they are looked through, so that it costs little for each

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, session: Session) -> bool:
        """Keep a session that is freed, and return whether there is room for another one."""
        if len(self._kept) >= self._most:
            self._look_through()
        self._kept.append(session)
        return len(self._kept) < MAX_ENDED

    def _look_through(self) -> None:
        """Give those back that have no link to which something refers."""
        # Each link that something refers to has a reference to its session; the other one is that
        # of the object here.
        self._kept = [each for each in self._kept if self._binding.references(each) > 1]
        self._most = min(max(1, 2 * len(self._kept)), MAX_ENDED - 1)

    def clear(self) -> None:
        """Forget all, once the connection has no transport: its links do not count as attached."""
        self._kept.clear()
