"""The content of key files: the secret keys of an identity, as a text that may be encrypted.

```
onward identity key 1
identity aerc…
the record in base64, 64 characters a line
end of the identity key

record = [name, created, sealing key, rotated | null, lock | null, secret]
lock   = [log2 of N, r, p, salt, nonce]
secret = [signing seed, sealing seed, previous sealing seed | null] and 16 bytes of check
```

With a lock the secret is encrypted by ChaCha20-Poly1305 (RFC 8439) under a key that scrypt (RFC
7914) makes of a passphrase, and the check is its tag. Without, the check is the beginning of a
SHA-256. Either is over the identity and the rest of the record as well. So what is not secret can
be shown without the passphrase, and is relied on only once the file has been unlocked.

Salts and nonces are arguments. No error and no `repr` has a byte of a key.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, field, replace
from hmac import compare_digest
from typing import Final

import cbor2
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from ._errors import BadIdentity, BadKey, BadKeyFile, BadRecord, PassphraseNeeded, RotatedLately
from ._identities import Identity, identity_text, parse_identity
from ._keys import SEED_SIZE, SigningKey
from ._record_reader import MAX_NUMBER, RecordReader
from ._sealing import OLD_KEY_TIME, SEALING_KEY_SIZE, SealingKey

__all__ = [
    "KEY_FILE_VERSION",
    "LOCK_NONCE_SIZE",
    "LOCK_SALT_SIZE",
    "MAX_KEY_FILE",
    "MAX_KEY_NAME",
    "MAX_LOCK_MEMORY",
    "MAX_PASSPHRASE",
    "KeyFile",
    "KeyRecord",
    "Lock",
    "lock_key",
    "parse_key_file",
    "rotate_sealing_key",
    "serialize_key_file",
    "unlock_key",
]

KEY_FILE_VERSION: Final = 1
"""Version of the content of key files."""
MAX_KEY_FILE: Final = 4096
"""Most bytes of a key file."""
MAX_KEY_NAME: Final = 256
"""Most bytes of the name in a key file, in UTF-8."""
MAX_PASSPHRASE: Final = 1024
"""Most bytes of a passphrase, in UTF-8."""
MAX_LOCK_MEMORY: Final = 256 * 1024 * 1024
"""Most bytes that scrypt goes through for one file: 128 times N, r and p. It is twice the default,
for which OWASP is the precedent. A file that asks for more is refused before any is allocated."""
LOCK_SALT_SIZE: Final = 16
"""Bytes of the salt of a lock."""
LOCK_NONCE_SIZE: Final = 12
"""Bytes of the nonce of a lock."""

_CHECK_SIZE: Final = 16
_MAX_SECRET: Final = 3 * (SEED_SIZE + 2) + 1 + _CHECK_SIZE
_FIELDS: Final = 6
_LINE: Final = 64
_HEAD: Final = re.compile(rb"onward identity key ([0-9]{1,9})\n")
_IDENTITY: Final = re.compile(rb"identity ([a-z2-7]{56})\n")
_END: Final = b"end of the identity key\n"
_CONTEXT: Final = b"onward/identity/key-file/1"
_DAMAGED: Final = "it is damaged"
_NOT_OPENED: Final = "the passphrase is wrong, or it is damaged"


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """The secret keys of an identity. They are not in the `repr`.

    Attributes:
        signing_seed: 32 bytes that the signing key is made of, which is the identity.
        sealing_seed: 32 bytes that the present sealing key is made of.
        created: When the identity was made, in Unix milliseconds.
        name: What it is for, for people; up to `MAX_KEY_NAME` bytes of printable characters.
        previous_seed: Those of the sealing key before, if there was one.
        rotated: When the present sealing key took its place, in Unix milliseconds.

    Raises:
        BadKey: A seed has another size.
        BadRecord: The name is too long, or has characters that cannot be printed; a time is out of
            range; or one of the previous seed and the time of the rotation is missing.
    """

    signing_seed: bytes = field(repr=False)
    sealing_seed: bytes = field(repr=False)
    created: int
    name: str = ""
    previous_seed: bytes | None = field(default=None, repr=False)
    rotated: int | None = None

    def __post_init__(self) -> None:
        for seed in (self.signing_seed, self.sealing_seed, self.previous_seed):
            if seed is not None and len(seed) != SEED_SIZE:
                raise BadKey(f"a seed has {SEED_SIZE} bytes, not {len(seed)}")
        if (self.previous_seed is None) != (self.rotated is None):
            raise BadRecord("a previous sealing key and the time of the rotation go together")
        if not all(0 <= each <= MAX_NUMBER for each in (self.created, self.rotated or 0)):
            raise BadRecord(f"a time is 0 to {MAX_NUMBER} ms")
        _check_name(self.name)


@dataclass(frozen=True, slots=True)
class Lock:
    """The way in which a key file is encrypted under a passphrase.

    Attributes:
        salt: `LOCK_SALT_SIZE` random bytes.
        nonce: `LOCK_NONCE_SIZE` random bytes. Neither is used for another content.
        log_n: Binary logarithm of N of scrypt.
        r: Its block size.
        p: Its passes.

    Raises:
        BadRecord: scrypt has no such parameters, or would go through over `MAX_LOCK_MEMORY` bytes.
    """

    salt: bytes
    nonce: bytes
    log_n: int = 17
    r: int = 8
    p: int = 1

    def __post_init__(self) -> None:
        if len(self.salt) != LOCK_SALT_SIZE or len(self.nonce) != LOCK_NONCE_SIZE:
            raise BadRecord(
                f"a lock has a salt of {LOCK_SALT_SIZE} bytes and a nonce of {LOCK_NONCE_SIZE}"
            )
        # RFC 7914, section 2: N "must be larger than 1, a power of 2, and less than 2^(128 * r /
        # 8)". The first comparison keeps the shift small.
        if not (0 < self.log_n < min(16 * self.r, 32) and self.p > 0):
            raise BadRecord("scrypt has no such parameters")
        if 128 * self.r * self.p << self.log_n > MAX_LOCK_MEMORY:
            raise BadRecord(f"scrypt would go through more than {MAX_LOCK_MEMORY >> 20} MiB")


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A key file that has not been unlocked: what can be shown, and the secret.

    Attributes:
        identity: The identity.
        name: What it is for.
        created: When it was made, in Unix milliseconds.
        sealing_key: The public part of the present sealing key, 32 bytes.
        rotated: When that took the place of another, in Unix milliseconds; `None` if it is the
            first.
        lock: How the secret is encrypted; `None` if it is not.
        secret: The secret with its check. It is not in the `repr`.
    """

    identity: Identity
    name: str
    created: int
    sealing_key: bytes
    rotated: int | None
    lock: Lock | None
    secret: bytes = field(repr=False)


