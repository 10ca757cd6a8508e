"""The file of principals on disk, shared by the methods that look peers up in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ...protocol.security import Principals, PrincipalsLimits, read_principals

__all__ = ["PrincipalsFile", "installed_hashes", "load_principals"]

_LIMITS: Final = PrincipalsLimits()
_PACKAGES: Final = {"argon2id": "argon2", "bcrypt": "bcrypt"}


class PrincipalsFile:
    """A file of principals. It is read when made, and again by `reload`.

    Methods that share a file share its content, which `reload` replaces in one step.

    Args:
        source: The file, or a function that reads the entries from elsewhere and raises the same
            errors; it is called on a thread.
        limits: The limits of the content of the file.

    Attributes:
        content: The entries.

    Raises:
        OSError: The file cannot be read.
        FileError: It has problems; the error names all of them.
    """

    def __init__(
        self,
        source: str | Path | Callable[[], Principals],
        limits: PrincipalsLimits = _LIMITS,
    ) -> None:
        if isinstance(source, str | Path):
            source = partial(load_principals, source, limits)
        self._read: Final = source
        self._reading: asyncio.Task[Principals] | None = None
        self.content: Principals = source()

    async def prepare_reload(self) -> Callable[[], object]:
        """Read the file again, on a thread; return the function that replaces the entries.

        Calls at the same time share one reading.

        Raises:
            OSError: The file cannot be read. The entries are as before.
            FileError: It has problems. The entries are as before.
        """
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(asyncio.to_thread(self._read))
        content = await asyncio.shield(self._reading)
        return lambda: self._replace(content)

    async def reload(self) -> None:
        """Read the file again, and replace the entries.

        Raises:
            OSError: As for `prepare_reload`.
            FileError: As for `prepare_reload`.
        """
        (await self.prepare_reload())()

    def _replace(self, content: Principals) -> None:
        self.content = content


def load_principals(path: str | Path, limits: PrincipalsLimits = _LIMITS) -> Principals:
    """Return the entries of a file.

    Raises:
        OSError: The file cannot be read.
        FileError: It has problems; the error names all of them.
    """
    with Path(path).open("rb") as file:
        content = file.read(limits.size + 1)
    return read_principals(content, str(path), hashes=installed_hashes(), limits=limits)


def installed_hashes() -> frozenset[str]:
    """Return the kinds of password hashes that can be verified with the installed packages."""
    installed = {kind for kind, package in _PACKAGES.items() if find_spec(package) is not None}
    return frozenset({"scrypt", *installed})
