"""Error replies: messages along the return route of a message that could not be delivered.

The last address of an error reply's return route is `onward.error`, which distinguishes it
from an answer. No worker has that address, so an error reply cannot be answered. The other
addresses of the return route are those of the workers that passed it on.

The payload is BARE: a version (`uint`, 1), the reason (`str`), the address that could not be
reached (its type as `uint`, its value as `data`), and 1 or 0 (`uint`) for `certain`.

The address `onward.handled` on a return route tells that a worker has handled the message and
passed a result on: no error reply for it is `certain`, on whichever node it is lost. It is no
worker's address either; the node that a worker put it there on removes it from the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ._address import LOCAL, MAX_ADDRESS_VALUE, Address
from ._message import Message
from .bare import BareError, BareReader, encode_data, encode_string, encode_uint

__all__ = [
    "ERROR_SOURCE",
    "HANDLED",
    "MAX_ERROR_REASON",
    "ErrorReply",
    "encode_error_reply",
    "is_error_reply",
    "read_error_reply",
]

ERROR_SOURCE: Final = Address(LOCAL, b"onward.error")
"""Where error replies come from: the last address of their return route."""

HANDLED: Final = Address(LOCAL, b"onward.handled")
"""On a return route: a worker has handled the message and passed a result on."""

MAX_ERROR_REASON: Final = 80
"""Most characters of the reason of an error reply; a longer one is cut when it is written, and
is no error reply when it is read."""

_VERSION: Final = 1
_MAX_PAYLOAD: Final = MAX_ADDRESS_VALUE + 4 * MAX_ERROR_REASON + 16
_VALUE: Final = ERROR_SOURCE.value


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """The failure to deliver a message.

    Attributes:
        reason: The cause in a few words, the same as in dead letters: `no such worker`, `denied`,
            `mailbox full`, `expired`.
        address: The address that could not be reached, or that of the worker that gave up.
        certain: Whether it is certain that the message was not handed over.
    """

    reason: str
    address: Address
    certain: bool


def encode_error_reply(reply: ErrorReply) -> bytes:
    """Write the payload of an error reply; a reason that is too long is cut."""
    reason = reply.reason[:MAX_ERROR_REASON]
    reason = reason if _is_plain(reason) else ascii(reason)[:MAX_ERROR_REASON]
    return b"".join(
        (
            encode_uint(_VERSION),
            encode_string(reason),
            encode_uint(reply.address.type),
            encode_data(reply.address.value),
            encode_uint(int(reply.certain)),
        )
    )


def is_error_reply(message: Message) -> bool:
    """Whether a message claims to be an error reply."""
    back = message[1]
    # The value alone first: this is asked of every answer to a request.
    return bool(back) and back[-1][1] == _VALUE and back[-1][0] == LOCAL


def read_error_reply(message: Message) -> ErrorReply | None:
    """Read an error reply.

    Any sender can forge an error reply, as it can forge an answer: trust it as far as the link
    that it arrived over.

    Returns:
        The error reply, or `None` if the message is not a well-formed one.
    """
    payload = message[2]
    if not is_error_reply(message) or len(payload) > _MAX_PAYLOAD:
        return None
    reader = BareReader(payload)
    try:
        version, reason = reader.uint(), reader.string()
        kind, value, certain = reader.uint(), reader.data(), reader.uint()
        reader.finish()
    except BareError:
        return None
    sound = (
        version == _VERSION
        and len(reason) <= MAX_ERROR_REASON
        and _is_plain(reason)
        and kind <= 255
        and 0 < len(value) <= MAX_ADDRESS_VALUE
        and certain <= 1
    )
    return ErrorReply(reason, Address(kind, value), certain == 1) if sound else None


def _is_plain(reason: str) -> bool:
    """Whether a reason is one line of printable text."""
    return reason.isprintable()
