"""The processes of one program, as they are asked for what operators want to know of all of them.

A process that hangs does not hold up an answer: it has a deadline, and the answer says which
processes are missing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from ...protocol.security import Principal
from ._messages import HttpError, HttpRequest, HttpResponse

__all__ = [
    "DEADLINE",
    "Answers",
    "PartMissing",
    "Parts",
    "TooLong",
    "ask_all",
    "ask_any",
    "body_of",
    "part_request",
    "principal_of_row",
    "principal_row",
]

DEADLINE: Final = 2.0
"""The seconds in which a process has to answer; then it is missing in the answer of all."""

MAX_ANSWER: Final = 8 * 1024 * 1024
"""The maximum number of bytes of an answer of one process; a question with a longer one is refused.
"""


class PartMissing(Exception):
    """A process does not run, or does not answer."""


class TooLong(Exception):
    """An answer is longer than `MAX_ANSWER`."""

    def __str__(self) -> str:
        return f"the answer has over {MAX_ANSWER} bytes: ask for a part"


class Parts(Protocol):
    """The processes of a program, by their numbers."""

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of all processes that there should be."""
        ...

    def run_of(self, number: int) -> str:
        """Return a text that tells this run of a process from others."""
        ...

    def ends_of(self, number: int) -> int:
        """Return how often a process has ended."""
        ...

    async def ask(self, number: int, request: HttpRequest, timeout: float) -> HttpResponse:
        """Return the answer of a process, with its whole body.

        Raises:
            PartMissing: It does not run, or has not answered in time.
            HttpError: It refuses the request.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of all processes to one request.

    Attributes:
        found: The answers by the number of the process.
        missing: The processes that have not answered.
        refused: The refusal of each process that has refused the request.
    """

    found: Mapping[int, HttpResponse]
    missing: Sequence[int]
    refused: Mapping[int, HttpError]

    def json(self) -> dict[int, Any]:
        """Return the answers as values.

        Raises:
            HttpError: A process has refused the request, as all do that have the same path.
        """
        for error in self.refused.values():
            raise error
        return {number: json.loads(_bytes(each)) for number, each in self.found.items()}

    def texts(self) -> dict[int, str]:
        """Return the answers as texts. Raises as `json`."""
        for error in self.refused.values():
            raise error
        return {number: _bytes(each).decode() for number, each in self.found.items()}


def part_request(
    path: str,
    fields: Sequence[tuple[str, str]] = (),
    body: bytes = b"",
    principal: Principal | None = None,
) -> HttpRequest:
    """Return a request to a process; with a body it is a `POST`."""
    method = "POST" if body else "GET"
    return HttpRequest(method, path, urlencode(fields), body=body, principal=principal)


async def ask_all(
    parts: Parts,
    request: HttpRequest,
    timeout: float = DEADLINE,
    numbers: Sequence[int] | None = None,
) -> Answers:
    """Ask all processes at the same time.

    Args:
        parts: The processes.
        request: The request.
        timeout: The seconds in which each has to answer.
        numbers: The processes to ask; by default all.
    """
    asked = parts.numbers if numbers is None else numbers
    found: dict[int, HttpResponse] = {}
    refused: dict[int, HttpError] = {}
    missing: list[int] = []

    async def ask(number: int) -> None:
        try:
            found[number] = await parts.ask(number, request, timeout)
        except HttpError as error:
            refused[number] = error
        except PartMissing:
            missing.append(number)

    await asyncio.gather(*map(ask, asked))
    return Answers(dict(sorted(found.items())), sorted(missing), dict(sorted(refused.items())))


async def ask_any(parts: Parts, request: HttpRequest, timeout: float = DEADLINE) -> HttpResponse:
    """Return the answer of the first process that has one, where all have the same.

    Raises:
        HttpError: It refuses the request, or no process answers.
    """
    for number in parts.numbers:
        try:
            return await parts.ask(number, request, timeout)
        except PartMissing:
            continue
    raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "no process answers")


async def body_of(response: HttpResponse) -> bytes:
    """Return the whole body of an answer.

    Raises:
        TooLong: It is longer than `MAX_ANSWER`.
    """
    try:
        body = response.body
        found = body if isinstance(body, bytes) else await _whole(body)
        if len(found) > MAX_ANSWER:
            raise TooLong
        return found
    finally:
        if response.on_end is not None:
            response.on_end()


async def _whole(parts: AsyncIterator[bytes]) -> bytes:
    found = bytearray()
    async for part in parts:
        found += part
        if len(found) > MAX_ANSWER:
            raise TooLong
    return bytes(found)


def _bytes(response: HttpResponse) -> bytes:
    if not isinstance(response.body, bytes):
        raise AssertionError("the answer of a process is not whole")  # noqa: TRY004
    return response.body


def principal_row(principal: Principal | None) -> dict[str, Any] | None:
    """Return a principal as values that JSON can represent, for another process of this program."""
    if principal is None:
        return None
    return {
        "name": principal.name,
        "method": principal.method,
        "roles": sorted(principal.roles),
        "tags": list(principal.tags),
        "expires": principal.expires,
        "issuer": principal.issuer,
    }


def principal_of_row(row: Mapping[str, Any] | None) -> Principal | None:
    """Return the principal that another process of this program has told of."""
    if row is None:
        return None
    tags = frozenset((key, value) for key, value in row["tags"])
    roles = frozenset(row["roles"])
    return Principal(row["name"], row["method"], roles, tags, row["expires"], row["issuer"])
