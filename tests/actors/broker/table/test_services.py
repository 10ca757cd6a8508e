"""The figures of services: those of their destinations together, and a limited number of names."""

from __future__ import annotations

from uuid import UUID

import pytest

from onward.actors import Node, Worker
from onward.actors.broker import Broker, BrokerOptions, BrokerRoute, Destination, WaitingOptions
from onward.actors.broker._tally import SAMPLED, SLOW
from onward.actors.broker.table._services import (
    MAX_UNUSED,
    SERVICE_COLUMNS,
    Services,
    ServiceStatistics,
    service_row,
    together,
)
from onward.protocol import DeliveryError, address
from onward.protocol.broker import TagSet
from onward.protocol.eventlog import Outcome

AT_ONCE = BrokerOptions(management=False, waiting=WaitingOptions(no_route_timeout=0))


def route(services: Services, name: str) -> BrokerRoute:
    destination = Destination(UUID(int=1), name, (), address("to"), link=True, peer="p")
    made = BrokerRoute(destination, 0.0, service=services.of(name))
    services.joined(made.service)
    return made


def seen(broker: Broker) -> dict[str, ServiceStatistics]:
    index = broker.index
    found = filter(None, index.services.statistics(index.table))
    return {each.service: each for each in found}


@pytest.fixture
async def broker(node: Node) -> Broker:
    return await Broker.attach(node, AT_ONCE)


async def test_the_figures_of_destinations_are_added_up(node: Node, broker: Broker) -> None:
    worker = await node.start(Worker, address="w")
    first = broker.register(worker, service="orders")
    broker.register(worker, service="orders")
    broker.register(worker, service="stock")
    entries = [entry.target for entry in broker.index.table]
    for number, each in enumerate(entries):
        each.requests, each.outstanding = 10 + number, number + 1
        each.ended(0.25)
    entries[1].service.count(int(Outcome.FAILED))
    found = seen(broker)["orders"]
    assert (found.destinations, found.requests, found.in_progress) == (2, 21, 1)
    assert (found.latency, found.busy) == (0.25, 0)
    assert found.success == pytest.approx(2 / 3)
    first.withdraw()
    found = seen(broker)["orders"]
    assert (found.destinations, found.requests, found.in_progress) == (1, 21, 1)
    assert found.ended is not None
    assert found.ended[Outcome.DELIVER] == 2


async def test_requests_without_a_destination_count_for_the_service_they_name(
    node: Node, broker: Broker
) -> None:
    worker = await node.start(Worker, address="w")
    broker.register(worker, service="orders").withdraw()
    for query in ("service=orders", "service=orders region=eu", "service=unknown", "region=eu"):
        with pytest.raises(DeliveryError):
            await node.request(f"32#{query}", b"")
    assert seen(broker)["orders"].ended == {
        **dict.fromkeys(seen(broker)["orders"].ended or (), 0),
        Outcome.UNROUTABLE: 2,
    }
    assert seen(broker)["orders"].success == 0.0
    assert set(seen(broker)) == {"orders"}


def test_short_answers_are_sampled_and_long_ones_all_measured() -> None:
    services = Services(10)
    measured = route(services, "orders")
    for _ in range(2 * SAMPLED):
        measured.ended(0.001)
    measured.ended(2 * SLOW)
    measured.ended(0.0)  # answered at once, or the clock is coarse
    counts = measured.service.durations.read().counts
    assert sum(counts) == 2 * SAMPLED + 1
    assert measured.service.answered == 2 * SAMPLED + 2
    (found,) = filter(None, services.statistics(()))
    row = service_row(found)
    assert tuple(row) == SERVICE_COLUMNS
    assert 0.0005 < row["p50"] < 0.001024
    assert row["p99"] <= 0.032768
    assert row["success"] == 1.0


