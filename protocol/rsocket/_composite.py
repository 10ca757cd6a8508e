"""Composite metadata: several kinds of metadata in one (extension "Composite Metadata").

An entry is one byte (top bit set: a well-known id; clear: the length of a name minus one),
the name if it is not well-known, a 24-bit length and the content. Ids that no table knows
are kept as numbers: one odd entry must not spoil a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from .._errors import PayloadTooBig
from ._constants import MAX_METADATA, WELL_KNOWN_MIME_IDS, WELL_KNOWN_MIME_TYPES
from ._errors import LocalProtocolError, MalformedComposite
from ._octets import unpack_u24

if TYPE_CHECKING:
    from ._serialize import Buffer

__all__ = [
    "CompositeEntry",
    "build_composite",
    "composite_entry",
    "entry_finder",
    "find_entry",
    "iterate_composite",
]


class CompositeEntry(NamedTuple):
    """One entry of composite metadata.

    Attributes:
        mime: The MIME type; for a well-known id that has no name, the id.
        content: The content, not copied.
    """

    mime: str | int
    content: memoryview


def iterate_composite(metadata: Buffer) -> Iterator[CompositeEntry]:
    """Yield the entries in order.

    Raises:
        MalformedComposite: An entry runs past the end. Entries before it were yielded.
    """
    view = memoryview(metadata)
    at, end = 0, len(view)
    while at < end:
        head = view[at]
        at += 1
        mime: str | int
        # Composite Metadata: "If M flag is set, indicates a Well-known MIME Type ID. If M flag is
        # not set, indicates the encoding MIME Type Length in bytes." The implementations in use
        # write that length minus one.
        if head & 0x80:
            mime = WELL_KNOWN_MIME_TYPES.get(head & 0x7F, head & 0x7F)
        else:
            mime = bytes(view[at : at + head + 1]).decode("ascii", "surrogateescape")
            at += head + 1
        start = at + 3
        at = start + int.from_bytes(view[at:start])
        if start > end or at > end:
            raise _cut_short(end)
        # Composite Metadata: "The order of metadata payloads MUST be preserved when presented to
        # responders."
        yield CompositeEntry(mime, view[start:at])


def find_entry(
    metadata: bytes, mime: bytes, start: int = 0, end: int | None = None
) -> tuple[int, int] | None:
    """Find the first entry of a MIME type, without making an object for each entry passed.

    Args:
        metadata: Bytes that hold composite metadata, such as the buffer of a frame.
        mime: The MIME type. A well-known one is found by its id as well.
        start: Offset of the composite metadata.
        end: Offset after it; `None` for the end of the bytes.

    Returns:
        Offsets of the content in `metadata`, or `None` if no entry has the type.

    Raises:
        MalformedComposite: An entry runs past the end before one was found.
    """
    if end is None:
        end = len(metadata)
    number = WELL_KNOWN_MIME_IDS.get(mime)
    known = -1 if number is None else number | 0x80
    size = len(mime)
    at = start
    while at < end:
        head = metadata[at]
        name = at + 1
        # A name has head + 1 bytes; after it, or after the id, comes the length.
        content = at + 4 if head & 0x80 else at + 5 + head
        if content > end:
            break
        high, low = unpack_u24(metadata, content - 3)
        at = content + (high << 16 | low)
        if at > end:
            break
        # Composite Metadata: "if a consumer of the metadata is unaware of a particular type, it can
        # be safely skipped and the next one read."
        if head == known or (head + 1 == size and metadata[name : name + size] == mime):
            return content, at
    else:
        return None
    raise _cut_short(end - start)


def entry_finder(
    *mimes: bytes,
) -> Callable[[bytes, int, int], tuple[int, int, int] | None]:
    """Make a function that finds the first entry of any of some MIME types.

    It is `find_entry` for several types at once, and about twice as fast.

    Args:
        mimes: The MIME types, ASCII. A well-known one is found by its id as well.

    Returns:
        A function of bytes that hold composite metadata, the offset where it starts and
        the offset after it. It returns which of `mimes` it found (an index) and the
        offsets of its content, or `None`. It raises `MalformedComposite` if an entry runs
        past the end before one was found.
    """
    wanted = {bytes((len(mime) - 1,)) + mime: which for which, mime in enumerate(mimes)}
    for which, mime in enumerate(mimes):
        if mime in WELL_KNOWN_MIME_IDS:
            wanted[bytes((WELL_KNOWN_MIME_IDS[mime] | 0x80,))] = which
    found = wanted.get

    def find(metadata: bytes, start: int, end: int) -> tuple[int, int, int] | None:
        at = start
        while at < end:
            head = metadata[at]
            name_end = at + 1 if head & 0x80 else at + 2 + head
            content = name_end + 3
            if content > end:
                break
            which = found(metadata[at:name_end])
            high, low = unpack_u24(metadata, name_end)
            at = content + (high << 16 | low)
            if at > end:
                break
            if which is not None:
                return which, content, at
        else:
            return None
        raise _cut_short(end - start)

    return find


def _cut_short(size: int) -> MalformedComposite:
    return MalformedComposite(f"an entry of composite metadata runs past its {size} bytes")


def composite_entry(mime: str | int, content: Buffer) -> bytes:
    """Return one entry.

    Args:
        mime: A MIME type of 1 to 128 ASCII bytes, written as its id if it has one, or an
            id of 0 to 127.
        content: The content.

    Raises:
        LocalProtocolError: The type is not of that form.
        PayloadTooBig: The content is over 16 MiB - 1.
    """
    if isinstance(mime, int):
        if not 0 <= mime <= 0x7F:
            raise LocalProtocolError(f"a well-known MIME id is 0 to 127, not {mime}")
        head = bytes((mime | 0x80,))
    else:
        try:
            # Composite Metadata: "This SHOULD be a US-ASCII string".
            name = mime.encode("ascii", "surrogateescape")
        except UnicodeEncodeError:
            raise LocalProtocolError(f"a MIME type is ASCII, not {mime!r}") from None
        known = WELL_KNOWN_MIME_IDS.get(name)
        if not 1 <= len(name) <= 128:
            raise LocalProtocolError(f"a MIME type is 1 to 128 bytes, not {len(name)}")
        head = bytes((len(name) - 1,)) + name if known is None else bytes((known | 0x80,))
    # Composite Metadata: "Unsigned 24-bit integer of Metadata Length in bytes."
    if len(content) > MAX_METADATA:
        raise PayloadTooBig(len(content), MAX_METADATA)
    return b"".join((head, len(content).to_bytes(3), content))


def build_composite(entries: Iterable[tuple[str | int, Buffer]]) -> bytes:
    """Return composite metadata of (MIME type, content) pairs, in their order.

    Raises:
        LocalProtocolError: A type is not of the form `composite_entry` takes.
        PayloadTooBig: A content is over 16 MiB - 1.
    """
    return b"".join(composite_entry(mime, content) for mime, content in entries)
