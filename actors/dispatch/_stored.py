"""Names that hold on disk: each of their messages is in a file until it has its outcome.

What a process before this one has left in the file is read in pages, each in a turn of its own, as
far as the limits of the node have room. The rest stays in the file, and is tried again:

```
the file alone ──▶ a page, with room ──▶ bound ──▶ its outcome: it leaves the file
     ▲                                     │
     └── no room for it, or its name does not hold on disk any more
```
"""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...protocol import Message, OnwardError, format_route, parse_route
from ...protocol.dispatch import (
    ACCEPTED,
    RELEASED,
    Accepted,
    BadName,
    DropReason,
    Hold,
    Name,
    Outcome,
    Released,
    Semantics,
    Settlement,
)
from ...protocol.eventlog import Outcome as Logged
from ._arrival import PLAIN, Arrival
from ._errors import HoldStoreFailed
from ._hold_store import HoldStore
from ._recorded import count_end

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["StoredMessages", "effective", "holds_on_disk"]

_logger: Final = logging.getLogger("onward.actors.dispatch")

_PAGE: Final = 100
"""Messages that are read from the file in one turn."""
_LOOKS: Final = 1000
"""Names without room for their oldest message that are looked at in one turn."""
_AGAIN: Final = 0.25
"""Time after which what there was no room for is tried again, in seconds."""


def holds_on_disk(semantics: Semantics) -> bool:
    """Whether the messages of a name are held on disk."""
    retry = semantics.retry
    return retry is not None and retry.hold.disk


def effective(semantics: Semantics) -> Semantics:
    """Return the semantics by which the state of a name handles messages.

    A message that was accepted at once, as it is on disk, goes on unsettled: it stays there until a
    consumer has settled it.
    """
    if not holds_on_disk(semantics) or semantics.reliability.settle is Settlement.AS_SENT:
        return semantics
    reliability = replace(semantics.reliability, settle=Settlement.AS_SENT)
    return replace(semantics, reliability=reliability)


