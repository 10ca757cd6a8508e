"""The errors of a client's requests.

They are `NotDelivered` (not processed: safe to repeat), `InDoubt` (possibly processed), or the
destination's own `DestinationError`.
"""

from __future__ import annotations

from typing import Final

from ...protocol import InDoubt, LinkDown, NotDelivered, OnwardError
from ...protocol.rsocket import ErrorCode
from ..rsocket import DestinationError

__all__ = [
    "CredentialsRefused",
    "RequestCanceled",
    "RequestRejected",
    "failure",
    "late_failure",
]


class CredentialsRefused(LinkDown):
    """The broker has refused the credentials of the client, or requires some.

    Nothing was sent. With credentials that a function returns, the client tries again with new
    ones. With fixed credentials requests fail at once, and the client tries again rarely, as the
    broker may get to know them.
    """

    reason = "credentials refused"


class RequestRejected(DestinationError, NotDelivered):
    """The request was REJECTED (0x202): no destination processed it, so it is safe to repeat.

    "The Responder guarantees that it didn't process the request." (Error Codes) The client has
    repeated it already, within `RetryOptions.max_tries`, `within` and the timeout. Once
    an element has arrived, REJECTED is a plain `DestinationError`.
    """


class RequestCanceled(DestinationError, InDoubt):
    """The request was CANCELED (0x203): a destination may have processed it.

    "The Responder canceled the request but may have started processing it". (Error Codes)
    """


_KINDS: Final[dict[int, type[DestinationError]]] = {
    ErrorCode.REJECTED: RequestRejected,
    ErrorCode.CANCELED: RequestCanceled,
}


def failure(code: int, text: str) -> OnwardError:
    """Return the exception for an ERROR frame.

    Any 32-bit code is accepted. Defect 3 of the `rsocket` package (0.4.20): it drops an ERROR
    with an unknown code, and the requester waits for ever.
    """
    return _KINDS.get(code, DestinationError)(code, text)


def late_failure(code: int, text: str) -> OnwardError:
    """Return the exception for an ERROR of a responder that has begun to respond.

    Its REJECTED is no guarantee any more that the request was not processed.
    """
    if code == ErrorCode.REJECTED:
        return DestinationError(code, text)
    return failure(code, text)
