from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from onward.actors import MissingExtra, Node, ThreadWorker, Worker
from onward.actors.access import Access, to_next
from onward.actors.tracing import HopTracer, OpenTelemetryTracer, TraceOptions, trace as follow
from onward.protocol import Context, Message, WorkerFailed, address, read_tracing
from tests.support.virtual import virtual_time
from tests.support.workers import Echo, Forwarder, Recorder, spawn_worker

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f'{{"traceparent":"00-{TRACE}-b7ad6b7169203331-01","tracestate":"a=b"}}'


class Spans:
    """What has been traced."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OpenTelemetryTracer(self.provider)

    @property
    def finished(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.finished]


def span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def traced_from(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


@pytest.fixture
def spans() -> Spans:
    return Spans()


async def test_each_hop_is_a_span_below_the_one_before() -> None:
    spans = Spans()
    async with Node("here") as node:
        node.add_instrument(spans.tracer)
        node.spawn(Forwarder, address="relay")
        node.spawn(Echo, address="echo")
        context = Context(trace=PARENT)
        answer = await node.request("relay => echo", b"hi", context=context)
    assert spans.names == ["process 0#relay", "process 0#echo", "process 0#relay"]
    first, second, third = spans.finished
    assert traced_from(first) == 0xB7AD6B7169203331
    assert (traced_from(second), traced_from(third)) == (span_id(first), span_id(second))
    assert first.kind is trace.SpanKind.CONSUMER
    assert first.attributes is not None
    attributes = dict(first.attributes)
    assert attributes.pop("onward.route.return", "") != ""
    assert attributes == {
        "messaging.system": "onward",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "0#relay",
        "messaging.destination.anonymous": False,
        "messaging.message.body.size": 2,
        "onward.node": "here",
        "onward.worker": "Forwarder",
        "onward.route.onward": "0#relay => 0#echo",
    }
    assert answer.context is not None
    assert read_tracing(answer.context.trace or "") == {
        "traceparent": f"00-{TRACE}-{span_id(third):016x}-01",
        "tracestate": "a=b",
    }


class Asks(Worker):
    """Asks the echo after a while."""

    async def handle_message(self, message: Message) -> None:
        await asyncio.sleep(1)
        answer = await self.request("echo", b"")
        self.reply(message, answer.payload)


async def test_a_handler_that_awaits_is_within_its_span() -> None:
    spans = Spans()
    async with Node() as node:
        node.add_instrument(spans.tracer)
        node.spawn(Asks, address="asks")
        node.spawn(Echo, address="echo")
        await node.request("asks", b"", context=Context(trace=PARENT))
        await node.request("asks", b"")  # part of no trace
    echo, asks = spans.finished
    assert traced_from(echo) == span_id(asks)
    assert asks.end_time is not None
    assert asks.start_time is not None
    assert trace.get_current_span() is trace.INVALID_SPAN


class Begins(Worker):
    """Sends in each way there is, and lets others send later."""

    async def handle_message(self, message: Message) -> None:
        self.send("end", b"send")
        await self.send_wait("end", b"send_wait")
        self.send("end", b"other", context=Context(trace="other"))
        self.route(Message((address("end"),), (), b"route"))
        later = [
            self.request("end", b"request", timeout=1, context=Context(meta="kept")),
            self.request("end", b"other", timeout=1, context=Context(trace="other")),
        ]
        message = Message((address("begins"), address("end")), (), b"forward")
        self.forward(message)
        self.step(Message(message.onward_route, (), b"step"))
        self.after(2, lambda: self.send("end", b"timer"))
        await asyncio.gather(*later, return_exceptions=True)


@pytest.mark.parametrize("access", [None, Access(outgoing=to_next("end"))])
async def test_what_a_worker_sends_within_its_span_is_part_of_the_trace(
    access: Access | None, node: Node
) -> None:
    spans = Spans()

    def has_parent(message: Message) -> bool:
        return message.context is not None and TRACE in (message.context.trace or "")

    node.add_instrument(spans.tracer)
    end = spawn_worker(node, Recorder(), "end")
    node.spawn(Begins, address="begins", access=access)
    node.send("begins", b"", context=Context(trace=PARENT))
    await asyncio.sleep(60)
    *_, begins = spans.finished
    *others, unrelated = [m.payload for m in end.messages if not has_parent(m)]
    assert (others, unrelated) == ([b"other"] * 2, b"timer")
    ours = [span for span in spans.finished if span.name == "process 0#end"]
    assert {traced_from(span) for span in ours} == {span_id(begins)}
    assert len(ours) == 6
    (asked,) = (m for m in end.messages if m.payload == b"request")
    assert asked.context is not None
    assert asked.context.meta == "kept"


async def test_several_tracers(node: Node) -> None:
    spans = Spans()
    hops = HopTracer(node)
    node.add_instrument(spans.tracer)
    node.add_instrument(hops)
    node.spawn(Asks, address="asks")
    node.spawn(Echo, address="echo")
    traced = await follow(node, "asks", b"")
    assert [hop.report.kind for hop in traced.hops] == ["Asks"]
    assert {clock.error for clock in traced.clocks} == {0.0}
    assert spans.finished == ()
    await node.request("asks", b"", context=Context(trace=PARENT))
    assert spans.names == ["process 0#echo", "process 0#asks"]
    node.remove_instrument(hops)
    traced = await follow(node, "echo", b"", options=TraceOptions(settle=0))
    assert traced.hops == ()


@pytest.mark.real_time
async def test_a_thread_s_handler_has_a_span() -> None:
    class Blocks(ThreadWorker):
        def handle_message(self, message: Message) -> None:
            self.reply(message, b"done")

    spans = Spans()
    async with Node() as node:
        node.add_instrument(spans.tracer)
        node.spawn(Blocks)
        address = node.statistics().workers[0].address
        answer = await node.request(address, b"", context=Context(trace=PARENT))
        assert answer.payload == b"done"
    # Nobody chose the address, so it is no name.
    assert spans.names == ["process Blocks"]
    assert (spans.finished[0].attributes or {})["messaging.destination.anonymous"] is True


@pytest.mark.parametrize("awaits", [False, True])
def test_a_failure_is_recorded(awaits: bool) -> None:
    spans = Spans()

    class Fails(Worker):
        def handle_message(self, message: Message) -> Awaitable[None] | None:
            if awaits:
                return self._fail()
            raise ValueError("on purpose")

        async def _fail(self) -> None:
            raise ValueError("on purpose")

    @virtual_time
    async def fail() -> None:
        async with Node() as node:
            node.add_instrument(spans.tracer)
            node.spawn(Fails, address="fails")
            with pytest.raises(WorkerFailed):
                await node.request("fails", b"", context=Context(trace=PARENT))

    fail()
    (span,) = spans.finished
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "ValueError: on purpose"
    assert span.events[0].name == "exception"


@pytest.mark.parametrize(
    "text", [None, "", "{}", "no json", '{"tracestate":"a=b"}', '{"traceparent":"00-0-0-00"}']
)
def test_what_names_no_span_has_none(text: str | None) -> None:
    spans = Spans()

    @virtual_time
    async def ask() -> None:
        async with Node() as node:
            node.add_instrument(spans.tracer)
            recorder = spawn_worker(node, Recorder(), "recorder")
            node.send("recorder", b"", context=Context(trace=text))
            await asyncio.sleep(1)
            (message,) = recorder.messages
            assert message.context is not None
            assert message.context.trace == text

    ask()
    assert spans.finished == ()


async def test_without_an_sdk_messages_stay_as_they_are(node: Node) -> None:
    node.add_instrument(OpenTelemetryTracer(trace.NoOpTracerProvider()))
    recorder = spawn_worker(node, Recorder(), "recorder")
    node.send("recorder", b"", context=Context(trace=PARENT))
    await asyncio.sleep(1)
    assert recorder.messages[0].context == Context(trace=PARENT)


def test_the_current_span_goes_into_a_context(spans: Spans) -> None:
    assert spans.tracer.context() is None
    base = Context(deadline=1.0, trace='{"other":"x"}')
    assert spans.tracer.context(base) is base
    with spans.provider.get_tracer("app").start_as_current_span("ask") as span:
        at = span.get_span_context()
        made = spans.tracer.context(base)
        assert made is not None
        assert made.deadline == 1.0
        parent = f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}"
        assert read_tracing(made.trace or "") == {"other": "x", "traceparent": parent}
        made = spans.tracer.context(Context(trace="broken"))
        assert made is not None
        assert read_tracing(made.trace or "") == {"traceparent": parent}
        long = Context(trace='{"other":"' + "x" * 4070 + '"}')
        assert spans.tracer.context(long) is long


def test_the_extra_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"OpenTelemetryTracer needs the extra.*otel"):
        OpenTelemetryTracer()


def test_nothing_of_it_is_imported_without_a_tracer() -> None:
    program = (
        "import sys; import onward.actors.tracing, onward.cli;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
