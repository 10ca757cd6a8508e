"""The file of contexts: brokers by name, with what a command needs to reach each of them.

It has paths of files with credentials, and never a credential. It is a file of the user's own all
the same, as it says to which broker credentials are shown.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from ..protocol.toml import FileError, FileTable, Problems, read_toml, text
from ._own_files import check_own
from ._show import printable
from ._status import CommandError, Status

__all__ = ["Context", "Contexts", "contexts_path", "load_contexts", "save_contexts"]

MAX_CONTEXTS: Final = 1000
"""The maximum number of contexts in a file."""

MAX_FILE: Final = 1024 * 1024
"""The maximum size of the file, in bytes."""

MAX_PROBLEMS: Final = 20

FILE_MODE: Final = 0o600
"""The mode of the file."""

FOLDER_MODE: Final = 0o700

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""The names that a context may have."""

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Context:
    """A broker, and what a command needs to reach it.

    Attributes:
        broker: Its URI.
        description: A text for people.
        certificate: The file of our certificate.
        key: The file of its key.
        authority: The file of the authorities to trust.
        server_name: The name in the certificate of the broker.
        token_file: The file of the token.
        user: The user.
        password_file: The file of the user's password.
    """

    broker: str
    description: str = ""
    certificate: str = ""
    key: str = ""
    authority: str = ""
    server_name: str = ""
    token_file: str = ""
    user: str = ""
    password_file: str = ""

    def given(self) -> dict[str, str]:
        """Return what is given, by name."""
        found = {each.name: str(getattr(self, each.name)) for each in fields(self)}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a user.

    Attributes:
        selected: The name of the one that commands use without `--context`; empty for none.
        known: All of them by name.
    """

    selected: str = ""
    known: Mapping[str, Context] = field(default_factory=dict[str, Context])


def contexts_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the file of contexts."""
    # XDG Base Directory: "All paths set in these environment variables must be absolute." Another
    # one is to be ignored.
    folder = environment.get("XDG_CONFIG_HOME", "")
    base = Path(folder) if folder.startswith("/") else Path.home() / ".config"
    return base / "onward" / "contexts.toml"


def load_contexts(path: Path) -> Contexts:
    """Read the file of contexts; without a file there are none.

    Raises:
        CommandError: It cannot be read, another user decides what is in it, or it has faults.
    """
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            content = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}", Status.USAGE) from None
    check_own(state, path, secret=False)
    try:
        return _parsed(content, str(path))
    except FileError as error:
        raise CommandError(printable(str(error)), Status.USAGE) from None


def _parsed(content: bytes, name: str) -> Contexts:
    problems = Problems(name, MAX_PROBLEMS)
    document = read_toml(content, problems, size=MAX_FILE, depth=4)
    problems.check()
    top = FileTable(problems, (), document)
    selected = top.take("selected", text, "")
    tables = top.table("context")
    known: dict[str, Context] = {}
    names = tables.keys()
    if len(names) > MAX_CONTEXTS:
        top.add("context", f"there are more than {MAX_CONTEXTS}")
    for each in names[:MAX_CONTEXTS]:
        if not NAME.fullmatch(each):
            tables.add(each, "a name has letters, digits, and . _ - within")
        table = tables.table(each)
        broker = table.need("broker", _uri)
        more = {
            own.name: table.take(own.name, text, "")
            for own in fields(Context)
            if own.name != "broker"
        }
        table.finish()
        known[each] = Context(broker or "", **more)
    if selected and selected not in known:
        top.add("selected", f"there is no context {selected}")
    top.finish()
    problems.check()
    return Contexts(selected, known)


def _uri(value: object) -> str:
    uri = text(value)
    if not uri.startswith("rsocket+"):
        raise ValueError("it is the URI of a broker, as rsocket+tls://broker.example:8001")
    return uri


def save_contexts(path: Path, contexts: Contexts) -> None:
    """Write the file of contexts, which is replaced as a whole or stays as it is.

    Raises:
        CommandError: It cannot be written, or would not be valid.
    """
    lines = [f"selected = {_quoted(contexts.selected)}"] if contexts.selected else []
    for name, context in contexts.known.items():
        key = name if _BARE.fullmatch(name) else _quoted(name)
        lines += ["", f"[context.{key}]"]
        lines += [f"{each} = {_quoted(value)}" for each, value in context.given().items()]
    content = ("\n".join(lines).lstrip() + "\n").encode()
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _parsed(content, str(path))
        path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except FileError as error:
        raise CommandError(printable(str(error)), Status.USAGE) from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            partial.unlink()


def _quoted(value: str) -> str:
    # A basic string of TOML has the escapes of JSON, and may not hold DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
