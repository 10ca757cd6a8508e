"""The paths of the admin interface, asked by requests to the management service of a broker.

So clients of the broker see what its operators see by HTTP, with the credentials they have there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

from ...actors.broker import ApplicationError, Broker
from ...protocol.rsocket import ErrorCode
from ...protocol.security import ANONYMOUS, Action, NotAllowed, Principal
from ._messages import JSON, HttpError, HttpRequest, HttpResponse, accepted, json_text
from ._paths import AdminPaths, Needs

__all__ = ["answer_paths", "asked", "text_of"]

MAX_ANSWER: Final = 8 * 1024 * 1024
"""The maximum number of bytes of an answer; a question with a longer one is refused."""

_EVENTS: Final = "text/event-stream"


def answer_paths(broker: Broker, paths: AdminPaths) -> None:
    """Offer paths to the clients of a broker, as questions to its management service.

    A path that needs `read` or `operate` asks the authorization of the broker. Without one, each
    client may read, as it may ask the other questions, and none may operate. Where authentication
    lets clients in as anonymous, they may not read either, as by HTTP.

    Args:
        broker: The broker.
        paths: The paths.
    """

    async def answer(target: str, arguments: str, principal: Principal | None) -> bytes:
        try:
            found = paths.find("POST" if arguments else "GET", target.partition("?")[0])
            _check(broker, found.needs, principal)
            reads = partial(_may_read, broker, principal)
            return await _written(await asked(paths, target, arguments.encode(), principal, reads))
        except HttpError as error:
            return json_text({"error": error.text}).encode()

    broker.admin = answer


async def asked(
    paths: AdminPaths,
    target: str,
    body: bytes = b"",
    principal: Principal | None = None,
    reads: Callable[[], Awaitable[bool]] = accepted,
) -> HttpResponse:
    """Return the answer of a path, whatever the principal may do.

    Args:
        paths: The paths.
        target: The path, with its query.
        body: The arguments of a `POST`; empty for a `GET`.
        principal: The principal that asks.
        reads: Whether it may read; by default it may.

    Raises:
        HttpError: There is no such path, or it refuses the question.
    """
    path, _, query = target.partition("?")
    method = "POST" if body else "GET"
    request = HttpRequest(method, path, query, body=body, principal=principal, reads=reads)
    return await paths.find(method, path).handle(request)


def _check(broker: Broker, needs: Needs, principal: Principal | None) -> None:
    """Refuse a question that a principal may not ask.

    Raises:
        ApplicationError: It may not.
    """
    if needs == "nothing":
        return
    authorization = broker.authorization
    action = Action(needs)
    if authorization is None:
        unknown = principal is not None and principal.method == ANONYMOUS.method
        if action is not Action.READ or unknown:
            raise ApplicationError(ErrorCode.INVALID, str(NotAllowed(needs)))
    elif not authorization.allows(principal or ANONYMOUS, action):
        raise ApplicationError(ErrorCode.INVALID, str(authorization.denial(action)))


async def _may_read(broker: Broker, principal: Principal | None) -> bool:
    """Whether a principal may read the state of the broker."""
    try:
        _check(broker, "read", principal)
    except ApplicationError:
        return False
    return True


async def _written(response: HttpResponse) -> bytes:
    """Return an answer as JSON; text is a string of it.

    Raises:
        ApplicationError: It is too long, or has no end.
    """
    whole = await text_of(response)
    text = whole if response.content_type == JSON else json.dumps(whole.decode()).encode()
    if len(text) > MAX_ANSWER:
        raise _too_long()
    return text


async def text_of(response: HttpResponse) -> bytes:
    """Return the whole body of an answer.

    Raises:
        ApplicationError: It is too long, or has no end.
    """
    try:
        if response.content_type == _EVENTS:
            raise ApplicationError(ErrorCode.INVALID, "it has no end: watch 'watch'")
        body = response.body
        return body if isinstance(body, bytes) else await _whole(body)
    finally:
        if response.on_end is not None:
            response.on_end()


async def _whole(parts: AsyncIterator[bytes]) -> bytes:
    found = bytearray()
    async for part in parts:
        found += part
        if len(found) > MAX_ANSWER:
            raise _too_long()
    return bytes(found)


def _too_long() -> ApplicationError:
    text = f"the answer has over {MAX_ANSWER} bytes: ask for a part"
    return ApplicationError(ErrorCode.REJECTED, text)
