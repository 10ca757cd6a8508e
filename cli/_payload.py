"""Payloads as words of a command line: text, hexadecimal digits, or a BARE string."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ._status import CommandError, Status

__all__ = ["BARE_STRING", "HEX", "TEXT", "PayloadNotation", "add_arguments", "payload_of"]

STDIN: Final = "-"

_MAX_LENGTH_BYTES: Final = 10


@dataclass(frozen=True, slots=True)
class PayloadNotation:
    """A notation of payloads.

    Attributes:
        encode: Returns the payload of a text; raises `ValueError`.
        decode: Returns the text of a payload; raises `ValueError` if it is not of this form.
    """

    encode: Callable[[bytes], bytes]
    decode: Callable[[bytes], str]


def encode_bare_string(text: bytes) -> bytes:
    """Return a text with its length in front, as BARE and so Rust's workers expect.

    The length is a variable-length integer: seven bits a byte, the lowest first; the high bit
    means that more follow (baremessages.org, "uint" and "str").

    Raises:
        UnicodeDecodeError: It is not UTF-8.
    """
    text.decode()
    left = len(text)
    length = bytearray()
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    length.append(left)
    return bytes(length) + text


def decode_bare_string(payload: bytes) -> str:
    """Return the text of a BARE string that fills the whole payload.

    Raises:
        ValueError: It is not one.
    """
    length = 0
    for index, byte in enumerate(payload[:_MAX_LENGTH_BYTES]):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            text = payload[index + 1 :]
            if len(text) != length:
                break
            return text.decode()
    raise ValueError("its length is not the one it starts with")


TEXT: Final = PayloadNotation(
    lambda given: given, lambda payload: payload.decode("utf-8", "backslashreplace")
)
HEX: Final = PayloadNotation(lambda given: bytes.fromhex(given.decode("ascii")), bytes.hex)
BARE_STRING: Final = PayloadNotation(encode_bare_string, decode_bare_string)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the payload and its form."""
    parser.add_argument(
        "payload",
        metavar="PAYLOAD",
        nargs="?",
        default="",
        help="the payload; - reads it from standard input; nothing by default",
    )
    forms = parser.add_mutually_exclusive_group()
    for option, form, text in (
        ("--text", TEXT, "payloads are UTF-8 (the default)"),
        ("--hex", HEX, "payloads are written as hexadecimal digits"),
        ("--bare-string", BARE_STRING, "payloads are strings as Rust's Ockam workers expect them"),
    ):
        forms.add_argument(
            option, dest="form", action="store_const", const=form, default=TEXT, help=text
        )


def payload_of(arguments: argparse.Namespace) -> bytes:
    """Return the payload of a command line.

    Raises:
        CommandError: It does not have the given form.
    """
    word: str = arguments.payload
    given = sys.stdin.buffer.read() if word == STDIN else word.encode("utf-8", "surrogateescape")
    form: PayloadNotation = arguments.form
    try:
        return form.encode(given)
    except ValueError as error:
        raise CommandError(f"the payload cannot be read: {error}", Status.USAGE) from error
