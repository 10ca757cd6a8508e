"""Key files on a disk: made once, read by their owner alone, rotated as a whole or not at all.

A rotation writes another file beside the key file, syncs it, and then gives it the name of the key
file, so that at any moment the name is of a whole file. What a rotation leaves behind that is cut
off before is reported and not used.

All functions block: they wait for the disk, and for scrypt if the file is encrypted.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ...protocol import OnwardError
from ...protocol.identity import (
    LOCK_NONCE_SIZE,
    LOCK_SALT_SIZE,
    MAX_KEY_FILE,
    SEED_SIZE,
    BadKeyFile,
    Identity,
    KeyFile,
    KeyRecord,
    Lock,
    SealingKeys,
    SigningKey,
    lock_key,
    parse_key_file,
    rotate_sealing_key,
    serialize_key_file,
    unlock_key,
)
from ..security._own_files import own_file_fault

__all__ = [
    "KEY_FILE_MODE",
    "IdentityKeys",
    "KeyFileRefused",
    "load_key_file",
    "make_key_file",
    "new_lock",
    "read_key_file",
    "rotate_key_file",
    "unfinished_rotations",
]

KEY_FILE_MODE: Final = 0o600
"""Mode of key files: their owner may read and write them."""

_MARK: Final = ".rotating"
_logger = logging.getLogger("onward.actors.identity")


class KeyFileRefused(OnwardError, ValueError):
    """A key file cannot be used. It is as before.

    Attributes:
        path: Its path.
        reason: What is wrong with it.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class IdentityKeys:
    """The keys of an identity. The secret ones are not in the `repr`.

    Attributes:
        signing: The key that signs, of which the public part is the identity.
        sealing_seed: 32 secret bytes of the present sealing key.
        previous_seed: Those of the one before; `None` if there was none.
        rotated: When the present one took its place, in Unix milliseconds; `None` if it is the
            first.
        name: What it is for, for people.
        created: When the identity was made, in Unix milliseconds.
    """

    signing: SigningKey
    sealing_seed: bytes = field(repr=False)
    previous_seed: bytes | None = field(repr=False)
    rotated: int | None
    name: str
    created: int

    @property
    def identity(self) -> Identity:
        """The identity."""
        return self.signing.identity

    def sealing_keys(self) -> SealingKeys:
        """Return keys that open what is sealed; the previous one does for the rest of its time."""
        if self.previous_seed is None or self.rotated is None:
            return SealingKeys(self.sealing_seed)
        keys = SealingKeys(self.previous_seed)
        keys.rotate(self.sealing_seed, self.rotated)
        return keys


def new_lock() -> Lock:
    """Return a lock with a new salt and nonce; scrypt takes half a second and 128 MiB."""
    return Lock(os.urandom(LOCK_SALT_SIZE), os.urandom(LOCK_NONCE_SIZE))


def make_key_file(
    path: Path, *, name: str = "", passphrase: str | None = None, lock: Lock | None = None
) -> IdentityKeys:
    """Make an identity and its key file, with the mode `KEY_FILE_MODE`.

    Args:
        path: The path; nothing may have it.
        name: What it is for, for people.
        passphrase: What the file is encrypted with; `None` if it is not.
        lock: How it is encrypted; `new_lock()` by default.

    Raises:
        FileExistsError: The path is taken. What has it is as before.
        OSError: The file cannot be written. It is not there.
        BadKey: The passphrase is empty or too long.
        BadRecord: The name is too long, or has characters that cannot be printed.
    """
    record = KeyRecord(os.urandom(SEED_SIZE), os.urandom(SEED_SIZE), _now(), name)
    words = _octets(path, passphrase)
    content = lock_key(record, None if words is None else lock or new_lock(), words or b"")
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _write_new(path, serialize_key_file(content))
        try:
            os.fsync(folder)
        except OSError:
            _remove(path)
            raise
    finally:
        os.close(folder)
    return _keys(record)


def read_key_file(path: Path) -> KeyFile:
    """Return what can be seen of a key file without its passphrase.

    Raises:
        OSError: It cannot be read.
        KeyFileRefused: Other users may read or write it, another user owns it, or it is no key
            file.
    """
    return _parsed(path, _read(path))


def load_key_file(path: Path, passphrase: str | None = None) -> IdentityKeys:
    """Return the keys in a key file. Rotations that were cut off are logged as a warning.

    Args:
        path: The path.
        passphrase: The passphrase; not looked at if the file is not encrypted.

    Raises:
        OSError: It cannot be read.
        KeyFileRefused: Other users may read or write it, another user owns it, it is no key file,
            it is damaged, or the passphrase is wrong.
        PassphraseNeeded: It is encrypted, and there is no passphrase.
        BadKey: It is encrypted, and the passphrase is empty or too long.
    """
    record = _unlocked(path, _parsed(path, _read(path)), passphrase)
    for each in unfinished_rotations(path):
        _logger.warning(
            "%s was left by a rotation that was cut off, and can be removed",
            each,
            extra={"event": "identity.rotation_unfinished"},
        )
    return _keys(record)


