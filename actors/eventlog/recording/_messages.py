"""The record of messages with the log's mark; other messages cost nothing.

A message sent at the node is marked at the sampling rate, unless it has a tracing text: then the
author of the text has decided. A message that arrives over a link is not sampled, unless the
options say so: its sender has decided, and either all hops of a message are recorded or none. Each
worker that handles a marked message is a hop, on every node with a log. So is its end: a reply that
reaches its request, or a dead letter.

Every peer can write marks. Marks that arrive over links are accepted up to a limit a second, and
not at all with a sampling rate of 0. A message without an accepted mark goes on unmarked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from ....protocol import (
    Address,
    Context,
    EmptyRoute,
    LinkDown,
    MailboxFull,
    Message,
    NoRoute,
    NotExposed,
    OnwardError,
    UnknownAddress,
    UnknownAddressType,
    WorkerFailed,
    read_tracing,
    write_tracing,
)
from ....protocol.eventlog import Kind, LogMark, Outcome, log_mark_of, with_log_mark
from ....protocol.eventlog._mark import LOG_KEY
from ..._errors import Expired
from ...access._errors import AccessDenied
from ...instruments._instrument import TracedMessage, Watch
from ...runtime._lost import reason_text
from ._rate_limit import RateLimit

if TYPE_CHECKING:
    from ..._worker import Worker
    from ...routing._dead_letters import DeadLetter
    from ._recorder import Recorder

__all__ = ["MAX_FIELD", "PACKED_HOP", "MessageLog", "codes_of", "outcome_of_reason"]

PACKED_HOP: Final = Struct("<QqQQI16sIII")
"""The fields of `Hop`, with `kind` to `flags` in one, from `codes_of`, and `origin` to `tagset` as
bytes, from `SegmentDictionary.learn`."""

MAX_FIELD: Final = (1 << 32) - 1
"""Most microseconds and most bytes in a hop."""


def codes_of(kind: int, outcome: int, hop: int = 0, flags: int = 0) -> int:
    """Pack the four codes of a hop, one byte each."""
    return kind | outcome << 8 | hop << 16 | flags << 24


MAX_NAMES: Final = 4096
"""Most names of workers in the cache."""

_MESSAGE: Final = int(Kind.MESSAGE)
_FORWARD: Final = int(Outcome.FORWARD)
_DELIVER: Final = int(Outcome.DELIVER)
_RETURN: Final = int(Outcome.RETURN)
_FAILED: Final = int(Outcome.FAILED)
_DROP: Final = int(Outcome.DROP)
_CODES: Final = {int(each): codes_of(_MESSAGE, each) for each in Outcome}

_OUTCOMES: Final = {
    UnknownAddress.reason: int(Outcome.UNROUTABLE),
    UnknownAddressType.reason: int(Outcome.UNROUTABLE),
    NotExposed.reason: int(Outcome.UNROUTABLE),
    NoRoute.reason: int(Outcome.UNROUTABLE),
    reason_text(EmptyRoute()): int(Outcome.UNROUTABLE),
    MailboxFull.reason: int(Outcome.REJECTED),
    AccessDenied.reason: int(Outcome.REJECTED),
    LinkDown.reason: int(Outcome.REJECTED),
    Expired.reason: int(Outcome.REJECTED),
}


def outcome_of_reason(reason: str) -> int:
    """Return the outcome of a dead letter from its reason."""
    return _OUTCOMES.get(reason, _DROP)


class MessageLog:
    """The marks of messages, and the record of marked messages' hops. On the loop's thread.

    Args:
        recorder: The recorder of hops.
        node: The node's name.
    """

    __slots__ = ("_arrivals", "_gap", "_limit", "_names", "_node", "_recorder")

    def __init__(self, recorder: Recorder, node: str) -> None:
        self._recorder: Final = recorder
        self._node: Final = node
        self._names: dict[Address | None, str] = {None: node}
        self._arrivals: Final = recorder.options.sample_arrivals
        self._gap = recorder.gap()  # arrivals until the next sample of them
        limit = recorder.options.max_marked_per_second
        self._limit: Final = RateLimit(limit, limit, recorder.now)

    # --- marks ----------------------------------------------------------------------------

    def enters(self, context: Context | None) -> Context | None:
        """Return the context of a message that enters the node and is due to be sampled.

        Messages that may not be sampled are counted as well, as a check costs more than the
        count. If such a message is due, it goes on unchanged. Each message has the same
        chance, so messages that may be sampled are sampled at the right rate.

        Args:
            context: The message's context; one with a tracing text is not changed.
        """
        if context is None:
            return Context(trace=self._marked())
        return context if context.trace is not None else context._replace(trace=self._marked())

    def _marked(self) -> str | None:
        recorder = self._recorder
        return with_log_mark({}, LogMark(recorder.trace_id(), weight=recorder.weight))

    def arrive(
        self, messages: Sequence[Message], waits_for: Callable[[Address], bool]
    ) -> Sequence[Message]:
        """Return messages that have arrived over a link, with their marks for this node.

        Args:
            messages: The messages.
            waits_for: Returns whether a request of this node waits for a reply at an address.
        """
        made: list[Message] | None = None
        for index, message in enumerate(messages):
            context = message[4]
            if context is None or context.trace is None:
                if not self._arrivals or not self._draws(message, waits_for):
                    continue
                self._gap -= 1
                if self._gap > 0:
                    continue
                self._gap = self._recorder.gap()
                other = message._replace(context=self.enters(context))
            elif not _may_be_marked(context.trace) or self._takes(message, waits_for):
                continue
            else:
                other = message._replace(context=_unmarked(context))
            if made is None:
                made = list(messages)
            made[index] = other
        return messages if made is None else made

    @staticmethod
    def _draws(message: Message, waits_for: Callable[[Address], bool]) -> bool:
        """Whether a message from another node may be sampled here.

        A message that goes on from here may be a reply to another node's request.
        """
        onward = message[0]
        return len(onward) == 1 and not waits_for(onward[0])

    def _takes(self, message: Message, waits_for: Callable[[Address], bool]) -> bool:
        """Whether the mark of a message from another node is accepted."""
        recorder = self._recorder
        if recorder.options.sample_rate > 0:
            onward = message[0]
            # Each request has one reply, so requests bound the marks of replies.
            if (onward and waits_for(onward[0])) or self._limit.take():
                return True
        recorder.left_out["marks"] += mark_of(message[4]) is not None
        return False

    # --- hops -----------------------------------------------------------------------------

    def traced(self, worker: Worker, traced: TracedMessage) -> Watch | None:
        """Return the hop of a message with a tracing text, if the message is marked."""
        fields = traced.fields
        mark = None if fields is None else log_mark_of(fields)
        if mark is None or fields is None or not worker.has_flows:
            return None
        message = traced.message
        traced.replace({**fields, LOG_KEY: str(mark.next())})
        return _RecordedHop(self, worker, message, mark, self._recorder.now())

    def answered(self, message: Message) -> None:
        """Record that a reply has reached its request."""
        mark = mark_of(message[4])
        if mark is not None:
            self.record(mark, message, None, _RETURN, 0)

    def lost(self, letter: DeadLetter) -> None:
        """Record that a message has become a dead letter."""
        message = letter.message
        mark = mark_of(message[4])
        # The hop of the worker that failed is recorded already.
        if mark is None or letter.reason == WorkerFailed.reason:
            return
        outcome = outcome_of_reason(letter.reason)
        onward = message[0]
        # Peers can make up addresses; only known ones get a name.
        to = onward[0] if onward and outcome == Outcome.REJECTED else None
        self.record(mark, message, to, outcome, 0)

    def record(
        self, mark: LogMark, message: Message, to: Address | None, outcome: int, took: int
    ) -> None:
        """Record a hop.

        Args:
            mark: The message's mark.
            message: The message.
            to: The worker that has it; `None` if none has.
            outcome: See `Outcome`.
            took: Microseconds of its handling.
        """
        recorder = self._recorder
        source = message[3]
        key = (source, to, outcome)
        ends = recorder.naming.known.get(key)
        if ends is None:
            dest = "" if to is None and outcome != _RETURN else self.name_of(to)
            ends = recorder.naming.learn(key, self.name_of(source), dest)
        recorder.hop(
            mark.trace_id,
            0,
            _CODES[outcome] | mark.hop << 16,
            ends,
            took if 0 <= took <= MAX_FIELD else MAX_FIELD if took > 0 else 0,
            min(len(message[2]), MAX_FIELD),
            mark.weight,
        )

    def name_of(self, worker: Address | None) -> str:
        """Return the name of a worker in the log; for `None` that of the node."""
        name = self._names.get(worker)
        if name is None:
            if len(self._names) >= MAX_NAMES:
                self._names = {None: self._node}
            name = self._names[worker] = f"{self._node}/{worker}"
        return name

    def took(self, since: float) -> int:
        """Return the microseconds since a time."""
        return int((self._recorder.now() - since) * 1e6)


class _RecordedHop(Watch):
    """A hop in progress."""

    __slots__ = ("_began", "_log", "_mark", "_message", "_worker")

    def __init__(
        self, log: MessageLog, worker: Worker, message: Message, mark: LogMark, began: float
    ) -> None:
        self._log = log
        self._worker = worker
        self._message = message
        self._mark = mark
        self._began = began

    def ended(self, error: BaseException | None) -> None:
        """Record the hop. A message that the worker lost has its own record."""
        outcome = _FORWARD if len(self._message[0]) > 1 else _DELIVER
        if error is not None and not (isinstance(error, OnwardError) and error.lost is not None):
            outcome = _FAILED
        took = self._log.took(self._began)
        self._log.record(self._mark, self._message, self._worker.address, outcome, took)


def mark_of(context: Context | None) -> LogMark | None:
    """Return the log's mark in a message's context, if there is one."""
    if context is None or context.trace is None:
        return None
    fields = read_tracing(context.trace)
    return None if fields is None else log_mark_of(fields)


def _may_be_marked(text: str) -> bool:
    """Whether a tracing text may have the log's mark, perhaps with JSON escapes."""
    return LOG_KEY in text or "\\" in text


def _unmarked(context: Context) -> Context:
    """Return a context without the log's mark."""
    fields = read_tracing(context.trace or "") or {}
    others = {key: value for key, value in fields.items() if key != LOG_KEY}
    return context._replace(trace=write_tracing(others) if others else None)
