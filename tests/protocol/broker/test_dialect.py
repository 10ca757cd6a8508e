from __future__ import annotations

import pytest

from onward.protocol.broker import (
    DIALECTS,
    MIME_BROKER_FRAME,
    MIME_FORWARDING,
    MIME_ROUTING_FRAME,
    Dialect,
)


@pytest.mark.parametrize(
    ("mime", "text", "dialect"),
    [
        (MIME_FORWARDING, "message/x.rsocket.forwarding", Dialect.SPECIFICATION),
        (MIME_BROKER_FRAME, "message/x.rsocket.broker.frame.v0", Dialect.REFERENCE),
        (MIME_ROUTING_FRAME, "message/x.rsocket.routing.frame.v0", Dialect.REFERENCE),
    ],
)
def test_the_mime_type_selects_the_dialect(mime: bytes, text: str, dialect: Dialect) -> None:
    assert mime == text.encode()
    assert DIALECTS[mime] is dialect


def test_there_are_no_other_mime_types() -> None:
    assert len(DIALECTS) == 3
    assert DIALECTS.get(b"message/x.rsocket.forwarding.v0") is None


def test_stands_in_composite_metadata_as_a_text() -> None:
    # C1 and C2: length of the MIME type less one, MIME type, 24-bit length of the frame.
    entry = bytes.fromhex(
        "206d6573736167652f782e72736f636b65742e62726f6b65722e6672616d652e763000001b"
    )
    assert entry == bytes((len(MIME_BROKER_FRAME) - 1,)) + MIME_BROKER_FRAME + b"\x00\x00\x1b"
