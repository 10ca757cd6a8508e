"""The text of metrics: Prometheus' format 0.0.4, and OpenMetrics 1.0.0.

The text is made in slices of a bounded number of series, so that its caller can leave the loop to
others in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import accumulate
from math import isfinite, isnan
from typing import Final

from ._families import Metric, MetricFamily
from ._histogram import BUCKETS, Durations

__all__ = ["MAX_SLICE", "TextFormat", "metrics_text", "text_format"]

MAX_SLICE: Final = 1000
"""The maximum number of series in a slice of the text; each bucket of a histogram is a series."""

MAX_LABEL: Final = 256
"""The maximum number of characters of a label's value; a longer one is cut."""

_BOUNDS: Final = (*(repr(bound) for bound in BUCKETS), "+Inf")
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_OPENMETRICS: Final = re.compile(
    r"(?:^|,)\s*application/openmetrics-text\s*(?:;(?P<parameters>[^,]*))?(?:,|$)"
)
_REFUSED: Final = re.compile(r"\bq\s*=\s*0(?:\.0*)?\s*(?:;|$)")


class TextFormat(Enum):
    """A format of the text, with its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def text_format(accept: str) -> TextFormat:
    """Return the format for the `Accept` field of a request: OpenMetrics if it is named there."""
    found = _OPENMETRICS.search(accept.lower())
    if found is None or _REFUSED.search(found["parameters"] or ""):
        return TextFormat.PROMETHEUS
    return TextFormat.OPENMETRICS


def metrics_text(
    metrics: Iterable[Metric | None], wanted: TextFormat = TextFormat.PROMETHEUS
) -> Iterator[str]:
    """Yield the text of metrics in slices of at most `MAX_SLICE` series, or one histogram.

    Args:
        metrics: The metrics, each family once. They are read as the text is made. For `None`, by
            which a long work is divided, an empty slice is yielded.
        wanted: The format.
    """
    lines: list[str] = []
    for metric in metrics:
        if metric is None:
            yield ""
            continue
        lines += _head(metric.family, wanted)
        name = metric.family.name
        labels = [f'{label}="' for label in metric.family.labels]
        for values, value in metric.series:
            shown = _labels(labels, values)
            if isinstance(value, Durations):
                lines += _histogram(name, shown, value)
            elif shown:
                lines.append(f"{name}{{{shown}}} {_number(value)}\n")
            else:
                lines.append(f"{name} {_number(value)}\n")
            if len(lines) >= MAX_SLICE:
                yield "".join(lines)
                lines.clear()
    # OpenMetrics, "Exposition": "The last line MUST be "# EOF"."
    if wanted is TextFormat.OPENMETRICS:
        lines.append("# EOF\n")
    yield "".join(lines)


def _head(family: MetricFamily, wanted: TextFormat) -> Iterator[str]:
    # OpenMetrics, "Counter": "The MetricFamily name MUST NOT include the _total suffix". In 0.0.4
    # the family has the name of its series.
    name = family.name
    if wanted is TextFormat.OPENMETRICS:
        name = name.removesuffix("_total")
    yield f"# HELP {name} {family.help.translate(_HELP)}\n"
    yield f"# TYPE {name} {family.kind}\n"


def _labels(labels: list[str], values: tuple[str, ...]) -> str:
    """Return labels with their values, escaped, and cut if they are long.

    Args:
        labels: The names, each with `="` after it.
        values: The values.

    Raises:
        ValueError: There are not as many of them.
    """
    if len(labels) != len(values):
        raise ValueError(f"the labels are {labels}, and the values {values}")
    shown: list[str] = []
    for label, value in zip(labels, values, strict=True):
        if len(value) > MAX_LABEL or '"' in value or "\\" in value or "\n" in value:
            value = value[:MAX_LABEL].translate(_ESCAPED)
        shown.append(f'{label}{value}"')
    return ",".join(shown)


def _histogram(name: str, shown: str, value: Durations) -> Iterator[str]:
    before = f"{shown}," if shown else ""
    count = 0
    # "Buckets MUST be cumulative": each one counts those below it too.
    for bound, count in zip(_BOUNDS, accumulate(value.counts), strict=True):
        yield f'{name}_bucket{{{before}le="{bound}"}} {count}\n'
    braced = f"{{{shown}}}" if shown else ""
    yield f"{name}_sum{braced} {_number(value.total)}\n"
    yield f"{name}_count{braced} {count}\n"


def _number(value: float) -> str:
    """Return a number as both formats have it; infinity and "not a number" have their own words."""
    if isinstance(value, int):
        return str(int(value))  # a bool is a number here
    if isfinite(value):
        return repr(value)
    if isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"
