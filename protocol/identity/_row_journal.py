"""Which rows of a saved directory are not as the directory is any more.

What waits to be saved is bounded by the directory and by what is saved: an identity that was let go
again before it was saved is not waited for.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum, auto
from itertools import chain, islice

from ._identities import Identity

__all__ = ["RowJournal"]


class RowJournal:
    """The changes of a directory that are to be saved, in the order in which they were made.

    What the node itself says comes before adverts, so that no flood of adverts puts off a ban.

    While some are saved, the directory changes on: what has changed since is to be saved again.
    """

    __slots__ = ("_first", "_saved", "_saving", "_unsaved")

    def __init__(self) -> None:
        self._saved: set[Identity] = set()
        self._first: dict[Identity, None] = {}
        self._unsaved: dict[Identity, None] = {}
        # Those that are saved at the moment: whether each is as it was then, or has changed, or is
        # in the directory no more.
        self._saving: dict[Identity, _Since] = {}

    def __len__(self) -> int:
        """Return the number of identities with a change that is not saved."""
        return len(self._first) + len(self._unsaved)

    def __contains__(self, identity: object) -> bool:
        """Whether there is a change of an identity that is not saved."""
        return identity in self._first or identity in self._unsaved

    def read(self, identity: Identity) -> None:
        """Record that a row was read, and is as the directory is."""
        self._saved.add(identity)
        self._drop(identity)

    def change(self, identity: Identity) -> None:
        """Record that the row of an identity is not as it was."""
        if identity in self._saving:
            self._saving[identity] = _Since.CHANGED
        self._put(identity)

    def put_first(self, identity: Identity) -> None:
        """Put the change of an identity, if there is one, before those of adverts."""
        if identity in self._unsaved:
            del self._unsaved[identity]
            self._first[identity] = None

    def remove(self, identity: Identity) -> None:
        """Record that an identity is not in the directory any more."""
        if identity in self._saving:
            self._saving[identity] = _Since.GONE
            self._put(identity)
        elif identity in self._saved:
            self._put(identity)
        else:
            self._drop(identity)

    def begin(self, most: int) -> tuple[Identity, ...]:
        """Return the first identities with a change that is not saved: they are, until `end`."""
        found = tuple(islice(chain(self._first, self._unsaved), most))
        self._saving = dict.fromkeys(found, _Since.SAME)
        return found

    def end(self, there: Container[bytes] | None) -> None:
        """Record that what was begun is saved, or is not.

        Args:
            there: The identities with a row, as the rows of the others are removed; `None` if it
                has failed, and nothing is saved.
        """
        saving, self._saving = self._saving, {}
        for identity, since in saving.items():
            if there is None:
                if since is _Since.GONE and identity not in self._saved:
                    self._drop(identity)
                continue
            if identity in there:
                self._saved.add(identity)
            else:
                self._saved.discard(identity)
            if since is _Since.SAME or (since is _Since.GONE and identity not in there):
                self._drop(identity)

    def _put(self, identity: Identity) -> None:
        if identity not in self._first:
            self._unsaved[identity] = None

    def _drop(self, identity: Identity) -> None:
        self._first.pop(identity, None)
        self._unsaved.pop(identity, None)


class _Since(Enum):
    """The change of an identity since it began to be saved."""

    SAME = auto()
    CHANGED = auto()
    GONE = auto()
