"""Families of metrics, and the names that they may have."""

from __future__ import annotations

import pytest

from onward.protocol.metrics import MetricFamily


@pytest.mark.parametrize(
    ("name", "kind", "labels"),
    [
        ("onward_requests", "counter", ()),
        ("onward_requests_total", "gauge", ()),
        ("Requests_total", "counter", ()),
        ("onward requests", "gauge", ()),
        ("onward_requests", "gauge", ("le-vel",)),
        ("", "gauge", ()),
    ],
)
def test_a_wrong_name_is_refused(name: str, kind: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"not a name|_total"):
        MetricFamily(name, kind, "A figure.", labels)  # type: ignore[arg-type]
