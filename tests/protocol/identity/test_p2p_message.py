"""The message between two nodes, and its padding."""

from __future__ import annotations

from onward.protocol.identity import (
    ControlContent,
    P2PMessage,
    SigningKey,
    pad_to,
    parse_p2p_message,
    serialize_p2p_message,
)

NODE = SigningKey(bytes(range(32))).identity
OTHER = SigningKey(bytes(32)).identity
MESSAGE = P2PMessage(NODE, OTHER, ControlContent(b"record"))


def test_a_message_is_padded_to_any_size() -> None:
    bare = len(serialize_p2p_message(MESSAGE))
    for size in (*range(bare, bare + 300), *range(bare + 65_530, bare + 65_550)):
        padded = pad_to(MESSAGE, size)
        written = serialize_p2p_message(padded)
        assert len(written) == size
        assert parse_p2p_message(written) == padded
