"""The base class of services: access control, refusals, and expiry."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol import Message, OnwardError, ProtocolError
from ...protocol.services import (
    ApiRequest,
    ApiResponse,
    ResponseStatus,
    ServiceError,
    decode_request,
    encode_response,
)
from .._worker import Worker

if TYPE_CHECKING:
    from ..access import AccessControl

__all__ = ["SWEEPS", "Service"]

SWEEPS: Final = 4
"""Number of checks for expired entries in the time after which an entry expires."""

_logger: Final = logging.getLogger("onward.actors.services")


class Service(Worker):
    """A worker that answers requests and may refuse them.

    Args:
        allow: The access control of messages; all are permitted by default.
        expire_after: The time after which its entries expire, in seconds.

    Attributes:
        refused: Messages refused.
        expired: Entries that expired.
    """

    def __init__(self, allow: AccessControl | None, expire_after: float) -> None:
        super().__init__()
        self.refused: int = 0
        self.expired: int = 0
        self._allow = allow
        self._expire_after = expire_after

    def on_start(self) -> None:
        """Start the timer of the checks for expired entries."""
        self.every(self._expire_after / SWEEPS, self._sweep)

    @abstractmethod
    def _sweep(self) -> None:
        """Drop the expired entries."""

    def _now(self) -> float:
        return self.node.loop.time()

    def handle_message(self, message: Message) -> None:
        """Perform or refuse a request. Not to be overridden."""
        try:
            self._check(message)
            self._handle(message)
        except ServiceError as error:
            self.refused += 1
            self.node.dead_letter(message, "refused by a service")
            self.node.answer_error(message, error.reason)

    @abstractmethod
    def _handle(self, message: Message) -> None:
        """Perform a request.

        Raises:
            ServiceError: It is refused.
        """

    def _check(self, message: Message) -> None:
        if not message.return_route:
            raise ServiceError("a message without a return route")
        try:
            allowed = self._allow is None or self._allow(message)
        except Exception:
            _logger.exception(
                "the access control of %s failed; it denies",
                self.address,
                extra={"event": "access.failed"},
            )
            allowed = False
        if not allowed:
            raise ServiceError("denied")

    def _answer(self, message: Message, payload: bytes) -> None:
        try:
            self.reply(message, payload)
        except OnwardError as error:
            self.node.dead_letter(message, error)

    def _serve(
        self, message: Message, do: Callable[[ApiRequest, Message], tuple[ResponseStatus, bytes]]
    ) -> None:
        """Answer a request of the API.

        Raises:
            ServiceError: It is not a request.
        """
        request = decode_request(message.payload)
        try:
            status, body = do(request, message)
        except ProtocolError:
            status, body = ResponseStatus.BAD_REQUEST, b""
        # A response has a number of its own, which no other message refers to.
        response = ApiResponse(request.number, request.number, status, body)
        self._answer(message, encode_response(response))
