"""What the states of names ask for, done for a dispatcher: copies, outcomes, drops, redirects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol import NAME, OnwardError, Route
from ...protocol.dispatch import (
    ACCEPTED,
    MODIFIED,
    RELEASED,
    Announced,
    ConsumerActive,
    ConsumerEnded,
    ConsumerTarget,
    CopyEnd,
    CopyEnded,
    CreditChange,
    Delivery,
    Dropped,
    Hand,
    Held,
    LinkTarget,
    NameEvent,
    NamePaths,
    Redirect,
    Redirected,
    SendOn,
    Target,
    Told,
    Unreturned,
)
from ...protocol.eventlog import Outcome as Logged
from ._arrival import Arrival
from ._consumer_record import Accept
from ._recorded import count_copy, count_end, count_passed

if TYPE_CHECKING:
    from ._core import DispatchCore
    from ._name_state import NameState

__all__ = ["NameActions"]


class NameActions:
    """The actions that the names of a dispatcher ask for, each for one event of a name.

    Args:
        core: The dispatcher.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core

    def perform(self, state: NameState, event: NameEvent[Arrival]) -> None:
        """Perform one thing that a name asks for."""
        match event:
            case Hand():
                self._deliver(state, event)
            case SendOn():
                self._send_on(state, event)
            case CopyEnded():
                self._copy_ended(state, event)
            case Told(delivery, outcome, tally):
                if delivery.source is None:
                    delivery.message.reply_path = None
                self._core.tell(state, delivery, outcome, tally)
                if not delivery.settled:
                    _end(delivery)
            case Dropped(delivery, reason):
                state.dropped += 1
                if delivery.settled:
                    _end(delivery)
                count_end(delivery.message, Logged.DROP)
                self._core.node.dead_letter(delivery.message.message, reason.value)
            case Redirected(delivery, redirect):
                self._redirect(state, delivery, redirect)
            case _:
                self._note(state, event)

    def _note(self, state: NameState, event: NameEvent[Arrival]) -> None:
        """Perform what concerns consumers, producers and the network."""
        match event:
            case Held(delivery):
                count_passed(delivery.message, Logged.HOLD)
            case Unreturned(delivery):
                outcome = Logged.SETTLED if delivery.settled else Logged.CANCELED
                count_end(delivery.message, outcome)
            case CreditChange(producer, _, drain):
                if drain:
                    # It is "released + drain"; all producers here drain at once.
                    state.pure.drained(producer)
                self._core.attachments.woken(producer)
            case ConsumerActive(number, active):
                if (record := state.consumers.get(number)) is not None:
                    record.active = active
            case ConsumerEnded(number, reason):
                state.consumer_ended(number, reason)
            case NamePaths():
                self._core.watches.changed(state)
            case Announced(claim):
                state.announced = claim
                self._core.topology.announce(state, claim)
            case _:
                raise AssertionError(f"unexpected event {event}")

    def _deliver(self, state: NameState, event: Hand[Arrival]) -> None:
        token, now = event.token, self._core.now()
        target = ConsumerTarget(event.consumer)
        record = state.consumers.get(event.consumer)
        if record is None:
            return  # it has gone: what it has had is decided by its loss
        if token is not None:
            self._core.copies.begun(token, state, target)
        handed = record.accept is Accept.HANDED
        try:
            self._core.copies.deliver(record, event.delivery.message, token)
        except OnwardError as error:
            if token is None:
                count_end(event.delivery.message, Logged.DROP)
                self._core.node.dead_letter(event.delivery.message.message, error)
                state.pure.handled(event.consumer, now)
            else:
                state.pure.disposition(token, RELEASED, target, now)
        else:
            if token is None:
                count_end(event.delivery.message, Logged.SETTLED)
                count_copy(self._core.node, state.label, state.label_of(record), Logged.SETTLED)
                _end(event.delivery)
            if token is None and (handed or record.worker is None):
                state.pure.handled(event.consumer, now)
            elif token is not None and handed:
                state.pure.disposition(token, ACCEPTED, target, now)

    def _redirect(self, state: NameState, delivery: Delivery[Arrival], redirect: Redirect) -> None:
        arrival, route = delivery.message, redirect.route
        to_name = route[0].type == NAME and len(route) == 1
        count_passed(arrival, Logged.REDIRECT, redirect.to)
        if to_name and self._core.redirect(arrival, route[0]):
            self._core.counts["redirected"] += 1
        elif to_name or not self._send_along(state, delivery, route):
            state.pure.go_on(delivery, self._core.now())

    def _send_along(self, state: NameState, delivery: Delivery[Arrival], route: Route) -> bool:
        """Send a message along a route, at the end of which a worker accepts it by its reply.

        Returns:
            Whether it was bound; if it was not, it goes on behind the redirect.
        """
        core, now, arrival, token = self._core, self._core.now(), delivery.message, None
        remote = core.copies.is_remote(route[0])
        target: Target = LinkTarget(str(route[0])) if remote else ConsumerTarget(core.number())
        if not delivery.settled:
            limit = now + core.options.outcome_timeout
            limit = limit if delivery.deadline is None else min(limit, delivery.deadline)
            token = state.pure.bind_to(delivery, target, limit, now)
            if token is None:
                return False
            core.copies.begun(token, state, target)
        try:
            core.copies.send_along(route, arrival, token, remote=remote)
        except OnwardError:
            if token is not None:
                state.pure.disposition(token, RELEASED, target, now)
            return token is not None
        core.counts["redirected"] += 1
        if token is None:
            count_end(arrival, Logged.SETTLED)  # it has left the dispatcher
        return True

    def _send_on(self, state: NameState, event: SendOn[Arrival]) -> None:
        target = LinkTarget(event.link)
        if event.token is not None:
            self._core.copies.begun(event.token, state, target)
        if self._core.copies.send_on(state.name, event.delivery, event.link, event.token):
            if event.token is None:
                count_end(event.delivery.message, Logged.SETTLED)
                _end(event.delivery)
            return
        if event.token is None:
            count_end(event.delivery.message, Logged.DROP)
            state.dropped += 1
            self._core.counts["link down"] += 1
            self._core.node.dead_letter(event.delivery.message.message, "link down")
        else:
            state.pure.disposition(event.token, RELEASED, target, self._core.now())

    def _copy_ended(self, state: NameState, event: CopyEnded) -> None:
        self._core.copies.ended(event.token)
        if event.sent and isinstance(event.target, ConsumerTarget):
            state.count_copy(event, event.target.consumer)
        if event.end not in (CopyEnd.ABANDONED, CopyEnd.SETTLED) or not event.sent:
            return
        if isinstance(event.target, LinkTarget):
            settled = event.end is CopyEnd.SETTLED
            self._core.copies.tell_end(event.target.link, event.token, settled=settled)
            return
        record = state.consumers.get(event.target.consumer)
        if record is not None and record.worker is not None:
            record.worker.abandoned(event.token, MODIFIED)


def _end(delivery: Delivery[Arrival]) -> None:
    """Separate a message from its record: both would wait for the garbage collector otherwise."""
    delivery.message.delivery = None
