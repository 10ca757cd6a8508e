"""What the services have in common: who may ask, how a refusal is told, what expires."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ...protocol import Message, OnwardError, ProtocolError
from ...protocol.services import (
    ApiRequest,
    ApiResponse,
    ServiceError,
    Status,
    decode_request,
    encode_response,
)
from .._worker import Worker

if TYPE_CHECKING:
    from ..access import AccessControl

__all__ = ["SWEEPS", "Service"]

SWEEPS: Final = 4
"""How often what expires is looked for in the time after which it does."""

_logger: Final = logging.getLogger("onward.actors.services")


class Service(Worker):
    """A worker that is asked for something and may refuse.

    Args:
        allow: Decides about each message, as an access control; all may by default.
        expire_after: How long what it keeps lasts, in seconds.

    Attributes:
        refused: Messages that were refused.
        expired: Things it kept that have expired.
    """

    def __init__(self, allow: AccessControl | None, expire_after: float) -> None:
        super().__init__()
        self.refused: int = 0
        self.expired: int = 0
        self._allow = allow
        self._expire_after = expire_after

    def on_start(self) -> None:
        """Begin to look for what has expired."""
        self.every(self._expire_after / SWEEPS, self._sweep)

    @abstractmethod
    def _sweep(self) -> None:
        """Drop what has expired."""

    def _now(self) -> float:
        return self.node.loop.time()

    def handle_message(self, message: Message) -> None:
        """Do what is asked, or refuse it. Not to be overridden."""
        try:
            self._check(message)
            self._handle(message)
        except ServiceError as error:
            self.refused += 1
            self.node.dead_letter(message, "refused by a service")
            self.node.answer_error(message, error.reason)

    @abstractmethod
    def _handle(self, message: Message) -> None:
        """Do what is asked.

        Raises:
            ServiceError: It cannot be done.
        """

    def _check(self, message: Message) -> None:
        if not message.return_route:
            raise ServiceError("a message without a return route")
        try:
            allowed = self._allow is None or self._allow(message)
        except Exception:
            _logger.exception("the access control of %s failed; it denies", self.address)
            allowed = False
        if not allowed:
            raise ServiceError("denied")

    def _answer(self, message: Message, payload: bytes) -> None:
        try:
            self.reply(message, payload)
        except OnwardError as error:
            self.node.dead_letter(message, error)

    def _serve(
        self, message: Message, do: Callable[[ApiRequest, Message], tuple[Status, bytes]]
    ) -> None:
        """Answer a request of the API.

        Raises:
            ServiceError: It is not one.
        """
        request = decode_request(message.payload)
        try:
            status, body = do(request, message)
        except ProtocolError:
            status, body = Status.BAD_REQUEST, b""
        # A response has a number of its own; nobody refers to it.
        response = ApiResponse(request.number, request.number, status, body)
        self._answer(message, encode_response(response))
