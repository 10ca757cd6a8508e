"""Credentials in the metadata of requests, at a listener that checks them.

The principal of an entry decides on its request in place of that of the connection. The entry is
taken out of the metadata: the destination could show it to the broker itself. Elements of streams
and channels have no credentials, so the decision holds until the stream ends.

```
request ──▶ no entry, none held ─────────────────────────▶ routed
        ──▶ entry remembered, none held ─────────────────▶ routed
        ──▶ otherwise: held ──▶ first of the held ones: checked ──▶ routed or refused
```

One check at a time is in progress for a connection, so its requests stay in their order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import NotDelivered
from ...protocol.rsocket import ErrorCode, FrameType
from ...protocol.security import (
    AUTHENTICATION_MIME,
    NOT_AUTHENTICATED,
    BadCredentials,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    parse_credentials,
)
from ._admission import find_credentials
from ._metadata import ADDRESS, FORMS, find_broker_frame
from ._translate import with_metadata
from ._validity import is_about_validity, names_authenticate

if TYPE_CHECKING:
    from ...actors.security import Authentication
    from ._exchange import StreamExchange
    from ._link import Link

__all__ = ["RequestChecks"]

_PUSH: Final = int(FrameType.METADATA_PUSH)
_WELL_KNOWN: Final = 0x80 | 0x7C
_LENGTH: Final = 3
_COMPOSITE_FORMS: Final = tuple(form for form in FORMS.values() if form.composite)


class _Held(NamedTuple):
    """A request that is held, with the metadata that are left and its credentials, if any."""

    exchange: StreamExchange
    metadata: bytes
    credentials: Credentials | None
    digest: bytes


class RequestChecks:
    """The checks of the requests of one connection.

    Args:
        link: The connection.
        authentication: The methods, and what they remember.
        composite: Whether the peer's metadata are composite. Others have an ADDRESS alone.
    """

    def __init__(self, link: Link, authentication: Authentication, composite: bool) -> None:
        self._link: Link | None = link
        self._authentication = authentication
        self._composite = composite
        identity = link.identity
        self._identity = PeerIdentity(listener=identity.listener, source=identity.source)
        # What decides on credentials besides themselves.
        texts = [text.encode() for text in (identity.listener, identity.source)]
        self._salt = b"".join(len(text).to_bytes(4) + text for text in texts)
        self._held: deque[_Held] = deque()
        self._task: asyncio.Task[Principal] | None = None

    def take(self, exchange: StreamExchange, metadata: bytes) -> bool:
        """Take a request that has credentials, or that others are held before.

        Args:
            exchange: The request.
            metadata: All of its metadata.

        Returns:
            Whether it is taken. If not, the principal of the connection decides.

        Raises:
            ProtocolError: The metadata or the entry cannot be read, or there are several entries.
            DeliveryError: It cannot be routed; or too many requests are held, or too many bytes.
        """
        link = self._link
        found = find_credentials(metadata) if self._composite else None
        if link is None:
            return False
        if exchange.kind == _PUSH:
            # Authentication: the entry is for SETUP and requests.
            if found is not None:
                raise BadCredentials("a metadata push has none")
            return False
        if found is None or self._is_for_connection(link, metadata):
            if not self._held:
                return False
            self._hold(link, _Held(exchange, metadata, None, b""))
            return True
        entry, metadata = metadata[slice(*found)], _without(metadata, found)
        digest = sha256(self._salt + entry).digest()
        principal = None if self._held else self._authentication.remembered(digest)
        credentials = parse_credentials(entry) if principal is None else None
        exchange.frames = with_metadata(exchange.frames, metadata)
        if principal is None:
            self._hold(link, _Held(exchange, metadata, credentials, digest))
        else:
            exchange.checked = principal
            link.session.route_checked(exchange, metadata, principal)
        return True

    def _is_for_connection(self, link: Link, metadata: bytes) -> bool:
        """Whether the credentials are new ones of the connection, which prolong it."""
        if not names_authenticate(metadata):
            return False
        found = find_broker_frame(metadata, 0, len(metadata), ADDRESS)
        if found is None:
            return False
        which, start, end = found
        ask = link.broker.index.ask(metadata[start:end], _COMPOSITE_FORMS[which].dialect)
        return is_about_validity(metadata, ask)

    def _hold(self, link: Link, held: _Held) -> None:
        if len(self._held) >= self._authentication.options.max_held:
            raise NotDelivered("the request", "too many wait for the check of credentials")
        link.session.hold(held.exchange)
        self._held.append(held)
        if self._task is None:
            self._go_on(link)

    def _go_on(self, link: Link) -> None:
        """Route the held requests up to the first with credentials that are not remembered."""
        while self._held:
            exchange, metadata, credentials, digest = self._held[0]
            principal = None
            if credentials is not None and exchange.kept:
                principal = self._authentication.remembered(digest)
                if principal is None:
                    checking = self._authentication.authenticate_request(
                        credentials, self._identity, digest
                    )
                    self._task = link.node.loop.create_task(checking)
                    self._task.add_done_callback(self._decided)
                    return
            self._held.popleft()
            self._route(link, exchange, metadata, principal)

    def _route(
        self, link: Link, exchange: StreamExchange, metadata: bytes, principal: Principal | None
    ) -> None:
        if not exchange.kept:  # it was cancelled, or the connection drains
            return
        if principal is not None:
            exchange.checked = principal
        link.session.route_checked(exchange, metadata, principal)

    def _decided(self, task: asyncio.Task[Principal]) -> None:
        self._task = None
        error = None if task.cancelled() else task.exception()
        link = self._link
        if link is None or task.cancelled():  # it has ended
            return
        exchange, metadata, _, _ = self._held.popleft()
        if error is None:
            self._route(link, exchange, metadata, task.result())
        else:
            cause = error.cause if isinstance(error, NotAuthenticated) else type(error).__name__
            link.report("request credentials", f"a request is not authenticated: {cause}")
            if exchange.kept:
                link.session.refuse_held(exchange, ErrorCode.INVALID, NOT_AUTHENTICATED)
        self._go_on(link)

    def end(self) -> None:
        """Release all requests: the connection has ended."""
        self._link = None
        self._held.clear()
        if self._task is not None:
            self._task.cancel()


def _without(metadata: bytes, found: tuple[int, int]) -> bytes:
    """Return composite metadata without one authentication entry.

    Args:
        metadata: The metadata.
        found: The offsets of the content of the entry.
    """
    start, end = found
    head = start - _LENGTH - 1
    if metadata[head] != _WELL_KNOWN:
        head -= len(AUTHENTICATION_MIME)  # its name, after the length of that
    return metadata[:head] + metadata[end:]
