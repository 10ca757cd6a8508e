"""The metrics of several processes as those of one."""

from __future__ import annotations

import random

import pytest

from onward.protocol.metrics import (
    BUCKETS,
    MAX_SERIES,
    Durations,
    MergedMetrics,
    Metric,
    MetricFamily,
    Series,
)

SENT = MetricFamily("sent_total", "counter", "Sent.", ("listener",))
NOW = MetricFamily("connections", "gauge", "Now.", ("listener",))
OLDEST = MetricFamily("oldest", "gauge", "The oldest.", across="max")
EXPIRES = MetricFamily("expires", "gauge", "Expires.", across="min")
CPU = MetricFamily("cpu_total", "counter", "Processor.", across="process")
TIMES = MetricFamily("times", "histogram", "Times.")

EMPTY = (0,) * (len(BUCKETS) + 1)


def of(family: MetricFamily, **series: float) -> Metric:
    return Metric(family, tuple(((label,), value) for label, value in series.items()))


def one(family: MetricFamily, value: float) -> Metric:
    return Metric(family, (((), value),))


def read(merged: MergedMetrics, answers: dict[int, tuple[str, list[Metric]]]) -> dict[str, object]:
    return {each.family.name: dict(each.series) for each in merged.merge(answers)}


def test_each_kind_has_its_rule() -> None:
    parts = {
        number: (
            "run",
            [
                of(SENT, a=1 + number, b=10),
                of(NOW, a=2),
                one(OLDEST, 3.0 - number),
                one(EXPIRES, 70.0 - number),
                one(CPU, 5.0 + number),
            ],
        )
        for number in (0, 1)
    }
    parts[1][1].append(of(NOW, c=4))  # one more series, and the last of its name counts
    assert read(MergedMetrics(), parts) == {
        "sent_total": {("a",): 3, ("b",): 20},
        "connections": {("a",): 2, ("c",): 4},
        "oldest": {(): 3.0},
        "expires": {(): 69.0},
        "cpu_total": {("0",): 5.0, ("1",): 6.0},
    }


def test_a_family_of_each_process_has_one_label_more() -> None:
    (found,) = MergedMetrics().merge({3: ("run", [one(CPU, 1.0)])})
    assert found.family.labels == ("process",)
    assert found.family.name == "cpu_total"


def test_histograms_are_added_bucket_by_bucket() -> None:
    first = Durations((1, 2, *EMPTY[2:]), 0.5)
    second = Durations((4, 0, *EMPTY[2:]), 0.25)
    parts = {
        number: ("run", [Metric(TIMES, (((), value),))])
        for number, value in enumerate((first, second))
    }
    assert read(MergedMetrics(), parts) == {"times": {(): Durations((5, 2, *EMPTY[2:]), 0.75)}}


def test_a_number_and_a_histogram_have_no_sum() -> None:
    parts = {
        0: ("run", [Metric(TIMES, (((), Durations(EMPTY, 0.0)),))]),
        1: ("run", [one(TIMES, 1.0)]),
    }
    with pytest.raises(TypeError, match="no sum"):
        read(MergedMetrics(), parts)


def test_a_histogram_is_no_largest_one() -> None:
    with pytest.raises(ValueError, match="no histogram"):
        MetricFamily("times", "histogram", "Times.", across="max")


def test_counts_of_a_process_without_an_answer_stay_and_its_gauges_do_not() -> None:
    merged = MergedMetrics()
    both = {number: ("run", [of(SENT, a=10), of(NOW, a=1)]) for number in (0, 1)}
    assert read(merged, both)["sent_total"] == {("a",): 20}
    del both[1]
    assert read(merged, both) == {"sent_total": {("a",): 20}, "connections": {("a",): 1}}


def test_counts_of_ended_runs_stay() -> None:
    merged = MergedMetrics()
    assert read(merged, {0: ("1", [of(SENT, a=10)])}) == {"sent_total": {("a",): 10}}
    assert read(merged, {0: ("2", [of(SENT, a=1, b=1)])}) == {"sent_total": {("a",): 11, ("b",): 1}}
    assert read(merged, {0: ("3", [of(SENT, a=2)])}) == {"sent_total": {("a",): 13, ("b",): 1}}
    assert read(merged, {0: ("3", [of(SENT, a=5)])}) == {"sent_total": {("a",): 16, ("b",): 1}}


def test_the_kept_series_are_bounded() -> None:
    merged = MergedMetrics()
    found = of(SENT)
    for run in range(3):
        series: tuple[Series, ...] = tuple(
            ((f"{run}-{number}",), 1) for number in range(MAX_SERIES // 2 + 1)
        )
        (found,) = merged.merge({0: (str(run), [Metric(SENT, series)])})
    assert len(tuple(found.series)) == MAX_SERIES + MAX_SERIES // 2 + 1


@pytest.mark.parametrize("seed", range(20))
def test_no_sum_falls_whatever_ends_or_is_silent(seed: int) -> None:
    chance = random.Random(seed)
    merged = MergedMetrics()
    counts, runs = [0.0, 0.0, 0.0], [0, 0, 0]
    last = 0.0
    for _ in range(200):
        number = chance.randrange(3)
        if chance.random() < 0.1:
            counts[number], runs[number] = 0.0, runs[number] + 1
        counts[number] += chance.randrange(5)
        answers = {
            each: (str(runs[each]), [one(OTHER, counts[each])])
            for each in range(3)
            if chance.random() < 0.7
        }
        if not answers:
            continue
        (metric,) = merged.merge(answers)
        ((_, total),) = metric.series
        assert not isinstance(total, Durations)
        assert last <= total
        last = total


OTHER = MetricFamily("other_total", "counter", "Counts.")
