"""What a directory says of itself: outcomes of adverts, changes to take, and figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from ._requests import IdentityUpdated

__all__ = ["AdvertSource", "DirectoryStatistics", "DirectoryUpdates", "PutOutcome"]


class PutOutcome(StrEnum):
    """The outcome of an advert that is put into a directory. As a value, the text for people."""

    STORED = "it is the first of its identity"
    REPLACED = "it is newer than the one before"
    KNOWN = "it is known"
    OLDER = "there is a newer one"
    EQUIVOCATION = "there is another one of the same version"
    OTHER_KIND = "there is one of another kind"
    BANNED = "its identity, or the node that signs for it, is banned"
    AHEAD = "it is of a time to come"
    EXPIRED = "it is too old"
    MALFORMED = "it is no advert of its kind"
    BAD_SIGNATURE = "it is not signed by its identity, or by the node of its engine"


class AdvertSource(StrEnum):
    """The source of an advert.

    One that came unasked over the `NETWORK` makes its identity known, and no more. One that is an
    `ANSWER` to a look-up of this node, or was given by hand at this node (`LOCAL`), counts as used.
    """

    NETWORK = "network"
    ANSWER = "answer"
    LOCAL = "local"


class DirectoryUpdates(NamedTuple):
    """The changes of identities since those taken before.

    Attributes:
        updates: Each identity that has changed, in the order of first changes, as it is now.
        lost: Changes that are not among them, because of `max_updates`: if there are any, look up
            anew all that depends on the directory.
    """

    updates: tuple[IdentityUpdated, ...]
    lost: int


@dataclass(frozen=True, slots=True)
class DirectoryStatistics:
    """A directory at one moment.

    Attributes:
        held: Identities that the node says something about.
        used: Identities that it looked up.
        unknown: All other identities.
        known_size: Bytes of the adverts of those held and used.
        unknown_size: Bytes of the adverts of the unknown ones.
        outcomes: The number of adverts with each outcome.
        let_go: Unknown identities that were let go for others.
        demoted: Used identities that became unknown for others.
        expired: Adverts that were let go for their age.
        unsound: Adverts of a saved directory that were let go, as they are not what they say.
        lost: Changes that were lost because of `max_updates`.
        missed: Look-ups of what is not known.
    """

    held: int
    used: int
    unknown: int
    known_size: int
    unknown_size: int
    outcomes: tuple[tuple[PutOutcome, int], ...]
    let_go: int
    demoted: int
    expired: int
    unsound: int
    lost: int
    missed: int
