"""The monitor of a node: its checks, and its metrics as Prometheus reads them."""

from __future__ import annotations

import asyncio
import time
from asyncio import sleep
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onward.actors import Node, ReloadFailed, Reloads, Worker
from onward.actors.broker import Broker, BrokerOptions, LimitUse, ReportedListener
from onward.actors.dispatch import Dispatcher, DispatchOptions, Received
from onward.actors.instruments._instrument import Instrument
from onward.actors.monitoring import CheckResult, Monitor, Stage
from onward.protocol import Message, address
from onward.protocol.dispatch import DeliveryLimits
from onward.protocol.metrics import Metric, MetricFamily, metrics_text
from onward.protocol.rsocket import FrameType
from tests.support.compiled import interpreted
from tests.support.workers import Echo

URI = "rsocket+tcp://127.0.0.1:1"
RESPONSE, STREAM = int(FrameType.REQUEST_RESPONSE), int(FrameType.REQUEST_STREAM)


class Listening(ReportedListener):
    """A listener of the broker."""

    open = True

    @property
    def accepting(self) -> bool:
        return self.open

    def connections(self) -> Iterator[Mapping[str, Any]]:
        yield {"id": 1}

    def closed_connections(self) -> Iterator[Mapping[str, Any]]:
        yield {"id": 0, "reason": "silent"}

    def requests(self) -> Iterator[tuple[int, float]]:
        yield from ((RESPONSE, 0.5), (RESPONSE, 2.0), (RESPONSE, 61.0), (STREAM, 10.5))

    def limits(self) -> Iterator[LimitUse]:
        yield LimitUse("max_connections", 1, 10, 2)
        yield LimitUse("max_unfinished", 5, 100, 0)

    def close_connection(self, number: int, text: str) -> bool:
        return number == 1


FIGURES = {
    "connections": 1,
    "accepted": 3,
    "turned_away": 2,
    "refused_handshakes": {"TLS: a text of the peer": 4, "path": 1},
    "closed": {"too slow": 1, "by the peer": 1},
    "dropped": {"unknown_stream": 2},
    "authentication": {
        "accepted": {"token": 4},
        "refused": {"unknown": 2},
        "requests_checked": 5,
        "requests_remembered": 40,
        "requests_refused": {"expired": 3},
    },
    "tls": {"handshakes": {"completed": 5, "TLS: no shared cipher": 1}, "not_after": 1.5e9},
}


@pytest.fixture
async def broker(node: Node) -> Broker:
    return await Broker.attach(node, BrokerOptions(management=False))


