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

__all__ = ["MAX_ATTACH", "QUARTERS", "check_attach", "read_attach", "read_window", "write_attach"]

MAX_ATTACH: Final = 16 * 1024
"""Most bytes of the properties of a circuit."""

QUARTERS: Final = 4
"""The parts of a window: for each that is read, the other end is told."""

_OVERHEAD: Final = 256
"""Bytes of an attach for all that is not in the properties of a circuit."""

_RANGES: Final = (2, 1, (1 << 64) - 1)
"""The greatest values of the settle modes of an attach, and of its greatest message."""

_TERMINUS_RANGES: Final = (3, 2, 3, (1 << 32) - 1, 2)
"""The greatest type, durability, expiry policy, timeout and distribution mode of a terminus."""

_VERSION: Final = 1
_CODEC: Final = CborCodec(PayloadLimits(size=MAX_ATTACH, items=64, depth=2))
_TERMINUS: Final = (int, (str, type(None)), int, int, int, int, bool, bytes, bytes, bytes, bytes)
_ATTACH: Final = (int, int, int, int, int, list, list, bytes)


def read_attach(proton: Proton, link: AmqpLink, window: int) -> bytes:
    """Return what the peer has said of a link in its attach, and the window of this end.

    Raises:
        Refused: It is too much, or its values are none, or nested too deep.
    """
    encoded = proton.Data()
    try:
        if properties := link.remote_properties:
            encoded.put_object(properties)
    except Exception as error:
        # Proton has errors of many kinds for values that are none.
        raise Refused("amqp:decode-error", "the properties of the link are none") from error
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


def check_attach(proton: Proton, attach: bytes, most: int, *names: str | None) -> list[Any] | None:
    """Return what can be written of an attach of the other end; `None` if a program told nothing.

    Args:
        proton: The module.
        attach: The properties of the circuit.
        most: The bytes of a frame that the peer takes.
        names: The names that are written with it.

    Raises:
        Refused: It is none that can be written, or too large.
    """
    items = _items(attach)
    if items is None:
        return None
    size = sum(len(each.encode("utf-8", "replace")) for each in names if each)
    if len(attach) + size + _OVERHEAD > most:
        raise Refused("amqp:frame-size-too-small", "the attach of the other end is too large")
    try:
        return [*items[:7], _checked(proton, items)]
    except Exception as error:
        # Proton has errors of many kinds for values that are none. The other end has told these,
        # and the peer of this one is not to suffer for it.
        raise Refused("amqp:decode-error", "the attach of the other end is none") from error


def write_attach(link: AmqpLink, items: list[Any] | None) -> None:
    """Attach a link as the other end of its circuit was, which `check_attach` has checked."""
    if items is None:
        return
    properties = items[7]
    link.snd_settle_mode, link.rcv_settle_mode, link.max_message_size = items[2:5]
    _write_terminus(link.source, items[5])
    _write_terminus(link.target, items[6])
    if properties is not None:
        link.properties = properties


def _checked(proton: Proton, items: list[Any]) -> dict[Any, Any] | None:
    """Check all values of an attach, and return the properties of the link.

    Raises:
        Exception: One cannot be written.
    """
    _check_ranges(items[2:5], _RANGES)
    for terminus in items[5:7]:
        _check_ranges([terminus[0], *terminus[2:6]], _TERMINUS_RANGES)
        for encoded in terminus[7:]:
            _value(proton, encoded)
    properties = _value(proton, items[7])
    if properties is None:
        return None
    if not is_map(properties):
        raise TypeError("the properties are no map")
    proton.Data().put_object(properties)
    return properties


def _check_ranges(numbers: list[int], greatest: tuple[int, ...]) -> None:
    for number, most in zip(numbers, greatest, strict=True):
        if not 0 <= number <= most:
            raise ValueError(f"{number} is not from 0 to {most}")


def _value(proton: Proton, encoded: bytes) -> Any:
    """Return the one value that bytes are, without a view of `data`; `None` for none."""
    if not encoded:
        return None
    data = proton.Data()
    if data.decode(encoded) != len(encoded):
        raise ValueError("several values")
    data.rewind()
    data.next()
    return _plain(data.get_object())


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
