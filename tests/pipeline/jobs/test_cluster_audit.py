"""The reports over the event logs of three brokers under load, of which one is killed."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions as sf

from onward.actors.broker import Handlers, Request
from onward.cli import main
from onward.pipeline import FROM_PEERS
from onward.pipeline.ingest import Lake
from onward.pipeline.jobs import run_audit
from onward.pipeline.report import Audit, AuditRow
from onward.pipeline.transforms import traffic_matrix
from onward.protocol import DeliveryError
from onward.protocol.eventlog import Kind, Outcome, name_id
from onward.transports.client import Client, connect
from tests.cli.test_cluster import ALL, ONCE, TCP, Process, broker
from tests.support.commands import TIMEOUT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.exhaustive]

LOAD = "load"
"""The service of the requesters, which is their origin in the logs."""
WINDOW = 10.0
"""Seconds of counters that a killed broker may lose."""
SINGLE = ("answered", "told", "streamed")


def echo() -> Handlers:
    handlers = Handlers()

    @handlers.response
    async def answer(request: Request) -> bytes:
        await asyncio.sleep(0.001)
        return request.data

    @handlers.fire_and_forget
    async def take(request: Request) -> None:
        pass

    @handlers.stream
    async def count(request: Request):  # type: ignore[no-untyped-def]
        for number in range(3):
            yield b"%d" % number

    del answer, take, count
    return handlers


class Load:
    """Requesters at some brokers, and what they have sent.

    Attributes:
        sent: Requests by broker.
        ended: The outcomes that the requesters saw.
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.over = asyncio.Event()

    async def ask(self, name: str, client: Client, seed: int) -> None:
        """Send requests of all kinds, one after the other, until it is over."""
        chance = random.Random(seed)
        while not self.over.is_set():
            self.sent[name] += 1
            try:
                self.ended[await self._one(client, chance.randrange(4))] += 1
            except DeliveryError as error:
                self.ended[type(error).__name__] += 1
                await asyncio.sleep(0.02)

    async def _one(self, client: Client, which: int) -> str:
        if which == 0:
            await client.request("@no-route=reject service=echo", b"x")
            return "answered"
        if which == 1:
            await client.send("@no-route=reject service=echo", b"x")
            return "told"
        way = "" if which == 2 else "@multicast "
        asked = client.stream(f"{way}@no-route=reject service=echo", b"x")
        async with aclosing(asked) as elements:
            async for _ in elements:
                pass
        return "streamed" if which == 2 else "multicast"

    async def until(self, more: int) -> None:
        """Wait until so many more requests have ended."""
        wanted = self.ended.total() + more
        async with asyncio.timeout(TIMEOUT):
            while self.ended.total() < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


async def under_load(folder: Path) -> Load:
    """Run three brokers with event logs under load, kill one, and start it again."""
    load = Load()
    asking: list[asyncio.Task[None]] = []

    def words(name: str) -> tuple[str, ...]:
        log = ("--event-log", str(folder), "--event-log-name", name, "--event-log-sample", "0")
        cluster = ("--cluster-allow", ALL, "--cluster-locality", "even", "--cluster-hold", "1")
        return (*log, *cluster, "--drain-grace", "0", "--drain-spread", "0")

    async def join(stack: AsyncExitStack, *brokers: Process) -> None:
        for each in brokers:
            served = connect(each.uri, service="echo", handlers=echo())
            await stack.enter_async_context(served)
        for each in brokers:
            made = connect(each.uri, service=LOAD, handlers=Handlers(), options=ONCE)
            client = await stack.enter_async_context(made)
            for _ in range(4):
                asking.append(asyncio.create_task(load.ask(each.name, client, len(asking))))

    with (
        broker("a", "--cluster-advertise", TCP, *words("a")) as a,
        broker("c", "--cluster-seed", a.uri, *words("c")) as c,
    ):
        async with AsyncExitStack() as stack:
            with broker("b", "--cluster-seed", a.uri, *words("b")) as b:
                await a.until(b="up", c="up")
                await c.until(a="up", b="up")
                await join(stack, a, b, c)
                await load.until(1000)
                # What it has counted by now is in its log when it is killed.
                await asyncio.sleep(WINDOW + 2)
                b.kill(signal.SIGKILL)
                await load.until(500)
            with broker("b", "--cluster-seed", a.uri, *words("b")) as b:
                await a.until(b="up")
                await c.until(b="up")
                await join(stack, b)
                await load.until(1000)
                load.over.set()
                await asyncio.wait(asking)
                await stack.aclose()
                for each in (b, a, c):
                    each.kill(signal.SIGTERM)
                    assert await asyncio.to_thread(each.process.wait, TIMEOUT) == 0
    return load


