"""The paths of the admin interface, asked by requests to the management service of a broker.

So clients of the broker see what its operators see by HTTP, with the credentials they have there.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from ...actors.broker import ApplicationError, Broker, Request
from ...protocol.rsocket import ErrorCode
from ...protocol.security import ANONYMOUS, Action, NotAllowed, Principal
from ._messages import JSON, HttpError, HttpRequest, HttpResponse, accepted, json_text
from ._part_paths import PART
from ._parts import MAX_ANSWER, TooLong, body_of
from ._paths import AdminPaths, Needs

__all__ = ["AskWhole", "answer_paths", "asked"]

_LIVE: Final = "/livez"
_EVENTS: Final = "text/event-stream"

AskWhole: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""A function that asks all processes of this program together on behalf of a client."""

_WORDS: Final = {
    "statistics": "/api/v1/status",
    "dead-letters": "/api/v1/dead-letters",
    "workers": f"{PART}workers",
}
"""Questions of the management service that all processes have to be asked."""


def answer_paths(broker: Broker, paths: AdminPaths, whole: AskWhole | None = None) -> None:
    """Offer paths to the clients of a broker, as questions to its management service.

    A path that needs `read` or `operate` asks the authorization of the broker. Without one, each
    client may read, as it may ask the other questions, and none may operate. Where authentication
    lets clients in as anonymous, they may not read either, as by HTTP.

    Args:
        broker: The broker.
        paths: The paths.
        whole: Asks all processes, of which the broker is one, on behalf of clients at a listener
            that they share; `None` for a broker alone.
    """

    async def answer(target: str, arguments: str, request: Request) -> bytes | None:
        # The round trip to a process is its own.
        asks = whole if request.shared and target != _LIVE else None
        word = None if asks is None else _WORDS.get(target)
        if word is None and not target.startswith("/"):
            return None
        body = b"" if word else arguments.encode()
        principal = request.principal
        reads = partial(_may_read, broker, principal)
        question = _request(word or target, body, principal, reads, request.source)
        try:
            if word is not None:
                _check(broker, "read", principal)
            else:
                _check(broker, paths.find(question.method, question.path).needs, principal)
            ask = asks or paths.find(question.method, question.path).handle
            return await _written(await ask(question))
        except HttpError as error:
            return json_text({"error": error.text}).encode()

    broker.admin = answer


async def asked(
    paths: AdminPaths,
    target: str,
    body: bytes = b"",
    principal: Principal | None = None,
    reads: Callable[[], Awaitable[bool]] = accepted,
    source: str = "",
) -> HttpResponse:
    """Return the answer of a path, whatever the principal may do.

    Args:
        paths: The paths.
        target: The path, with its query.
        body: The arguments of a `POST`; empty for a `GET`.
        principal: The principal that asks.
        reads: Whether it may read; by default it may.
        source: The source of its connection; empty if it is not known.

    Raises:
        HttpError: There is no such path, or it refuses the question.
    """
    request = _request(target, body, principal, reads, source)
    return await paths.find(request.method, request.path).handle(request)


def _request(
    target: str,
    body: bytes,
    principal: Principal | None,
    reads: Callable[[], Awaitable[bool]],
    source: str,
) -> HttpRequest:
    path, _, query = target.partition("?")
    return HttpRequest(
        "POST" if body else "GET",
        path,
        query,
        body=body,
        principal=principal,
        source=source,
        reads=reads,
    )


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
    if response.content_type == _EVENTS:
        if response.on_end is not None:
            response.on_end()
        raise ApplicationError(ErrorCode.INVALID, "it has no end: watch 'watch'")
    try:
        whole = await body_of(response)
        text = whole if response.content_type == JSON else json.dumps(whole.decode()).encode()
        if len(text) > MAX_ANSWER:
            raise TooLong
    except TooLong as error:
        raise ApplicationError(ErrorCode.REJECTED, str(error)) from None
    return text
