"""The seam through which a node is observed: diagnostics, tracing and event logs are instruments.

The core calls the hooks of its instruments and imports none of them. trio's `Instrument` is the
model, also for faults: an instrument that raises is logged and removed, and the node goes on as if
it had not been there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ...protocol import Context, read_tracing, write_tracing
from ..runtime._thread import is_coroutine
from ._watched import Watched

if TYPE_CHECKING:
    from ...protocol import Address, Message, Route
    from .._worker import Worker

__all__ = ["Instrument", "Instruments", "Linked", "TracedMessage", "Watch"]

_logger: Final = logging.getLogger("onward.instruments")
_NO_STEP: Final = nullcontext()
_NEVER: Final = 1 << 62

InstrumentT = TypeVar("InstrumentT", bound="Instrument")


class Linked(Protocol):
    """A link, with its counters.

    Attributes:
        taken: Messages it was given for the other end.
        arrived: Messages that arrived from there.
        dropped: Messages that it accepted and could not send.
    """

    taken: int
    arrived: int
    dropped: int

    @property
    def queued(self) -> int:
        """Messages that it has accepted and not sent."""
        ...

    @property
    def ends(self) -> tuple[str, str]:
        """The names of this end and of the other; empty if unknown."""
        ...

    @property
    def ways(self) -> tuple[str, str]:
        """The names of the two directions, out and in: the same at both ends."""
        ...

    @property
    def over(self) -> bool:
        """Whether it has stopped, so that its counters no longer change."""
        ...


class TracedMessage:
    """A message with a tracing text that a worker is about to handle.

    The text is parsed once for all instruments.

    Attributes:
        message: The message, as the worker is given it.
        fields: The fields of its tracing text; `None` if the text is not valid. Do not change
            the dictionary; see `replace`.
        taken: Whether an instrument has passed the message on, so that the worker does not
            handle it.
    """

    __slots__ = ("fields", "message", "taken")

    def __init__(self, message: Message, context: Context) -> None:
        self.message = message
        self.fields: Mapping[str, str] | None = read_tracing(context.trace or "")
        self.taken = False

    def replace(self, fields: Mapping[str, str]) -> bool:
        """Replace the fields of the tracing text for the worker and the instruments that follow.

        Returns:
            Whether they are replaced; false if the text would be empty or too long.
        """
        text = write_tracing(fields)
        context = self.message[4]
        if text is None or context is None:
            return False
        self.fields = fields
        self.message = self.message._replace(context=context._replace(trace=text))
        return True


class Watch:
    """Hooks around the handling of one message. They do nothing by default."""

    __slots__ = ()

    def step(self) -> AbstractContextManager[object]:
        """Return a context manager that is entered while the handler's own code runs."""
        return _NO_STEP

    def suspended(self) -> None:
        """Observe that the handler is a coroutine, which runs from now on."""

    def ended(self, error: BaseException | None) -> None:
        """Observe the end of the handler, with the exception it raised, if any. Called once."""


_WITHOUT_STEP: Final = Watch.step


