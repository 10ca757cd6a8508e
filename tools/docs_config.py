"""Tables of the configuration file for the documentation, from the parsers of the commands.

`tools.pages` calls `fill` for each page; a line `<!-- configuration: broker -->` becomes a table
of the options for each section of the file of `onward broker`.
"""

from __future__ import annotations

import re
from typing import Any

from onward.cli._config_options import ConfigOption, OwnSection, options_of
from onward.cli._main import parser_of

__all__ = ["fill", "server_options"]

_MARK = re.compile(r"^<!-- configuration: *(?P<command>broker|node|dispatch) *-->$", re.MULTILINE)
_HEAD = "| key | value | default | command line | reload |\n| --- | --- | --- | --- | --- |"


def fill(markdown: str) -> str:
    """Replace the marks of a page."""
    return _MARK.sub(lambda mark: tables(mark["command"]), markdown)


def server_options(command: Any) -> tuple[ConfigOption, ...]:
    """Return the options of a server."""
    section: OwnSection = command
    return options_of(parser_of(command), section)


def tables(command: str) -> str:
    """Return the tables of a command, one for each section."""
    sections: dict[str, list[ConfigOption]] = {}
    for each in server_options(command):
        sections.setdefault(each.section, []).append(each)
    written: list[str] = []
    for section, options in sections.items():
        title = f"`[[{section}]]`" if section == "listener" else f"`[{section}]`"
        rows = "\n".join(map(_row, options))
        written.append(f"{title}\n\n{_HEAD}\n{rows}")
    return "\n\n".join(written)


def _row(option: ConfigOption) -> str:
    kind = " or ".join(f'`"{each}"`' for each in option.choices) or option.kind
    value = f"list of {kind}" if option.many and option.section != "listener" else kind
    cells = (
        f"`{option.key}`",
        value,
        _default(option),
        f"`{option.flag}`",
        "changes it" if option.hot else "",
    )
    return f"| {' | '.join(cells)} |"


def _default(option: ConfigOption) -> str:
    value = option.default
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else f"`{value}`"
