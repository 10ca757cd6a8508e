"""The frames of a circuit, byte for byte: CBOR arrays that begin with the version and the kind.

| kind | frame | from | fields behind the kind |
| --- | --- | --- | --- |
| 1 | ATTACH | the end that attaches | name, producer, key, path, limit, ...; see `CircuitAttach` |
| 2 | ATTACHED | the other end | limit, properties, unsettled |
| 3 | REFUSED | the other end, or a node | condition, description |
| 4 | FLOW | consumer | credit, drain |
| 5 | DRAINED | producer | credit |
| 6 | TRANSFER | producer | tag, flags, payload |
| 7 | DISPOSITION | either end | tag, state, settled |
| 8 | DETACH | either end, or a node | how, condition, description |
| 9 | ALIVE | either end | |

A frame has no circuit in it: the address to which it is sent says which. A node reads a frame to
check it and passes on the same bytes, but for ATTACH, to which it adds itself.

Nothing may come behind a frame, and no field may be missing or of another type. All sizes are
checked before anything is built of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from .._words import counted
from ..payloads import CborCodec, PayloadError, PayloadLimits
from ._circuit_frames import (
    CIRCUIT_KEY_SIZE,
    CIRCUIT_SOURCE_SIZE,
    CIRCUIT_VERSION,
    MAX_CIRCUIT_FRAME,
    MAX_CREDIT,
    MAX_STATE,
    MAX_TAG,
    MAX_UNSETTLED,
    CircuitAlive,
    CircuitAttach,
    CircuitAttached,
    CircuitDetach,
    CircuitDisposition,
    CircuitDrained,
    CircuitFlow,
    CircuitFrame,
    CircuitFrameError,
    CircuitFrameKind,
    CircuitRefused,
    CircuitTransfer,
    DetachKind,
    UnsettledMap,
)
from ._dispositions import MAX_CONDITION, MAX_DESCRIPTION
from ._errors import LaterVersion
from ._limits import MAX_NAME
from ._transit import DIGEST_SIZE, MAX_PATH

__all__ = ["parse_circuit_frame", "serialize_circuit_frame"]

_MAX_PROPERTIES: Final = 16 * 1024

_MORE, _ABORTED, _SETTLED = 1, 2, 4

# An unsettled map has two items for each delivery.
_CODEC: Final = CborCodec(
    PayloadLimits(size=MAX_CIRCUIT_FRAME, items=2 * MAX_UNSETTLED + 16, depth=2)
)


def parse_circuit_frame(data: bytes) -> CircuitFrame:
    """Read a frame.

    Raises:
        LaterVersion: It is of a later version.
        CircuitFrameError: It is none.
    """
    try:
        items = _CODEC.decode(data)
    except PayloadError as error:
        raise CircuitFrameError(error.reason) from None
    if not isinstance(items, list):
        raise CircuitFrameError("it is no array")
    return _read(cast("list[object]", items))


def serialize_circuit_frame(frame: CircuitFrame) -> bytes:
    """Write a frame.

    Raises:
        CircuitFrameError: It could not be read again.
    """
    items = [CIRCUIT_VERSION, *_items(frame)]
    _read(cast("list[object]", items))
    try:
        return _CODEC.encode(items)
    except PayloadError as error:
        raise CircuitFrameError(error.reason) from None


def _items(frame: CircuitFrame) -> list[Any]:
    kind = CircuitFrameKind
    match frame:
        case CircuitAttach(
            name, producer, key, path, limit, properties, unsettled, source, anonymous
        ):
            end = limit, properties, _map(unsettled), source, anonymous
            return [int(kind.ATTACH), name, producer, key, path, *end]
        case CircuitAttached(limit, properties, unsettled):
            return [int(kind.ATTACHED), limit, properties, _map(unsettled)]
        case CircuitRefused(condition, description):
            # A condition of a node is an enum member.
            return [int(kind.REFUSED), str(condition), description]
        case CircuitFlow(credit, drain):
            return [int(kind.FLOW), credit, drain]
        case CircuitDrained(credit):
            return [int(kind.DRAINED), credit]
        case CircuitTransfer(tag, payload, more, aborted, settled):
            flags = _MORE * more | _ABORTED * aborted | _SETTLED * settled
            return [int(kind.TRANSFER), tag, flags, payload]
        case CircuitDisposition(tag, state, settled):
            return [int(kind.DISPOSITION), tag, state, settled]
        case CircuitDetach(how, condition, description):
            return [int(kind.DETACH), int(how), str(condition), description]
        case _:
            return [int(kind.ALIVE)]


def _map(unsettled: UnsettledMap | None) -> dict[bytes, bytes] | None:
    return None if unsettled is None else dict(unsettled)


class _Fields:
    """The fields of a frame, each taken with the type and size that it must have."""

    __slots__ = ("_items", "_next")

    def __init__(self, items: list[object]) -> None:
        self._items = items
        self._next = 0

    def end(self) -> None:
        """Check that there are no more."""
        if self._next != len(self._items):
            raise CircuitFrameError(f"{counted(len(self._items), 'field')}, not {self._next}")

    def flag(self, what: str) -> bool:
        """Return a truth value."""
        value = self._take()
        if type(value) is not bool:
            raise CircuitFrameError(f"{what} is no truth value")
        return value

    def number(self, what: str, least: int, most: int) -> int:
        """Return a whole number."""
        value = self._take()
        if type(value) is not int or not least <= value <= most:
            raise CircuitFrameError(f"{what} is no number from {least} to {most}")
        return value

    def text(self, what: str, most: int, least: int = 0) -> str:
        """Return a text."""
        value = self._take()
        if not isinstance(value, str):
            raise CircuitFrameError(f"{what} is no text")
        if not least <= len(value.encode("utf-8", "replace")) <= most:
            raise CircuitFrameError(f"{what} has not {least} to {most} bytes")
        return value

    def data(self, what: str, most: int, least: int = 0) -> bytes:
        """Return bytes."""
        return _data(self._take(), what, most, least)

    def unsettled(self) -> UnsettledMap | None:
        """Return an unsettled map, or none."""
        value = self._take()
        if value is None:
            return None
        if not isinstance(value, dict):
            raise CircuitFrameError("the unsettled deliveries are no map")
        found = cast("Mapping[object, object]", value)
        if len(found) > MAX_UNSETTLED:
            raise CircuitFrameError(f"over {MAX_UNSETTLED} unsettled deliveries")
        return tuple(
            (_data(tag, "a tag", MAX_TAG), _data(state, "a state", MAX_STATE))
            for tag, state in found.items()
        )

    def _take(self) -> object:
        at = self._next
        if at == len(self._items):
            raise CircuitFrameError("fields are missing")
        self._next = at + 1
        return self._items[at]


def _data(value: object, what: str, most: int, least: int = 0) -> bytes:
    if not isinstance(value, bytes):
        raise CircuitFrameError(f"{what} is not of bytes")
    if not least <= len(value) <= most:
        raise CircuitFrameError(f"{what} of {counted(len(value), 'byte')}, not {least} to {most}")
    return value


def _read(items: list[object]) -> CircuitFrame:
    fields = _Fields(items)
    version = fields.number("the version", 1, MAX_CREDIT)
    if version > CIRCUIT_VERSION:
        raise LaterVersion(version)
    read = _READERS.get(fields.number("the kind", 0, MAX_CREDIT))
    if read is None:
        raise CircuitFrameError(f"there is no kind {items[1]}")
    frame = read(fields)
    fields.end()
    return frame


def _read_attach(fields: _Fields) -> CircuitFrame:
    frame = CircuitAttach(
        name=fields.text("the name", MAX_NAME, 1),
        producer=fields.flag("producer"),
        key=fields.data("the key", CIRCUIT_KEY_SIZE, CIRCUIT_KEY_SIZE),
        path=fields.data("the path", DIGEST_SIZE * MAX_PATH),
        limit=fields.number("the limit", 1, MAX_UNSETTLED),
        properties=fields.data("the properties", _MAX_PROPERTIES),
        unsettled=fields.unsettled(),
        source=fields.data("the source", CIRCUIT_SOURCE_SIZE),
        anonymous=fields.flag("anonymous"),
    )
    if len(frame.source) not in (0, CIRCUIT_SOURCE_SIZE):
        raise CircuitFrameError(f"a source of {counted(len(frame.source), 'byte')}")
    if len(frame.path) % DIGEST_SIZE:
        raise CircuitFrameError("the path is not of whole digests")
    return frame


def _read_attached(fields: _Fields) -> CircuitFrame:
    return CircuitAttached(
        limit=fields.number("the limit", 1, MAX_UNSETTLED),
        properties=fields.data("the properties", _MAX_PROPERTIES),
        unsettled=fields.unsettled(),
    )


def _read_refused(fields: _Fields) -> CircuitFrame:
    return CircuitRefused(
        condition=fields.text("the condition", MAX_CONDITION, 1),
        description=fields.text("the description", MAX_DESCRIPTION),
    )


def _read_flow(fields: _Fields) -> CircuitFrame:
    return CircuitFlow(fields.number("the credit", 0, MAX_CREDIT), fields.flag("drain"))


def _read_drained(fields: _Fields) -> CircuitFrame:
    return CircuitDrained(fields.number("the credit", 0, MAX_CREDIT))


def _read_transfer(fields: _Fields) -> CircuitFrame:
    tag = fields.data("the tag", MAX_TAG)
    flags = fields.number("the flags", 0, _MORE | _ABORTED | _SETTLED)
    payload = fields.data("the payload", MAX_CIRCUIT_FRAME)
    frame = CircuitTransfer(
        tag, payload, bool(flags & _MORE), bool(flags & _ABORTED), bool(flags & _SETTLED)
    )
    if frame.aborted and (frame.more or payload):
        raise CircuitFrameError("a delivery that is given up has no more and no payload")
    return frame


def _read_disposition(fields: _Fields) -> CircuitFrame:
    return CircuitDisposition(
        tag=fields.data("the tag", MAX_TAG),
        state=fields.data("the state", MAX_STATE),
        settled=fields.flag("settled"),
    )


def _read_detach(fields: _Fields) -> CircuitFrame:
    return CircuitDetach(
        how=DetachKind(fields.number("how it ends", 0, DetachKind.LOST)),
        condition=fields.text("the condition", MAX_CONDITION),
        description=fields.text("the description", MAX_DESCRIPTION),
    )


def _read_alive(_: _Fields) -> CircuitFrame:
    return CircuitAlive()


_READERS: Final[Mapping[int, Callable[[_Fields], CircuitFrame]]] = {
    CircuitFrameKind.ATTACH: _read_attach,
    CircuitFrameKind.ATTACHED: _read_attached,
    CircuitFrameKind.REFUSED: _read_refused,
    CircuitFrameKind.FLOW: _read_flow,
    CircuitFrameKind.DRAINED: _read_drained,
    CircuitFrameKind.TRANSFER: _read_transfer,
    CircuitFrameKind.DISPOSITION: _read_disposition,
    CircuitFrameKind.DETACH: _read_detach,
    CircuitFrameKind.ALIVE: _read_alive,
}