class Instrument:
    """A base class of instruments. The hooks do nothing by default.

    ```python
    class SlowHandlers(Instrument):
        def message_handled(self, worker, message, seconds, error):
            if seconds > 0.1:
                print(worker, "took", seconds)

    node.add_instrument(SlowHandlers())
    ```

    Hooks must not block. They run on the node's loop, except for `message_lost`. A hook that is
    not overridden is not called, and costs next to nothing. An instrument of which a hook raises
    an exception, or returns a value of another type, is removed from the node, and that is logged
    by `onward.instruments`; the message is handled as if there had been no instrument.
    """

    __slots__ = ()

    # --- messages ---------------------------------------------------------------------

    def message_handled(
        self, worker: Worker, message: Message, seconds: float, error: BaseException | None
    ) -> None:
        """Observe a message that a worker has handled, also after awaiting.

        Args:
            worker: The worker.
            message: The message.
            seconds: The time of the handler, in seconds.
            error: The exception that it raised, if any.
        """

    def message_lost(self, message: Message, reason: str) -> None:
        """Observe a message that has become a dead letter, on the thread on which it failed."""

    def route_cut(self, message: Message) -> None:
        """Observe a message that is answered by a worker that is not the last of its route."""

    def long_route(self, message: Message) -> None:
        """Observe a message that is forwarded with a return route near the limit."""

    # --- sampling and tracing ---------------------------------------------------------

    def sample_gap(self) -> int:
        """Return the number of messages up to the next sample; 0 for no further sample.

        Counted are the messages that code outside of workers sends and requests.
        """
        return 0

    def message_sampled(self, context: Context | None) -> Context | None:
        """Return the context of a sampled message, for example with a tracing text."""
        return context

    def message_traced(self, worker: Worker, traced: TracedMessage) -> Watch | None:
        """Observe that a worker is about to handle a message with a tracing text.

        Args:
            worker: The worker.
            traced: The message; its tracing text can be replaced.

        Returns:
            The hooks around its handling, if any. Those of the instrument added first enclose
            the others.
        """
        return None

    def reply_traced(self, message: Message) -> None:
        """Observe a message with a tracing text that has reached its request."""

    # --- workers ----------------------------------------------------------------------

    def worker_suspended(self, worker: Worker) -> None:
        """Observe that a worker awaits, in a handler, a timer's action, its start or its end."""

    def worker_resumed(self, worker: Worker) -> None:
        """Observe that a worker no longer awaits, or has been given up."""

    def worker_stopped(self, worker: Worker) -> None:
        """Observe that a worker has stopped and is about to be removed."""

    def mailbox_nearly_full(self, worker: Worker, waiting: int) -> None:
        """Observe a mailbox near its limit, at the start of a turn or for a refused message."""

    # --- requests ---------------------------------------------------------------------

    def request_begun(self, source: Address | None, reply: Address, onward: Route) -> None:
        """Observe a request, with the requester (or `None`), the mailbox and the onward route."""

    def request_ended(self, reply: Address) -> None:
        """Observe the end of a request, with any outcome."""

    # --- links ------------------------------------------------------------------------

    def link_opened(self, link: Linked) -> None:
        """Observe a link that has started. Its end is observed by `worker_stopped`."""

    def link_connected(self, link: Linked) -> None:
        """Observe that a link is about to use another connection, to perhaps another peer."""

    def messages_arrived(
        self, messages: Sequence[Message], waits_for: Callable[[Address], bool]
    ) -> Sequence[Message]:
        """Return the messages that have arrived over a link, perhaps with other contexts.

        Args:
            messages: The messages.
            waits_for: Returns whether a request of this node waits for a reply at an address.
        """
        return messages

    # --- the node ---------------------------------------------------------------------

    def figures(self) -> Mapping[str, object]:
        """Return statistics by name, for the management of a broker."""
        return {}

    def broker_part(self) -> object:
        """Return the part that a broker of the node calls; see `RequestInstrument` there."""
        return None


_PLAIN: Final = (
    "message_lost",
    "route_cut",
    "long_route",
    "worker_suspended",
    "worker_resumed",
    "worker_stopped",
    "mailbox_nearly_full",
    "reply_traced",
    "request_begun",
    "request_ended",
    "link_opened",
    "link_connected",
)
"""The hooks without a result. Those that no instrument overrides stay without effect."""


def _overrides(instrument: Instrument, hook: str) -> bool:
    return getattr(type(instrument), hook) is not getattr(Instrument, hook)


