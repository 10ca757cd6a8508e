"""Names that hold on disk: each of their messages is in a file until it has its outcome."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...protocol import Message, format_route, parse_route
from ...protocol.dispatch import (
    ACCEPTED,
    RELEASED,
    Accepted,
    BadName,
    DropReason,
    Hold,
    Name,
    Outcome,
    Semantics,
    Settlement,
)
from ._arrival import PLAIN, Arrival
from ._errors import HoldStoreFailed
from ._hold_store import HoldStore, StoredMessage

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["StoredMessages", "effective", "holds_on_disk"]

_logger: Final = logging.getLogger("onward.actors.dispatch")


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
        self._before: Final = set(store.names())
        self._failing = False

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
        state, path = core.names.states.get(name.text), arrival.reply_path
        at_once = semantics.reliability.settle is Settlement.AT_ONCE
        if at_once and state is not None and not state.has_room(len(arrival.message.payload)):
            # Once it is accepted, it may not be refused.
            core.totals.counts[DropReason.UNSETTLED] += 1
            number = 0
        else:
            number = self._put(name.text, arrival, retry.hold)
        if not number:
            core.replies.tell(arrival, RELEASED)
            core.settle(state, path)
            return False
        if at_once:
            core.replies.tell(arrival, ACCEPTED)
            core.settle(state, path)
            arrival.outcome = arrival.deadline = None  # from now on nothing waits for it
        arrival.stored = number
        return True

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

        Args:
            arrival: The message.
            outcome: Its outcome.
            told: Whether there was a path back for the outcome.
        """
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

    def restore(self) -> None:
        """Go on with messages of a process before this one, of names that hold on disk now."""
        for text in sorted(self._before):
            try:
                name = self._core.parse(text)
                if not holds_on_disk(self._core.provisioning.semantics_of(name)):
                    continue
                self._before.discard(text)
                for stored in tuple(self.store.messages(text)):
                    self._restore(name, stored)
            except BadName:
                # The limits of names may be others than those of the process before this one.
                self._before.discard(text)
                self._core.counts["names on disk that cannot be read"] += 1
            except HoldStoreFailed as error:
                self._failed(error)

    def _restore(self, name: Name, stored: StoredMessage) -> None:
        core = self._core
        left = stored.expires - time.time()
        message = Message(parse_route(stored.onward), (), stored.payload, None, None)
        arrival = Arrival(message, False, core.identity(), PLAIN, None, until=core.now() + left)
        arrival.stored = stored.number
        if left <= 0:
            core.counts["held until their time was over"] += 1
        core.bind(name, arrival)
