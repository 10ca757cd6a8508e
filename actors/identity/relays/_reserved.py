"""The reservations of this node at relays, by which others reach it.

Each is asked for again at half of its time, and when the link to the relay is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....protocol import LinkDown
from ....protocol.identity import (
    BadRecord,
    ControlContent,
    Identity,
    RelayStatus,
    Reservation,
    ReservationAnswer,
    ReservationRequest,
    open_voucher,
    parse_reservation_answer,
    serialize_reservation_request,
    short_text,
)
from ..._errors import LimitReached
from .._errors import RelayRefused

if TYPE_CHECKING:
    from ..._worker import Worker
    from ...runtime._timer import Timer
    from .._router import Router

__all__ = ["MAX_RESERVED", "ReservedRelays"]

MAX_RESERVED: Final = 8
"""Most relays at which a node has reservations. Beyond: a further one is refused with
`LimitReached`. The advert of a node has room for twice as many addresses."""

_ANSWER_TIME: Final = 10.0
"""Time in which a relay has to answer, in seconds. Then it has not."""
_AGAIN: Final = 30.0
"""Time after which a relay is asked again that has refused or not answered, in seconds."""
_MARGIN: Final = 1.0
"""Time behind the half of a reservation at which it is asked for again, in seconds: before that
half the relay gives no new one."""


class _Wanted:
    """A reservation that is wanted at a relay."""

    __slots__ = ("asked", "granted", "request", "reservation", "timer", "waiting")

    def __init__(self, request: ReservationRequest) -> None:
        self.request = request
        self.reservation: Reservation | None = None
        self.asked = False
        self.granted = False  # once, whatever became of it
        self.timer: Timer | None = None
        self.waiting: Final[list[asyncio.Future[Reservation]]] = []


class ReservedRelays:
    """The reservations of this node at relays.

    Args:
        router: The router.
        worker: Its worker, for timers.

    Attributes:
        on_change: Each is called when there is a reservation at another relay, or at one less.
    """

    __slots__ = ("_router", "_told", "_wanted", "_worker", "on_change")

    def __init__(self, router: Router, worker: Worker) -> None:
        self._router: Final = router
        self._worker: Final = worker
        self._wanted: Final[dict[Identity, _Wanted]] = {}
        self._told: tuple[Identity, ...] = ()
        self.on_change: Final[list[Callable[[], object]]] = []

    def relays(self) -> tuple[Identity, ...]:
        """Return the relays at which there is a reservation now."""
        now = self._router.milliseconds()
        return tuple(
            relay
            for relay, wanted in self._wanted.items()
            if wanted.reservation is not None and wanted.reservation.until > now
        )

    async def reserve(self, relay: Identity, request: ReservationRequest) -> Reservation:
        """Reserve at a relay; see `Identities.reserve`."""
        if relay not in self._router.peers.sessions:
            raise LinkDown(short_text(relay), "there is no link to the relay")
        wanted = self._wanted.get(relay)
        if wanted is None:
            if len(self._wanted) >= MAX_RESERVED:
                raise LimitReached("relays to reserve at", MAX_RESERVED)
            wanted = self._wanted[relay] = _Wanted(request)
        wanted.request = request
        waiting: asyncio.Future[Reservation] = self._worker.node.loop.create_future()
        wanted.waiting.append(waiting)
        self._ask(relay, wanted)
        return await waiting

    def release(self, relay: Identity) -> bool:
        """Ask a relay no more; return whether there was a reservation or a wish for one.

        The one that there is ends at its time, or with the link.
        """
        wanted = self._wanted.pop(relay, None)
        if wanted is None:
            return False
        _stop(wanted)
        _refuse(wanted, RelayRefused(relay, None))
        self._changed()
        return True

    # --- what is asked and answered -----------------------------------------------------------

    def _ask(self, relay: Identity, wanted: _Wanted) -> None:
        if wanted.asked:
            return
        wanted.asked = True
        self._arm(relay, wanted, _ANSWER_TIME)
        content = ControlContent(serialize_reservation_request(wanted.request))
        # If it is not handed over, no answer comes, as from a relay that gives none.
        self._router.outgoing.say(relay, content)

    def receive(self, relay: Identity, record: bytes) -> None:
        """Receive the answer of a relay."""
        wanted, counts = self._wanted.get(relay), self._router.counts
        if wanted is None or not wanted.asked:
            counts["answers of relays that were not asked"] += 1
            return
        try:
            answer = parse_reservation_answer(record)
            reservation = self._open(relay, answer)
        except BadRecord:
            counts["records that cannot be read"] += 1
            return
        wanted.asked = False
        if reservation is None:
            status = answer.status
            if status is RelayStatus.OK:
                counts["vouchers that are not of their relay and for this node"] += 1
            self._failed(relay, wanted, RelayRefused(relay, status))
            return
        wanted.reservation, wanted.granted = reservation, True
        # What a relay says beyond the time that was asked for is not relied on.
        left = (reservation.until - self._router.milliseconds()) / 1000
        left = min(left, wanted.request.duration)
        self._arm(relay, wanted, max(0.0, left / 2) + _MARGIN)
        waiting, wanted.waiting[:] = list(wanted.waiting), ()
        for each in waiting:
            if not each.done():
                each.set_result(reservation)
        self._changed()

    def _open(self, relay: Identity, answer: ReservationAnswer) -> Reservation | None:
        """Return the reservation of an answer; `None` if it is none of this relay and node.

        Raises:
            BadRecord: Its voucher is none.
        """
        if answer.voucher is None:
            return None
        router = self._router
        reservation = open_voucher(answer.voucher, router.verifiers, router.milliseconds())
        if reservation is None or (reservation.relay, reservation.node) != (relay, router.own):
            return None
        return reservation

    def _failed(self, relay: Identity, wanted: _Wanted, error: LinkDown | RelayRefused) -> None:
        """Refuse those that wait; ask again later if there was a reservation."""
        _refuse(wanted, error)
        if wanted.granted:
            self._arm(relay, wanted, _AGAIN)
        else:
            _stop(wanted)
            del self._wanted[relay]
        self._changed()

    def _due(self, relay: Identity, wanted: _Wanted) -> None:
        wanted.timer = None
        if wanted.asked:
            wanted.asked = False
            self._failed(relay, wanted, RelayRefused(relay, None))
        else:
            self._changed()
            self._ask(relay, wanted)

    def _arm(self, relay: Identity, wanted: _Wanted, seconds: float) -> None:
        _stop(wanted)
        wanted.timer = self._worker.after(seconds, lambda: self._due(relay, wanted))

    def _changed(self) -> None:
        relays = self.relays()
        if relays != self._told:
            self._told = relays
            for each in tuple(self.on_change):
                each()

    # --- links ----------------------------------------------------------------------------------

    def node_joined(self, node: Identity) -> None:
        """Ask a relay again, as the reservation that there was has ended with the link."""
        wanted = self._wanted.get(node)
        if wanted is not None:
            self._ask(node, wanted)

    def holds(self, node: Identity) -> bool:
        """Whether there is a reservation at a node, or it is asked for one."""
        return node in self._wanted

    def node_lost(self, node: Identity) -> None:
        """End the reservation at a relay, until the link to it is back."""
        wanted = self._wanted.get(node)
        if wanted is None:
            return
        _stop(wanted)
        wanted.asked, wanted.reservation = False, None
        _refuse(wanted, LinkDown(short_text(node), "the link to the relay has ended"))
        if not wanted.granted:
            del self._wanted[node]
        self._changed()

    def close(self) -> None:
        """End, as the node does."""
        self.on_change.clear()
        for relay in list(self._wanted):
            self.release(relay)


def _stop(wanted: _Wanted) -> None:
    if wanted.timer is not None:
        wanted.timer.cancel()
        wanted.timer = None


def _refuse(wanted: _Wanted, error: LinkDown | RelayRefused) -> None:
    waiting, wanted.waiting[:] = list(wanted.waiting), ()
    for each in waiting:
        if not each.done():
            each.set_exception(error)
