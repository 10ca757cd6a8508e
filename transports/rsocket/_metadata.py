"""The position and form of broker frames in a connection's metadata."""

from __future__ import annotations

from typing import Final

from ...protocol.broker import (
    DIALECTS,
    HEADER_SIZE,
    ID_SIZE,
    MIME_BROKER_FRAME,
    MIME_FORWARDING,
    Dialect,
    FrameType,
    frame_type,
)
from ...protocol.rsocket import COMPOSITE_MIME, MalformedComposite, Setup, entry_finder
from ...protocol.security import AUTHENTICATION_MIME

__all__ = [
    "ADDRESS",
    "EITHER",
    "FORMS",
    "JAVA",
    "PEER",
    "ROUTE_SETUP",
    "Form",
    "MetadataShape",
    "address_starts",
    "find_broker_frame",
    "introduces_java",
    "trace_id_of",
]


class Form:
    """A form of broker frames in metadata. There is one object for each form.

    Attributes:
        composite: Whether a frame is an entry of composite metadata, or all of the metadata.
        mime: The MIME type of the frames.
        dialect: The dialect of the frames.
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

PEER: Final = Form(True, MIME_FORWARDING, Dialect.SPECIFICATION)
"""The form of a peer broker. It is no requester's, so each request for it is written anew."""

JAVA: Final = Form(True, MIME_BROKER_FRAME, Dialect.REFERENCE)
"""The form of a Java broker as a peer broker, likewise."""

ADDRESS: Final = frozenset({FrameType.ADDRESS})
"""The frame type of a request."""
ROUTE_SETUP: Final = frozenset({FrameType.ROUTE_SETUP})
"""The frame type that makes a connection a destination."""
EITHER: Final = ADDRESS | ROUTE_SETUP
"""The frame types of a metadata push."""

_INTRODUCTION: Final = int(FrameType.BROKER_INFO)
_CREDENTIALS: Final = AUTHENTICATION_MIME.encode()
_MIMES: Final = tuple(DIALECTS)
_TYPES: Final = frozenset(int(kind) for kind in FrameType)
_find: Final = entry_finder(*_MIMES)
_find_trace: Final = entry_finder(b"message/x.rsocket.tracing-zipkin.v0")

_IDS: Final = 0x80
"""The flag of tracing metadata for ids that follow (extension "Tracing (Zipkin)")."""
_LONG: Final = 0x08
"""The flag of tracing metadata for a trace id of 128 bits."""


class MetadataShape:
    """The forms of broker frames that one peer may use.

    Attributes:
        composite: Whether the peer's metadata is a list of entries.

    Args:
        metadata_mime: The metadata MIME type of the peer's SETUP.
    """

    __slots__ = ("_alone", "composite")

    def __init__(self, metadata_mime: str) -> None:
        self.composite: Final = metadata_mime == COMPOSITE_MIME
        mime = metadata_mime.encode("ascii", "replace")
        # With credentials as the only metadata of SETUP, all other metadata are broker frames.
        self._alone = FORMS.get((False, MIME_FORWARDING if mime == _CREDENTIALS else mime))

    def find(
        self, buffer: bytes, start: int, end: int, wanted: frozenset[FrameType]
    ) -> tuple[int, int, Form] | None:
        """Return the offsets and the form of the last broker frame of a type, in any dialect.

        The result depends on the bytes only, not on earlier frames of the connection. A frame that
        is all of the metadata is returned whatever its type.

        Args:
            buffer: The bytes that hold the metadata.
            start: Offset of the metadata.
            end: Offset after the metadata.
            wanted: The types. Without a match, a frame too short for a type is returned, as a
                broken one.

        Raises:
            MalformedComposite: The metadata is not a list of entries.
            BrokerFrameError: There is no match, but a frame of an unknown type.
        """
        # ADDRESS: "It may be attached as the payload's only metadata, or it can be included in
        # composite metadata. Implementations MUST support both cases."
        if not self.composite:
            return None if self._alone is None else (start, end, self._alone)
        found = find_broker_frame(buffer, start, end, wanted)
        return None if found is None else (found[1], found[2], FORMS[True, _MIMES[found[0]]])

    def introduction(self, buffer: bytes, start: int, end: int) -> tuple[int, int, Form] | None:
        """Return the offsets and the form of a BROKER_INFO, by which a peer says it is a broker.

        Args:
            buffer: The bytes that hold the metadata.
            start: Offset of the metadata.
            end: Offset after the metadata.

        Returns:
            Those of the first one; `None` if there is none.

        Raises:
            MalformedComposite: The metadata is not a list of entries.
        """
        if not self.composite:
            alone = self._alone
            return (start, end, alone) if alone and _introduces(buffer, start, end) else None
        at = start
        while (found := _find(buffer, at, end)) is not None:
            which, content, at = found
            if _introduces(buffer, content, at):
                return content, at, FORMS[True, _MIMES[which]]
        return None


def introduces_java(setup: Setup) -> bool:
    """Whether a SETUP is that of a Java broker: its data are BROKER_INFO."""
    mime = setup.data_mime.encode("ascii", "replace")
    if DIALECTS.get(mime) is not Dialect.REFERENCE:
        return False
    return _introduces(setup.data, 0, len(setup.data))


def _introduces(buffer: bytes, start: int, end: int) -> bool:
    return end - start >= HEADER_SIZE and buffer[start + 4] >> 2 == _INTRODUCTION


def find_broker_frame(
    metadata: bytes, start: int, end: int, wanted: frozenset[FrameType]
) -> tuple[int, int, int] | None:
    """Return the last broker frame of a type among entries of composite metadata.

    The last one counts, as in `unwrap_metadata`, which reads the ADDRESS for handlers. The
    reference takes the last as well, and its Spring client relies on that: it writes the ADDRESS
    configured for a route, and after it the ADDRESS given by the caller.

    Returns:
        The index of the frame's MIME type and the offsets of the frame; or `None`.

    Raises:
        MalformedComposite: The metadata is not a list of entries.
        BrokerFrameError: There is no match, but a frame of an unknown type.
    """
    last: tuple[int, int, int] | None = None
    broken: tuple[int, int, int] | None = None
    at = start
    while (found := _find(metadata, at, end)) is not None:
        _, content, at = found
        short = at - content < HEADER_SIZE
        # Composite Metadata: "Multiple metadata payloads with the same MIME type are allowed."
        if not short and metadata[content + 4] >> 2 in wanted:
            last = found
        elif broken is None and (short or metadata[content + 4] >> 2 not in _TYPES):
            broken = found
    if last is not None or broken is None:
        return last
    if broken[2] - broken[1] >= HEADER_SIZE:
        frame_type(metadata[broken[1] : broken[2]])  # raises: the type is unknown
    return broken


def address_starts(metadata: bytes) -> list[int]:
    """Return the offsets of the ADDRESS frames, with an origin, in composite metadata."""
    starts: list[int] = []
    at, end = 0, len(metadata)
    while (found := _find(metadata, at, end)) is not None:
        _, content, at = found
        if at - content >= HEADER_SIZE + ID_SIZE and metadata[content + 4] >> 2 in ADDRESS:
            starts.append(content)
    return starts


def trace_id_of(metadata: bytes) -> int | None:
    """Return the trace id of a request by its Zipkin tracing metadata.

    Returns:
        64 bits, of a longer id the last ones, as is usual. `None` if the composite metadata have
        no such entry, or an unreadable one: tracing causes no errors.
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
