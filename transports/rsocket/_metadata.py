"""Where the broker's frames are in a connection's metadata."""

from __future__ import annotations

from typing import Final

from ...protocol.broker import DIALECTS, MIME_BROKER_FRAME, Dialect
from ...protocol.rsocket import COMPOSITE_MIME, find_entry

__all__ = ["FORMS", "Form", "MetadataShape"]


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


class MetadataShape:
    """Where one peer puts broker frames: among entries of metadata, or as all of it.

    Attributes:
        form: How the frame that was found last was wrapped, as far as is known; until then
            the way that is likely. `None` if the peer's metadata cannot hold any.
    """

    __slots__ = ("_composite", "form")

    def __init__(self, metadata_mime: str) -> None:
        self._composite = metadata_mime == COMPOSITE_MIME
        mime = MIME_BROKER_FRAME if self._composite else metadata_mime.encode("ascii", "replace")
        self.form = FORMS.get((self._composite, mime))

    @property
    def dialect(self) -> Dialect:
        """The dialect of the peer's frames."""
        return self.form.dialect if self.form is not None else Dialect.REFERENCE

    def find(self, buffer: bytes, span: tuple[int, int]) -> tuple[int, int] | None:
        """Return the offsets of the broker frame in some metadata; `None` if there is none.

        Args:
            buffer: The bytes the metadata lies in.
            span: Offsets of the metadata.

        Raises:
            MalformedComposite: The metadata is not a list of entries.
        """
        form = self.form
        if form is None or not self._composite:
            return None if form is None else span
        start, end = span
        found = find_entry(buffer, form.mime, start, end)
        if found is None:
            for mime in DIALECTS:
                found = find_entry(buffer, mime, start, end)
                if found is not None:
                    self.form = FORMS[True, mime]
                    break
        return found
