"""OpenTelemetry spans for hops, from the tracing texts of messages.

OpenTelemetry is imported only when a tracer is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from ...protocol import Context, Message, format_route, read_tracing, write_tracing
from .._values import MissingExtra
from ..instruments._instrument import Instrument, TracedMessage, Watch
from ._sends import Sends

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.context import Context as SpanContext
    from opentelemetry.trace import Span, TracerProvider

    from .._worker import Worker

__all__ = ["OpenTelemetryTracer"]

_RANDOM: Final = 32
"""Length of a random worker address, which is not used as the name of a span."""


class OpenTelemetryTracer(Instrument):
    """An instrument that makes a span of each hop of a message with W3C's `traceparent`.

    The span is a child of the one in the message, and replaces it in the message that the worker
    gets. So forwarded messages and replies are part of the same trace, over any link and through
    nodes without a tracer, Rust nodes included. While the worker's own code runs, the span is the
    current one, and messages and requests that the worker sends by its own methods are part of the
    trace. Code on the thread of a `ThreadWorker` has no current span.

    ```python
    tracer = OpenTelemetryTracer()
    node.add_instrument(tracer)
    with opentelemetry.trace.get_tracer("app").start_as_current_span("ask"):
        await node.request("relay => echo", b"hi", context=tracer.context())
    ```

    Names and attributes follow the semantic conventions for messaging: a span is a
    `process` of kind CONSUMER, its destination the worker's address. A handler that raises sets
    the status ERROR and is recorded.

    Args:
        provider: The provider of spans; by default the global one.

    Raises:
        MissingExtra: The extra `otel` is not installed.
    """

    __slots__ = ("_attach", "_detach", "_error", "_kind", "_propagator", "_spans", "_trace")

    def __init__(self, provider: TracerProvider | None = None) -> None:
        try:
            from opentelemetry import context, trace
            from opentelemetry.trace.propagation import tracecontext
        except ImportError as error:
            raise MissingExtra("OpenTelemetryTracer", "otel") from error
        self._trace: Any = trace
        self._attach: Any = context.attach
        self._detach: Any = context.detach
        self._spans = trace.get_tracer("onward", tracer_provider=provider)
        self._propagator = tracecontext.TraceContextTextMapPropagator()
        self._kind = trace.SpanKind.CONSUMER
        self._error = trace.StatusCode.ERROR

    def context(self, base: Context | None = None) -> Context | None:
        """Return the context of a message that is part of the current span.

        Args:
            base: The context to add the span to.

        Returns:
            `base` itself if there is no current span or the tracing text would be too long.
        """
        fields = (read_tracing(base.trace) if base is not None and base.trace else None) or {}
        written = self._written(fields, None)
        text = None if written is None else write_tracing(written)
        return base if text is None else (base or Context())._replace(trace=text)

    def message_traced(self, worker: Worker, traced: TracedMessage) -> Watch | None:
        """Make a span of the hop, if the message has a `traceparent`."""
        fields = traced.fields
        if not fields or "traceparent" not in fields:
            return None
        parent = self._propagator.extract(fields, context=self._empty())
        if not self._trace.get_current_span(parent).get_span_context().is_valid:
            return None
        span = self._start(worker, traced.message, parent)
        within: SpanContext = self._trace.set_span_in_context(span, parent)
        written = self._written(fields, within)
        if written is not None:
            traced.replace(written)
        return _SpannedHop(self, span, within, Sends(worker, self.context))

    def _start(self, worker: Worker, message: Message, parent: SpanContext) -> Span:
        chosen = len(worker.address.value) != _RANDOM
        kind = type(worker).__name__
        attributes: dict[str, str | int | bool] = {
            "messaging.system": "onward",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": str(message.to),
            "messaging.destination.anonymous": not chosen,
            "messaging.message.body.size": len(message.payload),
            "onward.node": worker.node.name,
            "onward.worker": kind,
            "onward.route.onward": format_route(message.onward_route),
            "onward.route.return": format_route(message.return_route),
        }
        name = f"process {worker.address if chosen else kind}"
        return self._spans.start_span(name, parent, kind=self._kind, attributes=attributes)

    def _written(
        self, fields: Mapping[str, str], within: SpanContext | None
    ) -> dict[str, str] | None:
        """Return the fields of a tracing text with a span, by default the current one."""
        made = {key: value for key, value in fields.items() if key != "tracestate"}
        before = made.pop("traceparent", None)
        self._propagator.inject(made, context=within)
        if "traceparent" not in made or made["traceparent"] == before:
            return None
        return made

    @staticmethod
    def _empty() -> SpanContext:
        from opentelemetry.context import Context as Empty

        return Empty()

    def enter(self, within: SpanContext) -> Any:
        """Set the current context; return the token for `leave`."""
        return self._attach(within)

    def leave(self, token: Any) -> None:
        """Restore the context before `enter`."""
        self._detach(token)

    def end(self, span: Span, error: BaseException | None) -> None:
        """End a span, with the handler's exception, if any."""
        if error is not None:
            span.record_exception(error)
            span.set_status(self._error, f"{type(error).__name__}: {error}")
        span.end()


class _SpannedHop(Watch):
    """A hop within a span."""

    __slots__ = ("_sends", "_span", "_tracer", "_within")

    def __init__(
        self, tracer: OpenTelemetryTracer, span: Span, within: SpanContext, sends: Sends
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._within = within
        self._sends = sends

    def step(self) -> AbstractContextManager[object]:
        return _Current(self._tracer, self._within, self._sends)

    def ended(self, error: BaseException | None) -> None:
        self._tracer.end(self._span, error)


class _Current:
    """A context manager that sets the current span, also for the worker's messages."""

    __slots__ = ("_sends", "_token", "_tracer", "_within")

    def __init__(self, tracer: OpenTelemetryTracer, within: SpanContext, sends: Sends) -> None:
        self._tracer = tracer
        self._within = within
        self._sends = sends

    def __enter__(self) -> None:
        self._token = self._tracer.enter(self._within)
        self._sends.enter()

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._sends.leave()
        self._tracer.leave(self._token)