class Instruments(Instrument):
    """The instruments of a node as one. It is replaced when one is added or removed.

    Args:
        given: The instruments, in the order in which they were added.
        remove: Function that removes one from the node.

    Attributes:
        given: As given.
        samples: Whether one of them samples messages.
        traces: Whether one of them observes messages with a tracing text.
        handles: Whether one of them observes each handled message.
        loses: Whether one of them observes dead letters.
        arrives: Whether one of them observes messages that arrive over links.
        asks: Whether one of them observes the beginning and the end of requests.
        left: Messages until the next sample.
        broker: The part of one of them for brokers, if there is one.
    """

    def __init__(
        self, given: tuple[Instrument, ...], remove: Callable[[Instrument], object]
    ) -> None:
        self.given: Final = given
        self._remove: Final = remove
        for hook in _PLAIN:
            users = self._users(hook)
            if users:
                setattr(self, hook, _told(self, hook, users))
        self._tracing: Final = self._users("message_traced")
        self._arriving: Final = self._users("messages_arrived")
        self._handled: Final = self._users("message_handled")
        self.traces: Final = bool(self._tracing)
        self.handles: Final = bool(self._handled)
        self.arrives: Final = bool(self._arriving)
        self.loses: Final = bool(self._users("message_lost"))
        self.asks: Final = bool(self._users("request_begun") or self._users("request_ended"))
        # The countdowns of the instruments that sample, as they were when `left` was set.
        self._gaps: dict[Instrument, int] = {}
        self._counted = self.left = _NEVER
        self._sampling: Final = self._users("sample_gap")
        self.samples: Final = bool(self._sampling)
        # What failed as this was made is reported once the node has these instruments.
        self._failures: list[tuple[Instrument, str, Exception]] = []
        self.broker: Final = self._broker_part()

    def _users(self, hook: str) -> tuple[Instrument, ...]:
        return tuple(each for each in self.given if _overrides(each, hook))

    def _broker_part(self) -> object:
        for each in self.given:
            try:
                part = each.broker_part()
            except Exception as error:  # noqa: BLE001 - of foreign code
                self._failures.append((each, "broker_part", error))
            else:
                if part is not None:
                    return part
        return None

    def find(self, kind: type[InstrumentT]) -> InstrumentT | None:
        """Return the first instrument of a class, if there is one."""
        return next((each for each in self.given if isinstance(each, kind)), None)

    def failed(self, instrument: Instrument, hook: str, error: Exception) -> None:
        """Log an exception of an instrument, and remove the instrument."""
        text = "the instrument %r is removed, as %s failed"
        _logger.error(text, instrument, hook, exc_info=error)
        self._remove(instrument)

    # --- sampling ---------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to sample, once the node has these instruments."""
        for failure in self._failures:
            self.failed(*failure)
        self._failures.clear()
        for each in self._sampling:
            self._gaps[each] = self._gap(each)
        self._count_again()

    def _gap(self, instrument: Instrument) -> int:
        try:
            gap = instrument.sample_gap()
            _expect(gap, int)
        except Exception as error:  # noqa: BLE001 - of foreign code
            self.failed(instrument, "sample_gap", error)
            return _NEVER
        return gap or _NEVER

    def _count_again(self) -> None:
        self._counted = self.left = min(self._gaps.values(), default=_NEVER)

    def sampled(self, context: Context | None, *, here: bool) -> Context | None:
        """Return the context of a message at which the countdown `left` has ended.

        Args:
            context: The message's context.
            here: Whether this is the loop's thread; otherwise the message is not sampled.
        """
        passed = self._counted
        for each in self._gaps:
            self._gaps[each] -= passed
            if self._gaps[each] <= 0:
                if here:
                    try:
                        result = each.message_sampled(context)
                        if result is not None:
                            _expect(result, Context)
                        context = result
                    except Exception as error:  # noqa: BLE001 - of foreign code
                        self.failed(each, "message_sampled", error)
                self._gaps[each] = self._gap(each)
        self._count_again()
        return context

    # --- handlers ---------------------------------------------------------------------

    def handle_traced(
        self, worker: Worker, message: Message, handle: Callable[[Message], object]
    ) -> object:
        """Handle a message with a tracing text within the hooks of the instruments.

        Args:
            worker: The worker.
            message: The message.
            handle: Its handler.

        Returns:
            The result of the handler, or a coroutine that awaits it.
        """
        context = message[4]
        if context is None:
            raise AssertionError("unexpected message without a context")
        traced = TracedMessage(message, context)
        watches: _Watches | None = None
        for each in self._tracing:
            try:
                watch = each.message_traced(worker, traced)
                if watch is not None:
                    _expect(watch, Watch)
            except Exception as error:  # noqa: BLE001 - of foreign code
                self.failed(each, "message_traced", error)
                continue
            if watch is not None:
                if watches is None:
                    watches = _Watches(self, each, watch)
                else:
                    watches.add(each, watch)
            if traced.taken:
                if watches is not None:
                    watches.ended(None)
                return None
        if watches is None:
            return handle(traced.message)
        return self._handle(watches, traced.message, handle)

    def watched(
        self, worker: Worker, handle: Callable[[Message], object]
    ) -> Callable[[Message], object]:
        """Return a handler that reports each message it has handled."""

        def handle_watched(message: Message) -> object:
            watch = _Handled(self, worker, message)
            return self._handle(watch, message, handle)

        return handle_watched

    @staticmethod
    def _handle(watch: Watch, message: Message, handle: Callable[[Message], object]) -> object:
        try:
            with watch.step():
                result = handle(message)
        except BaseException as error:
            watch.ended(error)
            raise
        if is_coroutine(result):
            watch.suspended()
            return Watched(result, watch)
        watch.ended(None)
        return result

    def message_handled(
        self, worker: Worker, message: Message, seconds: float, error: BaseException | None
    ) -> None:
        """Call the hook of each instrument."""
        for each in self._handled:
            try:
                each.message_handled(worker, message, seconds, error)
            except Exception as fault:  # noqa: BLE001 - of foreign code
                self.failed(each, "message_handled", fault)

    # --- links and figures ------------------------------------------------------------

    def messages_arrived(
        self, messages: Sequence[Message], waits_for: Callable[[Address], bool]
    ) -> Sequence[Message]:
        """Return the messages as the instruments return them."""
        for each in self._arriving:
            try:
                result = each.messages_arrived(messages, waits_for)
                _expect(result, Sequence)
                messages = result
            except Exception as error:  # noqa: BLE001 - of foreign code
                self.failed(each, "messages_arrived", error)
        return messages

    def figures(self) -> Mapping[str, object]:
        """Return the statistics of all instruments."""
        found: dict[str, object] = {}
        for each in self.given:
            try:
                found |= each.figures()
            except Exception as error:  # noqa: BLE001 - of foreign code
                self.failed(each, "figures", error)
        return found


