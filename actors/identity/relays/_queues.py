"""What a relay passes on: sent at once, or held until there is a link with room."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol import OnwardError
from ....protocol.identity import (
    MAX_SKEW,
    MAX_TTL,
    EngineContent,
    HandleTable,
    Identity,
    RelayContent,
    RelayHoldings,
    RelayLoadLimits,
    RelayStatus,
    ReplyContent,
)
from ._reports import PassedOn

if TYPE_CHECKING:
    from ..._worker import Worker
    from ...runtime._timer import Timer
    from .._router import Router
    from ..links._session import Failed
    from ._admission import Charged, RelayAdmission

__all__ = ["Going", "Passed", "RelayQueues"]

Passed = EngineContent | RelayContent | ReplyContent
"""What a relay passes on."""


class Going(NamedTuple):
    """Something that a relay passes on.

    Attributes:
        content: What the next node is told.
        expiry: When it is of no use any more, in Unix milliseconds.
        previous: The node that it came from.
        source: The source of it, if it is not that node.
        charge: What it was charged to.
        may_wait: Whether it is held if it cannot be sent at once.
        engines: The identities that it is of and for, if this node lets it out.
    """

    content: Passed
    expiry: int
    previous: Identity
    source: Identity | None = None
    charge: Charged = None
    may_wait: bool = True
    engines: tuple[Identity, ...] = ()

    def is_of(self, identity: Identity) -> bool:
        """Whether it came from an identity, or is let out of it or to it."""
        return identity in {self.previous, self.source, *self.engines}


class RelayQueues:
    """The messages that a relay passes on, for each next node.

    Args:
        router: The router.
        worker: Its worker, for the timer.
        limits: The limits of what is held.
        admission: What the relay admits, which refunds what is not carried.
        handles: The ways of answers, of which that to something that is dropped is forgotten.

    Attributes:
        holdings: How much is held.
        relayed: What links have taken, whatever became of it then.
        relayed_size: Its bytes.
        on_passed: Each receives what a link has taken.
    """

    __slots__ = (
        "_admission",
        "_due",
        "_handles",
        "_held",
        "_router",
        "_timer",
        "_worker",
        "holdings",
        "on_passed",
        "relayed",
        "relayed_size",
    )

    def __init__(
        self,
        router: Router,
        worker: Worker,
        limits: RelayLoadLimits,
        admission: RelayAdmission,
        handles: HandleTable,
    ) -> None:
        self._router: Final = router
        self._worker: Final = worker
        self._admission: Final = admission
        self._handles: Final = handles
        self.holdings: Final = RelayHoldings(limits)
        # Of each node that has no link, or a link with no room.
        self._held: Final[dict[Identity, deque[Going]]] = {}
        self._timer: Timer | None = None
        self._due = 0
        self.relayed = 0
        self.relayed_size = 0
        self.on_passed: Final[list[Callable[[PassedOn], object]]] = []

    def send(self, node: Identity, going: Going) -> RelayStatus:
        """Pass something on, now or as soon as there is a link with room.

        Returns:
            `OK`, or `RESOURCE_LIMIT_EXCEEDED`: as much is held as may be, or it may not wait for
            room; or `CONNECTION_FAILED`: it may not wait for a link. It is refunded then.
        """
        is_joined = self._is_joined(node)
        if not going.may_wait and not (is_joined and self._has_room(node)):
            self._admission.refund(going.charge)
            full, no_link = RelayStatus.RESOURCE_LIMIT_EXCEEDED, RelayStatus.CONNECTION_FAILED
            return full if is_joined else no_link
        if node not in self._held and is_joined:
            self._give(node, going)
            return RelayStatus.OK
        size = size_of(going.content)
        refusal = self.holdings.hold(node, size, going.previous, going.source)
        if refusal is not None:
            self._admission.refund(going.charge)
            self._router.counts[f"relayed messages: {refusal.value}"] += 1
            return RelayStatus.RESOURCE_LIMIT_EXCEEDED
        self._held.setdefault(node, deque()).append(going)
        self._arm(going.expiry)
        self.dial(node)
        return RelayStatus.OK

    def dial(self, node: Identity) -> None:
        """Dial a node that something is held for, if it has no link and its advert has a place."""
        if node not in self._held or self._is_joined(node):
            return
        if self._router.dialling.is_dialable(node):
            self._router.dialling.dial(node, relayed=True)

    def dial_all(self) -> None:
        """Dial all nodes that something is held for, as far as may be; see `dial`."""
        for node in tuple(self._held):
            self.dial(node)

    def flush(self, node: Identity) -> None:
        """Send what is held for a node, as far as its link has room."""
        held = self._held.get(node)
        if held is None or (held and not self._is_joined(node)):
            return
        del self._held[node]
        now = self._router.milliseconds()
        while held and node not in self._held and self._is_joined(node):
            each = held.popleft()
            self._release(node, each)
            if each.expiry < now:
                self._drop(each, _EXPIRED)
            else:
                self._give(node, each)
        if held:
            self._held[node] = held

    def drop(self, identity: Identity) -> None:
        """Drop what is held for a node that is banned, and what is held of an identity that is."""
        for each in self._held.pop(identity, ()):
            self._release(identity, each)
            self._drop(each, "messages held for a node that is banned")
        self._drop_held(lambda each: each.is_of(identity), "messages held of what is banned")

    def clock_set(self) -> None:
        """Drop what has expired now that the clock was set, and what expires later than any may.

        If the clock was set back, that would be held for as long as it was set back by.
        """
        latest = self._router.milliseconds() + MAX_TTL + MAX_SKEW
        self._drop_held(lambda each: each.expiry > latest, _OF_BEFORE)
        if self._timer is not None:
            self._timer.cancel()  # its time is that of the clock as it was
        self._sweep()

    def _drop_held(self, is_over: Callable[[Going], bool], reason: str) -> None:
        """Drop what is held and of no use any more."""
        for node, held in list(self._held.items()):
            over = [each for each in held if is_over(each)]
            if over:
                left = [each for each in held if not is_over(each)]
                held.clear()
                held.extend(left)
            for each in over:
                self._release(node, each)
                self._drop(each, reason)
            if not held and not self._is_joined(node):
                del self._held[node]

    def _release(self, node: Identity, going: Going) -> None:
        self.holdings.release(node, size_of(going.content), going.previous, going.source)

    def _drop(self, going: Going, reason: str) -> None:
        self._admission.refund(going.charge)
        self._forget_way_back(going)
        self._router.counts[reason] += 1

    def _forget_way_back(self, going: Going) -> None:
        if isinstance(going.content, RelayContent) and going.content.handle is not None:
            self._handles.forget(going.content.handle)

    def close(self) -> None:
        """Drop all that is held, as the node ends."""
        self._drop_held(lambda _: True, "messages held when the node ended")
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _has_room(self, node: Identity) -> bool:
        return node not in self._held and self._router.peers.has_room(node)

    def _is_joined(self, node: Identity) -> bool:
        session = self._router.peers.sessions.get(node)
        return session is not None and session.is_greeted

    def _give(self, node: Identity, going: Going) -> None:
        """Give something to a link; if its queue is full, what follows is held until it is not."""
        content = going.content

        def give(failed: Failed) -> Awaitable[None] | None:
            def lost(error: OnwardError) -> None:
                self._forget_way_back(going)
                failed(error)

            return self._router.outgoing.tell(node, content, lost, going.expiry)

        is_answer = isinstance(content, ReplyContent)
        seen = PassedOn(going.previous, node, size_of(content), is_answer)
        room = self.pass_on(seen, going.charge, give)
        if room is not None:
            self._held.setdefault(node, deque())
            asyncio.ensure_future(room).add_done_callback(lambda _: self.flush(node))

    def pass_on(
        self, seen: PassedOn, charge: Charged, give: Callable[[Failed], Awaitable[None] | None]
    ) -> Awaitable[None] | None:
        """Give something to a link; count it and tell the watchers if the link takes it.

        If it is certainly not sent it is refunded, and counted by one of two reasons: no link has
        taken it; or one has, and what was counted and told stays so, as counters only rise.

        Args:
            seen: What the watchers are told.
            charge: What it was charged to.
            give: Gives it to the link, with what receives the reason if it is certainly not sent.

        Returns:
            What `give` returns.
        """
        is_taken = is_lost = False

        def failed(_: OnwardError) -> None:
            nonlocal is_lost
            is_lost = True
            self._admission.refund(charge)
            self._router.counts[_NOT_SENT if is_taken else _NOT_TAKEN] += 1

        room = give(failed)
        if not is_lost:
            is_taken = True
            self.relayed += 1
            self.relayed_size += seen.size
            for each in tuple(self.on_passed):
                each(seen)
        return room

    # --- what expires -----------------------------------------------------------------------

    def _arm(self, expiry: int) -> None:
        due = (expiry // _SWEEP + 1) * _SWEEP
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        seconds = max(0, due - self._router.milliseconds()) / 1000
        self._timer = self._worker.after(seconds, self._sweep)

    def _sweep(self) -> None:
        """Drop what has expired."""
        self._timer = None
        now = self._router.milliseconds()
        self._drop_held(lambda each: each.expiry < now, _EXPIRED)
        expiries = [each.expiry for held in self._held.values() for each in held]
        if expiries:
            self._arm(min(expiries))


def size_of(content: Passed) -> int:
    """Return the bytes of what is passed on."""
    return len(content.reply if isinstance(content, ReplyContent) else content.envelope)


_SWEEP: Final = 500
"""Time by which what has expired may be dropped late, in milliseconds, as all that is held is
looked at for that. It is not sent meanwhile."""
_NOT_TAKEN: Final = "relayed messages that no link has taken"
_NOT_SENT: Final = "relayed messages that a link has not sent"
_EXPIRED: Final = "relayed messages that have expired while they were held"
_OF_BEFORE: Final = "relayed messages of before the clock was set back"
