"""Reading configuration files: to settings with their places, or everything that is wrong.

```toml
include = ["conf.d/*.toml"]

[broker]
no_route_timeout = "5s"

[[listener]]
uri = "rsocket+tls://0.0.0.0:8001"
tls = { certificate = "server.pem", authority = "clients.pem", client = "optional" }
authenticate = ["certificate", "token"]

[[rule]]
roles = ["orders"]
register = "service=orders"
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from ..actors.security import installed_hashes
from ..protocol.security import (
    Principals,
    Rule,
    join_principals,
    principals_in,
    rules_in,
)
from ..protocol.toml import FileError, FileTable, Problems, read_toml, text, texts
from ._config_options import ConfigOption, Where

__all__ = ["ConfigFiles", "ListenerSettings", "Rank", "Setting"]

MAX_FILES: Final = 100
"""Most files of a configuration, with those that they include."""
MAX_SIZE: Final = 4 * 1024 * 1024
"""Most bytes of each of them."""
MAX_LISTENERS: Final = 100
"""Most listeners of a configuration."""
MAX_PROBLEMS: Final = 100
"""Most problems of each file that are told; others are counted."""
_DEPTH: Final = 8


class Rank(IntEnum):
    """The kinds of places that a value comes from; a higher one counts."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    COMMAND_LINE = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """The value of an option.

    Attributes:
        value: The value, as the command line gives it.
        rank: Where it comes from.
        origin: The same for people: `onward.toml:12`, `ONWARD_DRAIN__TIMEOUT`, `--drain-timeout`,
            `default`.
    """

    value: Any
    rank: Rank = Rank.DEFAULT
    origin: str = "default"


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The table of a listener.

    Attributes:
        uri: Its URI.
        origin: The place of the table.
        own: The values that it has of its own, by the names of the options.
    """

    uri: str
    origin: str
    own: dict[str, Setting] = field(default_factory=dict[str, Setting])


class ConfigFiles:
    """A configuration file and those that it includes, read.

    Args:
        path: The file.
        options: The options that it may have.

    Attributes:
        settings: The values, by the names of the options.
        listeners: The tables `[[listener]]`.
        rules: The rules of the tables `[[rule]]`.
        principals: The entries of the table `[principals]`.
        problems: Everything that is wrong, as lines with the place of each.
    """

    def __init__(self, path: Path, options: Sequence[ConfigOption]) -> None:
        self.settings: dict[str, Setting] = {}
        self.listeners: list[ListenerSettings] = []
        self.rules: list[Rule] = []
        self.principals = Principals()
        self.problems: list[str] = []
        self._options = options
        self._sections = {each.section: dict[str, ConfigOption]() for each in options}
        for each in options:
            self._sections[each.section][each.key] = each
        self._own = {each.own_key: each for each in options if each.own}
        self._has_rules = any(each.dest == "rules" for each in options)
        self._seen: dict[Path, Path] = {}
        self._read(path, str(path))

    # --- files --------------------------------------------------------------------------------

    def _read(self, path: Path, asked: str) -> None:
        """Read a file; `asked` is the place that names it."""
        try:
            whole = path.resolve()
            if whole in self._seen:
                self.problems.append(f"{asked}: {path} is included already")
                return
            if len(self._seen) >= MAX_FILES:
                self.problems.append(f"{asked}: more than {MAX_FILES} files; {path} is not read")
                return
            self._seen[whole] = path
            with path.open("rb") as file:
                content = file.read(MAX_SIZE + 1)
        except OSError as error:
            at = "" if asked == str(path) else f"{asked}: "
            self.problems.append(f"{at}{path}: {error.strerror}")
            return
        problems = Problems(str(path), MAX_PROBLEMS)
        document = read_toml(content, problems, size=MAX_SIZE, depth=_DEPTH)
        top = FileTable(problems, (), document)
        include = top.maybe("include", _patterns) or ()
        asked = str(problems.place(("include",))).rpartition(": ")[0]
        self._document(top, problems, Where.of(path.parent))
        try:
            problems.check()
        except FileError as error:
            self.problems += map(str, error.problems)
            if error.left_out:
                self.problems.append(f"{path}: and {error.left_out} more")
        for pattern in include:
            for each in self._included(path.parent, pattern, asked):
                self._read(each, asked)

    def _included(self, folder: Path, pattern: str, asked: str) -> list[Path]:
        """Return the files of a pattern; a name without a `*` has to be one."""
        if not any(mark in pattern for mark in "*?["):
            return [folder / pattern]
        try:
            return sorted(folder.glob(pattern))
        except (ValueError, NotImplementedError) as error:  # an absolute pattern; a wrong one
            self.problems.append(f"{asked}: include: {pattern!r}: {error}")
            return []

    def _document(self, top: FileTable, problems: Problems, where: Where) -> None:
        for section, options in self._sections.items():
            if section != "listener":
                self._section(top.table(section), options, problems, where)
        if "listener" in self._sections:
            for entry in top.tables("listener"):
                self._listener(entry, problems, where)
        if self._has_rules:
            self.rules += rules_in(top)
        table = top.table("principals")
        try:
            found = principals_in(table, hashes=installed_hashes())
            self.principals = join_principals(self.principals, found)
        except ValueError as error:
            table.add("", str(error))
        top.finish()

    # --- tables -------------------------------------------------------------------------------

    def _section(
        self,
        table: FileTable,
        options: dict[str, ConfigOption],
        problems: Problems,
        where: Where,
    ) -> None:
        for key, option in options.items():
            found = _taken(table, key, option, problems, where)
            if found is None:
                continue
            before = self.settings.setdefault(option.dest, found)
            if before is not found:
                table.add(key, f"it is set already: {before.origin}")
        table.finish()

    def _listener(self, entry: FileTable, problems: Problems, where: Where) -> None:
        uri = entry.need("uri", text)
        own: dict[str, Setting] = {}
        tls = entry.table("tls")
        for name, option in self._own.items():
            table, key = (tls, option.key) if option.section == "tls" else (entry, name)
            found = _taken(table, key, option, problems, where)
            if found is not None:
                own[option.dest] = found
        tls.finish()
        entry.finish()
        if uri is None:
            return
        if len(self.listeners) >= MAX_LISTENERS:
            entry.add("", f"more than {MAX_LISTENERS} listeners")
            return
        place = entry.place
        self.listeners.append(ListenerSettings(uri, f"{place.file}:{place.line}", own))


def _patterns(value: object) -> tuple[str, ...]:
    return texts([value] if isinstance(value, str) else value)


def _taken(
    table: FileTable, key: str, option: ConfigOption, problems: Problems, where: Where
) -> Setting | None:
    """Return the value of a key with its place; `None` if there is none, or it is wrong."""
    place = problems.place((*table.path, key))

    def read(value: object) -> Setting:
        made = option.read(value, where)
        return Setting(made, Rank.FILE, f"{place.file}:{place.line}")

    return table.maybe(key, read)
