"""The attach of a link as the properties of a circuit: what one end says of it to the other.

It is the CBOR array `[1, window, sender settles, receiver settles, greatest message, source,
target, properties]`. A terminus is `[type, address, durability, expiry policy, timeout,
distribution mode, dynamic, properties, capabilities, outcomes, filter]`, the last four as encoded
values of AMQP.

The window is how many bytes the other end may have on the way to this one: for each quarter of it
that the peer of this end has read, the other end gets a FLOW without credit.
"""

from __future__ import annotations

from typing import Any, Final, cast
from uuid import UUID

from ...protocol.payloads import CborCodec, PayloadError, PayloadLimits
from ._port import Refused
from ._proton import AmqpLink, Data, Proton, Terminus, is_list, is_map

__all__ = ["MAX_ATTACH", "QUARTERS", "read_attach", "read_window", "write_attach"]

MAX_ATTACH: Final = 16 * 1024
"""Most bytes of the properties of a circuit."""

QUARTERS: Final = 4
"""The parts of a window: for each that is read, the other end is told."""

_VERSION: Final = 1
_CODEC: Final = CborCodec(PayloadLimits(size=MAX_ATTACH, items=64, depth=2))
_TERMINUS: Final = (int, (str, type(None)), int, int, int, int, bool, bytes, bytes, bytes, bytes)
_ATTACH: Final = (int, int, int, int, int, list, list, bytes)


def read_attach(proton: Proton, link: AmqpLink, window: int) -> bytes:
    """Return what the peer has said of a link in its attach, and the window of this end.

    Raises:
        Refused: It is too much.
    """
    properties = link.remote_properties
    encoded = proton.Data()
    if properties:
        encoded.put_object(properties)
    items = [
        _VERSION,
        window,
        link.remote_snd_settle_mode,
        link.remote_rcv_settle_mode,
        link.remote_max_message_size,
        _read_terminus(link.remote_source),
        _read_terminus(link.remote_target),
        bytes(encoded.encode()),
    ]
    try:
        return _CODEC.encode(items)
    except PayloadError:
        raise Refused("amqp:resource-limit-exceeded", "the attach is too large") from None


def read_window(attach: bytes) -> int:
    """Return the window of the other end; 0 for a program, which has none."""
    items = _items(attach)
    return 0 if items is None else max(0, items[1])


def _items(attach: bytes) -> list[Any] | None:
    """Return the items of an attach; `None` for bytes that are none, as those of a program."""
    try:
        items = _CODEC.decode(attach) if attach else None
    except PayloadError:
        return None
    if not _fits(items, _ATTACH):
        return None
    found = cast("list[Any]", items)
    known = found[0] == _VERSION and _fits(found[5], _TERMINUS) and _fits(found[6], _TERMINUS)
    return found if known else None


def write_attach(proton: Proton, link: AmqpLink, attach: bytes) -> None:
    """Attach a link as the other end of its circuit was; a program has told nothing."""
    items = _items(attach)
    if items is None:
        return
    sender, receiver, most, source, target, properties = items[2:]
    link.snd_settle_mode, link.rcv_settle_mode = sender, receiver
    link.max_message_size = most
    _write_terminus(link.source, source)
    _write_terminus(link.target, target)
    if properties:
        data = proton.Data()
        data.decode(properties)
        data.rewind()
        data.next()
        link.properties = _plain(data.get_object())


def _plain(value: Any) -> Any:
    """Return a value that has no view of Proton's memory in it; what may have one is left out."""
    if hasattr(value, "tobytes"):
        return value.tobytes()
    if is_list(value):
        return [_plain(each) for each in value]
    if is_map(value):
        return {_plain(key): _plain(each) for key, each in value.items()}
    return value if isinstance(value, str | int | float | UUID) else None


def _fits(items: object, types: tuple[Any, ...]) -> bool:
    """Whether a list has one item of each type."""
    if not isinstance(items, list):
        return False
    found = cast("list[object]", items)
    return len(found) == len(types) and all(map(isinstance, found, types))


def _read_terminus(terminus: Terminus) -> list[Any]:
    return [
        terminus.type,
        terminus.address,
        terminus.durability,
        terminus.expiry_policy,
        terminus.timeout,
        terminus.distribution_mode,
        terminus.dynamic,
        *(bytes(each.encode()) for each in _values(terminus)),
    ]


def _write_terminus(terminus: Terminus, items: list[Any]) -> None:
    terminus.type, terminus.address = items[0], items[1]
    terminus.durability, terminus.expiry_policy, terminus.timeout = items[2:5]
    terminus.distribution_mode, terminus.dynamic = items[5:7]
    for data, encoded in zip(_values(terminus), items[7:], strict=True):
        if encoded:
            data.decode(encoded)


def _values(terminus: Terminus) -> tuple[Data, Data, Data, Data]:
    return terminus.properties, terminus.capabilities, terminus.outcomes, terminus.filter
