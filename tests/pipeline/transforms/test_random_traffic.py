"""Each transform against plain Python, on traffic of which everything is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as sf
from pyspark.testing import assertDataFrameEqual

from onward.pipeline import REPORT_TABLES
from onward.pipeline.transforms import (
    MAX_ERROR,
    Objective,
    audit,
    audit_totals,
    hot_keys,
    latency_histogram,
    latency_quantiles,
    merge_latency,
    path_anomalies,
    paths,
    route_churn,
    shard_load,
    slo_burn,
    traffic_matrix,
    unroutable,
)
from onward.protocol.eventlog import Kind, Outcome
from tests.pipeline.transforms import reference
from tests.pipeline.transforms.reference import start
from tests.support.traffic import HOUR, Row, Traffic, time_of

pytestmark = pytest.mark.spark

Lake = Mapping[str, DataFrame]

REPORTS: dict[str, tuple[Callable[[Lake], DataFrame], Callable[[Traffic], Iterable[Row]]]] = {
    "traffic_matrix": (lambda lake: traffic_matrix(lake["flows"]), reference.traffic_matrix),
    "latency_hist": (lambda lake: latency_histogram(lake["hops"]), reference.latency_histogram),
    "shard_load": (lambda lake: shard_load(lake["flows"]), reference.shard_load),
    "hot_keys": (
        lambda lake: hot_keys(lake["hops"], top=2),
        lambda traffic: reference.hot_keys(traffic, 2),
    ),
    "route_churn": (
        lambda lake: route_churn(lake["route_events"]),
        lambda traffic: reference.route_churn(traffic, 60),
    ),
    "unroutable": (
        lambda lake: unroutable(lake["flows"], lake["dim_tagset"], lake["route_events"]),
        reference.unroutable,
    ),
    "path_anomalies": (lambda lake: path_anomalies(lake["hops"]), reference.path_anomalies),
}


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_as_by_python(
    report: str, lake: Lake, traffic: Traffic, spark: SparkSession
) -> None:
    transform, said = REPORTS[report]
    made = transform(lake)
    expected = list(said(traffic))

    assert len(expected) > 20
    assertDataFrameEqual(made, spark.createDataFrame(expected, REPORT_TABLES[report]))


def test_the_traffic_has_all_that_the_reports_are_about(traffic: Traffic) -> None:
    # What is not in it is not tested above.
    assert {sent.outcome for sent in traffic.requests} >= {
        each for each in Outcome if each <= Outcome.FAILED
    } - {1, 2, 4}
    assert {sent.ends for sent in traffic.requests} == {0, 1, 2}
    assert {sent.epoch for sent in traffic.requests} == {1, 2}
    assert any(len(sent.takers) > 1 for sent in traffic.requests)
    assert {kind for trip in traffic.trips for kind in trip.wrong} == {
        "loop",
        "black_hole",
        "return_asymmetry",
    }
    near = [row[5] for row in reference.unroutable(traffic)]
    assert {len(tags) for tags in near if isinstance(tags, dict)} >= {0, 1, 2}
    flaps = [row[5] for row in reference.route_churn(traffic, 60)]
    assert set(flaps) >= {0, 1}
    links = [row for row in reference.audit_totals(traffic) if row[1]]
    assert {row[-2:] for row in links} >= {(0, 0), (1, 0), (0, 2)}
    assert any(row[2] is None for row in links)
    assert any(row[3] is None for row in links)


def test_the_audit_finds_losses_and_repeats(
    lake: Lake, traffic: Traffic, spark: SparkSession
) -> None:
    totals = audit_totals(audit(lake["flows"], lake["dim_node"]))
    expected = list(reference.audit_totals(traffic))

    assertDataFrameEqual(totals, spark.createDataFrame(expected, totals.schema))


def test_quantiles_are_within_their_error_of_the_true_ones(lake: Lake, traffic: Traffic) -> None:
    by_hour: defaultdict[tuple[object, ...], list[int]] = defaultdict(list[int])
    for (minute, dest, tagset), latency, weight in reference.latencies(traffic):
        by_hour[time_of(start(minute, HOUR)), dest, tagset] += [latency] * weight
    hours = merge_latency(latency_histogram(lake["hops"]))

    read = latency_quantiles(hours).collect()

    assert len(read) == len(by_hour) > 20
    for row in read:
        values = by_hour[row["minute"], row["dest_node"], row["tagset_id"]]
        assert row["n"] == len(values)
        for name, share in (("p50_us", 0.5), ("p95_us", 0.95), ("p99_us", 0.99)):
            assert row[name] == pytest.approx(reference.quantile(values, share), rel=MAX_ERROR)


def test_paths_count_traces_and_their_time(lake: Lake, traffic: Traffic) -> None:
    expected = reference.paths(traffic)

    read = paths(lake["hops"]).collect()

    assert {tuple(row["path"]): row["traces"] for row in read} == {
        path: count for path, (count, _) in expected.items()
    }
    for row in read:
        times = expected[tuple(row["path"])][1]
        assert row["p95_us"] == pytest.approx(reference.quantile(times, 0.95), rel=MAX_ERROR)
    ordered = sorted(read, key=lambda row: (-row["traces"], row["path"]))
    assert paths(lake["hops"], top=3).collect() == ordered[:3]


def test_burns_count_failures_in_windows(lake: Lake, traffic: Traffic, spark: SparkSession) -> None:
    service = traffic.requests[0].sought.tags[0][1]
    objectives = [Objective("all", target=0.9), Objective("one", service, target=0.99)]

    made = slo_burn(lake["flows"], lake["hops"], objectives, lake["dim_tagset"])

    expected = list(reference.slo_burn(traffic, objectives))
    assert {row[1] for row in expected} == {"all", "one"}
    assertDataFrameEqual(made, spark.createDataFrame(expected, REPORT_TABLES["slo_burn"]))


def test_nothing_is_said_of_nothing(spark: SparkSession, lake: Lake) -> None:
    none = {name: frame.limit(0) for name, frame in lake.items()}
    objectives = [Objective("all", latency_us=1000)]
    made = {report: transform(none) for report, (transform, _) in REPORTS.items()} | {
        "latency_quantiles": latency_quantiles(latency_histogram(none["hops"])),
        "paths": paths(none["hops"]),
        "slo_burn": slo_burn(none["flows"], none["hops"], objectives, none["dim_tagset"]),
        "audit": audit(none["flows"], none["dim_node"]),
    }
    for report, frame in made.items():
        assertDataFrameEqual(frame, spark.createDataFrame([], REPORT_TABLES[report]))


def test_requests_alone_make_no_paths(lake: Lake) -> None:
    assert paths(lake["hops"].filter(sf.col("kind") != int(Kind.MESSAGE))).collect() == []