def lock_key(record: KeyRecord, lock: Lock | None = None, passphrase: bytes = b"") -> KeyFile:
    """Make a key file of keys. With the default lock it takes half a second and 128 MiB.

    Args:
        record: The keys.
        lock: How they are encrypted; `None` for a file that is not.
        passphrase: The passphrase, in UTF-8.

    Raises:
        BadKey: There is a lock, and the passphrase is empty or has over `MAX_PASSPHRASE` bytes.
    """
    file = KeyFile(
        SigningKey(record.signing_seed).identity,
        record.name,
        record.created,
        SealingKey(record.sealing_seed).public,
        record.rotated,
        lock,
        b"",
    )
    text = cbor2.dumps((record.signing_seed, record.sealing_seed, record.previous_seed))
    if lock is None:
        return replace(file, secret=text + _check(file, text))
    cipher = _cipher(lock, passphrase)
    return replace(file, secret=cipher.encrypt(lock.nonce, text, _associated(file)))


def unlock_key(file: KeyFile, passphrase: bytes | None = None) -> KeyRecord:
    """Return the keys of a key file. It takes what making it took, or what its lock says.

    A wrong passphrase and damage have one outcome.

    Args:
        file: The file.
        passphrase: The passphrase, in UTF-8; not looked at if the file is not encrypted.

    Raises:
        PassphraseNeeded: The file is encrypted, and there is no passphrase.
        BadKey: The passphrase is empty or has over `MAX_PASSPHRASE` bytes.
        BadKeyFile: The passphrase is wrong, or the file is damaged.
    """
    if file.lock is None:
        text, check = file.secret[:-_CHECK_SIZE], file.secret[-_CHECK_SIZE:]
        if not compare_digest(check, _check(file, text)):
            raise BadKeyFile(_DAMAGED)
        return _unpacked(file, text, _DAMAGED)
    if passphrase is None:
        raise PassphraseNeeded(file.identity)
    cipher = _cipher(file.lock, passphrase)
    try:
        text = cipher.decrypt(file.lock.nonce, file.secret, _associated(file))
    except InvalidTag:
        raise BadKeyFile(_NOT_OPENED) from None
    return _unpacked(file, text, _NOT_OPENED)


def rotate_sealing_key(
    record: KeyRecord, seed: bytes, now: int, *, lose_previous: bool = False
) -> KeyRecord:
    """Return the keys with another sealing key; the present one becomes the previous.

    Args:
        record: The keys.
        seed: 32 secret random bytes.
        now: The time, in Unix milliseconds.
        lose_previous: Whether it may be done although messages may be under way that only the key
            before the present one can open.

    Raises:
        BadKey: The seed has another size.
        RotatedLately: The last rotation is less than `OLD_KEY_TIME` ago, or later than `now`.
    """
    if record.rotated is not None and not lose_previous:
        until = record.rotated + OLD_KEY_TIME
        if now < until:
            raise RotatedLately(until)
    return replace(record, sealing_seed=seed, previous_seed=record.sealing_seed, rotated=now)


def serialize_key_file(file: KeyFile) -> bytes:
    """Return the bytes of a key file, which are ASCII."""
    text = b64encode(cbor2.dumps((*_fields(file), file.secret)))
    lines = [text[at : at + _LINE] + b"\n" for at in range(0, len(text), _LINE)]
    return b"".join(
        (
            b"onward identity key %d\n" % KEY_FILE_VERSION,
            b"identity %s\n" % identity_text(file.identity).encode(),
            *lines,
            _END,
        )
    )


