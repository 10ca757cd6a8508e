"""The worker of the directory of a node: what workers of the node ask, and the file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeVar

from ....protocol import Address, Message
from ....protocol.identity import (
    RESULT_OK,
    AdvertEnvelope,
    AdvertSource,
    BadRecord,
    ControlRecord,
    DirectoryLimits,
    Identity,
    LookupIdentityRequest,
    LookupIdentityResponse,
    PutOutcome,
    Result,
    ResultCode,
    RowJournal,
    UpdateIdentityRequest,
    UpdateIdentityResponse,
    Verifiers,
    parse_control,
    read_advert,
    serialize_control,
)
from ..._worker import Worker
from .._errors import DirectoryFileInUse
from ._file import DirectoryFile
from ._saver import DirectorySaver
from ._service import DirectoryService

__all__ = ["DIRECTORY", "OPEN_WAIT", "DirectoryWorker"]

DIRECTORY: Final = Address(0, b"identity.directory")
"""The address of the directory of a node, for its own workers alone."""

OPEN_WAIT: Final = 10.0
"""Time that a node which starts waits for a command that has the file of its directory, in seconds.
A large one is read in one or two. Then the file is in use."""
_OPEN_AGAIN: Final = 0.1

T = TypeVar("T")

_DENIED: Final = "the directory takes messages of this node alone"
_ACCEPTED: Final = frozenset({PutOutcome.STORED, PutOutcome.REPLACED, PutOutcome.KNOWN})


class DirectoryWorker(Worker):
    """The worker of a directory.

    It takes `LookupIdentityRequest` and `UpdateIdentityRequest` as payloads, and answers with their
    responses. Any other message gets an error reply. What another node has sent is refused, and an
    update of it is answered with `DENIED`.

    The file has a thread of its own, as others wait for what peers make slow, such as a look-up of
    the name of a host. On a loop without threads it is used on the loop.

    Args:
        verifiers: Public keys that are ready to verify.
        milliseconds: Returns the time since the Unix epoch, in milliseconds.
        path: The file of the directory; `None`: it is in memory alone.
        limits: The limits.

    Attributes:
        service: The directory, once the worker has started.
    """

    def __init__(
        self,
        verifiers: Verifiers,
        milliseconds: Callable[[], int],
        path: Path | None = None,
        limits: DirectoryLimits | None = None,
    ) -> None:
        super().__init__()
        self._given: Final = verifiers, milliseconds
        self._path: Final = path
        self._limits: Final = limits
        self._executor: ThreadPoolExecutor | None = None
        self.service: DirectoryService

    async def on_start(self) -> None:
        """Read the file.

        Raises:
            DirectoryFileInUse: Another process has it, as it is not free within `OPEN_WAIT`.
            DirectoryFileFailed: It cannot be read.
            NewerDirectory: A newer version of Onward has written it.
        """
        call_soon = self.node.loop.call_soon
        if self._path is None:
            self.service = DirectoryService(*self._given, call_soon, self._limits)
            return
        journal = RowJournal()
        service = DirectoryService(*self._given, call_soon, self._limits, journal)
        with ExitStack() as to_undo:
            if getattr(self.node.loop, "no_threads", None) is None:
                self._executor = ThreadPoolExecutor(1, "onward-directory")
                to_undo.callback(self._executor.shutdown, wait=False)
            file = await self._opened(self._path)
            saver = DirectorySaver(
                *(service.directory, journal, file, self.after),
                in_thread=None if self._executor is None else self._in_thread,
                set_trust=service.set_trust,
            )
            to_undo.callback(saver.close)
            for _ in saver.load():
                await asyncio.sleep(0)
            to_undo.pop_all()
        service.saver = saver
        saver.wake()
        saver.requests.look_again()
        self.service = service

    async def on_stop(self) -> None:
        """Write what has changed."""
        saver = self.service.saver
        if saver is None:
            return
        try:
            await saver.save_all()
        finally:
            closing = saver.close()
            if self._executor is not None:
                self._executor.shutdown(wait=False)
        if closing is not None:
            await asyncio.wait((closing,))

    def _in_thread(self, action: Callable[[], T], /) -> asyncio.Future[T]:
        """Call a function in the thread of the file, after those before."""
        return self.node.loop.run_in_executor(self._executor, action)

    async def _opened(self, path: Path) -> DirectoryFile:
        """Open the file, which a command may have for a moment."""
        loop = self.node.loop
        until = loop.time() + OPEN_WAIT
        while True:
            try:
                return await self._open(path)
            except DirectoryFileInUse:
                if loop.time() >= until:
                    raise
                await asyncio.sleep(_OPEN_AGAIN)

    async def _open(self, path: Path) -> DirectoryFile:
        if self._executor is None:
            return DirectoryFile(path)
        opening = self._executor.submit(DirectoryFile, path)
        try:
            return await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)
            raise

    def handle_message(self, message: Message) -> Awaitable[None] | None:
        """Answer a request of a worker of this node."""
        try:
            request = parse_control(message.payload)
        except BadRecord as error:
            self._refuse(message, "no request to the directory", f": {error.reason}")
            return None
        if message.context is not None and message.context.outside is not None:
            if isinstance(request, UpdateIdentityRequest):
                result = Result(ResultCode.DENIED, _DENIED)
                self._answer(message, UpdateIdentityResponse(request.identity, result))
                self.node.dead_letter(message, _DENIED)
            else:
                self._refuse(message, _DENIED)
            return None
        match request:
            case LookupIdentityRequest(identity):
                record = self.service.lookup(identity)
                self._answer(message, LookupIdentityResponse(identity, record))
            case UpdateIdentityRequest(identity):
                self._answer(message, UpdateIdentityResponse(identity, self._update(request)))
            case _:
                kind = type(request).__name__
                self._refuse(message, f"the directory takes no {kind}")
        return None

    def _update(self, request: UpdateIdentityRequest) -> Result:
        identity, advert = request.identity, request.advert
        if advert is not None and not _is_of(identity, advert):
            return Result(ResultCode.BAD_ADVERT, "it is no advert of this identity")
        code = self.service.update(identity, request.local)
        if code is not ResultCode.OK:
            return Result(code, "the directory holds as many identities as it may")
        if advert is None:
            return RESULT_OK
        outcome = self.service.put(advert, AdvertSource.LOCAL)
        if outcome in _ACCEPTED:
            return RESULT_OK
        return Result(ResultCode.BAD_ADVERT, f"all but the advert is set: {outcome.value}")

    def _answer(self, message: Message, response: ControlRecord) -> None:
        if message.return_route:
            self.reply(message, serialize_control(response))

    def _refuse(self, message: Message, reason: str, detail: str = "") -> None:
        self.node.dead_letter(message, reason)
        self.node.answer_error(message, reason + detail)


def _close_opened(opening: Future[DirectoryFile]) -> None:
    """Close a file that was opened for a node which has stopped meanwhile."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _is_of(identity: Identity, advert: AdvertEnvelope) -> bool:
    try:
        return read_advert(advert).advert.identity == identity
    except BadRecord:
        return False
