"""Which rows of a saved directory are not as the directory is any more.

What waits to be saved is bounded by the directory and by what is saved: an identity that was let go
again before it was saved is not waited for.
"""

from __future__ import annotations

from itertools import islice

from ._identities import Identity

__all__ = ["RowJournal"]


class RowJournal:
    """The changes of a directory that are to be saved, those first that were made first."""

    __slots__ = ("_saved", "_unsaved")

    def __init__(self) -> None:
        self._saved: set[Identity] = set()
        self._unsaved: dict[Identity, None] = {}

    def __len__(self) -> int:
        """Return the number of identities with a change that is not saved."""
        return len(self._unsaved)

    def read(self, identity: Identity) -> None:
        """Record that a row was read, and is as the directory is."""
        self._saved.add(identity)
        self._unsaved.pop(identity, None)

    def change(self, identity: Identity) -> None:
        """Record that the row of an identity is not as it was."""
        self._unsaved[identity] = None

    def remove(self, identity: Identity) -> None:
        """Record that an identity is not in the directory any more."""
        if identity in self._saved:
            self._unsaved[identity] = None
        else:
            self._unsaved.pop(identity, None)

    def unsaved(self, most: int) -> tuple[Identity, ...]:
        """Return the first identities with a change that is not saved."""
        return tuple(islice(self._unsaved, most))

    def save(self, identity: Identity, *, there: bool) -> None:
        """Record that the row of an identity was saved, or removed if there is none any more."""
        del self._unsaved[identity]
        if there:
            self._saved.add(identity)
        else:
            self._saved.discard(identity)
