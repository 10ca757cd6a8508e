"""The text of metrics, as the parsers of Prometheus read it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from onward.protocol.metrics import (
    MAX_SLICE,
    DurationHistogram,
    Metric,
    MetricFamily,
    TextFormat,
    metrics_text,
    text_format,
)

GAUGE = MetricFamily("onward_connections", "gauge", "Connections now.", ("listener",))
COUNTER = MetricFamily("onward_rejected_total", "counter", "Requests rejected.")
TIMES = MetricFamily("onward_wait_seconds", "histogram", "Waits.", ("kind",))

Parser = Callable[[str], Iterable[Any]]

read_openmetrics: Parser = getattr(openmetrics, "text_string_to_metric_families")  # noqa: B009
"""Not annotated there."""

BOTH = [
    pytest.param(TextFormat.PROMETHEUS, read_prometheus, id="prometheus"),
    pytest.param(TextFormat.OPENMETRICS, read_openmetrics, id="openmetrics"),
]


def written(*metrics: Metric, wanted: TextFormat = TextFormat.PROMETHEUS) -> str:
    return "".join(metrics_text(metrics, wanted))


def samples(text: str, parser: Parser) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parser(text)
        for sample in family.samples
    }


def test_the_text_has_help_type_and_series() -> None:
    metric = Metric(GAUGE, ((("tcp://a",), 3), (("tcp://b",), 0)))
    assert written(metric, Metric(COUNTER, (((), 7),))) == (
        "# HELP onward_connections Connections now.\n"
        "# TYPE onward_connections gauge\n"
        'onward_connections{listener="tcp://a"} 3\n'
        'onward_connections{listener="tcp://b"} 0\n'
        "# HELP onward_rejected_total Requests rejected.\n"
        "# TYPE onward_rejected_total counter\n"
        "onward_rejected_total 7\n"
    )


def test_openmetrics_names_a_counter_without_its_suffix_and_has_an_end() -> None:
    assert written(Metric(COUNTER, (((), 7),)), wanted=TextFormat.OPENMETRICS) == (
        "# HELP onward_rejected Requests rejected.\n"
        "# TYPE onward_rejected counter\n"
        "onward_rejected_total 7\n"
        "# EOF\n"
    )


@pytest.mark.parametrize(("wanted", "parser"), BOTH)
def test_the_buckets_of_a_histogram_add_up(wanted: TextFormat, parser: Parser) -> None:
    histogram = DurationHistogram()
    for seconds in (0.00001, 0.00007, 0.5, 100.0):
        histogram.add(seconds)
    found = samples(
        written(Metric(TIMES, ((("stream",), histogram.read()),)), wanted=wanted), parser
    )
    kind = ("kind", "stream")
    assert found["onward_wait_seconds_bucket", (kind, ("le", "6.4e-05"))] == 1
    assert found["onward_wait_seconds_bucket", (kind, ("le", "0.000128"))] == 2
    assert found["onward_wait_seconds_bucket", (kind, ("le", "67.108864"))] == 3
    assert found["onward_wait_seconds_bucket", (kind, ("le", "+Inf"))] == 4
    assert found["onward_wait_seconds_count", (kind,)] == 4
    assert found["onward_wait_seconds_sum", (kind,)] == pytest.approx(100.50008)


# Both parsers split at line ends of other kinds than \n too, which is not what the formats say.
LABELS = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")) | st.just("\n"))


@pytest.mark.parametrize(("wanted", "parser"), BOTH)
@given(label=LABELS, value=st.floats(allow_nan=False))
def test_labels_and_numbers_are_read_as_they_were(
    wanted: TextFormat, parser: Parser, label: str, value: float
) -> None:
    text = written(Metric(GAUGE, (((label,), value),)), wanted=wanted)
    found = samples(text, parser)
    assert found == {("onward_connections", (("listener", label[:256]),)): value}


def test_a_label_is_escaped_and_a_long_one_is_cut() -> None:
    line = written(Metric(GAUGE, ((('a"b\\c\nd' + "x" * 300,), 1),))).splitlines()[-1]
    assert line == 'onward_connections{listener="a\\"b\\\\c\\nd' + "x" * 249 + '"} 1'


def test_numbers_that_are_none() -> None:
    inf = float("inf")
    metric = Metric(GAUGE, ((("a",), inf), (("b",), -inf), (("c",), float("nan")), (("d",), True)))
    assert [line.split()[-1] for line in written(metric).splitlines()[2:]] == [
        "+Inf",
        "-Inf",
        "NaN",
        "1",
    ]


def test_the_text_comes_in_slices() -> None:
    many = Metric(GAUGE, (((str(number),), number) for number in range(10_000)))
    slices = list(metrics_text((many,)))
    assert len(slices) == 11
    assert all(each.count("\n") <= MAX_SLICE for each in slices)
    assert sum(each.count("\n") for each in slices) == 10_002


def test_a_long_work_is_divided_by_empty_slices() -> None:
    metric = Metric(COUNTER, (((), 7),))
    slices = list(metrics_text((None, metric, None)))
    assert slices == ["", "", written(metric)]


def test_values_without_their_labels_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="the labels are"):
        written(Metric(GAUGE, (((), 1),)))


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", TextFormat.PROMETHEUS),
        ("*/*", TextFormat.PROMETHEUS),
        ("text/plain", TextFormat.PROMETHEUS),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
            TextFormat.OPENMETRICS,
        ),
        ("text/plain;q=0.2, Application/OpenMetrics-Text; q=0.9", TextFormat.OPENMETRICS),
        ("application/openmetrics-text;q=0, text/plain", TextFormat.PROMETHEUS),
        ("application/openmetrics-text; q=0.0", TextFormat.PROMETHEUS),
        ("application/openmetrics-textual", TextFormat.PROMETHEUS),
    ],
)
def test_the_format_is_chosen_by_the_accept_field(accept: str, wanted: TextFormat) -> None:
    assert text_format(accept) is wanted
