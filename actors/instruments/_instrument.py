"""The seam through which a node is observed: diagnostics, tracing and event logs are instruments.

The core calls the hooks of its instruments and imports none of them. trio's `Instrument` is the
model, also for faults: an instrument that raises is logged and removed, and the node goes on as if
it had not been there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from ...protocol import Context, read_tracing, write_tracing

if TYPE_CHECKING:
    from ...protocol import Address, Message, Route

__all__ = ["NO_STEP", "AnyWorker", "Instrument", "InstrumentT", "Linked", "TracedMessage", "Watch"]

AnyWorker: TypeAlias = Any
"""A `Worker`. This layer is below it, so that the runtime can call instruments."""

NO_STEP: Final = nullcontext()
"""The step of a watch that has no hook around steps."""

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
        return NO_STEP

    def suspended(self) -> None:
        """Observe that the handler is a coroutine, which runs from now on."""

    def ended(self, error: BaseException | None) -> None:
        """Observe the end of the handler, with the exception it raised, if any. Called once."""


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
        self, worker: AnyWorker, message: Message, seconds: float, error: BaseException | None
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

    def message_traced(self, worker: AnyWorker, traced: TracedMessage) -> Watch | None:
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

    def worker_suspended(self, worker: AnyWorker) -> None:
        """Observe that a worker awaits, in a handler, a timer's action, its start or its end."""

    def worker_resumed(self, worker: AnyWorker) -> None:
        """Observe that a worker no longer awaits, or has been given up."""

    def worker_stopped(self, worker: AnyWorker) -> None:
        """Observe that a worker has stopped and is about to be removed."""

    def mailbox_nearly_full(self, worker: AnyWorker, waiting: int) -> None:
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

    def names_part(self) -> object:
        """Return the part that a dispatcher of the node calls; see `NameInstrument` there."""
        return None
