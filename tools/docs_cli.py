"""Put what `onward --help` prints into the documentation of the command line.

`tools.pages` calls `fill` for each page; a line `<!-- help: broker -->` becomes the output of
`onward broker --help`, and `<!-- help: -->` that of `onward --help`.
"""

from __future__ import annotations

import io
import os
import re
import sys
from contextlib import redirect_stdout
from unittest import mock

from onward.cli import main

_MARK = re.compile(r"^<!-- help: *(?P<command>[\w -]*?) *-->$", re.MULTILINE)


def fill(markdown: str) -> str:
    """Replace the marks of a page.

    Raises:
        LookupError: There is no such command.
    """
    return _MARK.sub(lambda mark: help_of(*mark["command"].split()), markdown)


def help_of(*command: str) -> str:
    """Return the help of a command as a code block."""
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "88", "NO_COLOR": "1"}),
        mock.patch.object(sys, "argv", ["onward"]),
        redirect_stdout(printed),
    ):
        try:
            main([*command, "--help"])
        except SystemExit as ended:
            if ended.code:
                raise LookupError(f"there is no command {' '.join(command)}") from None
    return f"```text\n{printed.getvalue().rstrip()}\n```"
