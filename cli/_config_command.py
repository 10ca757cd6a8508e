"""`onward config`: check the configuration of a server, and print it with its origins."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from ..actors import Node
from ..protocol import counted
from ..transports.streams._tls import server_context
from ._admin import admin_of
from ._arguments import Commands
from ._authentication import authentication_of_peers
from ._broker_plan import SECURE, Faults, plan_of
from ._config import Configuration, configured
from ._config_file import ListenerSettings, Setting
from ._config_options import ConfigOption, OwnSection
from ._dispatch import Dispatching
from ._event_log import check_event_log
from ._node_identity import identity_of
from ._reach import tls_of
from ._report_scrub import without_password
from ._show import printable

__all__ = ["add_commands", "lines_of"]

_DESCRIPTION: Final = """\
Check a configuration file of `onward broker --config FILE`, or print the configuration in force.
The environment counts, as for the broker. With --node or --dispatch it is that of `onward node` or
`onward dispatch`.
"""

_CHECK: Final = """\
Check a configuration file with all files that it names: certificates, principals, rules. Nothing is
started. Prints each fault with its line; the exit status is 2 if there is one, and else 0.
"""

_SHOW: Final = """\
Print the configuration that a broker has, as a file of its own: the values of the environment, of
the file, and the defaults. Of principals only the names are printed. Values without a default are
comments.
"""


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "config",
        help="check the configuration of a broker, a node or a dispatcher, or print it",
        description=_DESCRIPTION,
    )
    servers = {name: commands.choices[name] for name in ("broker", "node", "dispatch")}
    steps = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str, text: str, description: str, command: Callable[[argparse.Namespace], None]
    ) -> argparse.ArgumentParser:
        step = steps.add_parser(name, help=text, description=description)
        whose = step.add_mutually_exclusive_group()
        for server in ("node", "dispatch"):
            whose.add_argument(
                f"--{server}",
                dest="section",
                action="store_const",
                const=server,
                help=f"the file is that of `onward {server}`, not of a broker",
            )
        step.set_defaults(command=command, servers=servers, section="broker")
        return step

    check = add("check", "check a file", _CHECK, _check)
    check.add_argument("file", metavar="FILE", type=Path, help="the configuration file")
    show = add("show", "print all values", _SHOW, _show)
    show.add_argument(
        "file", metavar="FILE", nargs="?", type=Path, help="the configuration file (default: none)"
    )
    show.add_argument(
        "--origins",
        action="store_true",
        help="say where each value comes from: a line of a file, a variable, or the default",
    )


def _configured(arguments: argparse.Namespace) -> argparse.Namespace:
    """Return the options of the server with a file and without further options."""
    section: OwnSection = arguments.section
    parser: argparse.ArgumentParser = arguments.servers[section]
    words = [] if arguments.file is None else ["--config", str(arguments.file)]
    return configured(parser, section, parser.parse_args(words))


def _check(arguments: argparse.Namespace) -> None:
    found = _configured(arguments)
    if arguments.section != "broker":
        faults = Faults()
        if arguments.section == "dispatch":
            part = faults.made(lambda: Dispatching(found))
            if part is not None:
                faults.made(part.check)
        faults.made(lambda: check_event_log(found))
        faults.made(lambda: identity_of(found))
        tls = faults.made(lambda: tls_of(found, listens=True))
        if tls is not None:
            faults.made(lambda: server_context(tls))
        faults.made(lambda: authentication_of_peers(found, Node))
        faults.made(lambda: admin_of(found))
        faults.check()
        print(f"{arguments.file}: no fault")
        return
    plan = plan_of(found)
    faults = Faults()
    for uri, own in plan.listeners:
        if own.tls is not None and uri.startswith(SECURE):
            faults.made(partial(server_context, own.tls), uri)
    faults.check()
    listeners = counted(len(plan.listeners), "listener")
    authorization = plan.listening.authorization
    rules = "no rules" if authorization is None else counted(len(authorization.rules), "rule")
    print(f"{arguments.file}: no fault; {listeners}, {rules}")


def _show(arguments: argparse.Namespace) -> None:
    configuration: Configuration = _configured(arguments).configuration
    print("\n".join(lines_of(configuration, origins=arguments.origins)))


def lines_of(configuration: Configuration, *, origins: bool) -> Iterator[str]:
    """Yield a configuration as lines of TOML.

    Args:
        configuration: The configuration.
        origins: Whether each value has its origin behind it, as a comment.
    """
    sections: dict[str, list[ConfigOption]] = {}
    for each in configuration.options:
        sections.setdefault(each.section, []).append(each)
    for section, options in sections.items():
        if section == "listener":
            continue
        yield f"[{section}]"
        for option in options:
            yield _line(option.key, option, configuration.settings[option.dest], origins)
        yield ""
    if "listener" in sections:
        (option,) = sections["listener"]
        yield from _listeners(configuration, option, origins)
    for rule in configuration.rules:
        yield f"# rule: {printable(str(rule))}"
    principals = configuration.principals
    for kind in ("tokens", "users", "certificates", "unix"):
        for account in getattr(principals, kind).values():
            yield f"# {kind}: {printable(account.principal.name)}"


def _listeners(configuration: Configuration, option: ConfigOption, origins: bool) -> Iterator[str]:
    setting = configuration.settings[option.dest]
    uris: list[str] = setting.value or []
    tables = configuration.listeners or [ListenerSettings(uri, setting.origin) for uri in uris]
    if not tables:
        yield "# [[listener]]"
        yield _line("uri", option, setting, origins)
    by_dest = {each.dest: each for each in configuration.options}
    for table in tables:
        yield "[[listener]]"
        yield _line("uri", option, Setting(table.uri, origin=table.origin), origins)
        for name, own in table.own.items():
            in_force = configuration.settings[name]
            shown = in_force if in_force.rank > own.rank else own
            yield _line(by_dest[name].own_key, by_dest[name], shown, origins)
        yield ""


def _line(key: str, option: ConfigOption, setting: Setting, origins: bool) -> str:
    origin = f"  # {setting.origin}" if origins else ""
    if setting.value is None:
        return f"# {key} ={origin}"
    return f"{key} = {_toml(setting.value, option)}{origin}"


def _toml(value: Any, option: ConfigOption) -> str:
    """Return a value as TOML: that of JSON, as texts have no characters that differ."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        listed = cast("list[object]", value)
        return f"[{', '.join(_toml(each, option) for each in listed)}]"
    if option.kind == "octal":
        return f'"{value:o}"'
    if isinstance(value, int | float):
        return repr(value)
    if type(value) is tuple:  # a worker of a node
        value = "=".join(map(str, cast("tuple[object, ...]", value)))
    return json.dumps(without_password(str(value)), ensure_ascii=False)
