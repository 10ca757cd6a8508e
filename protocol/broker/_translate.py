"""An ADDRESS in the dialect and the shape of metadata that a peer uses (decision 15).

What a dialect has no place for is left out: in the reference dialect the metadata list and tags
with a 16-bit key, in the specification's dialect tags with one of the two numbers that a
16-bit one would have to follow. Such tags cannot be what a destination of that dialect was found
by, as it cannot have them. Wrapped metadata follow the tags in either dialect: the reference's
readers skip what follows a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from ..rsocket import COMPOSITE_MIME, build_composite, iterate_composite
from ._address_frame import AddressFrame, locate_address
from ._dialect import DIALECTS, MIME_FORWARDING, Dialect
from ._errors import BrokerFrameError
from ._fields import (
    HEADER_SIZE,
    FrameType,
    check_header,
    frame_type,
    header,
    lacks_more_flag,
)
from ._ids import ID_SIZE
from ._keys import EXTENSION_SPACES, Key
from ._tags import EMPTY_LIST, list_end, parse_tags, serialize_tags, tag_set

__all__ = ["Unwrapped", "translate_address", "unwrap_metadata", "wrap_metadata"]

_TAGS: Final = HEADER_SIZE + ID_SIZE


def translate_address(frame: bytes, source: Dialect, target: Dialect) -> bytes:
    """Return an ADDRESS in another dialect, with its flags and origin as they are.

    In the same dialect it is returned as it is, and not looked at.

    Raises:
        BrokerFrameError: It is broken, has no tag that the other dialect can say, or ends
            with a null value and wraps metadata.
    """
    if source is target:
        return frame
    spans = locate_address(frame, source)
    tags, _ = parse_tags(frame, spans.tags, source, to_end=lacks_more_flag(frame, source))
    tags = tuple(tag for tag in tags if _has_place(tag[0], target))
    if not tag_set(tags):
        raise BrokerFrameError("tags", "the other dialect has no place for any of them")
    flags = check_header(frame, FrameType.ADDRESS, source)
    # Forwarding the Request: a broker "MUST not mutate the wrapped metadata, or data of the
    # request."
    wrapped = frame[spans.wrapped :]
    return b"".join(
        (
            header(FrameType.ADDRESS, flags),
            frame[HEADER_SIZE:_TAGS],
            EMPTY_LIST if target is Dialect.SPECIFICATION else b"",
            serialize_tags(tags, target, last=not wrapped),
            wrapped,
        )
    )


def _has_place(key: Key, dialect: Dialect) -> bool:
    """Whether a key can be written in a dialect."""
    if isinstance(key, str):
        return True
    return key not in EXTENSION_SPACES if dialect is Dialect.SPECIFICATION else key <= 0x7F


class Unwrapped(NamedTuple):
    """The metadata of a request as its destination reads it.

    Attributes:
        address: The ADDRESS; `None` if there is none.
        dialect: Its dialect; the specification's if nothing says which.
        wrapped: The metadata that the ADDRESS wraps; empty if none.
        entries: The other entries of composite metadata, in order: MIME type and content.
            An id that no table has a type for is written as `#` and the number.
    """

    address: AddressFrame | None
    dialect: Dialect
    wrapped: bytes
    entries: tuple[tuple[str, bytes], ...]


def unwrap_metadata(metadata: bytes, metadata_mime: str) -> Unwrapped:
    """Split the metadata of a request that a broker sent to a destination.

    Args:
        metadata: All of it.
        metadata_mime: What the connection's SETUP says it is. If that is neither composite
            metadata nor a broker frame's type, there is no ADDRESS in it, and it is returned
            as one entry of its own.

    Raises:
        BrokerFrameError: The ADDRESS is broken.
        MalformedComposite: The composite metadata is.
    """
    alone = DIALECTS.get(metadata_mime.encode("ascii", "replace"))
    if alone is not None:
        return _unwrapped(metadata, alone, ()) if metadata else Unwrapped(None, alone, b"", ())
    if metadata_mime != COMPOSITE_MIME:
        entries = ((metadata_mime, metadata),) if metadata else ()
        return Unwrapped(None, Dialect.SPECIFICATION, b"", entries)
    found: tuple[bytes, Dialect] | None = None
    place = 0
    broken: tuple[bytes, Dialect] | None = None
    others: list[tuple[str, bytes]] = []
    for mime, content in iterate_composite(metadata):
        name = mime if isinstance(mime, str) else f"#{mime}"
        dialect = DIALECTS.get(name.encode("ascii", "surrogateescape"))
        data = bytes(content)
        others.append((name, data))
        if dialect is None:
            continue
        if len(data) >= HEADER_SIZE and data[4] >> 2 == FrameType.ADDRESS:
            # The last counts, as it does for the reference.
            found, place = (data, dialect), len(others) - 1
        elif found is None and broken is None and _is_broken(data):
            broken = data, dialect
    if found is not None:
        del others[place]
        # Forwarding the Request: "once the routable destination receives the request, it will
        # unwrap the metadata and discard the ADDRESS frame."
        return _unwrapped(*found, tuple(others))
    if broken is not None:
        return _unwrapped(*broken, ())  # says what is wrong with it
    return Unwrapped(None, Dialect.SPECIFICATION, b"", tuple(others))


def _is_broken(data: bytes) -> bool:
    """Whether a broker frame is too short to have a type, or of one that is unknown."""
    try:
        frame_type(data)
    except BrokerFrameError:
        return True
    return False


def _unwrapped(frame: bytes, dialect: Dialect, entries: tuple[tuple[str, bytes], ...]) -> Unwrapped:
    if dialect is Dialect.SPECIFICATION:
        address = AddressFrame.parse(frame, dialect)
        return Unwrapped(address, dialect, address.wrapped, entries)
    # A requester's frame must end with its tags. A broker's may wrap metadata after them.
    to_end = lacks_more_flag(frame, dialect)
    end = list_end(frame, _TAGS, dialect, to_end=to_end) if len(frame) > _TAGS else len(frame)
    address = replace(AddressFrame.parse(frame[:end], dialect), wrapped=frame[end:])
    return Unwrapped(address, dialect, address.wrapped, entries)


def wrap_metadata(
    address: AddressFrame,
    metadata_mime: str,
    *,
    mime: bytes = MIME_FORWARDING,
    entries: Iterable[tuple[str, bytes]] = (),
) -> bytes:
    """Make a request's metadata: the inverse of `unwrap_metadata`.

    Args:
        address: The ADDRESS, with what it wraps.
        metadata_mime: What the connection's SETUP says metadata are.
        mime: In composite metadata, the type of the ADDRESS's entry; it says the dialect.
        entries: In composite metadata, the other entries.

    Raises:
        ValueError: `metadata_mime` or `mime` is none that an ADDRESS can be in, or there are
            entries beside an ADDRESS that stands alone.
        BrokerFrameError: The ADDRESS cannot be written in the dialect.
        LocalProtocolError: An entry's type is not 1 to 128 bytes of ASCII.
        PayloadTooBig: An entry is over 16 MiB - 1.
    """
    composite = metadata_mime == COMPOSITE_MIME
    dialect = DIALECTS.get(mime if composite else metadata_mime.encode("ascii", "replace"))
    if dialect is None:
        text = mime.decode("ascii", "replace") if composite else metadata_mime
        raise ValueError(f"{text!r} is no type of metadata with an ADDRESS")
    frame = _written(address, dialect)
    if composite:
        pairs = ((_entry_type(name), content) for name, content in entries)
        # Forwarding Protocol: "It is RECOMMENDED that this is used with composite metadata."
        return build_composite([(mime.decode("ascii"), frame), *pairs])
    if tuple(entries):
        raise ValueError("entries need composite metadata")
    return frame


def _written(address: AddressFrame, dialect: Dialect) -> bytes:
    if dialect is Dialect.SPECIFICATION or not address.wrapped:
        return address.serialize(dialect)
    return replace(address, wrapped=b"").serialize(dialect) + address.wrapped


def _entry_type(name: str) -> str | int:
    # No MIME type begins with '#' (RFC 6838, section 4.2).
    return int(name[1:]) if name[:1] == "#" and name[1:].isdecimal() else name
