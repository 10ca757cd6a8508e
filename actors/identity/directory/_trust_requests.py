"""Requests of other processes for a trust, as the node takes them that has the file.

`onward identity ban` writes one into the file. The node looks for them in the thread of the file,
again and again, and sets each trust on its loop, as a worker of the node would. A request is there
until what it asks for is saved, so that it outlasts a process that is killed in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Final, Protocol, TypeVar

from ....protocol.identity import (
    BadIdentity,
    BadRecord,
    Identity,
    ResultCode,
    parse_identity_bytes,
    short_text,
)
from ._file import DirectoryFile, failure_of
from ._request_table import TrustAnswer, TrustRequest

__all__ = ["TRUST_LOOK", "InThread", "TrustRequests"]

T = TypeVar("T")

TRUST_LOOK: Final = 1.0
"""Time between two looks for requests in the file of a directory, in seconds."""

_logger = logging.getLogger("onward.actors.identity")


class InThread(Protocol):
    """A way to call functions in one thread, in their order."""

    def __call__(self, action: Callable[[], T], /) -> asyncio.Future[T]:
        """Call a function; return what it will return or raise."""
        ...


class TrustRequests:
    """The requests for a trust in the file of a directory. Its methods are called on the loop.

    Args:
        file: The file.
        set_trust: Sets the trust in an identity.
        save_soon: Has changes and answers written in a later turn of the loop.
        after: Calls a function after a time in seconds, as `Worker.after` does.
        in_thread: Calls a function in the thread of the file; `None`: there are no looks, as there
            are no threads.

    Attributes:
        answers: The answers that are not written yet, by the numbers of the requests. Each has an
            identity: a change of it is to be written before; `None` for none.
        bad: Requests that were dropped, as they have no identity or no trust.
        trouble: Why they cannot be read at present; empty if they can.
    """

    def __init__(
        self,
        file: DirectoryFile,
        set_trust: Callable[[Identity, int], ResultCode],
        save_soon: Callable[[], object],
        after: Callable[[float, Callable[[], object]], object],
        in_thread: InThread | None,
    ) -> None:
        self.answers: Final[dict[int, tuple[TrustAnswer, Identity | None]]] = {}
        self.bad = 0
        self.trouble = ""
        self._file: Final = file
        self._set_trust: Final = set_trust
        self._save_soon: Final = save_soon
        self._after: Final = after
        self._in_thread: Final = in_thread
        # A look may end after the answer to what it has found was written.
        self._last = 0
        self._is_closed = False

    def take(self, requests: Iterable[TrustRequest]) -> None:
        """Set what is asked for, but by requests that were taken and are not gone from the file."""
        for number, data, trust in requests:
            if number > self._last:
                self._last = number
                self._save_soon()
                self.answers[number] = self._answer(data, trust)

    def ready(
        self, saving: Container[Identity], unsaved: Container[Identity]
    ) -> dict[int, TrustAnswer]:
        """Return the answers that can be written.

        Args:
            saving: The identities with changes that are written together with them.
            unsaved: All identities with a change that is not written.
        """
        return {
            number: answer
            for number, (answer, identity) in self.answers.items()
            if identity is None or identity in saving or identity not in unsaved
        }

    def _answer(self, data: bytes, trust: int) -> tuple[TrustAnswer, Identity | None]:
        try:
            identity = parse_identity_bytes(data)
            code = self._set_trust(identity, trust)
        except (BadIdentity, BadRecord):
            if not self.bad:
                _logger.warning(
                    "%s: a request in it has no identity or no trust: all such are dropped",
                    self._file.path,
                    extra={"event": "identity.trust_request_dropped"},
                )
            self.bad += 1
            return TrustAnswer.REFUSED, None
        if code is ResultCode.OK:
            _logger.warning(
                "%s: another process has set the trust in %s to %d",
                self._file.path,
                short_text(identity),
                trust,
                extra={"event": "identity.trust_request_taken"},
            )
            return TrustAnswer.TAKEN, identity
        _logger.error(
            "%s: there is no place for %s, in which another process asks for a trust of %d",
            self._file.path,
            short_text(identity),
            trust,
            extra={"event": "identity.trust_request_refused"},
        )
        return TrustAnswer.REFUSED, None

    # --- looks --------------------------------------------------------------------------------

    def look_again(self) -> None:
        """Look for requests after a time, and then again and again."""
        if self._in_thread is not None and not self._is_closed:
            self._after(TRUST_LOOK, partial(self._look, self._in_thread))

    def _look(self, in_thread: InThread) -> None:
        if not self._is_closed:
            in_thread(self._file.requests).add_done_callback(self._looked)

    def _looked(self, look: asyncio.Future[list[TrustRequest]]) -> None:
        error = look.exception()
        if self._is_closed:
            return
        try:
            if error is None:
                self.trouble = ""
                self.take(look.result())
            else:
                self._failed(error)
        finally:
            self.look_again()

    def _failed(self, error: BaseException) -> None:
        failure = failure_of(error, self._file.path)
        if not self.trouble:
            _logger.error(
                "%s; requests in it are taken as soon as they can be read",
                failure,
                extra={"event": "identity.trust_requests_not_read"},
            )
        self.trouble = failure.reason

    def close(self) -> None:
        """Look no more: what comes now, or is found by a look now, waits for the next node."""
        self._is_closed = True
