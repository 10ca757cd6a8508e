"""Put what `onward --help` prints into the documentation of the command line.

`tools.pages` calls `fill` for each page; a line `<!-- help: broker -->` becomes the output of
`onward broker --help`, and `<!-- help: -->` that of `onward --help`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

_MARK = re.compile(r"^<!-- help: *(?P<command>[\w -]*?) *-->$", re.MULTILINE)


def fill(markdown: str) -> str:
    """Replace the marks of a page.

    Raises:
        CalledProcessError: There is no such command.
    """
    return _MARK.sub(lambda mark: help_of(*mark["command"].split()), markdown)


def help_of(*command: str) -> str:
    """Return the help of a command as a code block."""
    program = "import sys; from onward.cli import main; sys.exit(main())"
    run = subprocess.run(
        [sys.executable, "-c", program, *command, "--help"],
        env={**os.environ, "COLUMNS": "88", "NO_COLOR": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    text = run.stdout.replace("usage: -c", "usage: onward").rstrip()
    return f"```text\n{text}\n```"
