"""The outcome of a command for the shell: its exit status and, on failure, one line."""

from __future__ import annotations

from enum import IntEnum

from ..actors import UnknownScheme
from ..protocol import AddressError, InDoubt, OnwardError, RouteError

__all__ = ["CommandError", "Status", "status_of"]


class Status(IntEnum):
    """The exit statuses of all commands."""

    OK = 0
    """It was done; a server was asked to stop, and has."""

    FAILED = 1
    """It was certainly not done: no peer was reached, no message was delivered."""

    USAGE = 2
    """The command line is wrong. Of `onward pipeline` also: it was done, and a gate does not hold;
    the last line on stderr then says `gate failed`."""

    IN_DOUBT = 3
    """A message was handed over and no answer came; doing it again may do it twice."""


class CommandError(Exception):
    """A command cannot be done; its text is the line with the reason.

    Attributes:
        status: The exit status.
    """

    def __init__(self, text: str, status: Status = Status.FAILED) -> None:
        super().__init__(text)
        self.status = status


def status_of(error: OnwardError) -> Status:
    """Return the exit status for an error."""
    if isinstance(error, InDoubt):
        return Status.IN_DOUBT
    if isinstance(error, AddressError | RouteError | UnknownScheme):
        return Status.USAGE
    return Status.FAILED
