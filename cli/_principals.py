"""Entries of a file of principals: the options that make one, its text, and adding it to a file."""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from ..protocol.security import PrincipalsLimits, read_principals
from ..protocol.toml import FileError
from ._show import printable
from ._status import CommandError

__all__ = ["add_entry_options", "add_to_file", "entry_text"]

FILE_MODE: Final = 0o600
"""The mode of a new file: hashes of passwords are for the broker alone."""

_ALL_HASHES: Final = frozenset({"scrypt", "argon2id", "bcrypt"})
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_DURATION: Final = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_entry_options(parser: argparse.ArgumentParser) -> None:
    """Add the name and the options of an entry."""
    parser.add_argument("principal", metavar="NAME", help="the name of the principal")
    parser.add_argument(
        "--role", action="append", default=[], metavar="ROLE", help="a role; may be repeated"
    )
    parser.add_argument(
        "--tag",
        action="append",
        default=[],
        type=_tag,
        metavar="KEY=VALUE",
        help="a tag that the broker adds to each registration and request; may be repeated",
    )
    parser.add_argument(
        "--expires",
        type=_expiry,
        metavar="TIME",
        help="a date, a time with an offset, or a duration from now: 2027-01-01, 90d, 12h",
    )
    parser.add_argument(
        "--file",
        type=Path,
        help="add the entry to this file of principals, in place of printing it; a new file can be "
        "read by its owner alone",
    )


def _tag(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not mark:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _expiry(text: str) -> datetime:
    now = datetime.fromtimestamp(int(time.time()), UTC)
    if match := _DURATION.fullmatch(text):
        expiry = now + timedelta(seconds=int(match[1]) * _UNITS[match[2]])
    else:
        try:
            expiry = datetime.fromisoformat(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no date and no duration") from None
        if len(text) <= len("2027-01-01"):
            expiry = expiry.replace(tzinfo=UTC)
        if expiry.tzinfo is None:
            raise argparse.ArgumentTypeError(f"{text!r} has no offset; for UTC write {text}Z")
    if expiry <= now:
        raise argparse.ArgumentTypeError(f"{text} is not in the future")
    return expiry.astimezone(UTC)


def entry_text(kind: str, arguments: argparse.Namespace, key: str, value: str) -> str:
    """Return an entry as TOML.

    Args:
        kind: `tokens` or `users`.
        arguments: The options of `add_entry_options`.
        key: The key of the digest or hash.
        value: The digest or hash.

    Raises:
        CommandError: The name, a role or a tag is not valid.
    """
    lines = [f"[[{kind}]]", f"name = {_text(arguments.principal)}", f"{key} = {_text(value)}"]
    if arguments.role:
        lines.append(f"roles = [{', '.join(map(_text, arguments.role))}]")
    if arguments.tag:
        pairs = ", ".join(f"{_key(key)} = {_text(value)}" for key, value in arguments.tag)
        lines.append(f"tags = {{ {pairs} }}")
    if arguments.expires is not None:
        lines.append(f"expires = {arguments.expires:%Y-%m-%dT%H:%M:%SZ}")
    entry = "\n".join(lines) + "\n"
    _check(entry, "the entry")
    return entry


def _text(text: str) -> str:
    # A basic string of TOML has the escapes of JSON, and may not hold DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _check(content: str | bytes, name: str) -> None:
    try:
        read_principals(content, name, hashes=_ALL_HASHES)
    except FileError as error:
        raise CommandError(printable(str(error))) from error


def add_to_file(path: Path, entry: str) -> None:
    """Add an entry to a file of principals, which is replaced as a whole or stays as it is.

    A file that exists keeps its mode and, as far as this is permitted, its owner.

    Raises:
        CommandError: The file cannot be read or written, or would not be valid.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name[:50]}.{os.getpid()}")
    try:
        content, mode, owner = _old(target)
        content = (content.rstrip() + b"\n\n" if content else b"") + entry.encode()
        _check(content, str(path))
        partial.unlink(missing_ok=True)
        with open(partial, "xb", opener=_open) as file:
            file.write(content)
            if owner is not None:
                with suppress(PermissionError):
                    os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            partial.unlink()


def _old(path: Path) -> tuple[bytes, int, tuple[int, int] | None]:
    """Return the content of a file, its mode and its owner."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            content = file.read(PrincipalsLimits().size + 1)
    except FileNotFoundError:
        return b"", FILE_MODE, None
    return content, stat.S_IMODE(state.st_mode), (state.st_uid, state.st_gid)


def _open(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)
