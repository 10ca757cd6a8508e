"""`python -m onward.transports.testing URI`: run the suite and print a table."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from ._case import Case
from ._claims import Claims
from ._known import known_claims
from ._run import CASES, run_suite

_YES_OR_NO = tuple(field.name for field in fields(Claims) if field.type == "bool")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; return 0 if every claimed case passed, else 1."""
    given = _parser().parse_args(arguments)
    claims = known_claims(given.uri)
    changes: dict[str, Any] = dict.fromkeys(given.claims, True) | dict.fromkeys(given.not_, False)
    for name in ("address_type", "max_payload", "too_large", "patience"):
        if getattr(given, name) is not None:
            changes[name] = getattr(given, name)
    logging.getLogger("onward").addHandler(logging.NullHandler())
    report = run_suite(
        given.uri,
        replace(claims, **changes),
        transport=given.transport,
        loop_factory=given.loop,
        cases=given.case or CASES,
    )
    sys.stdout.write(f"{report}\n")
    return 0 if report.passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m onward.transports.testing",
        description="Hold a transport to what it claims.",
        epilog=f"Claims: {', '.join(_YES_OR_NO)}.",
    )
    parser.add_argument(
        "uri",
        help="where to listen; {n} stands for a number that is new each time, {tmp} for a folder",
    )
    parser.add_argument(
        "--transport", type=_thing, metavar="MODULE:CLASS", help="a class without entry point"
    )
    parser.add_argument(
        "--loop",
        type=_thing,
        metavar="MODULE:FUNCTION",
        help="what makes the event loop, as uvloop:new_event_loop",
    )
    parser.add_argument(
        "--claims", nargs="+", choices=_YES_OR_NO, default=(), metavar="CLAIM", help="it claims"
    )
    parser.add_argument(
        "--not",
        dest="not_",
        nargs="+",
        choices=_YES_OR_NO,
        default=(),
        metavar="CLAIM",
        help="it does not claim",
    )
    parser.add_argument("--address-type", type=int, help="the type of address it resolves")
    parser.add_argument("--max-payload", type=int, help="bytes that certainly get across")
    parser.add_argument("--too-large", type=int, help="bytes that are refused")
    parser.add_argument("--patience", type=float, help="seconds anything may take")
    parser.add_argument(
        "--case", nargs="+", type=_case, metavar="NAME", help="these cases only; all by default"
    )
    return parser


def _thing(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _case(name: str) -> Case:
    for each in CASES:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in CASES)
    raise argparse.ArgumentTypeError(f"no case {name!r}; there are: {known}")


if __name__ == "__main__":
    sys.exit(main())
