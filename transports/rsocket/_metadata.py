"""Where the broker's frames are in a connection's metadata."""

from __future__ import annotations

from ...protocol.broker import DIALECTS, MIME_BROKER_FRAME, Dialect
from ...protocol.rsocket import COMPOSITE_MIME, find_entry

__all__ = ["MetadataShape"]


class MetadataShape:
    """How one peer wraps broker frames in metadata: among entries, or as all of it.

    Attributes:
        composite: True if metadata is a list of entries.
        mime: The MIME type under which the peer sends broker frames, as far as is known.
    """

    __slots__ = ("composite", "mime")

    def __init__(self, metadata_mime: str) -> None:
        mime = metadata_mime.encode("ascii", "replace")
        self.composite = metadata_mime == COMPOSITE_MIME
        self.mime = mime if mime in DIALECTS else MIME_BROKER_FRAME
        if not self.composite and mime not in DIALECTS:
            self.mime = b""

    @property
    def dialect(self) -> Dialect:
        """The dialect of the peer's frames."""
        return DIALECTS.get(self.mime, Dialect.REFERENCE)

    def find(self, buffer: bytes, span: tuple[int, int]) -> tuple[int, int] | None:
        """Return the offsets of the broker frame in some metadata; `None` if there is none.

        Args:
            buffer: The bytes the metadata lies in.
            span: Offsets of the metadata.

        Raises:
            MalformedComposite: The metadata is not a list of entries.
        """
        start, end = span
        if not self.composite:
            return span if self.mime else None
        found = find_entry(buffer, self.mime, start, end)
        if found is None:
            for mime in DIALECTS:
                found = find_entry(buffer, mime, start, end)
                if found is not None:
                    self.mime = mime
                    break
        return found
