"""The paths of the admin interface, asked by requests to the management service of a broker.

So clients of the broker see what its operators see by HTTP, with the credentials they have there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from ...actors.broker import ApplicationError, Broker
from ...protocol.rsocket import ErrorCode
from ...protocol.security import ANONYMOUS, Action, NotAllowed, Principal
from ._messages import JSON, HttpError, HttpRequest, HttpResponse, json_text
from ._paths import AdminPaths, Needs

__all__ = ["answer_paths"]

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
        path, _, query = target.partition("?")
        method = "POST" if arguments else "GET"
        try:
            found = paths.find(method, path)
            _check(broker, found.needs, principal)
            body = arguments.encode()
            reads = partial(_may_read, broker, principal)
            request = HttpRequest(method, path, query, body=body, principal=principal, reads=reads)
            return await _written(await found.handle(request))
        except HttpError as error:
            return json_text({"error": error.text}).encode()

    broker.admin = answer


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
    try:
        if response.content_type == _EVENTS:
            raise ApplicationError(ErrorCode.INVALID, "it has no end: watch 'watch'")
        body = response.body
        whole = body if isinstance(body, bytes) else await _whole(body)
        text = whole if response.content_type == JSON else json.dumps(whole.decode()).encode()
        if len(text) > MAX_ANSWER:
            raise _too_long()
        return text
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
