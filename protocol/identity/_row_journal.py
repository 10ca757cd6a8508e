"""Which rows of a saved directory are not as the directory is any more.

What waits to be saved is bounded by the directory and by what is saved: an identity that was let go
again before it was saved is not waited for.
"""

from __future__ import annotations

from itertools import chain, islice

from ._identities import Identity

__all__ = ["RowJournal"]


class RowJournal:
    """The changes of a directory that are to be saved, in the order in which they were made.

    What the node itself says comes before adverts, so that no flood of adverts puts off a ban.
    """

    __slots__ = ("_first", "_saved", "_unsaved")

    def __init__(self) -> None:
        self._saved: set[Identity] = set()
        self._first: dict[Identity, None] = {}
        self._unsaved: dict[Identity, None] = {}

    def __len__(self) -> int:
        """Return the number of identities with a change that is not saved."""
        return len(self._first) + len(self._unsaved)

    def read(self, identity: Identity) -> None:
        """Record that a row was read, and is as the directory is."""
        self._saved.add(identity)
        self._drop(identity)

    def change(self, identity: Identity) -> None:
        """Record that the row of an identity is not as it was."""
        if identity not in self._first:
            self._unsaved[identity] = None

    def put_first(self, identity: Identity) -> None:
        """Put the change of an identity, if there is one, before those of adverts."""
        if identity in self._unsaved:
            del self._unsaved[identity]
            self._first[identity] = None

    def remove(self, identity: Identity) -> None:
        """Record that an identity is not in the directory any more."""
        if identity in self._saved:
            self.change(identity)
        else:
            self._drop(identity)

    def unsaved(self, most: int) -> tuple[Identity, ...]:
        """Return the first identities with a change that is not saved."""
        return tuple(islice(chain(self._first, self._unsaved), most))

    def save(self, identity: Identity, *, there: bool) -> None:
        """Record that the row of an identity was saved, or removed if there is none any more."""
        self._drop(identity)
        if there:
            self._saved.add(identity)
        else:
            self._saved.discard(identity)

    def _drop(self, identity: Identity) -> None:
        self._first.pop(identity, None)
        self._unsaved.pop(identity, None)
