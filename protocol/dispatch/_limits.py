"""Limits of dispatch by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ..options import Count, Range, check_options

__all__ = ["MAX_NAME", "DispatchLimits", "NameSize"]

MAX_NAME: Final = 512
"""Most bytes of a name: with the rest of a transit address, it has to fit into an address."""

NameSize: TypeAlias = Annotated[int, Range(least=1, most=MAX_NAME, unit="bytes")]
"""Bytes of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchLimits:
    """Limits of what a dispatcher keeps.

    Attributes:
        max_name: Bytes of a name or of a pattern of names. Beyond: it is refused.
        max_tokens: Tokens of a name or of a pattern. Beyond: it is refused.
        max_provisions: Provisions of a node, by programs and files. Beyond: another one is refused.
        max_conflicts: Conflicts between the provisions of nodes that are kept for a report. Beyond:
            further ones are counted only.

    Raises:
        ValueError: A value is out of its range.
    """

    max_name: NameSize = MAX_NAME
    max_tokens: Count = 64
    max_provisions: Count = 100_000
    max_conflicts: Count = 1_000

    def __post_init__(self) -> None:
        check_options(self)
