"""Limits of the directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ..options import Count, Range, check_options
from ._advert_envelopes import MAX_ADVERT_ENVELOPE

__all__ = ["MAX_ADVERT_AGE", "DirectoryLimits"]

MAX_ADVERT_AGE: Final = 365 * 24 * 3600 * 1000
"""Time for which an advert is good, in milliseconds. Beyond: it is refused, or let go."""

EnvelopeSize: TypeAlias = Annotated[int, Range(least=MAX_ADVERT_ENVELOPE, unit="bytes")]
"""Bytes of adverts in their envelopes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLimits:
    """Limits of a directory.

    Attributes:
        max_identities: Identities in all. Of these, `max_unknown` are for unknown ones; where the
            others want more, the one that was used longest ago is unknown again, and a further one
            that the node says something about is refused.
        max_unknown: Identities that the node neither uses nor says anything about. Beyond: the
            oldest is let go. Another node may tell as many as are free; beyond, its own oldest.
        max_known_size: Bytes of the adverts of known identities. Beyond: as for
            `max_identities`.
        max_unknown_size: Bytes of the adverts of unknown identities. Beyond: the oldest is let go.
        max_updates: Identities with a change that is not taken yet. Beyond: a change is lost, which
            is said to the receiver.
        max_age: Age of an advert, in milliseconds. Beyond: it is refused, or let go.

    Raises:
        ValueError: A value is out of its range, or there is no place for known identities.
    """

    max_identities: Count = 100_000
    max_unknown: Count = 25_000
    max_known_size: EnvelopeSize = 256 * 1024 * 1024
    max_unknown_size: EnvelopeSize = 32 * 1024 * 1024
    max_updates: Count = 10_000
    max_age: Count = MAX_ADVERT_AGE

    def __post_init__(self) -> None:
        check_options(self)
        if self.max_unknown >= self.max_identities:
            raise ValueError(
                f"DirectoryLimits.max_unknown must be below max_identities, which is "
                f"{self.max_identities}, not {self.max_unknown}"
            )

    @property
    def max_known(self) -> int:
        """The most identities that are used, or that the node says something about."""
        return self.max_identities - self.max_unknown
