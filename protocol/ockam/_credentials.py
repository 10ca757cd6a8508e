"""Credentials in front of the wire: shown by a side that connects, answered by one that listens.

The wire of Ockam has none. Where both sides are configured for it, the first bytes of each
direction, before its version byte, are a *header*:

```
dialler      c0  length (16 bits)  the credentials, as in an authentication entry of RSocket
listener     c0  length (16 bits)  the text of a refusal; empty if the dialler is accepted
```

Then both go on with the wire: the version byte 01, and frames. A dialler without credentials sends
no header and gets none, so peers that know only the wire are served as before. One with credentials
sends nothing more until it is accepted.
"""

from __future__ import annotations

from typing import Final

from .._errors import WireError

__all__ = ["CREDENTIALS", "MAX_CREDENTIALS", "BadHeader", "read_header", "write_header"]

CREDENTIALS: Final = 0xC0
"""The first byte of a header. The first byte of the wire is its version, which is 1."""

MAX_CREDENTIALS: Final = 8 * 1024 + 256
"""Most bytes in a header: the longest credentials have 8 KiB, and the name of their type."""

_HEAD: Final = 3


class BadHeader(WireError):
    """A header is longer than one may be, or not where it is expected.

    Attributes:
        text: The fault.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


def read_header(data: bytes | bytearray) -> tuple[bytes, int] | None:
    """Read the header that a direction begins with.

    Args:
        data: The bytes received so far, the first of which is `CREDENTIALS`.

    Returns:
        The content, and the size of the header; `None` while bytes are missing.

    Raises:
        BadHeader: There is another byte, or the content is over `MAX_CREDENTIALS`. It is raised
            when the length is read, before anything more is kept.
    """
    if not data:
        return None
    if data[0] != CREDENTIALS:
        raise BadHeader(f"the first byte is {data[0]:#04x}, not {CREDENTIALS:#04x}")
    if len(data) < _HEAD:
        return None
    end = _HEAD + int.from_bytes(data[1:_HEAD])
    if end - _HEAD > MAX_CREDENTIALS:
        raise BadHeader(f"a header of {end - _HEAD} bytes is over {MAX_CREDENTIALS}")
    return (bytes(data[_HEAD:end]), end) if len(data) >= end else None


def write_header(content: bytes) -> bytes:
    """Return the header with some content: the inverse of `read_header`.

    Raises:
        BadHeader: It is over `MAX_CREDENTIALS` bytes.
    """
    if len(content) > MAX_CREDENTIALS:
        raise BadHeader(f"a header of {len(content)} bytes is over {MAX_CREDENTIALS}")
    return bytes((CREDENTIALS,)) + len(content).to_bytes(2) + content
