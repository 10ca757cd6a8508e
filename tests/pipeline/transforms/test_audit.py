"""What the audit says of single things that go wrong, window by window."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from onward.pipeline.transforms import (
    Objective,
    audit,
    audit_totals,
    shard_load,
    slo_burn,
    traffic_matrix,
    unroutable,
)
from onward.protocol.eventlog import PEER_BROKER, Kind, Outcome, name_id
from tests.pipeline.transforms.rows import flow, frame
from tests.support.traffic import SECOND, START, Row, time_of

pytestmark = pytest.mark.spark

LINK = "tcp 10.0.0.1:4000>10.0.0.2:5000"


def windows(spark: SparkSession, *flows: Row) -> list[tuple[object, ...]]:
    """Return the rows in order; the time as seconds since the start."""
    nodes = frame(spark, "dim_node", [(name_id(LINK), LINK, time_of(START))])
    rows = audit(frame(spark, "flows", list(flows)), nodes).orderBy("src", "dst", "window_start")
    return [
        (int((row[0] - time_of(START)).total_seconds()), *tuple(row)[1:]) for row in rows.collect()
    ]


def link(outcome: Outcome, at: float, frames: int, log: str) -> Row:
    return flow(outcome, at, frames, log=log, kind=Kind.LINK, dest=name_id(LINK), tagset=0)


def test_what_ends_in_a_later_window_is_missing_until_then(spark: SparkSession) -> None:
    made = windows(
        spark,
        flow(Outcome.RECEIVED, 59, 5),
        flow(Outcome.FORWARD, 59, 5),
        flow(Outcome.DELIVER, 59, 2),
        flow(Outcome.DELIVER, 60, 2),
        # Nothing is counted for a while.
        flow(Outcome.FAILED, 600, 1),
    )
    assert made == [
        (0, "b", "", 5, 5, 2, 0, 0, 3, 0),
        (60, "b", "", 0, 0, 2, 0, 0, 1, 0),
        (600, "b", "", 0, 0, 0, 1, 0, 0, 0),
    ]


def test_a_killed_destination_and_no_destination_balance(spark: SparkSession) -> None:
    made = windows(
        spark,
        flow(Outcome.RECEIVED, frames=10),
        flow(Outcome.FORWARD, frames=6),
        flow(Outcome.DELIVER, frames=4),
        flow(Outcome.DROP, frames=2),
        flow(Outcome.UNROUTABLE, frames=4),
    )
    assert made == [(0, "b", "", 10, 6, 4, 2, 4, 0, 0)]


def test_one_kind_or_run_does_not_make_up_for_another(spark: SparkSession) -> None:
    made = windows(
        spark,
        flow(Outcome.RECEIVED, frames=3),
        flow(Outcome.DELIVER, frames=4, kind=Kind.STREAM),
        flow(Outcome.RECEIVED, frames=3, kind=Kind.STREAM),
        flow(Outcome.DELIVER, frames=2),
        # The broker died with one in hand; its next run knows nothing of that.
        flow(Outcome.RECEIVED, 60, 1, epoch=2),
        flow(Outcome.DELIVER, 60, 1, epoch=2),
    )
    assert [row[-2:] for row in made] == [(1, 1), (1, 1)]


def test_brokers_are_held_apart(spark: SparkSession) -> None:
    made = windows(
        spark,
        flow(Outcome.RECEIVED, frames=2, log="b1"),
        flow(Outcome.DELIVER, frames=1, log="b1"),
        flow(Outcome.RECEIVED, frames=1, log="b2"),
        flow(Outcome.DELIVER, frames=2, log="b2"),
    )
    assert [(row[1], row[-2:]) for row in made] == [("b1", (1, 0)), ("b2", (0, 1))]


def test_workers_that_are_not_asked_make_no_row(spark: SparkSession) -> None:
    # A message to a tag query is asked, though; and what there was no room to count apart.
    made = windows(
        spark,
        flow(Outcome.RECEIVED, kind=Kind.MESSAGE, tagset=0, frames=9, log="n"),
        flow(Outcome.DELIVER, kind=Kind.MESSAGE, tagset=0, frames=9, log="n"),
        flow(Outcome.RECEIVED, kind=Kind.MESSAGE, frames=3),
        flow(Outcome.DELIVER, kind=Kind.MESSAGE, frames=2),
        flow(Outcome.DELIVER, kind=Kind.MESSAGE, frames=1, tagset=0),
    )
    assert made == [(0, "b", "", 3, 0, 2, 0, 0, 0, 0)]


def test_a_link_that_loses_is_told_by_its_two_ends(spark: SparkSession) -> None:
    # The receiver's clock is behind by a minute: for so long it seems to have got too much.
    made = windows(
        spark,
        link(Outcome.RECEIVED, 0, 4, "n2"),
        link(Outcome.FORWARD, 60, 6, "n1"),
        link(Outcome.DROP, 60, 1, "n1"),
    )
    assert made == [(0, "n1", LINK, 0, 4, 0, 0, 0, 0, 4), (60, "n1", LINK, 6, 0, 0, 1, 0, 1, 0)]


@pytest.mark.parametrize(
    ("outcome", "log", "said"),
    [
        (Outcome.FORWARD, "n1", (0, "n1", LINK, 5, None, 0, 0, 0, 0, 0)),
        (Outcome.RECEIVED, "n2", (0, "", LINK, None, 5, 0, 0, 0, 0, 0)),
    ],
)
def test_of_a_link_with_one_log_nothing_is_said_to_be_missing(
    outcome: Outcome, log: str, said: tuple[object, ...], spark: SparkSession
) -> None:
    assert windows(spark, link(outcome, 0, 5, log)) == [said]


def test_totals_end_with_what_the_last_window_says(spark: SparkSession) -> None:
    flows = frame(
        spark,
        "flows",
        [
            flow(Outcome.RECEIVED, 0, 5),
            flow(Outcome.DELIVER, 60, 4),
            link(Outcome.FORWARD, 0, 2, "n1"),
            link(Outcome.FORWARD, 60, 1, "n1"),
        ],
    )
    # Without names a link is a number.
    name = f"{name_id(LINK) % 2**64:x}"

    totals = audit_totals(audit(flows)).orderBy("src").collect()

    assert [tuple(row) for row in totals] == [
        ("b", "", 5, 0, 4, 0, 0, 1, 0),
        ("n1", name, 3, None, 0, 0, 0, 0, 0),
    ]


def test_windows_are_as_long_as_asked_for(spark: SparkSession) -> None:
    flows = frame(spark, "flows", [flow(Outcome.RECEIVED, at) for at in (0, 299, 300)])
    rows = audit(flows, window_seconds=300).orderBy("window_start").collect()
    assert [(row["window_start"], row["sent"]) for row in rows] == [
        (time_of(START), 2),
        (time_of(START + 300 * SECOND), 1),
    ]
    with pytest.raises(ValueError, match="at least 1"):
        audit(flows, window_seconds=0)


def test_requests_open_at_the_end_of_a_day_are_settled_by_later_ones(spark: SparkSession) -> None:
    flows = frame(
        spark,
        "flows",
        [
            flow(Outcome.RECEIVED, 50, 10),
            flow(Outcome.DELIVER, 50, 7),
            # After the end: two have ended, and others are taken.
            flow(Outcome.DELIVER, 60, 2),
            flow(Outcome.RECEIVED, 120, 4),
            # Another run, of which nothing more is known.
            flow(Outcome.RECEIVED, 50, 5, epoch=2),
        ],
    )
    until = time_of(START + 60 * SECOND)

    made = audit(flows, until=until).collect()

    assert [(row.sent, row.delivered, row.missing, row.duplicated) for row in made] == [
        (15, 7, 1 + 5, 0)
    ]


def test_requests_counted_as_taken_after_their_day_are_settled_too(spark: SparkSession) -> None:
    # The clocks of a link's two ends differ.
    flows = frame(
        spark, "flows", [link(Outcome.RECEIVED, 59, 3, "b"), link(Outcome.FORWARD, 61, 3, "a")]
    )
    made = audit(flows, until=time_of(START + 60 * SECOND)).collect()
    assert [(row.missing, row.duplicated) for row in made] == [(0, 0)]


def test_reports_are_of_utc_hours_and_minutes_wherever_the_session_is(spark: SparkSession) -> None:
    kolkata = spark.newSession()
    kolkata.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    flows = [flow(Outcome.UNROUTABLE, 600), flow(Outcome.RECEIVED, 3000)]

    def starts(session: SparkSession) -> set[object]:
        made = frame(session, "flows", flows)
        return {
            *(row.minute for row in traffic_matrix(made).collect()),
            *(row.window_start for row in audit(made).collect()),
            *(
                row.hour
                for row in unroutable(
                    made, frame(session, "dim_tagset", []), frame(session, "route_events", [])
                ).collect()
            ),
        }

    assert starts(kolkata) == starts(spark)


def test_requests_of_peer_brokers_are_held_apart(spark: SparkSession) -> None:
    made = windows(
        spark,
        flow(Outcome.RECEIVED, frames=5, log="b1"),
        flow(Outcome.FORWARD, frames=5, log="b1"),
        flow(Outcome.DELIVER, frames=5, log="b1"),
        flow(Outcome.RECEIVED, frames=4, log="b2", origin=name_id(PEER_BROKER), tagset=0),
        flow(Outcome.FORWARD, frames=3, log="b2", origin=name_id(PEER_BROKER), tagset=0),
        flow(Outcome.DELIVER, frames=3, log="b2", origin=name_id(PEER_BROKER), tagset=0),
    )
    # The fourth leg has no end yet: it is missing at the second broker alone.
    assert made == [
        (0, "b1", "", 5, 5, 5, 0, 0, 0, 0),
        (0, "b2", "(from peer brokers)", 4, 3, 3, 0, 0, 1, 0),
    ]


def test_other_reports_count_a_request_at_the_broker_that_has_its_requester(
    spark: SparkSession,
) -> None:
    def leg(outcome: Outcome, frames: int, dest: int, route: int) -> Row:
        origin = name_id(PEER_BROKER)
        return flow(outcome, 0, frames, log="b2", origin=origin, tagset=0, dest=dest, route=route)

    flows = frame(
        spark,
        "flows",
        [
            flow(Outcome.FORWARD, frames=2, dest=5, route=9),
            flow(Outcome.DELIVER, frames=2, dest=5),
            leg(Outcome.FORWARD, 2, 5, 9),
            leg(Outcome.DELIVER, 2, 5, 9),
            leg(Outcome.UNROUTABLE, 1, 0, 0),
        ],
    )
    (row,) = traffic_matrix(flows).collect()
    assert (row.dest_node, row.frames, row.failed) == (5, 2, 0)
    (load,) = shard_load(flows).collect()
    assert (load.route_id, load.frames) == (9, 2)
    tagsets, events = (frame(spark, table, []) for table in ("dim_tagset", "route_events"))
    assert unroutable(flows, tagsets, events).count() == 0
    histogram = frame(spark, "hops", [])
    (burn,) = slo_burn(flows, histogram, [Objective("all", target=0.9)]).collect()
    assert (burn.good, burn.total) == (2, 2)
