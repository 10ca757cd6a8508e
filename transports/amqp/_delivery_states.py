"""The states of deliveries of AMQP as the bytes that a circuit carries.

An outcome is the disposition of `protocol.dispatch`, which programs read as well. What that has no
place for, such as the annotations of a modified delivery or the states of a transaction, is a NUL
and the encoded list of AMQP.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from ...protocol.dispatch import (
    ACCEPTED as ACCEPTED_STATE,
    MAX_STATE,
    RECEIVED as RECEIVED_STATE,
    RELEASED as RELEASED_STATE,
    Accepted,
    DeliveryState,
    DispatchError,
    Disposition,
    Modified,
    Received,
    Rejected,
    decode_disposition,
    encode_disposition,
)
from ._deliveries import Delivery
from ._engine import AmqpEngine
from ._proton import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED, Proton, is_list

__all__ = ["read_state", "write_state"]

_OVERHEAD: Final = 64
"""Bytes of the frame of a state for all but its fields."""

_LIST: Final = b"\0"
"""What the encoded list of AMQP begins with; a disposition never does."""


def read_state(proton: Proton, delivery: Delivery) -> bytes:
    """Return the state that the peer has given to a delivery; empty for none."""
    code, remote = delivery.remote_state, delivery.remote
    if not code:
        return b""
    state: DeliveryState | None
    more: list[Any] = []
    match code:
        case _ if code == ACCEPTED:
            state = ACCEPTED_STATE
        case _ if code == RELEASED:
            state = RELEASED_STATE
        case _ if code == REJECTED:
            found = remote.condition
            name, text = (None, None) if found is None else (found.name, found.description)
            state = Rejected(name or "", text or "")
            if found is not None and found.info:
                more = [name, text, found.info]
        case _ if code == MODIFIED:
            state = Modified(remote.failed, remote.undeliverable)
            if remote.annotations:
                more = [remote.failed, remote.undeliverable, remote.annotations]
        case _ if code == RECEIVED:
            state = RECEIVED_STATE
            if remote.section_number or remote.section_offset:
                more = [remote.section_number, remote.section_offset]
        case _:
            state, more = None, [remote.data]
    made = b"" if not more else _encoded(proton, [int(code), *more])
    if made and len(made) <= MAX_STATE:
        return made
    return b"" if state is None else encode_disposition(Disposition(state))


def _encoded(proton: Proton, items: list[Any]) -> bytes:
    data = proton.Data()
    data.put_object(items)
    return _LIST + bytes(data.encode())


def write_state(engine: AmqpEngine, proton: Proton, delivery: Delivery, state: bytes) -> None:
    """Give a delivery a state; bytes that are none leave it as it is."""
    if state[:1] == _LIST:
        # Proton has errors of many kinds for values that are none. The other end has told these,
        # and the peer of this one is not to suffer for it.
        with suppress(Exception):
            _write_list(engine, proton, delivery, state[1:])
        return
    try:
        found = decode_disposition(state).state
    except DispatchError:
        return
    local = delivery.local
    match found:
        case Accepted():
            delivery.update(ACCEPTED)
        case Rejected(condition, description):
            if condition:
                local.condition = engine.condition(condition, description)
            delivery.update(REJECTED)
        case Modified(failed, undeliverable_here):
            local.failed, local.undeliverable = failed, undeliverable_here
            delivery.update(MODIFIED)
        case Received():
            delivery.update(RECEIVED)
        case _:
            delivery.update(RELEASED)


def _write_list(engine: AmqpEngine, proton: Proton, delivery: Delivery, encoded: bytes) -> None:
    # Binary values of what is read are views of the memory of `data`, which has to live until the
    # state is written.
    data = proton.Data()
    data.decode(encoded)
    data.rewind()
    data.next()
    items = data.get_object()
    if not is_list(items) or len(items) < 2 or not isinstance(items[0], int):
        return
    code, fields, local = int(items[0]), items[1:], delivery.local
    # Fields of any kind are left out for a peer with frames that are too small for them.
    fits = len(encoded) + _OVERHEAD <= engine.peer_max_frame
    if code == REJECTED and len(fields) == 3:
        local.condition = engine.condition(str(fields[0] or ""), str(fields[1] or ""))
        local.condition.info = fields[2] if fits else None
    elif code == MODIFIED and len(fields) == 3:
        local.failed, local.undeliverable = bool(fields[0]), bool(fields[1])
        local.annotations = fields[2] if fits else None
    elif code == RECEIVED and len(fields) == 2 and _are_numbers(fields):
        local.section_number, local.section_offset = fields
    elif code not in _OWN and is_list(fields[0]) and fits:
        local.data = fields[0]
    else:
        return
    delivery.update(code)


def _are_numbers(values: list[Any]) -> bool:
    """Whether all values are numbers of 32 bits."""
    return all(isinstance(each, int) and 0 <= each < 1 << 32 for each in values)


_OWN: Final = frozenset((RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED))
