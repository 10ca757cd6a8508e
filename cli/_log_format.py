"""The formats of the log: text for people, JSON for collectors, and lines for the journal."""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from datetime import UTC, datetime
from typing import Any, Final

from ._show import printable

__all__ = ["FIELDS", "FORMATS", "JournalFormatter", "JsonFormatter", "TextFormatter", "event_of"]

FIELDS: Final = ("connection", "peer", "principal", "listener", "route", "reason")
"""The fields of a record besides its event and its message; those that it has are written."""

_PRIORITIES: Final = {"DEBUG": 7, "INFO": 6, "WARNING": 4, "ERROR": 3, "CRITICAL": 2}
"""The priorities of the journal, as `sd-daemon(3)` has them."""


def event_of(record: logging.LogRecord) -> str:
    """Return the id of a record's event; the name of its logger if it has none."""
    event = getattr(record, "event", None)
    return event if isinstance(event, str) else record.name


class ServerFormatter(logging.Formatter):
    """A format of the log of a server.

    Args:
        process: The number of the process, as one of several.
    """

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self.process = process


class _Lines(ServerFormatter):
    """A format of which each record is lines of printable text."""

    def source(self, record: logging.LogRecord) -> str:
        """Return the name of the logger, with the number of the process."""
        return record.name if self.process is None else f"{record.name}[{self.process}]"

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines, without a line break at the end."""
        lines = [printable(record.getMessage())]
        if record.exc_info:
            lines += map(printable, self.formatException(record.exc_info).splitlines())
        return self.join(record, lines)

    @abstractmethod
    def join(self, record: logging.LogRecord, lines: list[str]) -> str:
        """Return the text of a record from its message and the lines of its traceback."""


class TextFormatter(_Lines):
    """The format for people: time, level, logger and message."""

    def join(self, record: logging.LogRecord, lines: list[str]) -> str:
        """Return the lines with the head of the record in front."""
        head = f"{self.formatTime(record)} {record.levelname} {self.source(record)}: "
        return head + "\n".join(lines)


class JournalFormatter(_Lines):
    """The format for the journal of systemd: each line with its priority, and without a time."""

    def join(self, record: logging.LogRecord, lines: list[str]) -> str:
        """Return the lines, each with the priority in front."""
        priority = f"<{_PRIORITIES.get(record.levelname, 6)}>"
        lines[0] = f"{self.source(record)}: {lines[0]}"
        return "\n".join(priority + line for line in lines)


class JsonFormatter(ServerFormatter):
    """The format for collectors: an object on one line for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON, in ASCII."""
        at = datetime.fromtimestamp(record.created, UTC)
        said: dict[str, Any] = {
            "time": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
            "level": record.levelname.lower(),
            "event": event_of(record),
            "message": record.getMessage(),
        }
        if self.process is not None:
            said["process"] = self.process
        for name in FIELDS:
            value = getattr(record, name, None)
            if value is not None:
                said[name] = str(value)
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said)


FORMATS: Final[dict[str, type[ServerFormatter]]] = {
    "text": TextFormatter,
    "json": JsonFormatter,
    "journal": JournalFormatter,
}
"""The formats by name."""
