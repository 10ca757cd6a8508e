"""The start of the `onward` command: an interrupt is reported, also while Python imports."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: The words after `onward`; those of the process by default.

    Returns:
        The exit status; see `Status`.

    Raises:
        SystemExit: The command line is wrong, or help was asked for.
    """
    try:
        from ._main import run_command  # it takes a quarter of a second
    except KeyboardInterrupt:
        print("onward: interrupted", file=sys.stderr)
        return 1  # Status.FAILED
    return run_command(arguments)
