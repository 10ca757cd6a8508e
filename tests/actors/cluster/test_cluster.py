"""Brokers that form a cluster, with peer links in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from socket import gaierror
from typing import Any
from uuid import UUID, uuid4

import pytest

from onward.actors import Node, Worker
from onward.actors.broker import Broker, BrokerOptions, DrainOptions, DrainPart
from onward.actors.broker.table._remote import owned_since
from onward.actors.cluster import ClusterOptions, PeerConnection, PeerRefused
from onward.actors.security import Authorization
from onward.protocol import TAGS, Address, LinkDown, LinkLost, NotDelivered
from onward.protocol.broker import MAX_TAGS, OWNER_KEY, RouteSetup, TooManyTags
from onward.protocol.cluster import (
    REMOTE_BROKER_INFO_ROUTE,
    ClusterLimits,
    LinkRefusal,
    PeerInfo,
    Position,
)
from onward.protocol.security import ANONYMOUS, NotAllowed, read_rules
from tests.support.clusters import SOON, Clusters, FakePeer, Site, clusters
from tests.support.fixtures import Caplog
from tests.support.owners import ANN, BOB, REFUSED, REPLACED
from tests.support.peer_links import LIFETIME

HOLD = ClusterLimits().peer_hold
EVERYONE = ClusterOptions(allowed_peers=("test://*",))


@pytest.fixture
async def cluster() -> AsyncIterator[Clusters]:
    async with clusters() as made:
        yield made


class Connections(DrainPart):
    """A part of a drain with one connection."""

    left = 1

    @property
    def connections_left(self) -> int:
        return self.left

    async def stop_accepting(self) -> None:
        pass

    def begin_to_drain(self, random: Callable[[], float]) -> None:
        pass

    def drain_to(self, progress: float) -> None:
        pass

    def cut(self) -> None:
        pass


async def pair(cluster: Clusters) -> tuple[Site, Site]:
    one = await cluster.start("one")
    two = await cluster.start("two", ["one"])
    await asyncio.sleep(SOON)
    return one, two


async def test_each_broker_knows_the_routes_of_the_other(cluster: Clusters) -> None:
    one = await cluster.start("one")
    await one.serve("orders")
    two = await cluster.start("two", ["one"])
    await two.serve("prices")
    await asyncio.sleep(SOON)
    assert two.found("orders") == one.found("orders") == [one.id]
    assert two.found("prices") == one.found("prices") == [two.id]
    assert (one.peer(two).state, two.peer(one).state) == ("up", "up")


async def test_routes_come_and_go_on_a_link(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    registered = await one.serve("orders")
    await asyncio.sleep(SOON)
    assert two.found("orders") == [one.id]
    assert two.peer(one).routes == 1
    registered.withdraw()
    await asyncio.sleep(SOON)
    assert two.found("orders") == []
    assert two.peer(one).routes == 0


async def test_brokers_that_others_have_told_of_are_dialled_if_they_are_allowed(
    cluster: Clusters,
) -> None:
    sites = [
        await cluster.start(name, seeds, options=EVERYONE)
        for name, seeds in (("one", ()), ("two", ["one"]), ("three", ["one"]))
    ]
    for site in sites:
        await site.serve("orders")
    await asyncio.sleep(5)
    everywhere = sorted(site.id for site in sites)
    assert [site.found("orders") for site in sites] == [everywhere] * 3


async def test_brokers_that_others_have_told_of_are_not_dialled_by_default(
    cluster: Clusters,
) -> None:
    one = await cluster.start("one")
    two = await cluster.start("two", ["one"])
    three = await cluster.start("three", ["one"])
    await three.serve("orders")
    await asyncio.sleep(5)
    assert one.found("orders") == [three.id]
    assert two.found("orders") == []
    assert not cluster.network.between(two.uri, three.uri)
    row = two.peer(three)
    assert (row.state, row.reported_by, row.name) == ("connecting", "one", "three")


async def test_what_a_peer_broker_could_not_be_told_is_told_after_the_next_comparison(
    cluster: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = await cluster.start("two")
    one = await cluster.start("one", ["two"])
    await asyncio.sleep(SOON)
    (link,) = one.cluster.links.connections()
    request = link.request

    async def refuse(route: str, data: bytes) -> bytes:
        if route == REMOTE_BROKER_INFO_ROUTE:
            raise LinkLost("one request too many")
        return await request(route, data)

    with monkeypatch.context() as patched:
        patched.setattr(link, "request", refuse)
        three = await cluster.start("three", ["one"])
        await asyncio.sleep(SOON)
    assert two.cluster.membership.info_of(three.id) is None
    await asyncio.sleep(ClusterLimits().compare)
    assert two.cluster.membership.info_of(three.id) is not None


async def test_a_lost_link_hides_routes_at_once_and_reveals_them_when_it_is_back(
    cluster: Clusters,
) -> None:
    one, two = await pair(cluster)
    first = await one.serve("orders")
    await one.serve("orders")
    await asyncio.sleep(SOON)
    cluster.network.cut(one.uri, two.uri)
    assert two.found("orders") == []
    assert two.peer(one).state == "suspended"
    first.withdraw()
    await one.serve("prices")
    await asyncio.sleep(10)
    cluster.network.heal()
    await asyncio.sleep(20)
    (link,) = cluster.network.between(one.uri, two.uri)
    assert two.peer(one).state == "up"
    assert two.found("orders") == two.found("prices") == [one.id]
    # The two changes since then, and marks: not the routes that there were.
    end = link if link.dialled and link.uris[0] == one.uri else link.far
    assert sum(len(data) for route, data in end.sent if route == "onward.cluster.routes") < 500


async def test_a_link_that_is_not_back_in_time_has_its_routes_removed(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    await one.serve("orders")
    await asyncio.sleep(SOON)
    assert two.peer(one).routes == 1
    cluster.network.cut(one.uri, two.uri)
    await asyncio.sleep(HOLD - 1)
    assert two.peer(one).routes == 1
    await asyncio.sleep(2)
    assert two.peer(one).routes == 0
    assert two.found("orders") == []
    cluster.network.heal()
    await asyncio.sleep(60)
    assert two.found("orders") == [one.id]


async def test_a_silent_cut_is_noticed_after_the_lifetime(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    await one.serve("orders")
    await asyncio.sleep(SOON)
    cluster.network.cut(one.uri, two.uri, silently=True)
    await asyncio.sleep(LIFETIME - 1)
    assert two.found("orders") == [one.id]
    await asyncio.sleep(2)
    assert two.found("orders") == []
    assert two.peer(one).reason == "no KEEPALIVE"


async def test_what_is_told_on_a_slow_link_comes_late_and_whole(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    cluster.network.delay = 2.0
    await one.serve("orders")
    await asyncio.sleep(1)
    assert two.found("orders") == []
    await asyncio.sleep(2)
    assert two.found("orders") == [one.id]


async def test_a_peer_broker_without_credit_holds_nothing_up(cluster: Clusters) -> None:
    limits = ClusterLimits(log_changes=100)
    options = ClusterOptions(limits=limits, ahead=2)
    one = await cluster.start("one", options=options)
    two = await cluster.start("two", ["one"], options=options)
    await asyncio.sleep(SOON)
    (link,) = cluster.network.between(one.uri, two.uri)
    link.stalled = True
    sent = len(link.far.sent)
    for _ in range(300):
        (await one.serve("orders")).withdraw()
        await asyncio.sleep(0.1)
    await one.serve("orders")
    await asyncio.sleep(SOON)
    assert len(link.far.sent) <= sent + 2
    assert one.cluster.statistics().changes == limits.log_changes
    assert one.peer(two).unsent > 500
    # The receiver goes on, and gives the credit that it owes with the next it gives.
    link.stalled = False
    cluster.network.cut(one.uri, two.uri)
    cluster.network.heal()
    await asyncio.sleep(5)
    assert two.found("orders") == [one.id]
    assert one.peer(two).unsent == 0


@pytest.mark.parametrize("slow", [None, "one", "two"])
async def test_of_two_links_the_one_that_the_smaller_id_has_dialled_stays(
    cluster: Clusters, slow: str | None
) -> None:
    if slow is not None:
        # Its link is refused, or replaces the other, before or after each side knows of both.
        cluster.network.delays[f"test://{slow}"] = 0.2
    one = await cluster.start("one", ["two"], join=False)
    two = await cluster.start("two", ["one"], join=False)
    await one.serve("orders")
    one.cluster.join(one.uri)
    two.cluster.join(two.uri)
    await asyncio.sleep(5)
    (link,) = cluster.network.links
    assert link.uris[0] == min(one, two, key=lambda site: site.id).uri
    assert two.found("orders") == [one.id]
    for site, other in ((one, two), (two, one)):
        row = site.peer(other)
        assert (row.state, row.losses) == ("up", 0)
        assert site.cluster.statistics().lost == {}


async def test_a_link_that_another_one_replaces_stays_while_it_carries_requests(
    cluster: Clusters,
) -> None:
    one = await cluster.start("one", ["two"], join=False)
    two = await cluster.start("two", ["one"], join=False)
    smaller, larger = sorted((one, two), key=lambda site: site.id)
    cluster.network.delays[smaller.uri] = 0.2  # its link stays, and comes second
    one.cluster.join(one.uri)
    two.cluster.join(two.uri)
    await asyncio.sleep(0.1)
    (before,) = cluster.network.links
    assert before.uris[0] == larger.uri
    before.in_flight = before.far.in_flight = 1
    await asyncio.sleep(10)
    assert cluster.network.links[0] is before
    assert len(cluster.network.links) == 2
    # Both links are one row, with the requests of both.
    assert (one.peer(two).in_flight, two.peer(one).in_flight) == (1, 1)
    link = cluster.network.links[1]
    link.in_flight = link.far.in_flight = 2
    assert (one.peer(two).in_flight, two.peer(one).in_flight) == (3, 3)
    link.in_flight = link.far.in_flight = 0
    before.in_flight = before.far.in_flight = 0
    await asyncio.sleep(2)
    (link,) = cluster.network.links
    assert link.uris[0] == smaller.uri
    assert "duplicate" in [end.closed[0] for end in (before, before.far) if end.closed]
    for site, other in ((one, two), (two, one)):
        assert (site.peer(other).state, site.peer(other).losses) == ("up", 0)
        assert site.cluster.statistics().lost == {}


async def test_a_link_that_another_one_has_replaced_ends_with_the_broker(cluster: Clusters) -> None:
    one = await cluster.start("one", ["two"], join=False)
    two = await cluster.start("two", ["one"], join=False)
    smaller, larger = sorted((one, two), key=lambda site: site.id)
    cluster.network.delays[smaller.uri] = 0.2
    one.cluster.join(one.uri)
    two.cluster.join(two.uri)
    await asyncio.sleep(0.1)
    (before,) = cluster.network.links
    before.in_flight = before.far.in_flight = 1
    await asyncio.sleep(10)
    assert len(cluster.network.links) == 2
    await larger.node.stop()
    assert not before.open
    # Told as the other links are: not as a loss.
    assert (before.closed or before.far.closed) == ("stopped", "the broker stops")
    await asyncio.sleep(10)
    assert before not in cluster.network.links


async def test_a_broker_that_dials_again_has_lost_the_link_before(cluster: Clusters) -> None:
    one = await cluster.start("one")
    fake = FakePeer()
    cluster.network.listen("test://fake", fake)
    connect = cluster.network.connect_from("test://fake")
    await connect(one.uri, fake)
    (before,) = cluster.network.links
    before.far.in_flight = 1
    await connect(one.uri, fake)
    assert before.far.closed == ("duplicate", LinkRefusal.DUPLICATE.value)


async def test_links_that_another_one_replaces_are_no_losses(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    await one.serve("orders")
    for _ in range(5):
        await asyncio.sleep(5)
        (link,) = cluster.network.links
        link.far.close("duplicate", LinkRefusal.DUPLICATE.value)
        await asyncio.sleep(0.1)
        assert two.peer(one).state == "suspended"
    await asyncio.sleep(5)
    assert (two.peer(one).state, two.peer(one).losses) == ("up", 0)
    assert two.found("orders") == [one.id]


async def test_a_link_to_oneself_is_refused_once(cluster: Clusters) -> None:
    one = await cluster.start("one", ["one"], join=False)
    one.cluster.join()  # it does not know that it is reached there
    await asyncio.sleep(300)
    assert cluster.network.dials == [(one.uri, one.uri)]
    assert not cluster.network.links
    assert one.cluster.peers() == []


async def test_two_brokers_with_one_id(cluster: Clusters, caplog: Caplog) -> None:
    one = await cluster.start("one")
    two = await cluster.start("two", ["one"], join=False)
    two.cluster._own = two.cluster.membership.own = PeerInfo.of(one.cluster.info)
    two.cluster._update(instance=1, cluster_uri=two.uri)
    two.cluster.join()
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(60)
    assert not cluster.network.links
    assert one.cluster.peers() == []
    (line,) = [each for each in caplog.messages if "refused" in each][:1]
    assert "both brokers have the same id" in line


async def test_a_route_id_is_at_one_connection_of_the_cluster(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    route_id = uuid4()
    await one.connect("orders", route_id)
    await asyncio.sleep(SOON)
    assert two.found("orders") == [one.id]
    await two.connect("orders", route_id)
    await asyncio.sleep(SOON)
    assert one.found("orders") == two.found("orders") == [two.id]
    assert one.evicted == ["replaced by a newer connection"]
    assert two.evicted == []
    assert len(one.cluster.log) == 0


async def test_a_route_id_that_moved_while_the_cluster_was_cut(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    route_id = uuid4()
    cluster.network.cut(one.uri, two.uri)
    await one.connect("orders", route_id)
    await asyncio.sleep(0)
    await two.connect("orders", route_id)
    later = two if two.cluster.log.sequence else one
    cluster.network.heal()
    await asyncio.sleep(10)
    found = one.found("orders")
    assert found == two.found("orders")
    assert len(found) == 1
    assert later.found("orders") == found
    assert len(one.evicted) + len(two.evicted) == 1


async def test_a_drain_is_told_and_its_routes_leave(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    registered = await one.serve("orders")
    await two.serve("orders")
    connections = Connections()
    one.broker.add_part(connections)
    await asyncio.sleep(SOON)
    drain = asyncio.ensure_future(one.broker.drain(DrainOptions(grace=5, spread=5, timeout=20)))
    await asyncio.sleep(SOON)
    assert two.peer(one).draining
    assert one.broker.undo_drain()
    await asyncio.sleep(SOON)
    assert not two.peer(one).draining
    assert not await drain
    drain = asyncio.ensure_future(one.broker.drain(DrainOptions(grace=5, spread=5, timeout=20)))
    await asyncio.sleep(10)
    # Its destinations leave as their connections end; the link stays to the end.
    assert two.peer(one).draining
    registered.withdraw()
    connections.left = 0
    await asyncio.sleep(SOON)
    assert two.found("orders") == [two.id]
    assert await drain
    assert two.peer(one).state == "up"
    await one.node.stop()
    await asyncio.sleep(SOON)
    assert two.peer(one).reason == "the broker stops"


async def test_a_request_that_waits_goes_to_a_draining_broker_if_there_is_no_other(
    cluster: Clusters,
) -> None:
    one, two = await pair(cluster)
    await two.serve("orders")
    two.cluster.drain(draining=True)
    await asyncio.sleep(SOON)
    cluster.network.cut(one.uri, two.uri)
    await asyncio.sleep(SOON)
    asked = asyncio.ensure_future(one.node.request("32#service=orders", b"", timeout=60))
    await asyncio.sleep(SOON)
    index = one.broker.index
    assert index.waiting().messages == 1
    cluster.network.heal()
    await asyncio.sleep(3)
    assert (one.peer(two).state, one.peer(two).draining) == ("up", True)
    assert (index.waiting().messages, index.rejected) == (0, 0)
    asked.cancel()


async def test_a_peer_broker_that_does_not_keep_up_or_drains_is_passed_over(
    cluster: Clusters,
) -> None:
    one, two = await pair(cluster)
    await two.serve("orders")
    await asyncio.sleep(SOON)
    (route,) = [entry.target for entry in one.broker.index.entries()]
    assert not route.busy
    (link,) = cluster.network.links
    for end in (link, link.far):
        end.busy = True
    assert route.busy
    for end in (link, link.far):
        end.busy = False
    two.cluster.drain(draining=True)
    await asyncio.sleep(SOON)
    assert route.busy


async def test_a_broker_that_is_started_anew_takes_the_place_of_the_one_before(
    cluster: Clusters,
) -> None:
    one, two = await pair(cluster)
    await two.serve("orders")
    await asyncio.sleep(SOON)
    await cluster.kill(two)
    assert one.peer(two).state == "suspended"
    again = await cluster.start("two", ["one"])
    await again.serve("orders")
    await asyncio.sleep(SOON)
    assert one.found("orders") == [again.id]
    assert [row.broker_id for row in one.cluster.peers()] == [str(again.broker.broker_id)]
    workers = [row for row in one.node.statistics().workers if row.kind == "PeerWorker"]
    assert len(workers) == 2
    await asyncio.sleep(HOLD + 60)
    # The routes of the one before are removed, and its worker has stopped.
    assert one.broker.index.peers.count == 1
    workers = [row for row in one.node.statistics().workers if row.kind == "PeerWorker"]
    assert len(workers) == 1
    assert one.found("orders") == [again.id]


async def test_a_broker_that_is_forgotten(cluster: Clusters) -> None:
    options = ClusterOptions(limits=ClusterLimits(forget_after=600))
    one = await cluster.start("one", options=options)
    two = await cluster.start("two", ["one"])
    await two.serve("orders")
    await asyncio.sleep(SOON)
    await cluster.kill(two)
    await asyncio.sleep(500)
    assert one.peer(two).state == "gone"
    await asyncio.sleep(200)
    assert one.cluster.peers() == []


async def test_a_broker_that_stops_is_lost_by_the_others(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    await one.serve("orders")
    await asyncio.sleep(SOON)
    await one.node.stop()
    await asyncio.sleep(SOON)
    assert two.found("orders") == []
    assert two.cluster.statistics().lost == {"the broker stops": 1}


RULES = """
[[rule]]
names = ["*"]
register = ["service=*"]
request = ["service=*"]
"""


async def test_a_route_id_of_another_principal_is_not_taken_over_at_another_broker(
    cluster: Clusters,
) -> None:
    one, two = await pair(cluster)
    for site in (one, two):
        site.broker.authorization = Authorization(read_rules(RULES))
    route_id, worker_id = uuid4(), uuid4()
    await one.connect("orders", route_id, ANN)
    await one.serve("prices", worker_id)
    await asyncio.sleep(SOON)
    for taken, stranger in ((route_id, BOB), (route_id, ANONYMOUS), (worker_id, ANN)):
        with pytest.raises(NotAllowed, match="register"):
            await two.connect("orders", taken, stranger)
    # Nor while there is no link, as one that was lost may be back.
    cluster.network.cut(one.uri, two.uri)
    with pytest.raises(NotAllowed):
        await two.connect("orders", route_id, BOB)
    cluster.network.heal()
    await asyncio.sleep(10)
    assert one.evicted == []
    assert two.found("orders") == one.found("orders") == [one.id]
    # It is for comparison only: no destination has it as a tag, and no request can ask for it.
    tags = {key for row in two.broker.routes() for key in row.tags}
    assert not any("owner" in key for key in tags)
    # The owner itself moves, with other roles or without.
    await two.connect("orders", route_id, replace(ANN, roles=frozenset({"new"})))
    await asyncio.sleep(SOON)
    assert one.evicted == ["replaced by a newer connection"]
    assert one.found("orders") == [two.id]
    # And when it is gone, the id is free.
    two.broker.index.leave(two.broker.index.own_entries()[0])
    await asyncio.sleep(SOON)
    await one.connect("orders", route_id, BOB)


async def test_without_rules_a_route_id_belongs_to_the_newest_connection(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    # The other one has rules, as after a mistake: what is not told cannot be asked.
    two.broker.authorization = Authorization(read_rules(RULES))
    route_id = uuid4()
    await one.connect("orders", route_id, ANN)
    await asyncio.sleep(SOON)
    await two.connect("orders", route_id, BOB)
    await asyncio.sleep(SOON)
    assert one.evicted == ["replaced by a newer connection"]


async def test_rules_that_come_while_brokers_run_protect_what_is_connected(
    cluster: Clusters,
) -> None:
    one, two = await pair(cluster)
    connected, suspended, full = uuid4(), uuid4(), uuid4()
    await one.connect("orders", connected, ANN)
    (await one.connect("orders", suspended, ANN)).suspend()
    # It leaves no room for the owner, so other brokers are told none.
    many = tuple((f"k{number}", "") for number in range(MAX_TAGS - 2))
    worker = await one.node.start(Worker)
    setup = RouteSetup(full.bytes, "orders", many)
    one.broker.connect(setup, worker, peer="client", evict=one.evicted.append, principal=ANN)
    await asyncio.sleep(SOON)
    assert kept(two) == 0
    rules = Authorization(read_rules(RULES))
    for site in (one, two):
        site.broker.authorization = rules
    await asyncio.sleep(SOON)
    assert kept(two) == 1
    for route_id in (connected, suspended):
        with pytest.raises(NotAllowed, match="register"):
            await two.connect("orders", route_id, BOB)
    assert two.broker.index.places_of(full.bytes)[0].owner is None
    assert len(two.found("orders")) == 2
    for site in (one, two):
        site.broker.authorization = None
    await asyncio.sleep(SOON)
    assert kept(two) == 0
    await two.connect("orders", connected, BOB)
    await asyncio.sleep(SOON)
    assert one.evicted == [REPLACED]


async def ruled_pair(cluster: Clusters) -> tuple[Site, Site]:
    one, two = await pair(cluster)
    for site in (one, two):
        site.broker.authorization = Authorization(read_rules(RULES))
    return one, two


def kept(site: Site) -> int:
    """Return how many suspended sessions of peer brokers a broker knows of."""
    return len(site.broker.index.suspended_elsewhere)


async def test_peer_brokers_are_told_of_a_suspended_session(cluster: Clusters) -> None:
    one, two = await ruled_pair(cluster)
    route_id = uuid4()
    registered = await one.connect("orders", route_id, ANN)
    await asyncio.sleep(SOON)
    registered.suspend()
    await asyncio.sleep(SOON)
    # It is no route: nothing can be sent there, and none is shown.
    assert kept(two) == 1
    assert two.found("orders") == []
    assert all(row.route_id != route_id for row in two.broker.routes())
    assert two.peer(one).refused == {}
    for site in (one, two):
        with pytest.raises(NotAllowed, match="register"):
            await site.connect("orders", route_id, BOB)
    assert registered.resume()
    await asyncio.sleep(SOON)
    assert (kept(two), two.found("orders")) == (0, [one.id])
    registered.suspend()
    await asyncio.sleep(SOON)
    # One that comes later is told all of it.
    three = await cluster.start("three", ["one"])
    three.broker.authorization = Authorization(read_rules(RULES))
    await asyncio.sleep(SOON)
    assert kept(three) == 1
    with pytest.raises(NotAllowed, match="register"):
        await three.connect("orders", route_id, BOB)
    # The session is given up, and the id is free.
    registered.withdraw()
    await asyncio.sleep(SOON)
    assert (kept(two), kept(three)) == (0, 0)
    await two.connect("orders", route_id, BOB)
    await asyncio.sleep(SOON)
    assert one.found("orders") == [two.id]


async def test_a_suspended_session_is_kept_while_its_broker_is_away(cluster: Clusters) -> None:
    one, two = await ruled_pair(cluster)
    route_id = uuid4()
    registered = await one.connect("orders", route_id, ANN)
    registered.suspend()
    await asyncio.sleep(SOON)
    cluster.network.cut(one.uri, two.uri)
    await asyncio.sleep(HOLD - 10)
    with pytest.raises(NotAllowed, match="register"):
        await two.connect("orders", route_id, BOB)
    # What has changed meanwhile is known when the link is back.
    registered.withdraw()
    other = await one.connect("orders", uuid4(), ANN)
    other.suspend()
    cluster.network.heal()
    await asyncio.sleep(40)
    assert kept(two) == 1
    await two.connect("orders", route_id, BOB)
    cluster.network.cut(one.uri, two.uri)
    await asyncio.sleep(HOLD + 20)
    assert kept(two) == 0
    assert two.peer(one).routes == 0


async def test_requests_wait_for_a_suspended_session_that_was_at_a_lost_broker(
    cluster: Clusters,
) -> None:
    one, two = await pair(cluster)
    route_id, index = uuid4(), one.broker.index
    await two.connect("orders", route_id)
    await asyncio.sleep(SOON)
    await cluster.kill(two)
    await asyncio.sleep(SOON)
    registered = await one.connect("orders", route_id)
    registered.suspend()
    await asyncio.sleep(HOLD + 20)
    ask = index.asked(Address(TAGS, b"service=orders"))
    assert index.table.expects(ask.query)
    assert index.expectations.waits(ask.query)
    registered.withdraw()
    assert not index.table.expects(ask.query)


async def test_an_owner_connects_anew_at_another_broker(cluster: Clusters) -> None:
    one, two = await ruled_pair(cluster)
    route_id = uuid4()
    registered = await one.connect("orders", route_id, ANN)
    (first,) = one.broker.index.own_entries()
    registered.suspend()
    await asyncio.sleep(SOON)
    await two.connect("orders", route_id, ANN)
    await asyncio.sleep(SOON)
    assert one.evicted == [REPLACED]
    assert not registered.resume()
    assert (kept(two), one.found("orders")) == (0, [two.id])
    assert owned_since(two.broker.index.own_entries()[0]) == first.timestamp


@pytest.mark.parametrize("how", ["resumes", "anew", "stays"])
async def test_the_owner_of_a_suspended_session_is_first(cluster: Clusters, how: str) -> None:
    """Another principal has taken the id meanwhile, at a broker that knows nothing of it."""
    one, two = await ruled_pair(cluster)
    route_id = uuid4()
    registered = await one.connect("orders", route_id, ANN)
    (first,) = one.broker.index.own_entries()
    cluster.network.cut(one.uri, two.uri)
    await asyncio.sleep(HOLD + 10)
    await two.connect("orders", route_id, BOB)
    registered.suspend()
    cluster.network.heal()
    await asyncio.sleep(60)
    assert two.evicted == [REFUSED]
    if how == "resumes":
        assert registered.resume()
    elif how == "anew":
        await one.connect("orders", route_id, ANN)
    await asyncio.sleep(SOON)
    assert one.found("orders") == two.found("orders") == ([] if how == "stays" else [one.id])
    if how != "stays":
        (entry,) = one.broker.index.own_entries()
        assert owned_since(entry) == first.timestamp
        assert one.broker.index.suspended == {}
    with pytest.raises(NotAllowed, match="register"):
        await two.connect("orders", route_id, BOB)


async def test_a_suspended_session_gives_no_right_over_an_earlier_owner(
    cluster: Clusters,
) -> None:
    one, two = await ruled_pair(cluster)
    route_id, index = uuid4(), one.broker.index
    cluster.network.cut(one.uri, two.uri)
    await asyncio.sleep(HOLD + 10)
    await two.connect("orders", route_id, BOB)
    registered = await one.connect("orders", route_id, ANN)
    registered.suspend()
    events = one.broker.events.subscribe()
    cluster.network.heal()
    await asyncio.sleep(60)
    assert (one.evicted, two.evicted, index.suspended) == ([REFUSED], [], {})
    assert not registered.resume()
    reasons = [event.reason for event in [await anext(events) for _ in range(2)]]
    assert "its route id belongs to another principal" in reasons
    assert one.found("orders") == two.found("orders") == [two.id]


@pytest.mark.parametrize("rules", [True, False])
async def test_the_first_owner_keeps_an_id_when_brokers_meet_again(
    cluster: Clusters, *, rules: bool
) -> None:
    one, two = await (ruled_pair(cluster) if rules else pair(cluster))
    three = await cluster.start("three", ["one", "two"])
    first, second = uuid4(), uuid4()
    cluster.network.cut(one.uri, two.uri)
    await asyncio.sleep(HOLD + 10)
    await one.connect("orders", first, ANN)
    await two.connect("orders", first, BOB)
    await two.connect("mail", second, BOB)
    await one.connect("mail", second, ANN)
    # One that hears of both decides as they do.
    await asyncio.sleep(SOON)
    found = (three.found("orders"), three.found("mail"))
    assert found == (([one.id], [two.id]) if rules else ([two.id], [one.id]))
    cluster.network.heal()
    await asyncio.sleep(60)
    told = [REFUSED] if rules else [REPLACED]
    assert (one.evicted, two.evicted) == (told, told)
    for site in (one, two, three):
        assert (site.found("orders"), site.found("mail")) == found


async def test_no_more_suspended_sessions_are_kept_than_routes(cluster: Clusters) -> None:
    one = await cluster.start("one")
    options = BrokerOptions(management=False, max_peer_routes=2)
    two = await cluster.start("two", ["one"], broker_options=options)
    await asyncio.sleep(SOON)
    for site in (one, two):
        site.broker.authorization = Authorization(read_rules(RULES))
    registered = [await one.connect("orders", uuid4(), ANN) for _ in range(2)]
    for each in registered:
        each.suspend()
    other = await one.connect("orders", uuid4(), ANN)
    other.suspend()
    await asyncio.sleep(SOON)
    assert kept(two) == 2
    assert sum(two.peer(one).refused.values()) == 1
    assert two.broker.index.peers.refused == 1
    (limit,) = (each for each in two.broker.limits() if each.name == "max_peer_routes")
    assert (limit.used, limit.limit, limit.reached) == (2, 2, 1)
    assert (two.peer(one).routes, two.peer(one).suspended) == (0, 2)
    assert registered[0].resume()
    await asyncio.sleep(SOON)
    assert (two.peer(one).routes, two.peer(one).suspended) == (1, 1)
    # They go with the routes of their broker.
    await cluster.kill(one)
    await asyncio.sleep(HOLD + 20)
    assert (two.peer(one).routes, two.peer(one).suspended, kept(two)) == (0, 0, 0)


async def test_what_is_told_of_a_suspended_session_without_its_owner_is_refused(
    cluster: Clusters,
) -> None:
    """As one that a broker of an earlier version refuses."""
    peer = FakePeer()
    cluster.network.listen("test://fake", peer)
    site = await cluster.start("one", ["fake"])
    await asyncio.sleep(SOON)
    peer.send(peer.snapshot(peer.route("onward.suspended"), peer.route("onward.else")))
    await asyncio.sleep(SOON)
    assert kept(site) == 0
    assert site.peer(peer.facts.broker_id).refused == {"its service name is reserved": 2}


async def test_a_destination_cannot_name_an_owner(cluster: Clusters) -> None:
    one, _ = await pair(cluster)
    worker = await one.node.start(Worker)
    setup = RouteSetup(uuid4().bytes, "orders", ((OWNER_KEY, "x"),))
    with pytest.raises(NotDelivered, match="reserved"):
        one.broker.connect(setup, worker, peer="client", evict=one.evicted.append)


ANY_TAG = RULES.replace('["service=*"]', '"*"')


def tagged(count: int, *tags: tuple[str, str]) -> RouteSetup:
    return RouteSetup(uuid4().bytes, "orders", (*((f"k{n}", "") for n in range(count)), *tags))


@pytest.mark.parametrize("rules", [True, False])
async def test_a_destination_has_as_many_tags_as_others_can_be_told(
    cluster: Clusters, *, rules: bool
) -> None:
    one, two = await pair(cluster)
    if rules:
        one.broker.authorization = Authorization(read_rules(ANY_TAG))
    worker = await one.node.start(Worker)
    room = 253 if rules else 254  # beside ServiceName and RouteId, and the owner
    with pytest.raises(TooManyTags, match="more than 256"):
        one.broker.connect(tagged(room + 1), worker, peer="client", evict=one.evicted.append)
    assert one.found("orders") == []
    # What is there twice counts once.
    twice = tagged(room, ("k0", ""))
    one.broker.connect(twice, worker, peer="client", evict=one.evicted.append)
    await asyncio.sleep(SOON)
    assert two.found("orders") == one.found("orders") == [one.id]
    (row,) = [row for row in two.broker.routes() if row.service == "orders"]
    assert len(row.tags) == room + 2
    if rules:
        two.broker.authorization = Authorization(read_rules(RULES))
        with pytest.raises(NotAllowed):
            await two.connect("orders", UUID(bytes=twice.route_id), BOB)


async def test_a_broker_alone_takes_as_many_tags_as_a_frame_has(node: Node) -> None:
    broker = await Broker.attach(node)
    worker = await node.start(Worker)
    broker.connect(tagged(256), worker, peer="client", evict=print)
    assert "orders" in {row.service for row in broker.routes()}


async def test_a_flapping_link_is_not_relied_on(cluster: Clusters) -> None:
    one, two = await pair(cluster)
    await one.serve("orders")
    for _ in range(3):
        await asyncio.sleep(5)
        cluster.network.cut(one.uri, two.uri)
        cluster.network.heal()
    await asyncio.sleep(6)
    assert two.peer(one).state == "unsteady"
    assert two.found("orders") == []
    await asyncio.sleep(15)
    assert two.peer(one).state == "up"
    assert two.found("orders") == [one.id]


async def test_a_seed_that_is_not_there_is_shown_with_the_cause(cluster: Clusters) -> None:
    one = await cluster.start("one", ["nowhere"])
    await asyncio.sleep(60)
    row = one.peer("test://nowhere")
    assert (row.state, row.broker_id) == ("connecting", "")
    assert "refused" in row.reason
    # It is dialled after 1 s, 2 s, 4 s, and so on.
    assert 5 <= len(cluster.network.dials) <= 8
    assert one.cluster.statistics().failed == len(cluster.network.dials)


async def test_a_seed_that_does_not_answer_is_given_up_in_time(cluster: Clusters) -> None:
    one = await cluster.start("one", ["two"], join=False)
    await cluster.start("two")
    cluster.network.unreachable.add((one.uri, "test://two"))
    one.cluster.join()
    await asyncio.sleep(6)
    assert one.peer("test://two").reason == "no answer in time"


async def test_a_seed_is_a_name_with_several_addresses(cluster: Clusters) -> None:
    addresses: list[str] = []

    async def resolve(uri: str) -> tuple[str, ...]:
        if not addresses:
            raise OSError("no such name")
        assert uri == "test://brokers"
        return tuple(addresses)

    one, two = await cluster.start("one"), await cluster.start("two")
    three = await cluster.start("three", ["brokers"], resolve=resolve)
    await asyncio.sleep(5)
    assert "refused" in three.peer("test://brokers").reason
    addresses += [one.uri, three.uri]
    await asyncio.sleep(31)
    assert [row.state for row in three.cluster.peers()] == ["up"]
    addresses[0] = two.uri
    await asyncio.sleep(31)
    # A link stays, also if its address is that of the name no more.
    assert sorted(row.state for row in three.cluster.peers()) == ["up", "up"]
    addresses.clear()
    await asyncio.sleep(31)
    assert len(three.cluster.peers()) == 2
    three.cluster.adjust(replace(three.cluster.options, seeds=()))
    await asyncio.sleep(SOON)
    assert len(cluster.network.links) == 2


async def test_a_seed_that_is_no_name_holds_up_no_other(cluster: Clusters) -> None:
    async def resolve(uri: str) -> tuple[str, ...]:
        if "slow" in uri:
            await asyncio.sleep(60)
        return (str(uri.encode("idna").decode()),)

    two = await cluster.start("two")
    seeds = ["a..b", "slow", "slow2", "two"]
    one = await cluster.start("one", seeds, resolve=resolve)
    await asyncio.sleep(ClusterOptions().connect_timeout + SOON)
    assert one.peer(two).state == "up"
    assert "refused" in one.peer("test://a..b").reason


async def test_a_seed_is_dialled_again_whatever_the_attempt_has_failed_by(
    cluster: Clusters, caplog: Caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = await cluster.start("two")
    one = await cluster.start("one", ["two"], join=False)

    async def connect(*_: object) -> PeerConnection:
        raise EOFError("a mistake of a transport")

    with caplog.at_level(logging.ERROR), monkeypatch.context() as patched:
        patched.setattr(one.cluster, "_connect", connect)
        one.cluster.join(one.uri)
        await asyncio.sleep(SOON)
        row = one.peer("test://two")
        assert (row.state, row.reason) == ("connecting", "a mistake of a transport")
        assert "test://two cannot be dialled" in caplog.messages
    await asyncio.sleep(5)
    assert one.peer(two).state == "up"


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (ConnectionRefusedError("refused"), logging.INFO),
        (FileNotFoundError("no such socket"), logging.INFO),
        (OSError("several addresses"), logging.INFO),
        (LinkDown("two", "no answer within 5 s"), logging.INFO),
        (PeerRefused(LinkRefusal.DUPLICATE.value), logging.INFO),
        (PeerRefused(LinkRefusal.ZONE.value), logging.WARNING),
        (NotDelivered("two", "there are no credentials"), logging.WARNING),
        (gaierror("no such name"), logging.WARNING),
        (ValueError("no URI"), logging.WARNING),
    ],
)
async def test_what_an_operator_has_to_change_is_a_warning(
    error: Exception,
    level: int,
    cluster: Clusters,
    caplog: Caplog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = await cluster.start("one", ["two"], join=False)

    async def connect(*_: object) -> PeerConnection:
        raise error

    with caplog.at_level(logging.INFO), monkeypatch.context() as patched:
        patched.setattr(one.cluster, "_connect", connect)
        one.cluster.join(one.uri)
        await asyncio.sleep(SOON)
    text = f"test://two is not reached: {error}"
    assert [each.levelno for each in caplog.records if each.getMessage() == text] == [level]


async def test_seeds_and_allowed_peers_change_while_it_runs(cluster: Clusters) -> None:
    one = await cluster.start("one")
    two = await cluster.start("two")
    await one.serve("orders")
    options = two.cluster.options
    with pytest.raises(ValueError, match="only seeds and allowed peers"):
        two.cluster.adjust(ClusterOptions(name="other"))
    two.cluster.adjust(ClusterOptions(name=options.name, seeds=(one.uri,)))
    await asyncio.sleep(1)
    assert two.found("orders") == [one.id]


async def test_more_brokers_than_there_may_be(cluster: Clusters) -> None:
    one = await cluster.start("one", options=ClusterOptions(limits=ClusterLimits(max_peers=1)))
    two = await cluster.start("two", ["one"])
    three = await cluster.start("three", ["one"])
    await asyncio.sleep(10)
    assert len(cluster.network.links) == 1
    refused = one.cluster.statistics().refused["full"]
    assert refused > 1
    used = {use.name: use for use in one.cluster.limits()}
    assert (used["cluster.max_peers"].used, used["cluster.max_peers"].reached) == (1, refused)
    assert {two.peer(one).state if row else "" for row in two.cluster.peers()} == {"up"}
    assert "as many links as it may" in three.peer(one.uri).reason


async def test_the_events_of_links(cluster: Clusters) -> None:
    one = await cluster.start("one")
    with one.broker.events.subscribe() as events:
        two = await cluster.start("two", ["one"])
        await asyncio.sleep(SOON)
        cluster.network.cut(one.uri, two.uri)
        up, lost = [await anext(events) for _ in range(2)]
    assert (up.kind, up.peer) == ("peer-up", "two")
    assert (lost.kind, lost.peer, lost.reason) == ("peer-lost", "two", "the connection was reset")


async def test_a_table_that_is_full_counts_the_routes_that_are_not_loaded(
    cluster: Clusters,
) -> None:
    one = await cluster.start("one")
    two = await cluster.start(
        "two", ["one"], broker_options=BrokerOptions(management=False, max_peer_routes=3)
    )
    for _ in range(5):
        await one.serve("orders")
    await asyncio.sleep(SOON)
    assert len(two.found("orders")) == 3
    assert sum(two.peer(one).refused.values()) == 2


async def test_routes_that_were_refused_are_read_when_there_is_room(cluster: Clusters) -> None:
    one = await cluster.start("one")
    two = await cluster.start(
        "two", ["one"], broker_options=BrokerOptions(management=False, max_peer_routes=3)
    )
    registered = [await one.serve("orders") for _ in range(5)]
    await asyncio.sleep(600)
    assert len(two.found("orders")) == 3
    link = cluster.network.links[0]
    sent = len(link.sent)
    for each in registered[:2]:
        each.withdraw()
    await asyncio.sleep(15)
    assert two.found("orders") == [one.id] * 3
    assert two.peer(one).state == "up"
    for each in registered[2:]:
        each.withdraw()
    await asyncio.sleep(600)
    assert two.found("orders") == []
    # All were asked for once.
    nothing = Position().serialize()
    assert [data for _, data in link.sent[sent:] if len(data) == len(nothing)] == [nothing]


@pytest.mark.parametrize("anew", [1, 4])
async def test_routes_beyond_a_small_table_are_read_as_well(cluster: Clusters, anew: int) -> None:
    """More are refused than the table may ever have, and some of them are told again and again."""
    one = await cluster.start("one")
    two = await cluster.start(
        "two", ["one"], broker_options=BrokerOptions(management=False, max_peer_routes=3)
    )
    registered = [await one.serve("orders") for _ in range(3)]
    await asyncio.sleep(SOON)
    worker = await one.node.start(Worker)
    lasting = [UUID(int=number) for number in range(1, 5 if anew == 1 else 3)]
    for _ in range(anew):
        for route_id in lasting:
            one.broker.register(worker, service="others", route_id=route_id)
    await asyncio.sleep(600)
    assert two.found("others") == []
    for each in registered:
        each.withdraw()
    await asyncio.sleep(15)
    assert len(two.found("others")) == min(3, len(lasting))


async def test_routes_are_loaded_and_removed_in_slices(cluster: Clusters) -> None:
    options = ClusterOptions(load_slice=50, limits=ClusterLimits(peer_hold=5))
    one = await cluster.start("one")
    worker = await one.node.start(Worker)
    for _ in range(1000):
        one.broker.register(worker, service="orders")
    two = await cluster.start("two", ["one"], options=options)
    index, loaded, removed = two.broker.index, Slices(), Slices()
    loaded.watch(index, "add_remote", lambda _: 1)
    removed.watch(index, "drop_peer", int)
    await asyncio.sleep(SOON)
    assert two.peer(one).routes == 1000
    cluster.network.cut(one.uri, two.uri)
    await asyncio.sleep(10)
    assert two.peer(one).routes == 0
    for each in (loaded, removed):
        assert each.total == 1000
        assert each.largest <= 50


class Slices:
    """The most work between two passes of the loop."""

    def __init__(self) -> None:
        self.total = self.largest = self._now = 0

    def watch(self, of: object, name: str, count: Callable[[Any], int]) -> None:
        """Count the results of a method."""
        method = getattr(of, name)

        def counted(*arguments: object) -> object:
            result = method(*arguments)
            if not self._now:
                asyncio.get_running_loop().call_soon(self._reset)
            self._now += count(result)
            self.total += count(result)
            self.largest = max(self.largest, self._now)
            return result

        setattr(of, name, counted)

    def _reset(self) -> None:
        self._now = 0
