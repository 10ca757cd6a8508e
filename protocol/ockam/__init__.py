"""Ockam's node-to-node wire over TCP, as it stands since June 2024; no I/O."""

from ._cbor import MAX_SKIPPED_ITEMS
from ._codec import MessageDecoder, decode_message, encode_message
from ._connection import HEARTBEAT, MAX_FRAME, PREAMBLE, WireConnection, WireLimits

__all__ = [
    "HEARTBEAT",
    "MAX_FRAME",
    "MAX_SKIPPED_ITEMS",
    "PREAMBLE",
    "MessageDecoder",
    "WireConnection",
    "WireLimits",
    "decode_message",
    "encode_message",
]