def rows_of(audit: Audit) -> dict[tuple[str, str], AuditRow]:
    return {(row.src, row.dst): row for row in audit.rows}


def test_each_request_is_counted_once_and_all_adds_up(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "log"
    load = asyncio.run(under_load(logs))
    places = ("--log", str(logs), "--lake", str(tmp_path / "lake"))
    assert main(["pipeline", "ingest", *places, "--checkpoint", str(tmp_path / "done")]) == 0
    lake = Lake(str(tmp_path / "lake"))
    audit = run_audit(spark, lake)
    found = rows_of(audit)
    print(f"sent {load.sent}; seen by the requesters: {load.ended}")
    for (src, dst), row in sorted(found.items()):
        print(src, dst or "-", row.sent, row.received, row.delivered, row.dropped, row.missing)

    # What requesters have sent to the brokers that lived was read there, once, and has one end.
    flows = lake.table(spark, "flows")
    asked = sf.col("kind").between(int(Kind.RESPONSE), int(Kind.PUSH))
    mine = flows.filter(asked & (sf.col("origin_node") == name_id(LOAD)))
    came = mine.filter(sf.col("outcome") == int(Outcome.RECEIVED)).groupBy("broker")
    read = {row.broker: row.n for row in came.agg(sf.sum("frames").alias("n")).collect()}
    assert {name: read[name] for name in "ac"} == {name: load.sent[name] for name in "ac"}
    assert read["b"] <= load.sent["b"]
    for row in found.values():
        if not row.dst.startswith("broker "):
            assert row.duplicated == 0
        if row.src != "b" and not row.dst.startswith("broker "):
            assert row.missing == 0, row
            # Nothing is left: sent = delivered + dropped + unroutable.
            assert row.sent == row.delivered + row.dropped + row.unroutable
            assert row.sent

    # Both ends of a link have the same count, unless the run of one was killed: that has not
    # written the last of what it had read and sent.
    links = {row.dst: row for row in found.values() if row.dst.startswith("broker ")}
    runs = {each for dst in links for each in dst.removeprefix("broker ").split(">")}
    assert len(runs) == 4
    wrong = {dst for dst, row in links.items() if row.sent != row.received}
    (killed,) = [each for each in runs if all(each in dst for dst in wrong)]
    for dst, row in links.items():
        assert (row.missing, row.duplicated) == (0, 0) or dst in wrong, row
        assert (row.missing > 0) == (dst.endswith(f">{killed}") and dst in wrong)
        assert row.sent
        assert row.received
    assert len(links) == 10
    # A broker has read as many legs as the links to it say.
    for name in "ac":
        here = flows.filter((sf.col("broker") == name) & (sf.col("outcome") == 1))
        legs = here.filter(sf.col("kind") == int(Kind.LINK)).agg(sf.sum("frames")).first()
        assert legs is not None
        assert legs[0] == found[name, FROM_PEERS].sent

    # The traffic matrix counts each copy that was sent to a destination once.
    matrix = traffic_matrix(flows).filter(
        (sf.col("origin_node") == name_id(LOAD)) & (sf.col("dest_node") == name_id("echo"))
    )
    frames = matrix.agg(sf.sum("frames")).first()
    assert frames is not None
    assert frames[0] >= sum(load.ended[each] for each in SINGLE) - (load.sent["b"] - read["b"])