def rotate_key_file(
    path: Path,
    passphrase: str | None = None,
    *,
    now: int | None = None,
    lose_previous: bool = False,
) -> IdentityKeys:
    """Give an identity another sealing key, and keep the present one as the previous.

    The file is replaced as a whole; it stays encrypted if it is, with another salt and nonce.
    Whatever is cut off, the keys before or those after are in it.

    Args:
        path: The path; if it is a symbolic link, what it leads to is replaced.
        passphrase: The passphrase, if it is encrypted.
        now: The time, in Unix milliseconds; that of the clock by default.
        lose_previous: Whether it may be done although messages may be under way that only the key
            before the present one can open.

    Raises:
        OSError: It cannot be read or written. It is as before, unless its folder alone could not
            be synced.
        KeyFileRefused: As for `load_key_file`; or it is no file on a disk, or another process
            rotates a key in its folder.
        PassphraseNeeded: It is encrypted, and there is no passphrase.
        RotatedLately: The last rotation was less than ten minutes ago.
    """
    target = Path(os.path.realpath(path))
    with _locked_folder(target) as folder:
        file = _parsed(path, _read(target, on_disk=True))
        record = _unlocked(path, file, passphrase)
        seed = os.urandom(SEED_SIZE)
        time_ms = _now() if now is None else now
        following = rotate_sealing_key(record, seed, time_ms, lose_previous=lose_previous)
        lock = file.lock and replace(
            file.lock, salt=os.urandom(LOCK_SALT_SIZE), nonce=os.urandom(LOCK_NONCE_SIZE)
        )
        content = lock_key(following, lock, _octets(path, passphrase) or b"")
        partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}{_MARK}")
        _write_new(partial, serialize_key_file(content))
        try:
            os.replace(partial, target)  # noqa: PTH105 - as the other calls, by which a test cuts
        except OSError:
            _remove(partial)
            raise
        os.fsync(folder)
    return _keys(following)


def unfinished_rotations(path: Path) -> tuple[Path, ...]:
    """Return the files that rotations of a key file have left that were cut off.

    They hold keys, and are not used. While a rotation is under way its file is one of them.
    """
    target = Path(os.path.realpath(path))
    form = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}{re.escape(_MARK)}")
    with suppress(OSError):
        return tuple(sorted(each for each in target.parent.iterdir() if form.fullmatch(each.name)))
    return ()


def _now() -> int:
    return time.time_ns() // 1_000_000


def _keys(record: KeyRecord) -> IdentityKeys:
    return IdentityKeys(
        SigningKey(record.signing_seed),
        record.sealing_seed,
        record.previous_seed,
        record.rotated,
        record.name,
        record.created,
    )


def _octets(path: Path, passphrase: str | None) -> bytes | None:
    if passphrase is None:
        return None
    try:
        return passphrase.encode()
    except UnicodeEncodeError:
        raise KeyFileRefused(path, "the passphrase cannot be written in UTF-8") from None


def _read(path: Path, *, on_disk: bool = False) -> bytes:
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        if fault := own_file_fault(state, secret=True):
            raise KeyFileRefused(path, fault)
        if on_disk and not stat.S_ISREG(state.st_mode):
            raise KeyFileRefused(path, "it is no file on a disk")
        return file.read(MAX_KEY_FILE + 1)


def _parsed(path: Path, content: bytes) -> KeyFile:
    try:
        return parse_key_file(content)
    except BadKeyFile as error:
        raise KeyFileRefused(path, error.reason) from None


def _unlocked(path: Path, file: KeyFile, passphrase: str | None) -> KeyRecord:
    try:
        return unlock_key(file, _octets(path, passphrase))
    except BadKeyFile as error:
        raise KeyFileRefused(path, error.reason) from None


@contextmanager
def _locked_folder(path: Path) -> Generator[int]:
    """Keep other rotations out of the folder of a file; its handle is to be synced in the end."""
    handle = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise KeyFileRefused(path, "another process rotates a key in its folder") from None
        yield handle
    finally:
        os.close(handle)


def _write_new(path: Path, content: bytes) -> None:
    """Write a file that is not there yet, and sync it; on an error it is not there."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, KEY_FILE_MODE)
    try:
        try:
            os.fchmod(handle, KEY_FILE_MODE)
            rest = memoryview(content)
            while rest:
                written = os.write(handle, rest)
                if not written:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
                rest = rest[written:]
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError:
        _remove(path)
        raise


def _remove(path: Path) -> None:
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - as the other calls