def test_beyond_the_limit_the_one_without_destinations_for_longest_makes_room() -> None:
    services = Services(2)
    first, second = route(services, "a"), route(services, "b")
    assert services.of("c") is services.other
    first.requests = 5
    first.service.count(int(Outcome.DROP))
    second.service.answered = 7
    services.left(first)
    services.left(second)
    assert services.of("b") is second.service
    assert services.of("c") is not services.other
    assert services.other.ended()[Outcome.DROP] == 1
    assert services.other.left == 5
    services.refused(frozenset({(1, "a")}), int(Outcome.UNROUTABLE))
    assert services.other.ended()[Outcome.UNROUTABLE] == 0
    names = [each.service for each in services.statistics(()) if each is not None]
    assert names == ["b", "c", "other"]
    assert services.of("d") is not services.other
    assert services.other.answered == 7


def test_services_without_a_request_are_forgotten_after_a_few_others() -> None:
    services = Services(10_000)
    asked, counted, back = (route(services, name) for name in ("asked", "counted", "back"))
    asked.requests = 1
    for each in (asked, counted, back):
        services.left(each)
    services.refused(frozenset({(1, "counted")}), int(Outcome.UNROUTABLE))
    again = route(services, "back")
    assert again.service is back.service
    for number in range(3 * MAX_UNUSED):
        services.left(route(services, f"once-{number}"))
    remote = services.of("elsewhere")
    services.joined_elsewhere(remote)
    services.left_elsewhere(remote, 0)
    assert len(services) == MAX_UNUSED + 3
    names = {each.service for each in services.statistics(()) if each is not None}
    assert {"asked", "counted", "back", "elsewhere"} < names
    assert not services.other.used
    # Forgotten, it comes as a new one.
    assert services.of("once-0").destinations == 0


def test_a_service_in_place_of_one_without_a_request() -> None:
    services = Services(2)
    services.left(route(services, "a"))
    services.left(route(services, "b"))
    route(services, "c")
    for number in range(2 * MAX_UNUSED):
        services.left(route(services, f"once-{number}"))
    assert len(services) == 2


def test_a_service_may_be_called_other() -> None:
    services = Services(2)
    assert route(services, "other").service is services.other
    assert services.of("a").name == "a"


def test_a_destination_that_leaves_after_its_service_has_made_room() -> None:
    services = Services(1)
    first = route(services, "a")
    services.left(first)
    second = route(services, "b")
    services.joined(first.service)
    services.left(first)  # its counts belong to no service any more
    assert services.of("c") is services.other
    services.left(second)
    assert services.of("c").name == "c"


async def test_a_part_of_the_destinations_has_no_outcomes(node: Node, broker: Broker) -> None:
    worker = await node.start(Worker, address="w")
    broker.register(worker, service="orders", tags={"tenant": "a"})
    broker.register(worker, service="orders", tags={"tenant": "b"})
    broker.register(worker, service="mail", tags={"tenant": "b"})
    for entry in broker.index.table:
        entry.target.requests, entry.target.outstanding = 3, 1
        entry.target.ended(1.0)

    def view(tags: TagSet) -> bool:
        return any(value == "a" for _, value in tags)

    index = broker.index
    (found,) = filter(None, index.services.statistics(index.table, view))
    assert found == ServiceStatistics("orders", 1, 0, 0, 3, 1.0, None, None)
    row = service_row(found)
    assert tuple(row) == SERVICE_COLUMNS
    assert found.success is None
    unknown = ("success", "p50", "p99", "answered", "error", "durations")
    assert [row[name] for name in unknown] == [None] * len(unknown)


async def test_the_loop_does_other_things_meanwhile(
    node: Node, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await node.start(Worker, address="w")
    for number in range(6):
        broker.register(worker, service=f"s{number}")
    monkeypatch.setattr("onward.actors.broker.table._services.SLICE", 2)
    monkeypatch.setattr("onward.actors.broker.table._services.MAX_AT_ONCE", 3)
    found = list(broker.index.services.statistics(broker.index.table))
    assert [found.index(None), found.count(None)] == [0, 5]
    assert len(found) == 11


def test_services_together() -> None:
    services = Services(10)
    for name in ("a", "b"):
        each = route(services, name)
        each.ended(1.0)
        each.service.count(int(Outcome.REJECTED))
    found = together([each for each in services.statistics(()) if each is not None])
    assert (found.service, found.success) == ("other", 0.5)
    assert found.durations is not None
    assert (sum(found.durations.counts), found.durations.total) == (2, 2.0)
