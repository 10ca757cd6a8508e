"""Metric families, and the values of their series at one moment."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from ._histogram import Durations

__all__ = ["Across", "Metric", "MetricFamily", "Series"]

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")

Across: TypeAlias = Literal["sum", "max", "min", "process"]
"""What the series of several processes with equal labels are together."""

Series: TypeAlias = tuple[tuple[str, ...], float | Durations]
"""A series of a metric: the values of its labels, in the order of the family, and its value."""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A description of what is measured.

    Attributes:
        name: The name, in lower case and with the base unit: `onward_loop_lag_seconds`. That of a
            counter ends with `_total`, and no other name does.
        kind: `counter` only grows, `gauge` is a current figure, `histogram` counts durations.
        help: The meaning, in a sentence.
        labels: The names of its labels.
        across: What the series of several processes are together: their sum, the largest or the
            smallest; or each apart, with the number of its process as one more label.

    Raises:
        ValueError: The name or a label is not allowed.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    across: Across = "sum"

    def __post_init__(self) -> None:
        for name in (self.name, *self.labels):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name of a metric or of a label")
        # Prometheus, "Metric and label naming": an accumulating count has total as a suffix.
        if (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: a counter, and nothing else, ends with _total")
        if self.kind == "histogram" and self.across in ("max", "min"):
            raise ValueError(f"{self.name}: no histogram is the largest or the smallest")


@dataclass(frozen=True, slots=True)
class Metric:
    """The values of a family at one moment.

    Attributes:
        family: The description.
        series: The series. They are read once, and may be made while they are read.
    """

    family: MetricFamily
    series: Iterable[Series]
