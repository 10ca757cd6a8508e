"""Guards: enforcement of access controls on incoming and outgoing messages.

An address with a control for incoming messages has a `GuardedMailbox` in the table, which calls
the control and passes messages to the worker's cell. A worker with a control for outgoing messages
sends through an `OutboundGuard` in place of the router. Without controls there is no overhead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeAlias

from ...protocol import (
    Address,
    AddressLike,
    Context,
    Message,
    OnwardError,
    RouteLike,
    address as address_of,
)
from ..routing._given import as_route
from ..routing._requests import Requests
from ..routing._router import Router
from ..runtime._cell import Cell
from ..runtime._lost import note_lost
from ..runtime._mailbox import Target
from ._controls import Access, AccessControl, allow_all, on_node, passes
from ._errors import AccessDenied

__all__ = ["AccessLike", "GuardedMailbox", "OutboundGuard", "WorkerAccess"]

AccessLike: TypeAlias = (
    "Access | Mapping[AddressLike, Access] | Mapping[str, Access] | Mapping[Address, Access]"
)
"""Access for all addresses of a worker, or for each named address."""

LOG_INTERVAL: Final = 60.0
"""Seconds between two log lines about the failures of one control."""

logger: Final = logging.getLogger("onward.actors")


class AccessCheck:
    """A control on its node, which denies a message if it fails."""

    __slots__ = ("_about", "_control", "_due", "_router")

    def __init__(self, control: AccessControl, router: Router, about: str) -> None:
        self._control = on_node(control, router.addresses)
        self._router = router
        self._about = about
        self._due = 0.0

    def check(self, message: Message) -> None:
        """Check a message.

        Raises:
            AccessDenied: The control denies it. It is counted.
        """
        try:
            if passes(self._control, message):
                return
        except Exception as error:  # noqa: BLE001 - user code; it has not permitted the message
            self._log(error)
        self._router.undeliverable.dead_letters.denied += 1
        raise AccessDenied(message[0][0])

    def _log(self, error: Exception) -> None:
        now = self._router.run_queue.loop.time()
        if now >= self._due:
            self._due = now + LOG_INTERVAL
            text = "the access control for messages %s failed and denies"
            logger.error(text, self._about, exc_info=error, extra={"event": "access.failed"})


class GuardedMailbox(Target):
    """The table entry of an address with a control for incoming messages."""

    __slots__ = ("cell", "judge")

    def __init__(self, cell: Cell, judge: AccessCheck) -> None:
        # `queue` is never set, so that senders call `put`.
        self.queue = None
        self.limit = 0
        self.heavy = 0
        self.scheduled = False
        self.cell = cell
        self.judge = judge

    def cell_of(self) -> Cell:
        """Return the cell of the worker."""
        return self.cell

    def put(self, message: Message) -> None:
        """Pass a message to the worker if the control permits it.

        Raises:
            AccessDenied: The control denies it.
            DeliveryError: As the worker's mailbox.
        """
        self.judge.check(message)
        self.cell.put(message)


class WorkerAccess:
    """The access of one worker.

    Args:
        router: The router of its node.
        cell: The worker's cell.
        access: For all its addresses, including later ones, or for each named address.

    Attributes:
        sender: The guard that the worker sends through, or `None` without outgoing controls.

    Raises:
        ValueError: An address is named that the worker does not have.
    """

    __slots__ = (
        "_all",
        "_cell",
        "_default",
        "_each",
        "_judges",
        "_outgoing",
        "_router",
        "sender",
    )

    def __init__(self, router: Router, cell: Cell, access: AccessLike) -> None:
        self._router = router
        self._cell = cell
        self._all = Access()
        self._each: dict[Address, Access] = {}
        if isinstance(access, Access):
            self._all = access
        else:
            self._each = {address_of(given): each for given, each in access.items()}
        if foreign := [str(each) for each in self._each if each not in cell.addresses]:
            raise ValueError(f"access for {', '.join(foreign)}, which the worker does not have")
        of_all = self._each.get(cell.address, self._all)
        self._default = self._sends(cell.address, of_all)
        self._outgoing = {
            address: self._default if each is of_all else self._sends(address, each)
            for address, each in self._each.items()
        }
        judges = (self._default, *self._outgoing.values())
        self._judges = tuple(dict.fromkeys(judge for judge in judges if judge is not None))
        self.sender: OutboundGuard | None = OutboundGuard(router, self) if self._judges else None

    def _sends(self, address: Address, access: Access) -> AccessCheck | None:
        if access.outgoing is allow_all:
            return None
        return AccessCheck(access.outgoing, self._router, f"from {address}")

    def target(self, address: Address) -> Target:
        """Return the target for an address of the worker."""
        access = self._each.get(address, self._all)
        if access.incoming is allow_all:
            return self._cell
        return GuardedMailbox(
            self._cell, AccessCheck(access.incoming, self._router, f"to {address}")
        )

    def check(self, message: Message, own: Address | None) -> None:
        """Check a message that the worker sends.

        The control is that of the address that it is sent from. An address that is not named has
        the control of the primary address, so that added addresses are controlled too.

        Args:
            message: The message.
            own: The address it is sent from, as given by the worker. If `None`, only the message
                could tell, and it may be forged, so all controls of the worker have to permit it.

        Raises:
            AccessDenied: A control denies it.
        """
        if own is None:
            for judge in self._judges:
                judge.check(message)
            return
        judge_of_one = self._outgoing.get(own, self._default)
        if judge_of_one is not None:
            judge_of_one.check(message)


class OutboundGuard:
    """A guard that a worker sends through, in place of the router.

    A worker has one if it has outgoing access controls, or once it has received a message from
    outside, which has its permissions in its context.

    Args:
        router: The router.
        guarded: The worker's access, if it has any.
    """

    __slots__ = ("_guarded", "_router", "table")

    def __init__(self, router: Router, guarded: WorkerAccess | None) -> None:
        # Always empty, so that senders find no target and call `dispatch`.
        self.table: dict[Address, Target] = {}
        self._router: Final = router
        self._guarded = guarded

    def settle(self, _sender: OutboundGuard) -> None:
        """Ignore the call: this guard checks already."""

    def schedule(self, target: Target) -> None:
        """Raise an error, as the table is empty."""
        raise AssertionError(f"unexpected target {target}")

    def dispatch(self, message: Message) -> None:
        """Deliver a message as `Router.dispatch`, if the worker may send it.

        The worker has put its address in front of the return route itself.
        """
        back = message[1]
        self.dispatch_from(back[0] if back else None, message)

    def dispatch_from(self, own: Address | None, message: Message) -> None:
        """Deliver a message as `Router.dispatch`, if the worker may send it from its address."""
        try:
            self._check(message, own)
            self._router.dispatch(self._router.passage.pass_on(message))
        except OnwardError as error:
            note_lost(error, message)
            raise

    def dispatch_answer(self, message: Message) -> None:
        """Deliver an answer as `Router.dispatch_answer`, if the worker may send it."""
        onward, back, payload, source, context = message
        if self._guarded is not None:
            self._check(message, back[0] if back else None)
        if context is not None and context[4] is not None:
            due, trace, meta, hops, _ = context
            plain = due is None and trace is None and meta is None
            context = None if plain else Context(due, trace, meta, hops)
            message = Message(onward, back, payload, source, context)
        self._router.dispatch(message)

    async def dispatch_wait(self, message: Message, own: Address | None = None) -> None:
        """Deliver a message as `Router.dispatch_wait`, if the worker may send it."""
        try:
            self._check(message, own)
            await self._router.dispatch_wait(self._router.passage.pass_on(message))
        except OnwardError as error:
            note_lost(error, message)
            raise

    async def request(
        self,
        requests: Requests,
        source: Address,
        route: RouteLike,
        payload: bytes,
        timeout: float,
        context: Context | None,
    ) -> Message:
        """Send a request as `Requests.request`, if the worker may send it."""
        onward = as_route(route)
        message = Message(onward, (source,), payload, source, context)
        try:
            self._check(message, source)
            context = self._router.passage.pass_on(message)[4]
            return await requests.request(source, onward, payload, timeout, context)
        except OnwardError as error:
            note_lost(error, message)
            raise

    def _check(self, message: Message, own: Address | None) -> None:
        # Without an onward route the node raises `EmptyRoute`.
        if self._guarded is not None and message[0]:
            self._guarded.check(message, own)
