"""Requests and answers of the admin interface."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl
from uuid import UUID

from ...protocol.security import Principal

__all__ = [
    "HttpError",
    "HttpRequest",
    "HttpResponse",
    "accepted",
    "json_response",
    "json_text",
    "text_response",
]

MAX_FIELDS: Final = 50
"""The maximum number of fields in a query; a request with more is refused."""

MAX_TEXT: Final = 200
"""The maximum number of characters of a peer's text that an answer repeats."""

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"


class HttpError(Exception):
    """An answer with a status of 400 or more.

    Attributes:
        status: The status.
        text: The text for the peer, in which there are no internals.
        headers: Further fields of the answer.
    """

    def __init__(
        self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return f"{self.status.value} {self.status.phrase}: {self.text}"


def _true() -> bool:
    return True


async def accepted() -> bool:
    """Return true: the answer where no credentials are asked for."""
    return True


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A whole request.

    Attributes:
        method: `GET`, `HEAD`, `POST` or another one.
        path: The path, as it was sent.
        query: The text after the question mark, or empty.
        headers: The fields, with names in lower case; the values of repeated ones are joined by
            commas.
        body: The body.
        principal: The authenticated identity of the peer; `None` if none was asked for.
        source: The address of the peer, or its user at a Unix socket; empty if it is not known.
        permitted: Whether the rules still permit the request, for answers that go on.
        admitted: Whether its credentials are still accepted, too; they are verified anew.
        operates: Whether the peer may operate the program, too.
        reads: Whether the peer may read, too; its credentials are verified for that.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = field(default=b"", repr=False)
    principal: Principal | None = None
    source: str = ""
    permitted: Callable[[], bool] = field(default=_true, repr=False, compare=False)
    admitted: Callable[[], Awaitable[bool]] = field(default=accepted, repr=False, compare=False)
    operates: bool = True
    reads: Callable[[], Awaitable[bool]] = field(default=accepted, repr=False, compare=False)

    def fields(self) -> list[tuple[str, str]]:
        """Return the fields of the query in order.

        Raises:
            HttpError: There are too many, or they are not text.
        """
        try:
            return parse_qsl(
                self.query, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
            )
        except ValueError:
            raise HttpError(HTTPStatus.BAD_REQUEST, "the query cannot be read") from None

    def arguments(self) -> dict[str, Any]:
        """Return the JSON object in the body.

        Raises:
            HttpError: It is none.
        """
        try:
            found: Any = json.loads(self.body or b"{}", parse_constant=_refuse)
            # RFC 8259 section 8.2: half of a surrogate pair is no text of UTF-8.
            json.dumps(found, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise HttpError(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
        if not isinstance(found, dict):
            raise HttpError(HTTPStatus.BAD_REQUEST, "the body is not an object")
        return dict[str, Any](found)  # pyright: ignore[reportUnknownArgumentType]

    def known(self, *names: str) -> dict[str, Any]:
        """Return the JSON object in the body, which may have these names.

        Raises:
            HttpError: It is none, or one of its names is unknown.
        """
        arguments = self.arguments()
        unknown = set(arguments) - set(names)
        if unknown:
            text = ", ".join(sorted(unknown))[:MAX_TEXT]
            text = f"unknown: {text}; known are {', '.join(names)}"
            raise HttpError(HTTPStatus.BAD_REQUEST, text)
        return arguments


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)  # RFC 8259 section 6: "Infinity and NaN" "are not permitted"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer.

    Attributes:
        body: The body, or its parts as they are made.
        content_type: The type of the body.
        status: The status.
        headers: Further fields, or others in place of the usual ones.
        on_end: Called once when the answer has been sent or given up.
    """

    body: bytes | AsyncIterator[bytes] = field(repr=False)
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    on_end: Callable[[], object] | None = None


def text_response(text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    """Return an answer in plain text."""
    return HttpResponse(f"{text}\n".encode(), status=status)


def json_response(value: object, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    """Return an answer in JSON."""
    return HttpResponse(f"{json_text(value)}\n".encode(), JSON, status)


def json_text(value: object) -> str:
    """Return a value as JSON, in one line."""
    return json.dumps(value, separators=(",", ":"), default=_written)


def _written(value: object) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