def _expect(result: object, kind: type) -> None:
    if not isinstance(result, kind):
        raise TypeError(f"it returned {type(result).__name__} in place of {kind.__name__}")


def _told(
    instruments: Instruments, hook: str, users: tuple[Instrument, ...]
) -> Callable[..., None]:
    """Return a function that calls a hook of several instruments."""
    calls = [(each, getattr(each, hook)) for each in users]

    def tell(*about: Any) -> None:
        for each, call in calls:
            try:
                call(*about)
            except Exception as error:  # noqa: BLE001 - of foreign code
                instruments.failed(each, hook, error)

    return tell


class _Handled(Watch):
    """The handling of a message that is reported at its end."""

    __slots__ = ("_began", "_instruments", "_message", "_worker")

    def __init__(self, instruments: Instruments, worker: Worker, message: Message) -> None:
        self._instruments = instruments
        self._worker = worker
        self._message = message
        self._began = perf_counter()

    def ended(self, error: BaseException | None) -> None:
        took = perf_counter() - self._began
        self._instruments.message_handled(self._worker, self._message, took, error)


class _Watches(Watch):
    """The hooks of one or several instruments around the handling of one message."""

    __slots__ = ("_first", "_instruments", "_others", "_owner")

    def __init__(self, instruments: Instruments, owner: Instrument, first: Watch) -> None:
        self._instruments = instruments
        self._owner = owner
        self._first = first
        self._others: list[tuple[Instrument, Watch]] | None = None

    def add(self, owner: Instrument, watch: Watch) -> None:
        """Add the hooks of another instrument, within those before."""
        if self._others is None:
            self._others = []
        self._others.append((owner, watch))

    def _all(self) -> list[tuple[Instrument, Watch]]:
        return [(self._owner, self._first), *(self._others or ())]

    def step(self) -> AbstractContextManager[object]:
        if self._others is None and type(self._first).step is _WITHOUT_STEP:
            return _NO_STEP
        steps = ExitStack()
        for each, watch in self._all():
            try:
                steps.enter_context(watch.step())
            except Exception as error:  # noqa: BLE001 - of foreign code
                self._instruments.failed(each, "step", error)
        return steps

    def suspended(self) -> None:
        for each, watch in self._all():
            try:
                watch.suspended()
            except Exception as error:  # noqa: BLE001 - of foreign code
                self._instruments.failed(each, "suspended", error)

    def ended(self, error: BaseException | None) -> None:
        if self._others is not None:
            for each, watch in reversed(self._others):
                self._end(each, watch, error)
        self._end(self._owner, self._first, error)

    def _end(self, instrument: Instrument, watch: Watch, error: BaseException | None) -> None:
        try:
            watch.ended(error)
        except Exception as fault:  # noqa: BLE001 - of foreign code
            self._instruments.failed(instrument, "ended", fault)
