"""The results of requests about topics, domains and the directory."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ResultCode"]


class ResultCode(IntEnum):
    """The result of a request; the number is the one on the wire."""

    OK = 0
    EXISTS = 1
    UNKNOWN = 2
    NOT_OWNER = 3
    ALREADY_SUBSCRIBED = 4
    NOT_SUBSCRIBED = 5
    SCOPE = 6
    BAD_ADVERT = 7
    REMOTE_FAILED = 8
    TIMEOUT = 9
    DENIED = 10
    OVERFLOW = 11
