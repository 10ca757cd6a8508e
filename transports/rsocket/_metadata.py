"""Where the broker's frames are in a connection's metadata."""

from __future__ import annotations

from typing import Final

from ...protocol.broker import DIALECTS, HEADER_SIZE, Dialect, FrameType, frame_type
from ...protocol.rsocket import COMPOSITE_MIME, MalformedComposite, entry_finder

__all__ = [
    "ADDRESS",
    "EITHER",
    "FORMS",
    "ROUTE_SETUP",
    "Form",
    "MetadataShape",
    "find_broker_frame",
    "trace_id_of",
]


class Form:
    """One way of wrapping broker frames in metadata. There is one object for each way.

    Attributes:
        composite: True among the entries of composite metadata, False as all of it.
        mime: The MIME type of the frames.
        dialect: How they are written.
    """

    __slots__ = ("composite", "dialect", "mime")

    def __init__(self, composite: bool, mime: bytes, dialect: Dialect) -> None:
        self.composite: Final = composite
        self.mime: Final = mime
        self.dialect: Final = dialect


FORMS: Final = {
    (composite, mime): Form(composite, mime, dialect)
    for composite in (False, True)
    for mime, dialect in DIALECTS.items()
}


ADDRESS: Final = frozenset({FrameType.ADDRESS})
"""What a request is routed by."""
ROUTE_SETUP: Final = frozenset({FrameType.ROUTE_SETUP})
"""What makes a connection a destination."""
EITHER: Final = ADDRESS | ROUTE_SETUP
"""What a metadata push may be about."""

_MIMES: Final = tuple(DIALECTS)
_find: Final = entry_finder(*_MIMES)
_find_trace: Final = entry_finder(b"message/x.rsocket.tracing-zipkin.v0")

_IDS: Final = 0x80
"""The flag of tracing metadata that says that ids follow (extension "Tracing (Zipkin)")."""
_LONG: Final = 0x08
"""The flag that says that the trace id has 128 bits."""


class MetadataShape:
    """Where one peer puts broker frames: among entries of metadata, or as all of it.

    Args:
        metadata_mime: What its SETUP says that its metadata are.
    """

    __slots__ = ("_alone", "_composite")

    def __init__(self, metadata_mime: str) -> None:
        self._composite = metadata_mime == COMPOSITE_MIME
        self._alone = FORMS.get((False, metadata_mime.encode("ascii", "replace")))

    def find(
        self, buffer: bytes, start: int, end: int, wanted: frozenset[FrameType]
    ) -> tuple[int, int, Form] | None:
        """Return where the first broker frame of a type is, in any dialect, and how it is wrapped.

        What came before on the connection does not matter: the same bytes always mean the
        same. A frame that is alone is what it is, be it of another type.

        Args:
            buffer: The bytes the metadata lies in.
            start: Offset of the metadata.
            end: Offset after them.
            wanted: The types. A frame too short to have one counts: it is one that is broken.

        Raises:
            MalformedComposite: The metadata is not a list of entries.
            BrokerFrameError: A frame before it is of a type that nobody knows.
        """
        if not self._composite:
            return None if self._alone is None else (start, end, self._alone)
        found = find_broker_frame(buffer, start, end, wanted)
        return None if found is None else (found[1], found[2], FORMS[True, _MIMES[found[0]]])


def find_broker_frame(
    metadata: bytes, start: int, end: int, wanted: frozenset[FrameType]
) -> tuple[int, int, int] | None:
    """Return the offsets of the first broker frame of a type among entries, after its dialect.

    It is the one rule of what counts where there are several; `unwrap_metadata`, by which
    handlers learn what they were asked for, has the same for an ADDRESS.

    Returns:
        Which of the MIME types of broker frames, and the offsets of the frame; or `None`.

    Raises:
        MalformedComposite: The metadata is not a list of entries.
        BrokerFrameError: A frame before it is of a type that nobody knows.
    """
    while (found := _find(metadata, start, end)) is not None:
        _, content, start = found
        if start - content < HEADER_SIZE or metadata[content + 4] >> 2 in wanted:
            return found
        frame_type(metadata[content:start])  # or nobody knows what it is
    return None


def trace_id_of(metadata: bytes) -> int | None:
    """Return the id of the trace that a request is of, by its Zipkin tracing metadata.

    Returns:
        64 bits: of a longer id the last ones, as is usual. `None` if composite metadata have no
        such entry, or none that can be read: it is for looking on, and no error.
    """
    try:
        found = _find_trace(metadata, 0, len(metadata))
    except MalformedComposite:
        return None
    if found is None:
        return None
    _, start, end = found
    if start == end or not metadata[start] & _IDS:
        return None
    at = start + 1 + (8 if metadata[start] & _LONG else 0)
    return int.from_bytes(metadata[at : at + 8]) if at + 8 <= end else None
