"""`Spawner`: a parent of one worker for each key, made for the first message of the key."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from ...protocol import (
    Address,
    MailboxFull,
    Message,
    NotDelivered,
    OnwardError,
    WorkerFailed,
    WorkerStopped,
)
from ...protocol.options import Count, Seconds, check_options, check_value
from .._worker import Worker
from ..routing._table import AddressTable
from ..runtime._policy import MailboxOptions, Overflow, Supervision
from ..runtime._state import RUNNING

if TYPE_CHECKING:
    from ..runtime._cell import Cell

__all__ = ["AtLimit", "Spawner", "SpawnerOptions", "TooManyWorkers"]


class TooManyWorkers(NotDelivered):
    """The spawner has as many workers as it may, and the message has a new key."""

    reason = "too many workers"


class AtLimit(Enum):
    """The policy of a spawner at its limit of workers for a message with a new key."""

    REFUSE = auto()
    """The message is lost: `TooManyWorkers`."""

    STOP_IDLE = auto()
    """The worker that has been idle longest is stopped, if there is one. After a search without a
    result, each further message looks at the next 32 workers only, until one is found."""


@dataclass(frozen=True, slots=True)
class SpawnerOptions:
    """The limits of a spawner.

    Attributes:
        max_workers: Workers at a time. Stopping workers do not count, but there are at most as
            many of them again.
        at_limit: The policy for a message with a new key at the limit.
        idle: Time an idle worker is kept, in seconds; it is stopped at most half as long again
            later. A worker is not idle if it gets messages directly.
        max_held: Messages that wait for a worker of the same key to stop, before the next can
            start. More are lost: `MailboxFull`.
    """

    max_workers: Count = 1000
    at_limit: AtLimit = AtLimit.REFUSE
    idle: Seconds = 60.0
    max_held: Count = 1000

    def __post_init__(self) -> None:
        check_options(self)


_logger = logging.getLogger("onward.actors")

LOOKS: Final = 32
"""Workers searched for an idle one if the last search found none. So a refusal costs the same
with few workers and with many."""

_OPTIONS: Final = SpawnerOptions()
_MAILBOX: Final = MailboxOptions()
_SUPERVISION: Final = Supervision()


class _SpawnedWorker:
    """A spawner's record of one worker.

    Attributes:
        held: Messages that wait for it to stop, or `None` while it accepts messages.
    """

    __slots__ = ("address", "cell", "handled", "held", "since")

    def __init__(self, address: Address, cell: Cell, now: float) -> None:
        self.address = address
        self.cell = cell
        self.handled = 0
        self.held: deque[Message] | None = None
        self.since = now

    def is_idle(self, table: AddressTable) -> bool:
        """Whether the worker accepts messages and has none."""
        cell = self.cell
        return self.held is None and table.idle(self.address) is cell


class Spawner(Worker):
    """A worker that spawns a child for each key and passes messages to it.

    ```
    [spawner, rest…] <- [back…]        becomes        [worker of the key, rest…] <- [back…]
    ```

    The child answers from its own address, so a requester continues with it directly. The
    spawner limits the number and the life time of its children.

    A child gets its messages in order of arrival, including those that arrive while it starts,
    which wait in its mailbox. There are never two children of one key: a message that arrives
    while one is stopping waits for its end, and is then the first message of the next.

    Args:
        factory: Function that makes the worker of a key.
        key: Function that returns the key of a message. If it raises an `OnwardError`, such as
            `PayloadError`, the message is lost with it; any other is a failure of the spawner.
        options: The limits of the spawner.
        mailbox: The mailbox of each child.
        supervision: The supervision of each child.

    Raises:
        ValueError: An argument is of another type.
    """

    default_mailbox: ClassVar[MailboxOptions] = MailboxOptions(overflow=Overflow.WAIT)

    def __init__(
        self,
        factory: Callable[[bytes], Worker],
        key: Callable[[Message], bytes],
        *,
        options: SpawnerOptions = _OPTIONS,
        mailbox: MailboxOptions = _MAILBOX,
        supervision: Supervision = _SUPERVISION,
    ) -> None:
        super().__init__()
        check_value("options", options, SpawnerOptions)
        check_value("mailbox", mailbox, MailboxOptions)
        check_value("supervision", supervision, Supervision)
        self._factory = factory
        self._key = key
        self._options = options
        self._mailbox = mailbox
        self._supervision = supervision
        # The child that has been idle longest comes first.
        self._children: dict[bytes, _SpawnedWorker] = {}
        self._stopping = 0
        self._none_idle = False

    def on_start(self) -> None:
        """Start the search for idle workers. A subclass that overrides this must call it."""
        self.every(self._options.idle / 4, self._stop_idle)

    def workers(self) -> dict[bytes, Address]:
        """Return the address of each key's worker, except for stopping workers."""
        return {key: each.address for key, each in self._children.items() if each.held is None}

    def handle_message(self, message: Message) -> None:
        """Pass a message to the worker of its key."""
        try:
            self._give(self._key(message), message)
        except OnwardError as error:
            self.node.lose(message, error)

    def _give(self, key: bytes, message: Message) -> None:
        child = self._children.pop(key, None)
        if child is None:
            child = self._make(key)
        self._children[key] = child
        if child.held is None and child.cell.is_stopping:
            self._hold(child)  # it stops by itself
        if child.held is None:
            self.route(message.redirect(child.address))
        elif len(child.held) < self._options.max_held:
            child.held.append(message)
        else:
            raise MailboxFull(child.address, f"{self._options.max_held} wait for it to stop")

    def _make(self, key: bytes) -> _SpawnedWorker:
        self._make_room()
        address = self.spawn(
            partial(self._factory, key), mailbox=self._mailbox, supervision=self._supervision
        )
        child = _SpawnedWorker(address, self.node.parts.table.cell(address), self.node.loop.time())
        self.node.watch(address, partial(self._stopped, key, child))
        return child

    def _make_room(self) -> None:
        limit = self._options.max_workers
        if len(self._children) - self._stopping < limit:
            return
        if self._options.at_limit is AtLimit.STOP_IDLE and self._stopping < limit:
            idle = self._find_idle()
            if idle is not None:
                self._stop(idle)
                return
        raise TooManyWorkers(self.address, f"there are {limit}")

    def _find_idle(self) -> _SpawnedWorker | None:
        """Return the worker that has been idle longest, or `None` if none was found.

        Busy workers move to the end, so the next search begins behind them.
        """
        looks = LOOKS if self._none_idle else len(self._children)
        found: _SpawnedWorker | None = None
        busy: list[bytes] = []
        for key, child in islice(self._children.items(), looks):
            if child.is_idle(self.node.parts.table):
                found = child
                break
            busy.append(key)
        for key in busy:
            self._children[key] = self._children.pop(key)
        self._none_idle = found is None
        return found

    def _stop_idle(self) -> None:
        now = self.node.loop.time()
        for child in list(self._children.values()):
            if not child.is_idle(self.node.parts.table) or child.cell.handled != child.handled:
                child.handled = child.cell.handled
                child.since = now
            elif now - child.since >= self._options.idle:
                self._stop(child)

    def _stop(self, child: _SpawnedWorker) -> None:
        self._hold(child)
        child.cell.worker.stop()

    def _hold(self, child: _SpawnedWorker) -> None:
        child.held = deque()
        self._stopping += 1

    def _stopped(self, key: bytes, child: _SpawnedWorker) -> None:
        """Forget a worker that has stopped, and spawn the next if messages wait for it."""
        del self._children[key]
        if child.held is None:
            return
        self._stopping -= 1
        while child.held:
            message = child.held.popleft()
            try:
                if not self._goes_on():
                    raise WorkerStopped(child.address)
                self._give(key, message)
            except OnwardError as error:
                self.node.lose(message, error)
            except Exception:
                _logger.exception(
                    "%s cannot make another worker",
                    self.address,
                    extra={"event": "worker.not_replaced"},
                )
                self.node.lose(message, WorkerFailed(self.address))

    def _goes_on(self) -> bool:
        """Whether the spawner is neither stopping nor being restarted."""
        cell = self._placed
        return cell.worker is self and cell.state == RUNNING
