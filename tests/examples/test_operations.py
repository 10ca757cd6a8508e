"""The alert rules and the dashboard of the examples name metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onward.actors.monitoring import METRIC_FAMILIES

yaml: Any = pytest.importorskip("yaml", reason="PyYAML comes with the group docs")
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "operations"
LABELS = {family.name: set(family.labels) for family in METRIC_FAMILIES}
ADDED = {"instance", "job", "le"}
"""Labels that Prometheus adds, and that of buckets."""

_NAME = re.compile(r"\b(?:onward|process)_[a-z_]+")
_BY = re.compile(r"\b(?:by|without) \(([^)]*)\)")
_SELECTED = re.compile(r"([a-z_]+)\s*(?:=|!=|=~|!~)\s*\"")
_SHOWN = re.compile(r"{{\s*(?:\$labels\.)?([a-z_]+)\s*}}")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression, with the text that shows its labels."""
    for rule in rules():
        yield rule["expr"], rule["annotations"]["summary"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def family_of(name: str) -> str:
    """Return the family of a series."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    return name if name in LABELS else base


@pytest.mark.parametrize(("expression", "shown"), list(expressions()))
def test_an_expression_names_metrics_and_labels_that_there_are(expression: str, shown: str) -> None:
    names = {family_of(name) for name in _NAME.findall(expression)}
    assert names <= set(LABELS)
    labels = {label for name in names for label in LABELS[name]} | ADDED
    used = {each.strip() for group in _BY.findall(expression) for each in group.split(",")}
    used |= set(_SELECTED.findall(expression)) | set(_SHOWN.findall(shown))
    assert used <= labels
    assert expression.count("(") == expression.count(")")


def test_a_rate_is_of_a_counter_and_a_difference_of_none() -> None:
    kinds = {family.name: family.kind for family in METRIC_FAMILIES}
    for expression, _ in expressions():
        for name in re.findall(r"(?:rate|increase)\(([a-z_]+)", expression):
            assert kinds[family_of(name)] in ("counter", "histogram")
        bare = re.sub(r"(?:rate|increase)\([a-z_]+", "", expression)
        for name in _NAME.findall(bare):
            assert kinds[family_of(name)] == "gauge"


def test_the_rules_are_those_that_an_operator_expects() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) == 22
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_the_dashboard_begins_with_success_rate_and_duration_of_each_service() -> None:
    panels = sorted(
        dashboard()["panels"], key=lambda each: (each["gridPos"]["y"], each["gridPos"]["x"])
    )
    success, rate, duration = ([each["expr"] for each in panel["targets"]] for panel in panels[:3])
    assert success[0].count("onward_service_requests_ended_total") == 2
    assert "rate(onward_service_requests_ended_total" in rate[0]
    assert [each.partition(",")[0] for each in duration] == [
        f"histogram_quantile({share}" for share in (0.5, 0.95, 0.99)
    ]
    for expression in (*success, *rate, *duration):
        assert "by (service" in expression


def test_the_panels_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert len({panel["id"] for panel in panels}) == len(panels)
