"""`onward check-access`: the decision of a file of rules, and its reason."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from ..protocol.broker import TagSet, format_query, parse_address_query, parse_query
from ..protocol.security import Action, Decision, NotAllowed, Principal, Rules, add_forced_tags
from ._arguments import Commands, word
from ._rules import load_rules
from ._show import printable
from ._status import CommandError, Status

__all__ = ["add_commands"]

_DESCRIPTION: Final = """\
Say whether a file of rules allows a principal an action, and which rule decides; or which rule is
nearest, and the tags that are missing. The exit status is 0 if the action is allowed, and 1 if not.
"""

_ACTIONS: Final = tuple(each.value for each in Action)


def add_commands(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "check-access",
        help="say what a file of rules allows, and why",
        description=_DESCRIPTION,
    )
    parser.add_argument("rules", metavar="RULES", type=Path, help="the file of rules, in TOML")
    parser.add_argument(
        "action", metavar="ACTION", type=word(*_ACTIONS), choices=_ACTIONS, help=_choices()
    )
    parser.add_argument(
        "tags",
        metavar="TAG=VALUE",
        nargs="*",
        help="of a registration the service and the tags of the destination, of a request those of "
        "the query, as in service=orders",
    )
    parser.add_argument(
        "--role",
        metavar="ROLE",
        action="append",
        default=[],
        help="a role of the principal; may be repeated",
    )
    parser.add_argument(
        "--name",
        dest="principal",
        metavar="NAME",
        default="anonymous",
        help="the name of the principal (default %(default)s)",
    )
    parser.add_argument(
        "--tag",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a tag that the broker adds to each registration and request; may be repeated",
    )
    parser.set_defaults(command=_command)


def _choices() -> str:
    return f"one of {', '.join(_ACTIONS[:-1])} or {_ACTIONS[-1]}"


def _command(arguments: argparse.Namespace) -> None:
    action = Action(arguments.action)
    if action.has_tags != bool(arguments.tags):
        text = f"{action.value} needs tags" if action.has_tags else f"{action.value} has no tags"
        raise CommandError(text, Status.USAGE)
    forced: TagSet = parse_query(" ".join(arguments.tag)) if arguments.tag else frozenset()
    principal = Principal(arguments.principal, "check", frozenset(arguments.role), forced)
    decision = _decide(load_rules(arguments.rules), principal, action, " ".join(arguments.tags))
    print(printable(decision.why))
    if not decision.allowed:
        raise CommandError("not allowed")


def _decide(rules: Rules, principal: Principal, action: Action, text: str) -> Decision:
    """Decide as a broker does.

    Raises:
        AddressError: The tags cannot be read.
        CommandError: They contradict a forced tag.
    """
    tags: TagSet = frozenset()
    keys: TagSet = frozenset()
    if action is Action.REQUEST:
        asked = parse_address_query(text)
        tags, keys = asked.query, frozenset(asked.keys)
    elif action is Action.REGISTER:
        tags = parse_query(text)
    try:
        add_forced_tags(action, tags | keys, principal.tags)
    except NotAllowed:
        forced = format_query(principal.tags)
        raise CommandError(f"not allowed: the principal is forced to have {forced}") from None
    return rules.decide(principal, action, tags | principal.tags)
