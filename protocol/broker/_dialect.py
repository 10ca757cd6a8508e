"""The two dialects of the Routing and Forwarding frames, and the MIME types that select them.

The specification's own MIME type selects the specification to the letter. The reference
implementation (Java) and the JavaScript client announce another and write something else:
their ADDRESS has one list, the tags, and neither metadata nor wrapped metadata; they have
no 16-bit extension keys; their version field is not to be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = [
    "DIALECTS",
    "MIME_BROKER_FRAME",
    "MIME_FORWARDING",
    "MIME_ROUTING_FRAME",
    "Dialect",
]

# Metadata: "The frames will all share the same mime-type message/x.rsocket.forwarding".
MIME_FORWARDING: Final = b"message/x.rsocket.forwarding"
"""The specification's MIME type."""

MIME_BROKER_FRAME: Final = b"message/x.rsocket.broker.frame.v0"
"""What the Java reference since 0.3.0 and the JavaScript client announce."""

MIME_ROUTING_FRAME: Final = b"message/x.rsocket.routing.frame.v0"
"""What the Java reference before 0.3.0 announced."""


class Dialect(Enum):
    """The two encodings of broker frames."""

    SPECIFICATION = "specification"
    """ADDRESS is a metadata list, a tag list and wrapped metadata; the version is checked."""

    REFERENCE = "reference"
    """ADDRESS is one list, the tags; the version is not looked at."""


DIALECTS: Final[Mapping[bytes, Dialect]] = MappingProxyType(
    {
        MIME_FORWARDING: Dialect.SPECIFICATION,
        MIME_BROKER_FRAME: Dialect.REFERENCE,
        MIME_ROUTING_FRAME: Dialect.REFERENCE,
    }
)
"""The dialect of each MIME type; any other MIME type is not a broker frame's."""
