"""Requests as they go to a peer broker: pinned to a route, and with the broker that they passed.

Metadata between brokers are composite. A lone ADDRESS becomes the one entry of them, in the dialect
of its requester; the other broker writes it as the destination wants it. Of metadata that are
composite already all other entries stay where they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ...actors.broker import Ask
from ...protocol.broker import (
    ID_SIZE,
    MIME_BROKER_FRAME,
    MIME_FORWARDING,
    Dialect,
    TagList,
    address_for_java,
    address_of_query,
    pin_address,
)
from ...protocol.rsocket import (
    HEADER_SIZE,
    LENGTH_SIZE,
    MAX_FRAME,
    Frame,
    FrameType,
    composite_entry,
)
from ._metadata import ADDRESS, Form, find_broker_frame
from ._request import WITH_CREDIT, more_follow
from ._translate import with_metadata

__all__ = ["REMEMBERED", "REMEMBERED_SIZE", "named_address", "pinned", "pinned_for_java"]

REMEMBERED: Final = 4096
"""Most metadata with a pinned ADDRESS that are cached; the least recently used is forgotten."""
REMEMBERED_SIZE: Final = 256
"""Most bytes of metadata that are cached with a pinned ADDRESS."""

_LONG_HEADER: Final = HEADER_SIZE + 4
"""Bytes before the metadata of a request with an initial request-n."""
_PUSH: Final = int(FrameType.METADATA_PUSH)


def pinned(
    frames: list[Frame], form: Form, tags: TagList, broker_id: bytes, asked: bytes = b""
) -> list[Frame]:
    """Return the frames of a request for a peer broker.

    Args:
        frames: The frames read so far, which hold all of its metadata.
        form: The form of the requester's ADDRESS.
        tags: The tags to add to it.
        broker_id: The id of this broker.
        asked: An ADDRESS in place of one in the metadata, for a request that names a route.

    Raises:
        ProtocolError: The metadata cannot be read, or would have too many tags.
    """
    first = frames[0]
    if len(frames) == 1 and first.type != _PUSH and not more_follow(first):
        # As `frame.metadata` and `frame.data`, in one go: this is the usual request.
        buffer = first.buffer
        at = first.start + (_LONG_HEADER if first.type in WITH_CREDIT else HEADER_SIZE)
        start = at + 3
        end = start + int.from_bytes(buffer[at:start])
        metadata = _pin(buffer[start:end], form, tags, broker_id, asked)
        size = at - first.start + 3 + len(metadata) + first.end - end
        if size <= MAX_FRAME:
            head, data = buffer[first.start : at], buffer[end : first.end]
            parts = (size.to_bytes(LENGTH_SIZE), head, len(metadata).to_bytes(3), metadata, data)
            raw = b"".join(parts)
            return [Frame.of(raw, LENGTH_SIZE, len(raw), first.stream_id, first.word)]
        return with_metadata(frames, metadata)
    metadata = b"".join(bytes(frame.metadata or b"") for frame in frames)
    return with_metadata(frames, _pin(metadata, form, tags, broker_id, asked))


def _pin(metadata: bytes, form: Form, tags: TagList, broker_id: bytes, asked: bytes) -> bytes:
    pin = _pinned if len(metadata) > REMEMBERED_SIZE else _pinned_remembered
    return pin(metadata, form, tags, broker_id, asked)


def _pinned(metadata: bytes, form: Form, tags: TagList, broker_id: bytes, asked: bytes) -> bytes:
    if asked:
        made = pin_address(asked, Dialect.SPECIFICATION, tags, broker_id)
        return metadata + composite_entry(MIME_FORWARDING.decode(), made)
    mime, dialect = form.mime.decode(), form.dialect
    if not form.composite:
        return composite_entry(mime, pin_address(metadata, dialect, tags, broker_id))
    found = find_broker_frame(metadata, 0, len(metadata), ADDRESS)
    if found is None:
        raise AssertionError("a request is routed by its ADDRESS")
    _, start, end = found
    made = pin_address(metadata[start:end], dialect, tags, broker_id)
    return metadata[: start - 3] + len(made).to_bytes(3) + made + metadata[end:]


def pinned_for_java(
    frames: list[Frame], form: Form, tags: TagList, route_id: bytes, asked: bytes = b""
) -> list[Frame]:
    """Return the frames of a request for a destination of a Java broker.

    Args:
        frames: The frames read so far, which hold all of its metadata.
        form: The form of the requester's ADDRESS.
        tags: The tags to add to it.
        route_id: The destination.
        asked: An ADDRESS in place of one in the metadata, for a request that names a route.

    Raises:
        ProtocolError: The metadata cannot be read, or has a tag that cannot be written for it.
    """
    metadata = b"".join(bytes(frame.metadata or b"") for frame in frames)
    front, address, dialect, back = metadata, asked, Dialect.SPECIFICATION, b""
    if not asked:
        dialect = form.dialect
        front, address = b"", metadata
        if form.composite:
            found = find_broker_frame(metadata, 0, len(metadata), ADDRESS)
            if found is None:
                raise AssertionError("a request is routed by its ADDRESS")
            _, start, end = found
            # The entry's head: lengths and name.
            front, back = metadata[: start - 3 - len(form.mime) - 1], metadata[end:]
            address = metadata[start:end]
    made = address_for_java(address, dialect, tags, route_id)
    entry = composite_entry(MIME_BROKER_FRAME.decode(), made)
    return with_metadata(frames, front + entry + back)


_pinned_remembered = lru_cache(REMEMBERED)(_pinned)


def named_address(ask: Ask, origin: bytes = bytes(ID_SIZE)) -> bytes:
    """Return an ADDRESS for a request that names a route with its query instead.

    The hints of the query are in it: another zone chooses by them. A route of a peer broker that
    is chosen already is pinned besides.

    Args:
        ask: The query.
        origin: The route, or the broker, that the request comes from; zeros for none.
    """
    return address_of_query(ask.asked, origin).serialize(Dialect.SPECIFICATION)
