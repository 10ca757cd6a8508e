"""The configuration of a server: the command line, the environment, a file, and the defaults.

What stands earlier in this list counts. The parser of the command has the defaults; see
`_config_options`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..protocol.security import Principals, Rule
from ..protocol.toml import suggestion
from ._config_file import ConfigFiles, ListenerSettings, Rank, Setting
from ._config_options import ConfigOption, OwnSection, Where, options_of
from ._show import printable_lines
from ._status import CommandError, Status

__all__ = [
    "Configuration",
    "Configure",
    "add_config",
    "configuration_of",
    "configured",
    "listener_arguments",
]

Configure: TypeAlias = Callable[[], argparse.Namespace]
"""Reads the configuration anew, and returns the arguments."""

PREFIX: Final = "ONWARD_"
LISTEN: Final = "ONWARD_LISTEN"
"""The variable for where to listen, without a level."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration of a server.

    Attributes:
        options: Its options.
        settings: The value of each, by its name.
        listeners: The listeners that the file has; empty if they are given otherwise.
        rules: The rules in the file.
        principals: The principals in the file.
    """

    options: tuple[ConfigOption, ...]
    settings: Mapping[str, Setting]
    listeners: tuple[ListenerSettings, ...] = ()
    rules: tuple[Rule, ...] = ()
    principals: Principals = field(default_factory=Principals)


def add_config(
    parser: argparse.ArgumentParser,
    section: OwnSection,
    command: Callable[[argparse.Namespace, Configure], None],
) -> None:
    """Add the option of a configuration file, and the command. Call it after all other options.

    Args:
        parser: The parser of the command.
        section: The section of its options in the file.
        command: The command; it gets the arguments, those of the file among them, and a function
            that reads them anew.
    """
    parser.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="read options from this file; those of the command line and of the environment count "
        "more; `onward config check` checks it (default: none)",
    )

    def run(arguments: argparse.Namespace) -> None:
        read = partial(configured, parser, section, arguments)
        command(read(), read)

    parser.set_defaults(command=run)


def configured(
    parser: argparse.ArgumentParser, section: OwnSection, arguments: argparse.Namespace
) -> argparse.Namespace:
    """Return the arguments with all values of the configuration.

    Beside the options they have `configuration`, `inline_rules` and `inline_principals`.

    Args:
        parser: The parser of the command.
        section: The section of its options.
        arguments: The arguments as it has parsed them, with the `words` they were parsed from.

    Raises:
        CommandError: The file or the environment has faults; the error names all of them.
    """
    options = options_of(parser, section)
    given = _given(parser, options, arguments.words)
    found = configuration_of(options, arguments.config, os.environ, given)
    made = copy(arguments)
    for name, setting in found.settings.items():
        if setting.rank is not Rank.DEFAULT:
            setattr(made, name, setting.value)
    made.configuration = found
    made.inline_rules, made.inline_principals = found.rules, found.principals
    return made


def configuration_of(
    options: tuple[ConfigOption, ...],
    path: Path | None,
    environment: Mapping[str, str],
    given: Mapping[str, object],
) -> Configuration:
    """Return a configuration.

    Args:
        options: The options of the server.
        path: The file; `None` for none.
        environment: The environment of the process.
        given: The values of the command line.

    Raises:
        CommandError: There are faults; the error names all of them.
    """
    problems: list[str] = []
    settings = {each.dest: Setting(each.default) for each in options}
    listeners: tuple[ListenerSettings, ...] = ()
    rules: tuple[Rule, ...] = ()
    principals = Principals()
    if path is not None:
        files = ConfigFiles(path, options)
        problems += files.problems
        settings |= files.settings
        rules, principals = tuple(files.rules), files.principals
        listeners = tuple(files.listeners)
        if listeners:
            uris = [each.uri for each in listeners]
            settings["listen"] = Setting(uris, Rank.FILE, listeners[0].origin)
    settings |= _environment(options, environment, problems)
    for each in options:
        if each.dest in given:
            settings[each.dest] = Setting(given[each.dest], Rank.COMMAND_LINE, each.flag)
    if settings["listen"].rank is not Rank.FILE:
        listeners = ()
    if problems:
        raise CommandError(printable_lines("\n".join(problems)), Status.USAGE)
    return Configuration(options, settings, listeners, rules, principals)


def listener_arguments(
    arguments: argparse.Namespace,
) -> list[tuple[str, argparse.Namespace, ListenerSettings | None]]:
    """Return the URI of each listener, the options in force for it, and its table, if any."""
    configuration: Configuration = arguments.configuration
    if not configuration.listeners:
        uris: list[str] = arguments.listen or []
        return [(uri, arguments, None) for uri in uris]
    found: list[tuple[str, argparse.Namespace, ListenerSettings | None]] = []
    for each in configuration.listeners:
        made = copy(arguments)
        for name, setting in each.own.items():
            if configuration.settings[name].rank <= Rank.FILE:
                setattr(made, name, setting.value)
        found.append((each.uri, made, each))
    return found


def _given(
    parser: argparse.ArgumentParser, options: Sequence[ConfigOption], words: Sequence[str]
) -> dict[str, Any]:
    """Return the values that the command line gives, without the defaults.

    The words are parsed a second time, with a mark in the place of each default.
    """
    unset = object()
    marked = argparse.Namespace(**{each.dest: None if each.many else unset for each in options})
    parsed = vars(parser.parse_known_args(list(words), marked)[0])
    return {
        each.dest: parsed[each.dest]
        for each in options
        if parsed[each.dest] is not (None if each.many else unset)
    }


def _environment(
    options: Sequence[ConfigOption], environment: Mapping[str, str], problems: list[str]
) -> dict[str, Setting]:
    """Return the values of the environment; what is wrong is added to the problems.

    Variables without a level are not the configuration's, but for `ONWARD_LISTEN`.
    """
    by_variable = {each.variable: each for each in options}
    by_variable[LISTEN] = next(each for each in options if each.dest == "listen")
    found: dict[str, Setting] = {}
    where = Where.of(None)
    for name, value in sorted(environment.items()):
        if name not in by_variable:
            if name.startswith(PREFIX) and "__" in name:
                near = suggestion(name, by_variable)
                problems.append(f"{name}: unknown variable of the environment{near}")
            continue
        option = by_variable[name]
        try:
            found[option.dest] = Setting(option.read_text(value, where), Rank.ENVIRONMENT, name)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    return found
