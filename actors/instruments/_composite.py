"""The instruments of a node as one, which the node calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, cast

from ...protocol import Context
from .._coroutines import is_coroutine
from ._instrument import NO_STEP, AnyWorker, Instrument, InstrumentT, TracedMessage, Watch

if TYPE_CHECKING:
    from ...protocol import Address, Message

__all__ = ["Instruments", "WatchedCoroutine"]

_logger: Final = logging.getLogger("onward.instruments")
_NEVER: Final = 1 << 62
_WITHOUT_STEP: Final = Watch.step

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
        names: The part of one of them for dispatchers, if there is one.
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
        self.broker: Final = self._part("broker_part")
        self.names: Final = self._part("names_part")

    def _users(self, hook: str) -> tuple[Instrument, ...]:
        return tuple(each for each in self.given if _overrides(each, hook))

    def _part(self, hook: str) -> object:
        for each in self.given:
            try:
                part: object = getattr(each, hook)()
            except Exception as error:  # noqa: BLE001 - of foreign code
                self._failures.append((each, hook, error))
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
        _logger.error(text, instrument, hook, exc_info=error, extra={"event": "instrument.failed"})
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
        self, worker: AnyWorker, message: Message, handle: Callable[[Message], object]
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
        self, worker: AnyWorker, handle: Callable[[Message], object]
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
            return WatchedCoroutine(result, watch)
        watch.ended(None)
        return result

    def message_handled(
        self, worker: AnyWorker, message: Message, seconds: float, error: BaseException | None
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

    def __init__(self, instruments: Instruments, worker: AnyWorker, message: Message) -> None:
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
            return NO_STEP
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


class WatchedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine that runs another one and calls the hooks of a watch.

    It is no `async def` function: if that is cancelled before its first step, the inner coroutine
    is never awaited, and Python warns of that.
    """

    __slots__ = ("_inner", "_watch")

    def __init__(self, inner: Coroutine[Any, Any, Any], watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    def __await__(self) -> Generator[Any, Any, Any]:
        """Return the iterator of the steps: this object, which has a generator's methods."""
        return cast("Generator[Any, Any, Any]", self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    @property
    def cr_await(self) -> Coroutine[Any, Any, Any]:
        """The awaited coroutine, under the usual name of this attribute, for inspection."""
        return self._inner

    def send(self, value: Any) -> Any:
        """Run the next step."""
        try:
            with self._watch.step():
                return self._inner.send(value)
        except BaseException as error:
            self._ended(error)
            raise

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        """Run the next step with an exception, such as a cancellation."""
        try:
            with self._watch.step():
                return self._inner.throw(typ)
        except BaseException as error:
            self._ended(error)
            raise

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

    def _ended(self, error: BaseException) -> None:
        self._watch.ended(None if isinstance(error, StopIteration) else error)
