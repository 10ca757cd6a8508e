"""Trust in identities: a number from 0 to 255, which the node gives and no advert says."""

from __future__ import annotations

from typing import Final

__all__ = [
    "EQUIVOCATION_PENALTY",
    "TRUST_BANNED",
    "TRUST_DEFAULT",
    "TRUST_OWN",
    "lowered_trust",
]

TRUST_BANNED: Final = 0
"""Trust in an identity that is refused in all."""
TRUST_DEFAULT: Final = 128
"""Trust in an identity that nothing is known about."""
TRUST_OWN: Final = 255
"""Trust in the identities of the node itself, and in the other nodes of its owner."""
EQUIVOCATION_PENALTY: Final = 64
"""Trust that two adverts of one version cost."""


def lowered_trust(trust: int) -> int:
    """Return the trust in an identity after it contradicted itself.

    It stays above `TRUST_BANNED`, as only the owner of a node bans. `TRUST_OWN` stays, so that a
    node goes on with its own key while its owner finds out where that is used as well.
    """
    if trust in {TRUST_BANNED, TRUST_OWN}:
        return trust
    return max(TRUST_BANNED + 1, trust - EQUIVOCATION_PENALTY)
