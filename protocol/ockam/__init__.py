"""Ockam's node-to-node wire as it stands since June 2024, over streams and datagrams; no I/O."""

from ._cbor import MAX_SKIPPED_ITEMS
from ._codec import MessageDecoder, decode_message, encode_message, message_size
from ._connection import HEARTBEAT, MAX_FRAME, PREAMBLE, WireConnection, WireLimits
from ._credentials import CREDENTIALS, MAX_CREDENTIALS, BadHeader, read_header, write_header
from ._datagram import (
    MAX_DATAGRAM,
    MAX_PART,
    MAX_PARTS,
    Assembler,
    DatagramLimits,
    DatagramPart,
    OffsetPart,
    read_part,
    split_message,
)

__all__ = [
    "CREDENTIALS",
    "HEARTBEAT",
    "MAX_CREDENTIALS",
    "MAX_DATAGRAM",
    "MAX_FRAME",
    "MAX_PART",
    "MAX_PARTS",
    "MAX_SKIPPED_ITEMS",
    "PREAMBLE",
    "Assembler",
    "BadHeader",
    "DatagramLimits",
    "DatagramPart",
    "MessageDecoder",
    "OffsetPart",
    "WireConnection",
    "WireLimits",
    "decode_message",
    "encode_message",
    "message_size",
    "read_header",
    "read_part",
    "split_message",
    "write_header",
]
