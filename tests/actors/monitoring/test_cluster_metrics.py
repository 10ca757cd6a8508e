"""The figures of a cluster, as metrics, limits and problems."""

from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from onward.actors.cluster import ClusterOptions
from onward.actors.monitoring import Monitor, Stage, limit_uses
from onward.protocol.cluster import ClusterLimits
from onward.protocol.metrics import metrics_text
from tests.support.clusters import SOON, Site, clusters


def read(monitor: Monitor) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the value of each series by its labels."""
    found = filter(None, monitor.metrics.collect())
    read: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families("".join(metrics_text(found))):
        for sample in family.samples:
            read.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return read


def monitor_of(site: Site) -> Monitor:
    return Monitor(site.node, site.broker, cluster=site.cluster)


async def test_the_metrics_of_a_cluster() -> None:
    async with clusters() as made:
        one = await made.start("one", ["two", "nowhere"])
        two = await made.start("two")
        await two.serve("orders")
        await asyncio.sleep(5)
        found = read(monitor_of(one))
        states = {state: count for (state,), count in found["onward_peers"].items()}
        assert states.pop("up") == states.pop("connecting") == 1
        assert set(states.values()) == {0}
        assert found["onward_peer_routes"] == {("two",): 1}
        assert found["onward_peer_suspended_sessions"] == {("two",): 0}
        assert 0 < found["onward_peer_rtt_seconds"]["two",] < 1
        assert found["onward_peer_sync_lag_seconds"] == {("two",): 0}
        assert found["onward_peer_unsent_changes"] == {("two",): 0}
        assert found["onward_peer_requests_in_progress"] == {("two",): 0}
        assert found["onward_peer_dials_failed_total"][()] >= 2
        assert "onward_peer_links_lost_total" not in found
        made.network.cut(one.uri, two.uri)
        await asyncio.sleep(8)
        found = read(monitor_of(one))
        assert found["onward_peers"]["suspended",] == 1
        assert found["onward_peer_links_lost_total"] == {("the connection was reset",): 1}
        assert found["onward_peer_sync_lag_seconds"]["two",] > 5


async def test_two_peer_brokers_of_one_name_have_series_of_their_own() -> None:
    async with clusters() as made:
        one = await made.start("one", ["two", "three"])
        two, three = await made.start("two"), await made.start("three")
        three.cluster._update(name="two")
        await asyncio.sleep(5)
        names = set(read(monitor_of(one))["onward_peer_routes"])
        assert len(names) == 2
        assert ("two",) in names
        del two


async def test_the_limits_of_a_cluster_are_among_the_others() -> None:
    async with clusters() as made:
        options = ClusterOptions(limits=ClusterLimits(max_peers=7))
        one = await made.start("one", options=options)
        await made.start("two", ["one"])
        await asyncio.sleep(SOON)
        uses = {use.name: use for _, use in limit_uses(one.node, one.broker, one.cluster)}
        assert (uses["cluster.max_peers"].used, uses["cluster.max_peers"].limit) == (1, 7)


async def test_a_broker_is_ready_once_it_knows_others() -> None:
    async with clusters() as made:
        one = await made.start("one", ["two"], options=ClusterOptions(ready_peers=1))
        checks = monitor_of(one).checks

        def problem() -> str:
            (found,) = [each for each in checks.run(Stage.READY) if each.name == "cluster"]
            return found.problem

        assert problem() == "0 of 1 peer broker known"
        two = await made.start("two")
        await asyncio.sleep(5)
        assert problem() == ""
        # All brokers would stop to be ready together if it depended on the others later on.
        await made.kill(two)
        await asyncio.sleep(60)
        assert problem() == ""


async def test_brokers_that_are_away_are_a_problem() -> None:
    async with clusters() as made:
        one = await made.start("one", ["two", "nowhere"])
        two = await made.start("two")
        await asyncio.sleep(5)
        made.network.cut(one.uri, two.uri)
        problems = {each.subject: each for each in await monitor_of(one).window.problems()}
        assert problems["two"].kind == "peer"
        assert "suspended: the connection was reset" in problems["two"].text
        assert "test://nowhere cannot be reached" in problems["test://nowhere"].text
        made.network.heal()
        await asyncio.sleep(60)
        kinds = {each.subject for each in await monitor_of(one).window.problems()}
        assert "two" not in kinds


async def test_a_broker_that_another_one_reaches_is_a_problem() -> None:
    async with clusters() as made:
        one = await made.start("one", ["hub"])
        await made.start("hub")
        await made.start("far", ["hub"])
        await asyncio.sleep(5)
        (problem,) = [
            each for each in await monitor_of(one).window.problems() if each.kind == "peer"
        ]
        assert "far is reported by hub and cannot be reached" in problem.text
        assert "neither a seed nor allowed" in problem.text
