"""The metrics of a program: their families, and the functions that read them, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeAlias

from ...protocol.metrics import Across, Metric, MetricFamily

__all__ = ["Collector", "Metrics", "counter", "gauge"]

_logger = logging.getLogger("onward.actors.monitoring")

Collector: TypeAlias = Callable[[], Iterator[Metric | None]]
"""A function that reads figures on the node's loop, and yields them. It may yield `None` after each
part of a long work: then the loop does other things."""


def gauge(name: str, text: str, *labels: str, across: Across = "sum") -> MetricFamily:
    """Return the family of a figure that rises and falls; `onward_` comes before its name."""
    return MetricFamily(f"onward_{name}", "gauge", text, labels, across)


def counter(name: str, text: str, *labels: str, across: Across = "sum") -> MetricFamily:
    """Return the family of a count; `onward_` comes before its name and `_total` behind it."""
    return MetricFamily(f"onward_{name}_total", "counter", text, labels, across)


class Metrics:
    """The collectors of a program, each with the families that it yields."""

    def __init__(self) -> None:
        self._collectors: list[tuple[frozenset[str], Collector]] = []
        self.families: dict[str, MetricFamily] = {}
        """The families by name, in the order they were added."""

    def add(self, families: tuple[MetricFamily, ...], collector: Collector) -> None:
        """Add a collector.

        Args:
            families: All families that it may yield.
            collector: The function.

        Raises:
            ValueError: One of the families has a collector.
        """
        for family in families:
            if family.name in self.families:
                raise ValueError(f"there is a metric {family.name} already")
        self.families.update((family.name, family) for family in families)
        self._collectors.append((frozenset(each.name for each in families), collector))

    def collect(self, names: frozenset[str] | None = None) -> Iterator[Metric | None]:
        """Yield the metrics, and `None` where the loop may do other things.

        A collector that fails is logged; its further metrics are missing.

        Args:
            names: The names of the families to yield; `None`: all of them.
        """
        for own, collector in tuple(self._collectors):
            if names is not None and own.isdisjoint(names):
                continue
            try:
                for metric in collector():
                    if metric is None or names is None or metric.family.name in names:
                        yield metric
            except Exception:
                _logger.exception("metrics cannot be read", extra={"event": "metrics.failed"})
            yield None
