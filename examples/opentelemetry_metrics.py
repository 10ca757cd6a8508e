"""The metrics of a broker in OpenTelemetry: observable instruments that read Onward's figures.

The exporter asks for metrics on a thread of its own, and the figures belong to the broker's loop.
So the loop reads them into a snapshot, in slices, and the instruments read that. OpenTelemetry has
no observable histogram: the count and the sum of one are counters here.

It prints:

    onward_requests_ended {'interaction': 'request_response', 'outcome': 'answered'} 3
    onward_routes {'state': 'live'} 2
    onward_service_requests_ended {'service': 'greeter', 'outcome': 'answered'} 3
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from opentelemetry.metrics import CallbackOptions, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from onward.actors import Node
from onward.actors.broker import Broker, Handlers, Request
from onward.actors.monitoring import Monitor
from onward.protocol.metrics import Durations, MetricFamily
from onward.transports.client import connect

# --8<-- [start:snapshot]
SERVICES = frozenset({"onward_service_requests_ended_total", "onward_service_destinations"})
"""The families by service: there may be many services, so each family is named."""

Observe = Callable[[CallbackOptions], Iterable[Observation]]


class Snapshot:
    """The figures of a monitor as of the last reading."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._series: dict[str, list[Observation]] = {}

    async def read(self) -> None:
        """Read the figures, on the node's loop; requests are relayed in between."""
        series: dict[str, list[Observation]] = {}
        services = self._monitor.services.collect(SERVICES)
        for metric in chain(self._monitor.metrics.collect(), services):
            if metric is None:
                await asyncio.sleep(0)
                continue
            family = metric.family
            for values, value in metric.series:
                labels = dict(zip(family.labels, values, strict=True))
                for name, number in parts(family, value):
                    series.setdefault(name, []).append(Observation(number, labels))
        self._series = series  # in one step, as the exporter reads it on another thread

    def observe(self, name: str) -> Observe:
        """Return the callback of an instrument."""
        return lambda _: self._series.get(name, ())

    def create_instruments(self, meter: Meter) -> None:
        """Create an instrument for each figure."""
        families = self._monitor.metrics.families | self._monitor.services.families
        for family in families.values():
            counts = family.kind != "gauge"
            create = meter.create_observable_counter if counts else meter.create_observable_gauge
            for name, _ in parts(family, Durations((), 0.0)):
                create(name, callbacks=[self.observe(name)], description=family.help)


def parts(family: MetricFamily, value: float | Durations) -> Iterator[tuple[str, float]]:
    """Yield the names and numbers of a series; OpenTelemetry's names have no `_total`."""
    if family.kind == "histogram" and isinstance(value, Durations):
        yield f"{family.name}_count", sum(value.counts)
        yield f"{family.name}_sum", value.total
    else:
        yield family.name.removesuffix("_total"), 0 if isinstance(value, Durations) else value


# --8<-- [end:snapshot]


async def main() -> None:
    """Run a broker with a few requests, and print what an exporter would send."""
    reader = InMemoryMetricReader()  # a PeriodicExportingMetricReader with an exporter of yours
    meters = MeterProvider([reader])
    handlers = Handlers()

    @handlers.response
    async def greet(request: Request) -> bytes:
        return b"hello, " + request.data

    async with Node("edge") as node:
        broker = await Broker.attach(node)
        listener = await node.listen("rsocket+tcp://127.0.0.1:0", broker=broker)
        monitor = Monitor(node, broker)
        snapshot = Snapshot(monitor)
        snapshot.create_instruments(meters.get_meter("onward"))
        async with connect(listener.uri, service="greeter", handlers=handlers) as client:
            for _ in range(3):
                await client.request("service=greeter", b"ann")
            await snapshot.read()  # every 10 s, in a task of the program
        show(reader)
    meters.shutdown()


def show(reader: InMemoryMetricReader) -> None:
    """Print some of the figures."""
    wanted = ("onward_requests_ended", "onward_routes", "onward_service_requests_ended")
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    for name in wanted:
        for point in found[name]:
            labels = dict(point.attributes or {})
            own = labels.get("service") == "onward.management"
            if isinstance(point, NumberDataPoint) and point.value and not own:
                print(name, labels, point.value)


if __name__ == "__main__":
    asyncio.run(main())
