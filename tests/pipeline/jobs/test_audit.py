"""The reports over the event logs of three dispatching nodes, of which consumers come and go."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from onward.actors import Node
from onward.actors.dispatch import DISPATCH, Dispatcher, Received
from onward.actors.eventlog import EventLog, LogOptions
from onward.cli import main
from onward.pipeline import FROM_DISPATCHERS
from onward.pipeline.ingest import Lake
from onward.pipeline.jobs import run_audit, run_report
from onward.protocol.dispatch import Hold, Last, Redirect, Retry, Semantics
from tests.support.transports import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CHAIN = (Retry(hold=Hold(age=0.2)), Redirect("34#late"), Last.RELEASE)
NAMES = ("a", "b", "c")


def settle(delivery: Received) -> None:
    if delivery.payload == b"0":
        delivery.reject()
    elif delivery.payload == b"1":
        delivery.modify()


async def under_load(logs: Path) -> Counter[str]:
    """Run the nodes; return what producers of `orders` saw."""
    saw: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        nodes = {name: await stack.enter_async_context(Node(name)) for name in NAMES}
        at: dict[str, Dispatcher] = {}
        for name, node in nodes.items():
            await EventLog.attach(node, LogOptions(logs, name))
            at[name] = await Dispatcher.attach(node)
            at[name].provision("orders", Semantics(undeliverable=CHAIN))
        uris = {
            name: (await nodes[name].listen("tcp://127.0.0.1:0", expose=[DISPATCH])).uri
            for name in "bc"
        }
        await at["a"].neighbour(uris["b"], 1)
        await at["b"].neighbour(uris["c"], 1)
        producer = await at["a"].produce("orders")
        await at["a"].produce("late")  # to be told of its consumers
        paths: dict[str, int] = {}
        at["a"].watch("orders", paths.__setitem__)
        at["a"].watch("late", paths.__setitem__)

        async def move(to: str) -> None:
            consumer = await at[to].consume("orders", settle)
            await eventually(lambda: paths.get("orders", 0) > 0)
            for number in range(20):
                outcome = await producer.send(b"%d" % (number % 5))
                saw[type(outcome).__name__.lower()] += 1
            nodes["a"].send("34#orders", b"pre-settled")
            await eventually(lambda: at[to].statistics().unsettled == 0)
            consumer.close()
            await eventually(lambda: paths["orders"] == 0)

        for to in ("c", "a", "b"):
            await move(to)
        late = await at["b"].consume("late", settle)
        await eventually(lambda: paths.get("late", 0) > 0)
        for number in range(5):
            await nodes["a"].request("34#orders", b"%d" % (number + 2), timeout=30.0)
            saw["accepted"] += 1
        late.close()
    return saw


def test_outcomes_by_name_and_consumer_add_up_and_the_audit_balances(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs = tmp_path / "log"
    saw = asyncio.run(under_load(logs))
    places = ("--log", str(logs), "--lake", str(tmp_path / "lake"))
    assert main(["pipeline", "ingest", *places, "--checkpoint", str(tmp_path / "done")]) == 0
    lake = Lake(str(tmp_path / "lake"))
    audit = run_audit(spark, lake)
    assert audit.balanced
    rows = {(row.src, row.dst): row for row in audit.rows}
    assert rows["a", ""].sent == rows["a", ""].delivered + rows["a", ""].dropped == 68
    legs = [rows[name, FROM_DISPATCHERS].sent for name in "bc"]
    assert legs == [47, 21]
    done = run_report(spark, lake, datetime.now(UTC).date(), ["names"], format="table", most=100)
    table = done.shown["name_outcomes"]
    found = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
    (whole,) = [
        row for row in found if row["NAME_NODE"] == "34#orders" and row["DEST_NODE"] == "(none)"
    ]
    outcomes = {name: int(whole[name.upper()]) for name in saw}
    assert outcomes == saw
    assert (whole["RECEIVED"], whole["SETTLED"], whole["HELD"]) == ("68", "3", "5")
    (went,) = [row for row in found if row["DEST_NODE"] == "34#late"]
    assert went["REDIRECTED"] == "5"
    consumers = [row for row in found if row["DEST_NODE"] not in ("(none)", "34#late")]
    assert len(consumers) == 4
    for name in saw:
        assert sum(int(row[name.upper()]) for row in consumers) == saw[name]
