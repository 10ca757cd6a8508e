"""The checks of a request before its handler: host, origin, content type, and credentials."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Final, TypeAlias

from ...actors.security import Authentication
from ...protocol.security import (
    ANONYMOUS,
    MAX_PASSWORD,
    MAX_TOKEN,
    MAX_USERNAME,
    BearerToken,
    Credentials,
    NotAuthenticated,
    PeerIdentity,
    Principal,
    UserPassword,
)
from ._messages import JSON, HttpError, HttpRequest
from ._paths import Needs

__all__ = ["Permits", "RequestGuard", "credentials_of"]

OF_SCRIPTS: Final = 'Bearer realm="onward"'
"""The challenge for requests of the console's scripts: a browser answers one for Basic itself, with
a window that stands in the way of the page. `/sign-in` brings that window when it is wanted."""

CHALLENGE: Final = f'Basic realm="onward", charset="UTF-8", {OF_SCRIPTS}'
"""RFC 9110 section 11.6.1: a challenge for each scheme that is accepted."""

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})

Permits: TypeAlias = Callable[[Principal, str], bool]
"""A function that says whether a principal may `read` or `operate`."""


class RequestGuard:
    """The checks of requests, in the order of their price.

    Args:
        hosts: Names of the interface in `Host`, besides those of the loopback interface.
        authentication: The authentication of peers; `None` admits each of them, as `anonymous`.
        permits: Whether a principal may read or operate; `None` permits both.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        authentication: Authentication | None,
        permits: Permits | None,
    ) -> None:
        self._hosts = LOOPBACK | {each.lower() for each in hosts}
        self._authentication = authentication
        self._permits = permits

    def check_host(self, host: str, own: str) -> None:
        """Refuse a request for another host.

        A page of another site can have its name resolved to this address. Its requests then name
        that site in `Host`; the browser would give it the answers.

        Args:
            host: The host of the request, with its port if there is one.
            own: The address of the socket, which is no name that can be resolved.

        Raises:
            HttpError: The host is none of the known ones.
        """
        name = without_port(host.lower())
        if not name or (name not in self._hosts and name != own):
            text = "this is not the host of the request"
            raise HttpError(HTTPStatus.MISDIRECTED_REQUEST, text)

    def check_post(self, request: HttpRequest, host: str, *, secure: bool) -> None:
        """Refuse a request that a page of another site can have a browser send.

        Raises:
            HttpError: It is not JSON, or of another origin.
        """
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() != f"http{'s' * secure}://{host.lower()}":
            raise HttpError(HTTPStatus.FORBIDDEN, "the request is of another origin")
        content_type = request.headers.get("content-type", "").partition(";")[0]
        if content_type.strip().lower() != JSON:
            text = f"the content type must be {JSON}"
            raise HttpError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)

    def check_site(self, request: HttpRequest, needs: Needs) -> None:
        """Refuse a request that a page of another site has had a browser send.

        The browser adds the credentials that it has, and such a page cannot read the answer: it
        could have work done, such as a profile. A person may follow a link to what only reads.

        Raises:
            HttpError: The request is of another site.
        """
        # Fetch Metadata section 2.3: another port of one host is "same-site", and "none" is what
        # the user has asked for without a page.
        site = request.headers.get("sec-fetch-site", "none")
        if needs == "nothing" or site in ("none", "same-origin"):
            return
        if needs == "operate" or request.headers.get("sec-fetch-mode") != "navigate":
            raise HttpError(HTTPStatus.FORBIDDEN, "the request is of another site")

    async def principal(
        self, request: HttpRequest, needs: Needs, peer: PeerIdentity
    ) -> Principal | None:
        """Return the principal of a request; `None` if none is asked for.

        Raises:
            HttpError: The peer is not authenticated, or may not do this.
        """
        if needs == "nothing":
            return None
        principal = await self._authenticated(request, peer)
        if not self.permits(principal, needs):
            raise HttpError(HTTPStatus.FORBIDDEN, f"not allowed: {needs}")
        return principal if self._permits is None else principal or ANONYMOUS

    def permits(self, principal: Principal | None, needs: Needs) -> bool:
        """Whether the rules still permit what a principal does."""
        return self._permits is None or self._permits(principal or ANONYMOUS, needs)

    async def admits(self, request: HttpRequest, needs: Needs, peer: PeerIdentity) -> bool:
        """Whether the credentials of a request would be accepted once more."""
        try:
            await self.principal(request, needs, peer)
        except HttpError:
            return False
        return True

    async def _authenticated(self, request: HttpRequest, peer: PeerIdentity) -> Principal | None:
        """Return the principal of a peer; `None` without authentication.

        Raises:
            HttpError: The peer is not authenticated.
        """
        if self._authentication is None:
            return None
        try:
            credentials = credentials_of(request.headers.get("authorization", ""))
            if credentials is None:
                # RFC 9110 section 11.6.1: a client learns of the challenge by a request without
                # credentials. It guesses nothing, and is no failed attempt of its source.
                peer = replace(peer, source="")
            return await self._authentication.authenticate(credentials, peer)
        except NotAuthenticated as error:
            # Fetch Metadata section 2.1: of a request by a script the destination is empty.
            by_script = request.headers.get("sec-fetch-dest") == "empty"
            challenge = {"www-authenticate": OF_SCRIPTS if by_script else CHALLENGE}
            raise HttpError(HTTPStatus.UNAUTHORIZED, str(error), challenge) from None


def without_port(host: str) -> str:
    """Return the host of `host:port`; an IPv6 address keeps its brackets."""
    name, mark, port = host.rpartition(":")
    return (
        name
        if mark and port.isdecimal() and not (name.startswith("[") ^ name.endswith("]"))
        else host
    )


def credentials_of(field: str) -> Credentials | None:
    """Return the credentials in an `Authorization` field, of the schemes Basic and Bearer.

    Returns:
        The credentials; `None` if there are none.

    Raises:
        NotAuthenticated: They are broken, too long, or of another scheme.
    """
    scheme, _, rest = field.strip().partition(" ")
    token = rest.strip()
    if not scheme:
        return None
    # RFC 9110 section 11.1: the scheme is "a case-insensitive token".
    if scheme.lower() == "bearer" and token and token.isascii() and len(token) <= MAX_TOKEN:
        return BearerToken(token.encode())
    if scheme.lower() == "basic" and len(token) <= 2 * (MAX_USERNAME + MAX_PASSWORD):
        try:
            text = base64.b64decode(token, validate=True).decode()
        except (binascii.Error, ValueError):
            raise NotAuthenticated("bad credentials") from None
        # RFC 7617 section 2: "the first colon in a user-pass string separates user-id and
        # password".
        username, colon, password = text.partition(":")
        fits = len(username.encode()) <= MAX_USERNAME and len(password.encode()) <= MAX_PASSWORD
        if colon and username and fits:
            return UserPassword(username, password)
    raise NotAuthenticated("bad credentials")
