"""The file of principals: tokens, users, certificates and users of Unix sockets.

```toml
[[tokens]]
name = "billing"
sha256 = "8ccba2f4..."            # as `onward token new` prints it
roles = ["orders"]
tags = { tenant = "a" }
expires = 2027-01-01T00:00:00Z

[[users]]
name = "ann"
password = "$scrypt$ln=14,..."    # as `onward password` prints it

[[certificates]]
name = "gateway"
certified = "DNS:gateway.example"

[[unix]]
name = "backup"
uid = 34
disabled = true
```

Each entry has a name, and may have roles, tags, an expiry, and `disabled`. Several tokens may have
one name, so that a new one can be given out before the old one is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, TypeVar, cast

from ..broker import TagSet, make_tags, tag_set
from ..options import Count, check_options
from ..toml import FileTable, Problems, flag, read_toml, shown, table, text, texts
from ._password_hash import PasswordHash, parse_password_hash
from ._principal import Principal

__all__ = [
    "Account",
    "Principals",
    "PrincipalsLimits",
    "join_principals",
    "principals_in",
    "read_principals",
]

K = TypeVar("K", bound=Hashable)

MAX_NAME: Final = 255
"""The maximum size of the name of a principal or a role, in bytes of UTF-8."""

_DEPTH: Final = 4
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_CERTIFIED: Final = re.compile(r"[A-Za-z]+:.+", re.DOTALL)
_SCRYPT: Final = frozenset({"scrypt"})


@dataclass(frozen=True, slots=True)
class PrincipalsLimits:
    """Limits of a file of principals. A larger file is refused.

    Attributes:
        size: Bytes of the file.
        entries: Entries of all kinds together.
        problems: Problems that the error names; further ones are counted.
    """

    size: Count = 4 * 1024 * 1024
    entries: Count = 10_000
    problems: Count = 100

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, slots=True)
class Account:
    """An entry of a file of principals.

    Attributes:
        principal: The principal of a peer that shows its credentials.
        disabled: Whether such a peer is refused.
        password: The hash of a user's password; `None` for other entries.
    """

    principal: Principal
    disabled: bool = False
    password: PasswordHash | None = None


def _nothing() -> Mapping[Any, Account]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Principals:
    """The entries of a file of principals.

    Attributes:
        tokens: By the SHA-256 of the token.
        users: By their name.
        certificates: By a name in the certificate.
        unix: By the user id.
    """

    tokens: Mapping[bytes, Account] = field(default_factory=_nothing, repr=False)
    users: Mapping[str, Account] = field(default_factory=_nothing, repr=False)
    certificates: Mapping[str, Account] = field(default_factory=_nothing)
    unix: Mapping[int, Account] = field(default_factory=_nothing)


def read_principals(
    content: str | bytes,
    file: str = "principals",
    *,
    hashes: AbstractSet[str] = _SCRYPT,
    limits: PrincipalsLimits = PrincipalsLimits(),
) -> Principals:
    """Read a file of principals.

    Args:
        content: The content of the file; bytes are UTF-8.
        file: The name of the file in errors.
        hashes: The kinds of password hashes that can be verified.
        limits: The limits of the file.

    Raises:
        FileError: The file has problems; the error names all of them, and no part of a secret.
    """
    problems = Problems(file, limits.problems)
    document = read_toml(content, problems, size=limits.size, depth=_DEPTH)
    problems.check()
    read = principals_in(FileTable(problems, (), document), hashes=hashes, limits=limits)
    problems.check()
    return read


def principals_in(
    table: FileTable,
    *,
    hashes: AbstractSet[str] = _SCRYPT,
    limits: PrincipalsLimits = PrincipalsLimits(),
) -> Principals:
    """Return the principals of a table; faults are added to its problems.

    Args:
        table: The table, with the keys of a file of principals and no others.
        hashes: The kinds of password hashes that can be verified.
        limits: The limits of the entries.
    """
    reader = _Reader(table, limits, hashes)
    read = Principals(
        reader.accounts("tokens", "token", "sha256", _digest),
        reader.accounts("users", "password", "name", _name),
        reader.accounts("certificates", "certificate", "certified", _certified),
        reader.accounts("unix", "unix", "uid", _uid),
    )
    table.finish()
    return read


def join_principals(first: Principals, second: Principals) -> Principals:
    """Return the entries of both.

    Raises:
        ValueError: An entry of the second has the token, the name of a user, the certified name or
            the user id of one of the first; the text has no digest.
    """
    joined: list[Mapping[Any, Account]] = []
    for kind in ("tokens", "users", "certificates", "unix"):
        one: Mapping[Any, Account] = getattr(first, kind)
        two: Mapping[Any, Account] = getattr(second, kind)
        both = one.keys() & two.keys()
        if both:
            names = ", ".join(sorted({two[each].principal.name for each in both}))
            raise ValueError(f"{kind}: there are two entries with the same key: {names}")
        joined.append(MappingProxyType({**one, **two}))
    return Principals(*joined)


class _Reader:
    """The reading of one file.

    Args:
        top: The document.
        limits: The limits of the file.
        hashes: The kinds of password hashes that can be verified.
    """

    def __init__(self, top: FileTable, limits: PrincipalsLimits, hashes: AbstractSet[str]) -> None:
        self.top = top
        self._room = limits.entries
        self._limits = limits
        self._hashes = hashes

    def accounts(
        self, key: str, method: str, by: str, read: Callable[[object], K]
    ) -> Mapping[K, Account]:
        """Return the entries of one kind.

        Args:
            key: The key of the array of tables.
            method: The method of authentication.
            by: The key of an entry by which it is found.
            read: The reader of its value.
        """
        found: dict[K, Account] = {}
        if not _is_tables(self.top.peek(key)):
            # `FileTable.tables` shows the value, which may be a secret written in the wrong place.
            self.top.add(key, f"it is not a list of tables; write [[{key}]]")
            self.top.maybe(key, lambda _: None)
        for entry in self.top.tables(key):
            self._room -= 1
            if self._room < 0:
                self.top.add(key, f"more than {self._limits.entries} entries")
                break
            name = entry.need("name", _name)
            identity = cast("K | None", name) if by == "name" else entry.need(by, read)
            password = entry.need("password", self._password) if key == "users" else None
            digest = identity if isinstance(identity, bytes) else b""
            if password is not None:
                digest = sha256(password.text.encode()).digest()
            account = _account(entry, name or "", method, password, digest)
            entry.finish()
            if identity in found:
                entry.add(by, "an entry before has the same")
            elif identity is not None:
                found[identity] = account
        return MappingProxyType(found)

    def _password(self, value: object) -> PasswordHash:
        # The errors of `text` show the value, which here is a secret.
        if not isinstance(value, str):
            raise ValueError("it is not text")  # noqa: TRY004 - as all faults of values
        read = parse_password_hash(value)
        if read.kind not in self._hashes:
            package = "argon2-cffi" if read.kind == "argon2id" else read.kind
            raise ValueError(f"a hash of {read.kind} needs {package}: onward[passwords]")
        return read


def _is_tables(value: object) -> bool:
    listed = cast("list[object]", value) if isinstance(value, list) else None
    return value is None or (listed is not None and all(isinstance(each, dict) for each in listed))


def _account(
    entry: FileTable, name: str, method: str, password: PasswordHash | None, digest: bytes
) -> Account:
    principal = Principal(
        name,
        method,
        entry.take("roles", _roles, frozenset()),
        entry.take("tags", _tags, frozenset()),
        entry.maybe("expires", _expiry),
        entry=digest,
    )
    return Account(principal, entry.take("disabled", flag, default=False), password)


def _name(value: object) -> str:
    name = text(value)
    if not 0 < len(name.encode()) <= MAX_NAME:
        raise ValueError(f"a name has 1 to {MAX_NAME} bytes")
    if not name.isprintable():
        raise ValueError("a name has printable characters only")
    return name


def _roles(value: object) -> frozenset[str]:
    return frozenset(_name(each) for each in texts(value))


def _tags(value: object) -> TagSet:
    given = {key: text(each) for key, each in table(value).items()}
    return tag_set(make_tags(given))


def _expiry(value: object) -> float:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ValueError(f"{shown(value)} is not a time with an offset: 2027-01-01T00:00:00Z")
    return value.timestamp()


def _digest(value: object) -> bytes:
    # The value is not shown: a token may have been written here by mistake.
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError("it is not a SHA-256 in 64 lower-case hexadecimal digits")
    return bytes.fromhex(value)


def _certified(value: object) -> str:
    name = text(value)
    if not _CERTIFIED.fullmatch(name):
        raise ValueError(f"{shown(value)} is not KIND:NAME, as in DNS:gateway.example")
    return name


def _uid(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32:
        return value
    raise ValueError(f"{shown(value)} is not a user id")
