"""The method `password`: user names and passwords, verified off the loop."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import get_native_id
from typing import Final

from ...protocol.options import Count, Seconds, Size, check_options
from ...protocol.security import (
    Account,
    Credentials,
    NotAuthenticated,
    PasswordHash,
    PeerIdentity,
    Principal,
    Remembered,
    UserPassword,
    verify_scrypt,
)
from ._authenticator import Authenticator
from ._principals_file import PrincipalsFile

__all__ = ["PasswordAuthenticator", "PasswordOptions"]


@dataclass(frozen=True, slots=True)
class PasswordOptions:
    """The limits of the verification of passwords.

    Attributes:
        threads: Passwords verified at a time. One takes about 70 ms of a core and 16 MiB.
        queue: Passwords that wait for a thread; a further one is refused with the cause `busy`.
        remember_time: Seconds for which a password that was right is accepted without a
            verification.
        remembered: Passwords that are remembered; then the oldest is forgotten.
    """

    threads: Count = 2
    queue: Size = 100
    remember_time: Seconds = 300.0
    remembered: Count = 10_000

    def __post_init__(self) -> None:
        check_options(self)


_OPTIONS: Final = PasswordOptions()

NICER: Final = 10
"""The difference of the priorities of the threads that verify, and of the loop."""

BCRYPT_SIZE: Final = 72
"""The maximum size of a password with a hash of bcrypt, in bytes."""

_NO_USERS: Final = PasswordHash("scrypt", f"$scrypt$ln=14,r=8,p=1${'A' * 22}${'A' * 43}")
"""The hash that a password is compared with where there are no users."""


class PasswordAuthenticator(Authenticator):
    """The method for user names and passwords.

    A verification that takes longer than the time for a decision goes on: if the password is right,
    the next attempt is answered from memory. Equal attempts at a time share one verification.

    Args:
        file: The file with the hashes of the passwords, or its path.
        options: The limits.
        clock: Returns a time in seconds, by which passwords are forgotten.
    """

    method = "password"

    def __init__(
        self,
        file: PrincipalsFile | str | Path,
        options: PasswordOptions = _OPTIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file if isinstance(file, PrincipalsFile) else PrincipalsFile(file)
        self._options = options
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._threads = ThreadPoolExecutor(options.threads, "onward-password", give_way)
        self._verifying: dict[bytes, asyncio.Future[bool]] = {}
        self._right: Remembered[bool] = Remembered(options.remembered)
        self._users: Mapping[str, Account] = {}
        self._hashes: tuple[PasswordHash, ...] = (_NO_USERS,)

    async def authenticate(
        self, credentials: Credentials | None, peer: PeerIdentity
    ) -> Principal | None:
        """Return the principal of a user, or `None` for other credentials.

        Raises:
            NotAuthenticated: The user is unknown or disabled, the password is wrong, or too many
                passwords wait for their verification.
        """
        if not isinstance(credentials, UserPassword):
            return None
        account = self._file.content.users.get(credentials.username)
        stored = account.password if account is not None else None
        if stored is None:
            stored = self._hash_for_unknown(credentials.username)
        if not await self._is_right(credentials, stored) or account is None:
            raise NotAuthenticated("unknown")
        # The file may have been read again meanwhile.
        account = self._file.content.users.get(credentials.username)
        if account is None or account.password != stored:
            raise NotAuthenticated("unknown")
        if account.disabled:
            raise NotAuthenticated("disabled")
        return account.principal

    def _hash_for_unknown(self, username: str) -> PasswordHash:
        """Return the hash of some user, the same each time.

        So the time of a refusal does not tell which users there are, also if their hashes differ
        in cost.
        """
        users = self._file.content.users
        if users is not self._users:
            stored = (each.password for each in users.values())
            self._hashes = tuple(each for each in stored if each is not None) or (_NO_USERS,)
            self._users = users
        number = int.from_bytes(self._digest(username.encode())[:8])
        return self._hashes[number % len(self._hashes)]

    async def _is_right(self, credentials: UserPassword, stored: PasswordHash) -> bool:
        # With the stored hash in it, a password is forgotten when the file has another one.
        parts = [part.encode() for part in (credentials.username, stored.text)]
        sized = [len(part).to_bytes(4) + part for part in parts]
        digest = self._digest(b"".join((*sized, credentials.password.encode())))
        if self._right.get(digest, self._clock()):
            return True
        verifying = self._verifying.get(digest)
        if verifying is None:
            if len(self._verifying) >= self._options.threads + self._options.queue:
                raise NotAuthenticated("busy")
            loop = asyncio.get_running_loop()
            verifying = loop.run_in_executor(
                self._threads, verify_password, credentials.password, stored
            )
            self._verifying[digest] = verifying
            verifying.add_done_callback(partial(self._verified, digest))
        try:
            return await asyncio.shield(verifying)
        except asyncio.CancelledError:
            if verifying.cancelled():
                raise NotAuthenticated("stopped") from None
            raise

    def _digest(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")

    def _verified(self, digest: bytes, verifying: asyncio.Future[bool]) -> None:
        del self._verifying[digest]
        if not verifying.cancelled() and verifying.exception() is None and verifying.result():
            self._right.put(digest, True, self._clock() + self._options.remember_time)

    def readmit(self, principal: Principal, peer: PeerIdentity) -> Principal | None:
        """Return the principal of its user, if that has the same password and is not disabled."""
        account = self._file.content.users.get(principal.name)
        if account is None or account.disabled or account.principal.entry != principal.entry:
            return None
        return account.principal

    async def prepare_reload(self) -> Callable[[], object]:
        """Read the file again."""
        return await self._file.prepare_reload()

    async def close(self) -> None:
        """Refuse the peers that wait for a thread."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def give_way() -> None:
    """Lower the priority of the calling thread, so that guesses of passwords do not slow requests.

    Linux has a priority for each thread; elsewhere it would be that of the process.
    """
    if sys.platform == "linux":
        thread = get_native_id()
        priority = os.getpriority(os.PRIO_PROCESS, thread)
        with suppress(OSError):  # a sandbox may forbid it
            os.setpriority(os.PRIO_PROCESS, thread, min(priority + NICER, 19))


def verify_password(password: str, stored: PasswordHash) -> bool:
    """Whether a password is the one of a hash. It blocks for up to a second."""
    if stored.kind == "scrypt":
        return verify_scrypt(password, stored)
    if stored.kind == "argon2id":
        return _verify_argon2(password, stored.text)
    return _verify_bcrypt(password, stored.text)


def _verify_argon2(password: str, stored: str) -> bool:
    from argon2 import PasswordHasher
    from argon2.exceptions import VerificationError

    try:
        return PasswordHasher().verify(stored, password)
    except VerificationError:
        return False


def _verify_bcrypt(password: str, stored: str) -> bool:
    import bcrypt

    octets = password.encode()
    # bcrypt looks at no more, and at nothing behind a null byte. A password that cannot be right
    # costs as much as another, so that the time of a refusal does not tell the kind of the hash.
    possible = len(octets) <= BCRYPT_SIZE and b"\0" not in octets
    looked_at = octets[:BCRYPT_SIZE].replace(b"\0", b"?")
    return bcrypt.checkpw(looked_at, stored.encode()) and possible