class StoredMessages:
    """The messages of a node that are on disk.

    Args:
        core: The dispatcher.
        store: The file.
    """

    def __init__(self, core: DispatchCore, store: HoldStore) -> None:
        self._core: Final = core
        self.store: Final = store
        # The numbers of the messages that are in the file alone, by the text of their name.
        self._left: Final = {name: deque(each) for name, each in store.numbers().items()}
        self._reading: Final[dict[str, None]] = {}  # the names of them that hold on disk now
        self._waiting: Final[set[str]] = set()  # those that there was no room for
        self._scheduled = False
        self._failing = False

    @property
    def left(self) -> int:
        """The number of messages that are in the file alone."""
        return sum(map(len, self._left.values()))

    # --- messages that enter ------------------------------------------------------------------

    def keep(self, name: Name, arrival: Arrival) -> bool:
        """Write a message that enters here, before anything is done with it.

        Pre-settled messages are not written: their senders rely on nothing.

        Returns:
            Whether it is to be handled; if not, it was released.
        """
        core = self._core
        if arrival.stored or arrival.settled or arrival.identity[0] != core.own:
            return True
        semantics = core.provisioning.semantics_of(name)
        retry = semantics.retry
        if retry is None or not retry.hold.disk:
            return True
        path = arrival.reply_path
        state = core.names.states.get(name.text)
        at_once = semantics.reliability.settle is Settlement.AT_ONCE
        if at_once and not self._has_room(name, arrival):
            # Once it is accepted, it may not be refused.
            one = state is None or state.has_room(len(arrival.message.payload))
            core.counts[DropReason.SHARE if arrival.share and one else DropReason.UNSETTLED] += 1
            number = 0
        else:
            number = self._put(name.text, arrival, retry.hold)
        if not number:
            core.replies.tell(arrival, RELEASED)
            core.settle(state, path)
            if state is not None:
                state.count_released()
            return False
        if at_once:
            core.replies.tell(arrival, ACCEPTED)
            core.settle(state, path)
            arrival.outcome = arrival.deadline = None  # from now on nothing waits for it
            arrival.promised = True
        arrival.stored = number
        return True

    def _has_room(self, name: Name, arrival: Arrival) -> bool:
        """Whether there is room in memory, and none that was there before waits for some."""
        state = self._core.names.states.get(name.text)
        size = len(arrival.message.payload)
        return name.text not in self._waiting and (
            state is None or state.has_room(size, arrival.share)
        )

    def _put(self, name: str, arrival: Arrival, hold: Hold) -> int:
        message = arrival.message
        messages, size = self.store.of_name(name)
        number = 0
        if messages < hold.messages and size + len(message.payload) <= hold.size:
            now = time.time()
            expires = now + hold.age
            if arrival.until is not None:
                expires = min(expires, now + arrival.until - self._core.now())
            onward = format_route(message.onward_route)
            try:
                number = self.store.put(name, onward, message.payload, entered=now, expires=expires)
                self._failing = False
            except HoldStoreFailed as error:
                self._failed(error)
                return 0
        if not number:
            self._core.counts["no room on disk to hold it"] += 1
        return number

    def _failed(self, error: HoldStoreFailed) -> None:
        self._core.counts["failures of the file of messages on hold"] += 1
        if not self._failing:
            self._failing = True
            _logger.error("%s", error, extra={"event": "hold.failed"})

    def ended(self, arrival: Arrival, outcome: Outcome, *, told: bool) -> None:
        """Remove a message that has its outcome.

        One that was accepted, and is released as its name does not hold on disk any more, stays.

        Args:
            arrival: The message.
            outcome: Its outcome.
            told: Whether there was a path back for the outcome.
        """
        if not told and isinstance(outcome, Released) and not self._is_held(arrival):
            self.put_back(arrival)
            return
        number, arrival.stored = arrival.stored, 0
        try:
            self.store.remove(number)
        except HoldStoreFailed as error:
            self._failed(error)
        if not told and not isinstance(outcome, Accepted):
            # It was accepted when it entered, or its producer is of a process before this one.
            reason = "on disk, and not delivered"
            self._core.counts[reason] += 1
            self._core.node.dead_letter(arrival.message, reason)

    def _is_held(self, arrival: Arrival) -> bool:
        name = self._core.parse(self.store.known(arrival.stored)[0])
        return holds_on_disk(self._core.provisioning.semantics_of(name))

    # --- messages that are in the file alone ----------------------------------------------------

    def put_back(self, arrival: Arrival) -> None:
        """Leave a message that was accepted in the file, to be tried again later."""
        number, arrival.stored = arrival.stored, 0
        count_end(arrival, Logged.CANCELED)  # it enters again
        text = self.store.known(number)[0]
        self._left.setdefault(text, deque()).append(number)
        self._core.counts["left on disk until there is room"] += 1
        if holds_on_disk(self._core.provisioning.semantics_of(self._core.parse(text))):
            self._reading[text] = None
            self._go_on(_AGAIN)

    def restore(self) -> None:
        """Go on, in slices, with messages that are in the file alone, of names that hold there."""
        names = iter(tuple(self._left))
        self._core.slices.begin(names, self._look_at, lambda: self._go_on(0))

    def _look_at(self, text: str) -> None:
        """Find out whether a name with messages that are in the file alone holds on disk now."""
        if text not in self._left:
            return
        try:
            semantics = self._core.provisioning.semantics_of(self._core.parse(text))
        except BadName:
            # The limits of names may be others than those of the process before this one.
            self._set_aside(len(self._left.pop(text)))
            return
        if holds_on_disk(semantics):
            self._reading[text] = None
        else:
            self._reading.pop(text, None)
            self._waiting.discard(text)

    def _go_on(self, seconds: float) -> None:
        if self._reading and not self._scheduled:
            self._scheduled = True
            self._core.worker.after(seconds, self._read_page)

    def _read_page(self) -> None:
        """Read as many messages as a turn may take; the rest is for later turns."""
        self._scheduled = False
        took, looks, names = 0, 0, len(self._reading)
        try:
            while self._reading and took < _PAGE and looks < min(names, _LOOKS):
                text = next(iter(self._reading))
                if self._read_one(text):
                    took += 1
                elif self._reading.pop(text, text) is None:
                    self._reading[text] = None  # the others come first the next time
                    looks += 1
        except HoldStoreFailed as error:
            self._failed(error)
            took = 0
        self._go_on(0 if took else _AGAIN)

    def _read_one(self, text: str) -> bool:
        """Go on with the oldest message of a name; return whether there was one, with room."""
        left, core = self._left.get(text), self._core
        if not left:
            self._left.pop(text, None)
            self._reading.pop(text, None)
            self._waiting.discard(text)
            return False
        name = core.parse(text)
        if not holds_on_disk(core.provisioning.semantics_of(name)):
            # It was looked at before its semantics changed: its messages stay in the file.
            self._reading.pop(text, None)
            self._waiting.discard(text)
            return False
        state = core.names.states.get(text)
        if state is None and not core.names.is_full:
            state = core.names.find(name)
        room = state is not None and state.has_room(self.store.known(left[0])[1])
        if not room and text not in self._waiting:
            self._waiting.add(text)
            core.counts["left on disk until there is room"] += len(left)
        if room:
            self._restore(name, left[0])
            left.popleft()
        if state is not None:
            core.names.tidy(state)
        return room

    def _restore(self, name: Name, number: int) -> None:
        core, stored = self._core, self.store.read(number)
        try:
            onward = None if stored is None else parse_route(stored.onward)
        except OnwardError:
            onward = None
        if stored is None or onward is None:
            self._set_aside(1)
            return
        left = stored.expires - time.time()
        message = Message(onward, (), stored.payload, None, None)
        arrival = Arrival(message, False, core.identity(), PLAIN, None, until=core.now() + left)
        arrival.stored, arrival.promised, arrival.again = number, True, True
        if left <= 0:
            core.counts["held until their time was over"] += 1
        core.bind(name, arrival)

    def _set_aside(self, messages: int) -> None:
        """Leave messages in the file that cannot be read: they are not tried again."""
        self._core.counts["messages on disk that cannot be read"] += messages
        _logger.error(
            "%d messages in %s cannot be read, and stay there",
            messages,
            self.store.path,
            extra={"event": "hold.unreadable"},
        )
