"""What a node sends on as it is, from an identity elsewhere to another one, and the answers."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from ....protocol import Address, Message, NotExposed, OnwardError
from ....protocol.identity import (
    BadRecord,
    DestinationKind,
    Identity,
    IdentityError,
    RelayStatus,
    Security,
    parse_target,
    short_text,
)
from ....protocol.ockam import message_size
from .._carriage import ENGINE, Carriage, carriage_at, is_reserved
from ._reports import PassedOn

if TYPE_CHECKING:
    from .._outgoing import Undelivered
    from .._router import Router
    from ..links._session import Failed
    from ._admission import RelayAdmission
    from ._queues import RelayQueues

__all__ = ["ClearRelay"]

_KINDS: Final = frozenset({DestinationKind.ENGINE, DestinationKind.NODE})


class ClearRelay:
    """The messages between identities elsewhere that a node sends on as they are.

    Whether one may is decided as it comes, which spends the rate of the node that it came from and
    nothing else: it may wait for the link between the two, and end there. It is charged and counted
    as that link gives it to the router.

    Args:
        router: The router.
        admission: What the relay admits.
        queues: What counts what is passed on.
    """

    __slots__ = ("_admission", "_queues", "_router")

    def __init__(self, router: Router, admission: RelayAdmission, queues: RelayQueues) -> None:
        self._router: Final = router
        self._admission: Final = admission
        self._queues: Final = queues

    def passes(self, by: Identity, address: Address) -> bool:
        """Whether an identity elsewhere may have a message sent on from here.

        Args:
            by: The identity at the other end of the link by which it came.
            address: Where it is to go from here, of type 36.
        """
        try:
            target = parse_target(address[1].decode())
        except (IdentityError, UnicodeDecodeError):
            return False
        destination, tprefs = target.destination, target.tprefs
        if tprefs is not None and tprefs.security is Security.MIXNET:
            return self._admission.is_ok(RelayStatus.UNEXPECTED_MESSAGE)
        if destination.kind not in _KINDS:
            return False
        source, following = self._router.home(by), self._router.home(destination.identity)
        if source is None or following is None:
            return self._admission.is_ok(RelayStatus.CONNECTION_FAILED)
        if not self._admission.admits(source):
            return False
        return self._admission.is_ok(self._admission.allows(source, following))

    def passes_back(self, by: Identity, to: Identity) -> bool:
        """Whether an answer of an identity elsewhere may be sent on from here.

        Args:
            by: The identity at the other end of the link by which it came.
            to: The identity elsewhere that has asked.
        """
        asked = self._router.home(by)
        if asked is None or self._router.home(to) is None:
            # The addresses of a return route go on being known, also where the node that was asked
            # is reached by a relay alone: there is no node to rate, and none to charge.
            return self._admission.is_ok(RelayStatus.CONNECTION_FAILED)
        return self._admission.admits(asked)

    def carry(
        self,
        by: Identity,
        own: Identity,
        to: Identity,
        message: Message,
        undelivered: Undelivered,
        *,
        is_admitted: bool,
    ) -> Awaitable[None] | None:
        """Send a message of an identity elsewhere on; charge and count it.

        Args:
            by: The identity that it came from.
            own: The identity of this node at the link that it goes over.
            to: The identity at the other end.
            message: The message, as a transport has it.
            undelivered: Receives it if it cannot be delivered.
            is_admitted: Whether it comes by `passes` or `passes_back` alone. Else a worker here has
                sent it. That may be to where the worker chose, so what the policy does not allow
                goes on as what is of this node: neither charged nor counted.

        Returns:
            `None`, or what to wait for before the next message.
        """
        router, admission = self._router, self._admission
        source, following, carriage = router.home(by), router.home(to), _carriage(message)
        is_answer = carriage is None
        if source is None or following is None:
            if not is_admitted:
                return router.outgoing.carry(own, to, message, undelivered)
            admission.is_ok(RelayStatus.CONNECTION_FAILED)  # its link has ended since it came
            undelivered(message, NotExposed(short_text(to)))
            return None
        asker, asked = (following, source) if is_answer else (source, following)
        is_known = carriage is None or carriage.kind in _KINDS
        if not is_known or not (is_admitted or admission.allows(asker, asked) is RelayStatus.OK):
            return router.outgoing.carry(own, to, message, undelivered)
        size = _size(message)
        charge = admission.charge(asker, asked, size)
        if isinstance(charge, RelayStatus):
            undelivered(message, NotExposed(short_text(to)))
            return None

        def give(failed: Failed) -> Awaitable[None] | None:
            def lost(message: Message, error: OnwardError) -> None:
                failed(error)
                undelivered(message, error)

            return router.outgoing.carry(own, to, message, lost)

        if carriage is not None and carriage.relays:
            following = carriage.relays[0]  # it asks for relays from here on
        return self._queues.pass_on(PassedOn(source, following, size, is_answer), charge, give)


def _carriage(message: Message) -> Carriage | None:
    """Return the carriage of a message that was resolved here; an answer has none."""
    try:
        return carriage_at(message.onward_route)
    except BadRecord:
        return None  # it is refused where it is carried


def _size(message: Message) -> int:
    """Return the size of a message as the link writes it, in bytes."""
    onward = message[0]
    if onward and is_reserved(onward[0]) and onward[0] != ENGINE:
        message = message._replace(onward_route=onward[1:])  # that one is for the router here
    return message_size(message)