def read(monitor: Monitor, *, services: bool = False) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the value of each series by its labels."""
    metrics = monitor.services if services else monitor.metrics
    found = filter(None, metrics.collect())
    read: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families("".join(metrics_text(found))):
        for sample in family.samples:
            values = tuple(sample.labels.values())
            read.setdefault(sample.name, {})[values] = sample.value
    return read


def broken() -> Mapping[str, Any]:
    raise RuntimeError


async def test_the_metrics_of_a_node(node: Node) -> None:
    monitor = Monitor(node)
    await node.start(Worker, address="w")
    node.dead_letter(Message((address("nowhere"),), (), b""), "unknown address")
    found = read(monitor)
    assert found["onward_workers"] == {("Worker",): 1}
    assert found["onward_dead_letters_total"] == {("unknown address",): 1}
    assert found["onward_messages_total"] == {("Worker",): 0}
    assert found["onward_limit_used"]["node.addresses", ""] == 1
    assert found["onward_limit"]["node.requests", ""] == node.limits.requests
    assert set(found["onward_build_info"].values()) == {1}
    assert found["onward_loop_lag_seconds_count"] == {(): 0}
    assert found["process_open_fds"][()] > 3
    assert found["process_resident_memory_bytes"][()] > 1_000_000
    assert 0 < found["process_start_time_seconds"][()] <= found["onward_start_time_seconds"][()] + 2
    assert not any(name.startswith("onward_routes") for name in found)


async def test_the_metrics_of_a_broker_and_its_listeners(node: Node, broker: Broker) -> None:
    monitor = Monitor(node, broker)
    broker.report(URI, lambda: FIGURES, Listening())
    broker.report("a part that fails", broken)
    broker.register(await node.start(Worker, address="w"), service="orders")
    found = read(monitor)
    assert found["onward_routes"] == {("live",): 1, ("expected",): 0}
    assert found["onward_connections"] == {(URI,): 1}
    assert found["onward_connections_opened_total"] == {(URI,): 3}
    assert found["onward_connections_refused_total"] == {(URI, "limit"): 2, (URI, "handshake"): 5}
    assert found["onward_connections_closed_total"] == {
        (URI, "too slow"): 1,
        (URI, "by the peer"): 1,
    }
    assert found["onward_slow_peers_closed_total"] == {(URI,): 1}
    assert found["onward_frames_dropped_total"] == {(URI, "unknown_stream"): 2}
    auth = found["onward_auth_total"]
    assert auth == {(URI, "token", "accepted"): 4, (URI, "", "unknown"): 2}
    assert found["onward_request_credentials_total"] == {
        (URI, "checked"): 5,
        (URI, "remembered"): 40,
        (URI, "expired"): 3,
    }
    assert found["onward_tls_handshakes_total"] == {(URI, "completed"): 5, (URI, "failed"): 1}
    assert found["onward_tls_certificate_not_after_timestamp_seconds"] == {(URI,): 1.5e9}
    assert found["onward_limit"][("max_connections", URI)] == 10
    assert found["onward_limit_used"][("max_routes", "")] == 1
    reached = {name: count for name, count in found["onward_limit_reached_total"].items() if count}
    assert reached == {("max_connections", URI): 2}


async def test_requests_that_have_not_ended_are_counted_by_their_age(
    node: Node, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = Monitor(node, broker)
    broker.report(URI, lambda: FIGURES, Listening())
    running = {
        ("request_response",): 3,
        ("request_stream",): 1,
        ("fire_and_forget",): 0,
        ("request_channel",): 0,
    }
    for size in (1, 4, 1000):
        monkeypatch.setattr("onward.actors.monitoring._broker_metrics.SLICE", size)
        found = read(monitor)
        assert found["onward_requests_in_progress"] == running
        slow = {labels: count for labels, count in found["onward_requests_slow"].items() if count}
        assert slow == {
            ("request_response", "1s"): 2,
            ("request_response", "10s"): 1,
            ("request_response", "60s"): 1,
            ("request_stream", "1s"): 1,
            ("request_stream", "10s"): 1,
        }
        assert len(found["onward_requests_slow"]) == 12
    monkeypatch.setattr("onward.actors.monitoring._broker_metrics.SLICE", 1)
    names = frozenset({"onward_requests_slow"})
    assert list(monitor.metrics.collect(names)).count(None) >= 4


async def test_times_of_messages_are_measured_while_the_monitor_runs(node: Node) -> None:
    monitor, other = Monitor(node), Monitor(node)
    assert node.parts.run_queue.times is None
    monitor.start()
    await node.start(Echo, address="echo")
    for _ in range(64):
        await node.request("echo", b"")
    found = read(monitor)
    assert found["onward_message_handling_seconds_count"]["Echo",] > 0
    assert set(found["onward_message_wait_seconds_count"]) <= {("Echo",)}
    await other.stop()
    assert node.parts.run_queue.times is monitor.times
    await monitor.stop()
    assert node.parts.run_queue.times is None


async def test_the_health_is_a_metric(node: Node) -> None:
    monitor = Monitor(node)
    assert read(monitor)["onward_healthy"] == {("live",): 1, ("started",): 0, ("ready",): 0}
    monitor.started = True
    assert read(monitor)["onward_healthy"]["ready",] == 1


async def test_a_dispatcher_has_metrics(node: Node) -> None:
    monitor = Monitor(node)
    assert "onward_dispatch_names" not in read(monitor)
    dispatcher = await Dispatcher.attach(node)
    await dispatcher.consume("orders", lambda _: None)
    assert (await node.request("34#orders", b"")).payload == b""
    await (await dispatcher.produce_any()).send("mail", b"")
    node.send("34#mail", b"")
    await sleep(1)
    found = read(monitor)
    assert found["onward_dispatch_names"][()] == 1
    assert found["onward_dispatch_left_on_disk"][()] == 0
    for figure in ("oldest_seconds", "stuck", "blocked_consumers", "blocked_producers"):
        assert found[f"onward_dispatch_{figure}"][()] == 0
    assert found["onward_dispatch_outcomes_total"] == {("accepted",): 1, ("released",): 1}
    assert sum(found["onward_dispatch_dropped_total"].values()) >= 1
    assert "onward_dispatch_container_open" not in found


async def test_what_waits_for_long_at_a_dispatcher_is_in_the_metrics(node: Node) -> None:
    limits = DeliveryLimits(stuck_time=10.0)
    options = DispatchOptions(deliveries=limits, anonymous_window=1)
    dispatcher, forever = await Dispatcher.attach(node, options), asyncio.Event()

    async def take(_: Received) -> None:
        await forever.wait()

    await dispatcher.consume("orders", take)
    producer = await dispatcher.produce_any()
    sent = asyncio.ensure_future(producer.send("orders", b""))
    await dispatcher.produce("mail")
    await sleep(11)
    found = read(Monitor(node))
    assert found["onward_dispatch_oldest_seconds"][()] == 11
    assert found["onward_dispatch_stuck"][()] == 1
    assert found["onward_dispatch_blocked_consumers"][()] == 0
    assert found["onward_dispatch_blocked_producers"][()] == 2
    forever.set()
    await sent


async def test_containers_of_a_dispatcher_have_metrics(node: Node) -> None:
    await Dispatcher.attach(node)
    row = {"name": "shop", "open": True, "attached": 2, "circuits": 3, "connected": 4}
    row |= {"refused": 5, "attempts": 0}
    away = dict.fromkeys(row, 1) | {"name": "store", "open": False, "attempts": 7}
    node.parts.reports["containers"] = lambda: [away, row, row]
    found = read(Monitor(node))
    # Of several with one name there are the sums.
    assert found["onward_dispatch_container_open"] == {("shop",): 2, ("store",): 0}
    assert found["onward_dispatch_container_links"] == {("shop",): 4, ("store",): 1}
    assert found["onward_dispatch_container_circuits"] == {("shop",): 6, ("store",): 1}
    assert found["onward_dispatch_container_attempts"] == {("shop",): 0, ("store",): 7}
    assert found["onward_dispatch_container_connections_total"] == {("shop",): 8, ("store",): 1}
    assert found["onward_dispatch_container_refused_total"] == {("shop",): 10, ("store",): 1}


@interpreted
async def test_the_counts_of_stopped_workers_stay_with_their_class(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.actors._workers.MAX_KINDS", 2)
    monkeypatch.setattr("onward.actors.monitoring._node_metrics.MAX_KINDS", 2)
    monitor = Monitor(node)
    kinds = [type(f"Kind{number}", (Echo,), {}) for number in range(4)]
    for kind in kinds:
        await node.start(kind, address="echo")
        await node.request("echo", b"")
        await node.stop_worker("echo")
    counted = read(monitor)["onward_messages_total"]
    assert sum(counted.values()) == 4
    assert {"Kind0", "Kind1", "other"} == {kind for (kind,) in counted}
    await node.start(kinds[0], address="echo")
    await node.request("echo", b"")
    assert read(monitor)["onward_messages_total"]["Kind0",] == 2


async def test_no_metric_has_a_label_of_a_service_unless_it_is_asked_for(
    node: Node, broker: Broker
) -> None:
    monitor = Monitor(node, broker)
    worker = await node.start(Worker, address="w")
    for number in range(205):
        broker.register(worker, service=f"service-{number:03}")
    assert not any("service" in name for name in read(monitor))
    busiest, *_ = broker.index.table
    busiest.target.requests, busiest.target.outstanding = 9, 1
    busiest.target.ended(0.5)
    found = read(monitor, services=True)
    assert found["onward_service_requests_total"]["service-000",] == 9
    assert found["onward_service_requests_ended_total"]["service-000", "answered"] == 1
    assert found["onward_service_request_duration_seconds_count"]["service-000",] == 1
    assert found["onward_service_requests_in_progress"]["service-000",] == 0
    destinations = found["onward_service_destinations"]
    assert len(destinations) == 201
    assert destinations["other",] == 5
    assert sum(destinations.values()) == 205


async def test_each_family_is_announced_and_belongs_to_one_collector(
    node: Node, broker: Broker
) -> None:
    monitor = Monitor(node, broker)
    broker.report(URI, lambda: FIGURES, Listening())
    written = {metric.family for metric in monitor.metrics.collect() if metric is not None}
    # An event log, a dispatcher and a router of identities are not attached here.
    missing = set(monitor.metrics.families.values()) - written
    assert {family.name.split("_")[1] for family in missing} == {"event", "dispatch", "identity"}
    assert written <= set(monitor.metrics.families.values())
    with pytest.raises(ValueError, match="onward_routes already"):
        monitor.metrics.add((MetricFamily("onward_routes", "gauge", "Again."),), lambda: iter(()))


async def test_the_metrics_of_an_event_log(node: Node) -> None:
    class Log(Instrument):
        def figures(self) -> Mapping[str, object]:
            recorder = {"hops": 1, "flows": 2, "events": 3, "dropped": {"rate": 4}}
            return {
                "event_log": {
                    "recorder": recorder,
                    "writer": {"lost": 5, "pending": 6, "errors": 7},
                }
            }

    node.add_instrument(Log())
    found = read(Monitor(node))
    assert found["onward_event_log_records_total"] == {("hops",): 1, ("flows",): 2, ("events",): 3}
    assert found["onward_event_log_dropped_total"] == {("rate",): 4, ("not written",): 5}
    assert found["onward_event_log_pending_bytes"] == {(): 6}


async def test_kinds_of_workers_are_bounded(node: Node) -> None:
    for number in range(103):
        await node.start(type(f"Kind{number}", (Worker,), {}))
    found = read(Monitor(node))["onward_workers"]
    assert len(found) == 101
    assert found["other",] == 3


async def test_reloads_are_counted(node: Node) -> None:
    async def prepare() -> Any:
        raise ValueError("the file is cut short")

    reloads = Reloads()
    monitor = Monitor(node, reloads=reloads)
    before = read(monitor)["onward_config_last_reload_success_timestamp_seconds"][()]
    assert 0 <= time.time() - before < 60
    await reloads.reload()
    assert read(monitor)["onward_config_last_reload_successful"] == {(): 1}
    applied = read(monitor)["onward_config_last_reload_success_timestamp_seconds"][()]
    assert applied > before
    reloads.add("users", prepare)
    with pytest.raises(ReloadFailed, match="users: the file is cut short"):
        await reloads.reload()
    found = read(monitor)
    assert found["onward_config_last_reload_successful"] == {(): 0}
    assert found["onward_config_last_reload_success_timestamp_seconds"][()] == applied
    assert found["onward_config_reloads_total"] == {("applied",): 1, ("refused",): 1}


async def test_families_are_chosen_by_name(node: Node, broker: Broker) -> None:
    monitor = Monitor(node, broker)
    names = frozenset({"onward_routes", "onward_workers"})
    found = [each.family.name for each in monitor.metrics.collect(names) if each is not None]
    assert sorted(found) == ["onward_routes", "onward_workers"]


async def test_a_collector_that_fails_leaves_the_others(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    family = MetricFamily("onward_own", "gauge", "A figure.")

    def failing() -> Iterator[Metric]:
        yield Metric(family, (((), 1),))
        raise RuntimeError

    monitor = Monitor(node)
    monitor.metrics.add((family,), failing)
    found = read(monitor)
    assert found["onward_own"] == {(): 1}
    assert "onward_node_requests" in found
    assert "metrics cannot be read" in caplog.text


async def test_the_stages_of_a_start(node: Node, broker: Broker) -> None:
    monitor = Monitor(node, broker)
    monitor.start()
    starting = CheckResult("started", "the start is not over")
    assert monitor.checks.run(Stage.STARTED) == (starting,)
    ready = (starting, CheckResult("listeners", "no listener is open"), CheckResult("draining", ""))
    assert monitor.checks.run(Stage.READY) == ready
    assert monitor.checks.run(Stage.LIVE) == (CheckResult("loop", ""),)
    listening = Listening()
    broker.report(URI, lambda: FIGURES, listening)
    monitor.started = True
    assert all(each.passed for each in monitor.checks.run(Stage.READY))
    listening.open = False
    assert monitor.checks.run(Stage.READY)[1].problem == "1 of 1 listener closed"
    await monitor.stop()


async def test_a_loop_that_was_held_is_not_live(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = Monitor(node)
    monkeypatch.setattr(type(monitor.lag), "now", 7.25)
    (result,) = monitor.checks.run(Stage.LIVE)
    assert result.problem == "the event loop was held for 7.2 s"


async def test_a_plug_in_adds_checks(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        def load(self) -> Any:
            def add(monitor: Monitor) -> None:
                monitor.checks.add(Stage.READY, "own", lambda: "wrong")

            return add

    def entries(*, group: str) -> list[Entry]:
        assert group == "onward.health_checks"
        return [Entry()]

    monkeypatch.setattr("onward.actors.monitoring._monitor.entry_points", entries)
    assert CheckResult("own", "wrong") in Monitor(node).checks.run(Stage.READY)
