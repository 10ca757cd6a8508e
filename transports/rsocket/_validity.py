"""The time for which the credentials of a peer are valid, and prolonging it.

A connection with credentials that expire is closed `GRACE` seconds after their expiry. Before that
the peer may show new ones, by a request/response to `onward.management` with the route
`authenticate` and an authentication entry in its composite metadata. Without such an entry the
answer tells the time that is left.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from ...actors.broker import MANAGEMENT_SERVICE
from ...protocol.broker import WellKnownKey
from ...protocol.rsocket import ErrorCode, FrameType, find_entry
from ...protocol.security import (
    NOT_AUTHENTICATED,
    Credentials,
    NotAuthenticated,
    Principal,
)
from ..streams._authenticating import CHECK, GRACE
from ._admission import entry_in

if TYPE_CHECKING:
    from ...actors.broker import Ask
    from ...actors.security import Authentication
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = ["Validity", "is_about_validity", "names_authenticate"]

_EXPIRED: Final = "credentials expired"
_MANAGEMENT: Final = (int(WellKnownKey.SERVICE_NAME), MANAGEMENT_SERVICE)
_ROUTING: Final = b"message/x.rsocket.routing.v0"
_ROUTE: Final = b"authenticate"
# Routing Metadata Extension: "Unsigned 8-bit integer of Tag Length in bytes."
_TAG: Final = bytes((len(_ROUTE),)) + _ROUTE
_RESPONSE: Final = int(FrameType.REQUEST_RESPONSE)


def is_about_validity(metadata: bytes, ask: Ask) -> bool:
    """Whether a request asks for the validity of the requester's credentials, or prolongs it.

    Args:
        metadata: The composite metadata of the request.
        ask: Its query.

    Raises:
        MalformedComposite: The metadata cannot be read.
    """
    return _MANAGEMENT in ask.query and names_authenticate(metadata)


def names_authenticate(metadata: bytes) -> bool:
    """Whether composite metadata name the route `authenticate`, of whatever service.

    Raises:
        MalformedComposite: The metadata cannot be read.
    """
    found = find_entry(metadata, _ROUTING)
    return found is not None and metadata[slice(*found)] == _TAG


class Validity:
    """The validity of one peer's credentials.

    Args:
        link: The connection.
        authentication: The methods that check new credentials.
    """

    def __init__(self, link: Link, authentication: Authentication) -> None:
        self._link: Link | None = link
        self._authentication = authentication
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[Principal] | None = None
        self._watch()

    def _left(self) -> float | None:
        """Return the seconds until the credentials expire; `None` if they do not."""
        principal = None if self._link is None else self._link.session.principal
        if principal is None or principal.expires is None:
            return None
        return principal.expires - self._authentication.time()

    def _watch(self) -> None:
        """Close the connection if its time is over, or set the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        link, left = self._link, self._left()
        if link is None or left is None:
            return
        if left + GRACE <= 0:
            link.close(_EXPIRED, _EXPIRED)
        else:
            self._timer = link.call_later(min(left + GRACE, CHECK), self._watch)

    def end(self) -> None:
        """Cancel what is under way: the connection has ended."""
        self._link = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    # --- requests -----------------------------------------------------------------------------

    def answer(self, exchange: StreamExchange, metadata: bytes) -> None:
        """Answer a request for the validity; prolong it if it has new credentials.

        Raises:
            BadCredentials: The entry of credentials is broken, or there are several.
        """
        link = self._link
        if link is None or exchange.kind != _RESPONSE:
            exchange.refuse(ErrorCode.INVALID, "authenticate is a request/response")
            return
        credentials = entry_in(metadata)
        exchange.frames = []
        if credentials is None:
            self._tell(exchange)
        elif self._task is not None:
            exchange.refuse(ErrorCode.REJECTED, "other credentials are being checked")
        else:
            self._check(link, exchange, credentials)

    def _check(self, link: Link, exchange: StreamExchange, credentials: Credentials) -> None:
        deciding = self._authentication.authenticate(credentials, link.identity)
        self._task = task = link.node.loop.create_task(deciding)
        task.add_done_callback(lambda decided: self._decided(exchange, decided))

    def _decided(self, exchange: StreamExchange, task: asyncio.Task[Principal]) -> None:
        link, self._task = self._link, None
        if task.cancelled():
            return
        error = task.exception()
        if link is None:  # it has ended
            return
        try:
            if error is not None:
                raise error
            self._prolong(link, task.result())
        except NotAuthenticated as refused:
            link.report("prolonging", f"the credentials are not prolonged: {refused.cause}")
            if exchange.kept:
                exchange.refuse(ErrorCode.INVALID, NOT_AUTHENTICATED)
            return
        if exchange.kept:
            self._tell(exchange)

    def _prolong(self, link: Link, principal: Principal) -> None:
        """Replace the principal of the connection.

        Raises:
            NotAuthenticated: It is another principal, or one with other tags.
        """
        session = link.session
        before = session.principal
        if before is None or not before.is_same(principal):
            raise NotAuthenticated("another principal")
        if before.tags != principal.tags:
            # Its registrations and open requests have the tags of before.
            raise NotAuthenticated("other tags")
        session.renew(principal)
        self._watch()

    def _tell(self, exchange: StreamExchange) -> None:
        principal = exchange.link.session.principal
        if principal is None:
            raise AssertionError("the peer is authenticated")
        told = {
            "principal": principal.name,
            "method": principal.method,
            "expires": principal.expires,
            "expires_in": self._left(),
        }
        exchange.answer(json.dumps(told, separators=(",", ":")).encode())
