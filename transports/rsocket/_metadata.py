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
_TYPES: Final = frozenset(int(kind) for kind in FrameType)
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
        """Return where the last broker frame of a type is, in any dialect, and how it is wrapped.

        What came before on the connection does not matter: the same bytes always mean the
        same. A frame that is alone is what it is, be it of another type.

        Args:
            buffer: The bytes the metadata lies in.
            start: Offset of the metadata.
            end: Offset after them.
            wanted: The types. If there is none, a frame too short to have a type counts: it is one
                that is broken.

        Raises:
            MalformedComposite: The metadata is not a list of entries.
            BrokerFrameError: There is none, but a frame of an unknown type.
        """
        if not self._composite:
            return None if self._alone is None else (start, end, self._alone)
        found = find_broker_frame(buffer, start, end, wanted)
        return None if found is None else (found[1], found[2], FORMS[True, _MIMES[found[0]]])


def find_broker_frame(
    metadata: bytes, start: int, end: int, wanted: frozenset[FrameType]
) -> tuple[int, int, int] | None:
    """Return the offsets of the last broker frame of a type among entries, after its dialect.

    It is the one rule of what counts where there are several; `unwrap_metadata`, by which
    handlers learn what they were asked for, has the same for an ADDRESS. The reference takes the
    last, and its Spring client relies on that: it writes the ADDRESS that is configured
    for a route, and after it the one that the caller gives.

    Returns:
        Which of the MIME types of broker frames, and the offsets of the frame; or `None`.

    Raises:
        MalformedComposite: The metadata is not a list of entries.
        BrokerFrameError: There is none, but a frame of an unknown type.
    """
    last: tuple[int, int, int] | None = None
    broken: tuple[int, int, int] | None = None
    at = start
    while (found := _find(metadata, at, end)) is not None:
        _, content, at = found
        short = at - content < HEADER_SIZE
        if not short and metadata[content + 4] >> 2 in wanted:
            last = found
        elif broken is None and (short or metadata[content + 4] >> 2 not in _TYPES):
            broken = found
    if last is not None or broken is None:
        return last
    if broken[2] - broken[1] >= HEADER_SIZE:
        frame_type(metadata[broken[1] : broken[2]])  # nobody knows what it is
    return broken


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
