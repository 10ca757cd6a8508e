"""What can become of a client's request, as errors.

They say what a caller has to know: `NotDelivered` (nothing was done: ask again), `InDoubt`
(it may have been done), or the destination's own `DestinationError`.
"""

from __future__ import annotations

from typing import Final

from ...protocol import InDoubt, NotDelivered, OnwardError
from ...protocol.rsocket import ErrorCode
from ..rsocket import DestinationError

__all__ = ["RequestCanceled", "RequestRejected", "failure", "late_failure"]


class RequestRejected(DestinationError, NotDelivered):
    """The request was REJECTED (0x202): nobody has taken it, so it is safe to ask again.

    The client has done so already, as far as `ClientOptions.max_tries`, `retry_within` and
    the time allowed. Once an element has come, REJECTED is a plain `DestinationError`.
    """


class RequestCanceled(DestinationError, InDoubt):
    """The request was CANCELED (0x203): a destination had it, and no answer will come."""


_KINDS: Final[dict[int, type[DestinationError]]] = {
    ErrorCode.REJECTED: RequestRejected,
    ErrorCode.CANCELED: RequestCanceled,
}


def failure(code: int, text: str) -> OnwardError:
    """Return the exception for an ERROR frame.

    Defect 3 of the `rsocket` package (0.4.20): it drops an ERROR whose code it does not know,
    and the requester waits for ever. Here any 32-bit number will do.
    """
    return _KINDS.get(code, DestinationError)(code, text)


def late_failure(code: int, text: str) -> OnwardError:
    """Return the exception for an ERROR of a responder that has been at work.

    It may say REJECTED as it likes; that nothing was done is not true any more.
    """
    if code == ErrorCode.REJECTED:
        return DestinationError(code, text)
    return failure(code, text)