def parse_key_file(data: bytes) -> KeyFile:
    """Read the bytes of a key file, without its secret.

    Raises:
        BadKeyFile: It is of a later version, cut short, damaged, or something else.
    """
    try:
        file = _parsed(data)
    except BadKeyFile:
        raise
    except (BadIdentity, BadRecord):
        raise BadKeyFile(_DAMAGED) from None
    if serialize_key_file(file) != data:
        raise BadKeyFile(_DAMAGED)
    return file


def _parsed(data: bytes) -> KeyFile:
    head = _HEAD.match(data)
    if head is None:
        raise BadKeyFile("its first line is not 'onward identity key' and a version")
    if int(head[1]) > KEY_FILE_VERSION:
        raise BadKeyFile(f"it is of version {int(head[1])}; the latest here is {KEY_FILE_VERSION}")
    if len(data) > MAX_KEY_FILE:
        raise BadKeyFile(f"it has more than {MAX_KEY_FILE} bytes")
    if not data.endswith(_END):
        raise BadKeyFile("it has more behind its end" if _END in data else "it is cut short")
    named = _IDENTITY.match(data, head.end())
    if named is None:
        raise BadKeyFile(_DAMAGED)
    try:
        text = data[named.end() : -len(_END)].replace(b"\n", b"")
        record = b64decode(text, validate=True)
    except ValueError:
        raise BadKeyFile(_DAMAGED) from None
    return _read(parse_identity(named[1].decode()), RecordReader(record))


def _read(identity: Identity, reader: RecordReader) -> KeyFile:
    reader.enter("the record", _FIELDS)
    name = reader.text("the name", MAX_KEY_NAME)
    _check_name(name)
    created = reader.number("the time it was made")
    sealing_key = reader.binary("the sealing key", SEALING_KEY_SIZE, SEALING_KEY_SIZE)
    rotated = None
    if not reader.is_null("the time of the rotation"):
        rotated = reader.number("the time of the rotation")
    lock = None
    if not reader.is_null("the lock"):
        reader.enter("the lock", 5)
        log_n, r, p = (reader.number("a parameter of scrypt", 0xFFFF) for _ in range(3))
        salt = reader.binary("the salt", LOCK_SALT_SIZE, LOCK_SALT_SIZE)
        nonce = reader.binary("the nonce", LOCK_NONCE_SIZE, LOCK_NONCE_SIZE)
        reader.leave()
        try:
            lock = Lock(salt, nonce, log_n, r, p)
        except BadRecord as error:
            raise BadKeyFile(error.reason) from None
    secret = reader.binary("the secret", _MAX_SECRET, _CHECK_SIZE)
    reader.leave()
    reader.end()
    return KeyFile(identity, name, created, sealing_key, rotated, lock, secret)


def _unpacked(file: KeyFile, text: bytes, fault: str) -> KeyRecord:
    """Return the keys, after a check that they are those that the file says."""
    reader = RecordReader(text)
    try:
        reader.enter("the secret", 3)
        signing, sealing = (reader.binary("a seed", SEED_SIZE, SEED_SIZE) for _ in range(2))
        previous = None
        if not reader.is_null("the previous seed"):
            previous = reader.binary("the previous seed", SEED_SIZE, SEED_SIZE)
        reader.end()
        record = KeyRecord(signing, sealing, file.created, file.name, previous, file.rotated)
    except BadRecord:
        raise BadKeyFile(fault) from None
    found = SigningKey(signing).identity, SealingKey(sealing).public
    if found != (file.identity, file.sealing_key):
        raise BadKeyFile(fault)
    return record


def _fields(file: KeyFile) -> tuple[object, ...]:
    """Return the record without the secret."""
    lock = file.lock
    parts = None if lock is None else (lock.log_n, lock.r, lock.p, lock.salt, lock.nonce)
    return file.name, file.created, file.sealing_key, file.rotated, parts


def _associated(file: KeyFile) -> bytes:
    return _CONTEXT + file.identity + cbor2.dumps(_fields(file))


def _check(file: KeyFile, text: bytes) -> bytes:
    return hashlib.sha256(_associated(file) + text).digest()[:_CHECK_SIZE]


def _cipher(lock: Lock, passphrase: bytes) -> ChaCha20Poly1305:
    if not 0 < len(passphrase) <= MAX_PASSPHRASE:
        raise BadKey(f"a passphrase has 1 to {MAX_PASSPHRASE} bytes")
    # OpenSSL counts more than the parameters say, so it gets twice the limit.
    key = hashlib.scrypt(
        passphrase,
        salt=lock.salt,
        n=1 << lock.log_n,
        r=lock.r,
        p=lock.p,
        maxmem=2 * MAX_LOCK_MEMORY,
        dklen=32,
    )
    return ChaCha20Poly1305(key)


def _check_name(name: str) -> None:
    # A name is shown on terminals and in logs.
    if not name.isprintable() or len(name.encode()) > MAX_KEY_NAME:
        raise BadRecord(f"a name has up to {MAX_KEY_NAME} bytes of printable characters")
