"""The place of each option of a server in its configuration file.

The parser of the command is the one truth: names, defaults, types and choices are read from it. The
tables here only say where an option stands in the file, if it does not follow from its name.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

from ..protocol.toml import flag, shown, suggestion, text
from ._arguments import octal, positive, seconds, size

__all__ = ["ConfigOption", "OwnSection", "Where", "options_of"]

OwnSection: TypeAlias = Literal["broker", "node", "dispatch"]

NOT_IN_FILE: Final = frozenset({"help", "config"})
"""The options of a server that no file has."""

SECTIONS: Final = {
    "admin": "admin",
    "cluster": "cluster",
    "drain": "drain",
    "event_log": "event_log",
    "identity": "identity",
    "jwt": "jwt",
    "log": "log",
}
"""The sections by the first words of the options in them; all others are in that of the command."""

PLACES: Final = {
    "admin": ("admin", "uri"),
    "admin_host": ("admin", "hosts"),
    "anonymous": ("authentication", "anonymous"),
    "authenticate": ("authentication", "methods"),
    "authenticator": ("authentication", "plugins"),
    "authority": ("tls", "authority"),
    "authorizer": ("authorization", "plugins"),
    "callout": ("authentication", "callout"),
    "certificate": ("tls", "certificate"),
    "client_certificates": ("tls", "client"),
    "cluster_allow": ("cluster", "allowed_peers"),
    "cluster_seed": ("cluster", "seeds"),
    "advertise": ("identity", "addresses"),
    "dial": ("identity", "dials"),
    "engine": ("identity", "engines"),
    "event_log": ("event_log", "folder"),
    "identity": ("identity", "key_file"),
    "join": ("identity", "joins"),
    "jwt_algorithm": ("jwt", "algorithms"),
    "key": ("tls", "key"),
    "log": ("log", "level"),
    "passphrase_file": ("identity", "passphrase_file"),
    "per_request": ("authentication", "per_request"),
    "principals": ("authentication", "principals_file"),
    "relay_policy": ("identity", "relay_policy"),
    "reserve": ("identity", "relays"),
    "rules": ("authorization", "rules_file"),
}
"""The sections and keys of options with names that do not tell them."""

BROKER_PLACES: Final = {
    "credit_window": ("connections", "credit_window"),
    "expose": ("connections", "expose"),
    "lease": ("connections", "lease"),
    "lease_requests": ("connections", "lease_requests"),
    "lease_time": ("connections", "lease_time"),
    "listen": ("listener", "uri"),
    "max_connections": ("connections", "max_connections"),
    "max_connections_per_source": ("connections", "max_connections_per_source"),
    "mode": ("connections", "mode"),
    "origin": ("connections", "origins"),
    "proxy": ("connections", "proxies"),
    "proxy_protocol": ("connections", "proxy_protocol"),
}
"""The same for a broker. What begins with `resume` is of connections too."""

NODE_PLACES: Final = {"worker": ("node", "workers")}

DISPATCH_PLACES: Final = {
    "consume": ("dispatch", "consumers"),
    "neighbour": ("dispatch", "neighbours"),
    "neighbour_role": ("dispatch", "neighbour_roles"),
    "worker": ("dispatch", "workers"),
}

OWN_PLACES: Final = {"broker": BROKER_PLACES, "node": NODE_PLACES, "dispatch": DISPATCH_PLACES}
"""The places by the command."""

OF_CONNECTIONS: Final = ("resume",)

HOT: Final = frozenset(
    {
        "authority",
        "certificate",
        "client_certificates",
        "cluster_allow",
        "cluster_seed",
        "credit_window",
        "drain_grace",
        "drain_spread",
        "drain_timeout",
        "key",
        "lease",
        "lease_requests",
        "lease_time",
        "log",
        "max_connections",
        "max_connections_per_source",
        "max_wait",
        "no_route_timeout",
        "origin",
        "principals",
        "rules",
    }
)
"""The options of a broker that a reload changes; all others need a restart."""

NODE_HOT: Final = frozenset(
    {"authority", "certificate", "client_certificates", "key", "log", "principals"}
)
"""Those of a node, also of one that dispatches by name."""

Kind: TypeAlias = Literal[
    "true or false", "text", "number", "seconds", "bytes", "file", "folder", "octal"
]


@dataclass(frozen=True, slots=True)
class Where:
    """The folders that a relative name of a file is looked for in.

    Attributes:
        base: The folder of the configuration file; `None`: the working directory.
        credentials: The folder of the service's credentials, which comes first; `None`: none.
    """

    base: Path | None = None
    credentials: Path | None = None

    @classmethod
    def of(cls, base: Path | None) -> Where:
        """Return the folders for a file in a folder, by the environment of the process."""
        credentials = os.environ.get("CREDENTIALS_DIRECTORY")
        return cls(base, Path(credentials) if credentials else None)

    def find(self, name: str, *, secret: bool) -> str:
        """Return the path of a name; a URL and an absolute path stay as they are.

        Args:
            name: The name.
            secret: Whether it is looked for among the credentials.
        """
        if "://" in name or Path(name).is_absolute():
            return name
        if secret and self.credentials is not None and (self.credentials / name).exists():
            return str(self.credentials / name)
        return name if self.base is None else str(self.base / name)


@dataclass(frozen=True, slots=True)
class ConfigOption:
    """An option of a server, with its place in a configuration file.

    Attributes:
        dest: The name of its value among the arguments.
        flag: The option on the command line.
        section: The section of the file.
        key: Its key there.
        kind: The kind of its values.
        many: Whether it takes a list of them.
        default: Its value where none is given.
        choices: The words that it may be; empty for others.
        help: Its help.
        own: Whether each listener may have its own.
        hot: Whether a reload changes it.
        action: The action of the parser.
    """

    dest: str
    flag: str
    section: str
    key: str
    kind: Kind
    many: bool
    default: Any
    choices: tuple[str, ...]
    help: str
    own: bool
    hot: bool
    action: argparse.Action

    @property
    def path(self) -> str:
        """The section and the key: `drain.timeout`."""
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return f"ONWARD_{self.section}__{self.key}".upper()

    @property
    def own_key(self) -> str:
        """The key in the table of a listener."""
        if self.section == "tls":
            return f"tls.{self.key}"
        return "authenticate" if self.dest == "authenticate" else self.key

    def read(self, value: object, where: Where) -> Any:
        """Return a value of TOML as the command line would give it.

        Raises:
            ValueError: It is not one of this option.
        """
        if self.kind == "true or false":
            return flag(value)
        if not self.many:
            return self._one(value, where)
        listed = cast("list[object]", value) if isinstance(value, list) else [value]
        return [self._one(each, where) for each in listed]

    def read_text(self, value: str, where: Where) -> Any:
        """Return a value of the environment as the command line would give it.

        A list is words separated by spaces.

        Raises:
            ValueError: It is not one of this option.
        """
        if self.kind == "true or false":
            if value.lower() not in ("true", "false"):
                raise ValueError(f"{shown(value)} is not true or false")
            return value.lower() == "true"
        return self.read(value.split() if self.many else value, where)

    def _one(self, value: object, where: Where) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            text_of_it = f"{shown(value)} is not {self._wanted()}"
            raise ValueError(text_of_it)  # noqa: TRY004 - as all faults of values
        if self.kind in ("text", "file", "folder"):
            written = text(value)
        elif isinstance(value, int) and self.kind == "octal":
            written = f"{value:o}"
        else:
            written = str(value)
        if self.kind in ("file", "folder"):
            written = where.find(written, secret=self.kind == "file")
        read: Callable[[str], Any] = self.action.type if callable(self.action.type) else str
        try:
            made = read(written)
        except argparse.ArgumentTypeError as error:
            raise ValueError(str(error)) from None
        if self.choices and made not in self.choices:
            near = suggestion(written, self.choices)
            raise ValueError(f"{shown(value)} is not one of {', '.join(self.choices)}{near}")
        return made

    def _wanted(self) -> str:
        article = "" if self.kind in ("seconds", "bytes") else "a "
        return "permissions in octal digits" if self.kind == "octal" else f"{article}{self.kind}"


def options_of(parser: argparse.ArgumentParser, command: OwnSection) -> tuple[ConfigOption, ...]:
    """Return the options of a server, each with its place.

    Args:
        parser: The parser of its command.
        command: Which it is; also the section of the options that belong to no other.

    Raises:
        ValueError: Two options have the same place.
    """
    found = tuple(_option(each, command) for each in _actions(parser))
    taken: dict[str, str] = {}
    for each in found:
        other = taken.setdefault(each.path, each.flag)
        if other != each.flag:
            raise ValueError(f"{other} and {each.flag} have one place: {each.path}; see PLACES")
    return found


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for each in parser._actions:
        if each.option_strings and each.dest not in NOT_IN_FILE:
            yield each


def _option(action: argparse.Action, command: OwnSection) -> ConfigOption:
    dest = action.dest
    section, key = _place(dest, command)
    kind = _kind(action)
    many = isinstance(action, argparse._AppendAction)
    return ConfigOption(
        dest,
        action.option_strings[-1],
        section,
        key,
        kind,
        many,
        action.default,
        tuple(action.choices or ()),
        action.help or "",
        command == "broker" and (section in ("connections", "tls") or dest == "authenticate"),
        dest in (HOT if command == "broker" else NODE_HOT),
        action,
    )


def _place(dest: str, command: OwnSection) -> tuple[str, str]:
    explicit = {**PLACES, **OWN_PLACES[command]}
    if dest in explicit:
        return explicit[dest]
    if command == "broker" and dest.startswith(OF_CONNECTIONS):
        return "connections", dest
    for start, section in SECTIONS.items():
        if dest.startswith(f"{start}_"):
            return section, dest.removeprefix(f"{start}_")
    return command, dest


def _kind(action: argparse.Action) -> Kind:
    if action.nargs == 0:
        return "true or false"
    metavar, read = str(action.metavar or ""), action.type
    if metavar.startswith("FILE"):
        return "file"
    if metavar == "DIR":
        return "folder"
    if metavar == "SECONDS" or read is seconds:
        return "seconds"
    if metavar == "BYTES" or read is size:
        return "bytes"
    if read is octal:
        return "octal"
    return "number" if read in (positive, int, float) or metavar == "RATE" else "text"
