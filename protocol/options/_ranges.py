"""The ranges of numbers, and the types of most fields of options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

__all__ = ["Count", "Probability", "Range", "Seconds", "SecondsOrZero", "Size"]


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a number, as metadata of its type: `Annotated[int, Range(least=1, most=64)]`.

    Attributes:
        least: The smallest number that is allowed; `None`: there is none.
        most: The largest number that is allowed; `None`: there is none.
        above: The number that all allowed ones are greater than; `None`: there is none.
        unit: The unit, for error messages, as `seconds`; empty for plain numbers.
        octal: Whether error messages show numbers in octal, as for permissions of files.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    unit: str = ""
    octal: bool = False

    def __contains__(self, value: float) -> bool:
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
        )

    def __str__(self) -> str:
        """Return what follows `a number` in an error."""
        unit = f" of {self.unit}" if self.unit else ""
        most = self._text(self.most)
        if self.least is not None and most:
            return f"{unit} from {self._text(self.least)} to {most}"
        bounds: list[str] = []
        if self.least is not None:
            bounds.append(f"at least {self._text(self.least)}")
        if self.above is not None:
            bounds.append(f"more than {self._text(self.above)}")
        if most:
            bounds.append(f"at most {most}")
        return ", ".join([unit, *bounds]) if unit else f" of {' and '.join(bounds)}"

    def shown(self, value: object) -> str:
        """Return the text of a value as that of a limit."""
        return f"0o{value:o}" if self.octal and type(value) is int and value > 0 else ""

    def _text(self, limit: float | None) -> str:
        if limit is None:
            return ""
        if isinstance(limit, float):
            return f"{limit:g}"
        return self.shown(limit) or str(limit)


Count: TypeAlias = Annotated[int, Range(least=1)]
"""A whole number of at least 1."""

Size: TypeAlias = Annotated[int, Range(least=0)]
"""A whole number of at least 0."""

Seconds: TypeAlias = Annotated[float, Range(above=0, unit="seconds")]
"""A finite time of more than 0 seconds."""

SecondsOrZero: TypeAlias = Annotated[float, Range(least=0, unit="seconds")]
"""A finite time of at least 0 seconds."""

Probability: TypeAlias = Annotated[float, Range(least=0, most=1)]
"""A number from 0 to 1."""
