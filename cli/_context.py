"""`onward context`: brokers by name, and their use by the commands that reach a broker."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from ._access import add_access
from ._arguments import Commands
from ._contexts import NAME, Context, Contexts, contexts_path, load_contexts, save_contexts
from ._show import printable, table
from ._status import CommandError, Status

__all__ = ["add_commands", "add_context", "apply_context"]

VARIABLE: Final = "ONWARD_CONTEXT"

_DESCRIPTION: Final = """\
Keep brokers by name, so that commands reach them by --context NAME: their URI, and the files of
certificates and credentials. No credential is kept, only the paths of their files.
"""

_ADD: Final = "Add a broker, or replace the one of that name. Paths are kept as absolute ones."

_FILES: Final = ("certificate", "key", "authority", "token_file", "password_file")

_UNITS: Final = (
    ("certificate", "key"),
    ("authority",),
    ("server_name",),
    ("token_file", "user", "password_file"),
)
"""What is given together: if one of them is an option, none of the others is that of a context."""


def add_context(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a broker."""
    parser.add_argument(
        "--context",
        metavar="NAME",
        help="a broker that `onward context` has, with its certificates and credentials",
    )


def apply_context(arguments: argparse.Namespace, environment: Mapping[str, str]) -> None:
    """Fill in what a context has and the options have not.

    A broker given by its URI stands for itself: the credentials of a context go to another broker
    only if both are named.

    Args:
        arguments: The arguments of a command, which are changed. With `default_broker` the command
            always reaches a broker; without, only if it is named.
        environment: The environment of the process.

    Raises:
        CommandError: There is no such context, or the file has faults.
    """
    if not hasattr(arguments, "context"):
        return
    default: str | None = getattr(arguments, "default_broker", None)
    name: str | None = arguments.context
    if name is None and default is not None and arguments.broker is None:
        name = environment.get(VARIABLE) or None
        path = contexts_path(environment)
        if name is not None or path.exists():
            contexts = load_contexts(path)
            name = name or contexts.selected or None
    if name is not None:
        context = _find(load_contexts(contexts_path(environment)), name)
        if arguments.broker is None:
            arguments.broker = context.broker
        _fill(arguments, context)
    elif arguments.broker is None:
        arguments.broker = default


def _fill(arguments: argparse.Namespace, context: Context) -> None:
    for unit in _UNITS:
        if any(getattr(arguments, each, None) is not None for each in unit):
            continue
        for each in unit:
            value: str = getattr(context, each)
            if value:
                setattr(arguments, each, Path(value) if each.endswith("_file") else value)


def _find(contexts: Contexts, name: str) -> Context:
    found = contexts.known.get(name)
    if found is None:
        known = ", ".join(contexts.known) or "none; add one by `onward context add`"
        text = f"there is no context {name!r}: there is {known}"
        raise CommandError(text, Status.USAGE)
    return found


# --- the command ----------------------------------------------------------------------------


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "context", help="keep brokers by name, with what reaches them", description=_DESCRIPTION
    )
    actions: Commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = _action(actions, "add", "add a broker, or replace it", _add, _ADD)
    add.add_argument("context_name", metavar="NAME", help="its name")
    add.add_argument("--broker", metavar="URI", required=True, help="any URI that it listens at")
    add.add_argument("--description", metavar="TEXT", default="", help="a text for people")
    add_access(add)
    add.add_argument("--select", action="store_true", help="select it, too")
    listed = _action(actions, "list", "print all of them", _list)
    listed.add_argument("--json", action="store_true", help="print them as JSON")
    select = _action(actions, "select", "use one where --context is not given", _select)
    select.add_argument("context_name", metavar="NAME", nargs="?", help="its name (default: none)")
    show = _action(actions, "show", "print what one has", _show)
    show.add_argument(
        "context_name", metavar="NAME", nargs="?", help="its name (default: the selected one)"
    )
    show.add_argument("--json", action="store_true", help="print it as JSON")
    remove = _action(actions, "remove", "forget one", _remove)
    remove.add_argument("context_name", metavar="NAME", help="its name")


def _action(
    actions: Commands,
    name: str,
    text: str,
    command: Callable[[argparse.Namespace, Path], None],
    description: str | None = None,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=description or f"{text.capitalize()}.")

    def run(arguments: argparse.Namespace) -> None:
        command(arguments, contexts_path(os.environ))

    parser.set_defaults(command=run)
    return parser


def _add(arguments: argparse.Namespace, path: Path) -> None:
    name: str = arguments.context_name
    if not NAME.fullmatch(name):
        text = f"{name!r} is no name: it has letters, digits, and . _ - within, at most 64"
        raise CommandError(text, Status.USAGE)
    if arguments.token_file is not None and arguments.user is not None:
        raise CommandError("--token-file and --user do not go together", Status.USAGE)
    given: dict[str, Any] = {
        each: str(getattr(arguments, each) or "") for unit in _UNITS for each in unit
    }
    for each in _FILES:
        if given[each]:
            given[each] = os.path.abspath(given[each])  # noqa: PTH100 - links stay as they are
    context = Context(arguments.broker, arguments.description, **given)
    contexts = load_contexts(path)
    selected = name if arguments.select else contexts.selected
    save_contexts(path, Contexts(selected, {**contexts.known, name: context}))


def _list(arguments: argparse.Namespace, path: Path) -> None:
    contexts = load_contexts(path)
    if arguments.json:
        known = {name: context.given() for name, context in contexts.known.items()}
        print(json.dumps({"selected": contexts.selected or None, "contexts": known}, indent=2))
    elif not contexts.known:
        print("no contexts")
    else:
        rows = [
            ("*" if name == contexts.selected else "", name, each.broker, each.description)
            for name, each in contexts.known.items()
        ]
        print(table(("", "NAME", "BROKER", "DESCRIPTION"), rows))


def _select(arguments: argparse.Namespace, path: Path) -> None:
    contexts = load_contexts(path)
    if arguments.context_name is not None:
        _find(contexts, arguments.context_name)
    save_contexts(path, replace(contexts, selected=arguments.context_name or ""))


def _show(arguments: argparse.Namespace, path: Path) -> None:
    contexts = load_contexts(path)
    name = arguments.context_name or contexts.selected
    if not name:
        raise CommandError("no context is selected: give a name", Status.USAGE)
    given = _find(contexts, name).given()
    if arguments.json:
        print(json.dumps({"name": name, **given}, indent=2))
    else:
        lines = [("name", name), *given.items()]
        print("\n".join(printable(f"{key.replace('_', ' '):<14} {value}") for key, value in lines))


def _remove(arguments: argparse.Namespace, path: Path) -> None:
    contexts = load_contexts(path)
    _find(contexts, arguments.context_name)
    left = {name: each for name, each in contexts.known.items() if name != arguments.context_name}
    selected = "" if contexts.selected == arguments.context_name else contexts.selected
    save_contexts(path, Contexts(selected, left))
