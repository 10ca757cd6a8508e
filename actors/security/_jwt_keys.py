"""The sources of the keys that verify JSON Web Tokens: a file, or an https URL."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from ...protocol.security import BadKeySet, NotAuthenticated, UnverifiedJwt
from ._jwt_signature import JwtKey, read_keys

__all__ = ["FileKeys", "JwtKeys", "UrlKeys"]

_logger = logging.getLogger("onward.actors.security")


class JwtKeys(ABC):
    """A source of keys.

    Attributes:
        keys: The keys. Another set of them is another object.
    """

    keys: Sequence[JwtKey]

    async def find(self, jwt: UnverifiedJwt) -> list[JwtKey]:
        """Return the keys that may have signed a token."""
        return [key for key in self.keys if key.fits(jwt)]

    @abstractmethod
    async def prepare_reload(self) -> Callable[[], object]:
        """Read the keys again; return the function that replaces the old ones."""

    async def close(self) -> None:  # noqa: B027 - a file needs none
        """Stop reading keys."""


class FileKeys(JwtKeys):
    """The keys in a file.

    Args:
        path: The file.
        most: The maximum size of the file, in bytes.

    Raises:
        OSError: It cannot be read.
        BadKeySet: It is no set of keys.
    """

    def __init__(self, path: Path, most: int) -> None:
        self._path = path
        self._most = most
        self.keys = self._read()

    def _read(self) -> Sequence[JwtKey]:
        with self._path.open("rb") as file:
            document = file.read(self._most + 1)
        if len(document) > self._most:
            raise BadKeySet(f"{self._path} has more than {self._most} bytes")
        return read_keys(document)

    async def prepare_reload(self) -> Callable[[], object]:
        """Read the file again. If it is not valid, the keys are as before."""
        keys = await asyncio.to_thread(self._read)
        return lambda: self._replace(keys)

    def _replace(self, keys: Sequence[JwtKey]) -> None:
        self.keys = keys


class UrlKeys(JwtKeys):
    """The keys that a URL serves.

    They are fetched at the first look-up, then at each interval, and for a token with an unknown
    key id. If a fetch fails, the keys are as before.

    Args:
        fetch: Fetches the document.
        interval: Seconds between two fetches.
        retry: Seconds after a fetch in which an unknown key id, or a failure, leads to no other.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], interval: float, retry: float
    ) -> None:
        self.keys = ()
        self._download = fetch
        self._interval = interval
        self._retry = retry
        self._began = -inf
        self._document = b""
        self._fetching: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None

    async def find(self, jwt: UnverifiedJwt) -> list[JwtKey]:
        """Return the keys that may have signed a token.

        Raises:
            NotAuthenticated: No keys could be fetched yet.
        """
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh())
        found = await super().find(jwt)
        if not found and self._may_fetch(jwt):
            with suppress(OSError, BadKeySet):
                await self.fetch()
            found = await super().find(jwt)
        if not self.keys:
            raise NotAuthenticated("no keys")
        return found

    def _may_fetch(self, jwt: UnverifiedJwt) -> bool:
        if self._fetching is not None:
            return True
        # A token without a key id is tried with all keys: there is no unknown one to fetch.
        is_unknown = jwt.key_id is not None or not self.keys
        return is_unknown and self._now() >= self._began + self._retry

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _refresh(self) -> None:
        while True:
            fetched = await self._try_to_fetch()
            await asyncio.sleep(self._interval if fetched else self._retry)

    async def _try_to_fetch(self) -> bool:
        try:
            await self.fetch()
        except Exception as error:  # noqa: BLE001 - the next fetch may succeed
            _logger.warning(
                "the keys for JSON Web Tokens could not be fetched: %s",
                error,
                extra={"event": "authentication.keys_not_fetched"},
            )
            return False
        return True

    async def prepare_reload(self) -> Callable[[], object]:
        """Fetch the keys, and replace the old ones at once, as at each interval.

        If they cannot be fetched, that is logged, and is no reason to refuse a reload of other
        parts: the issuer is another machine.
        """
        await self._try_to_fetch()
        return lambda: None

    async def fetch(self) -> None:
        """Fetch the keys. Calls at the same time share one fetch.

        Raises:
            OSError: They could not be fetched. The keys are as before.
            BadKeySet: The document is no set of keys. The keys are as before.
        """
        if self._fetching is None:
            self._began = self._now()
            self._fetching = asyncio.create_task(self._replace())
            self._fetching.add_done_callback(self._fetched)
        await asyncio.shield(self._fetching)

    async def _replace(self) -> None:
        document = await self._download()
        if document != self._document:
            self.keys = read_keys(document)
            self._document = document

    def _fetched(self, fetching: asyncio.Task[None]) -> None:
        self._fetching = None
        if not fetching.cancelled():
            fetching.exception()  # each waiter that is left has it

    async def close(self) -> None:
        """Stop fetching."""
        tasks = [task for task in (self._refreshing, self._fetching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
