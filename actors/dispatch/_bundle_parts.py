"""A message that came in a bundle of another dispatcher."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol import DELIVERY, Address, Context, Message, Route
from ...protocol.dispatch import BadTransit, return_address

__all__ = ["Part", "id_of"]

_SHORT, _LONG = 0x60, 0x78
"""The head of a text in CBOR: of one of less than 24 bytes the first and its size; of 24 to 255
bytes the second, followed by the size."""


class Part(NamedTuple):
    """A message of a bundle.

    Attributes:
        way: Its transit address, without its id.
        id: Its id.
        token: The token of the dispatcher before this one; empty if it is pre-settled.
        payload: Its payload.
        back: The return route of the bundle.
        source: The link that it came over.
    """

    way: bytes
    id: bytes
    token: bytes
    payload: bytes
    back: Route
    source: Address

    def alone(self, own: Address, context: Context | None) -> Message:
        """Return it as a message that has come by itself.

        Args:
            own: The address of this dispatcher.
            context: The context of the bundle.

        Raises:
            BadTransit: Nothing says where its id would stand.
        """
        at = id_of(self.way)
        if not 0 < at <= len(self.way):
            raise BadTransit("a bundle of messages without a name, or with an unusual one")
        first = Address(DELIVERY, self.way[:at] + self.id + self.way[at:])
        back: Route = ()
        if self.token:
            back = *self.back[:-1], Address(DELIVERY, return_address(self.token))
        return Message((own, first), back, self.payload, self.source, context)


def id_of(value: bytes) -> int:
    """Return where the id of a transit address begins; 0 if it is none, or has an unusual name.

    What is in front of that place says where it is: two addresses that are alike without their ids
    have them at the same place.
    """
    at = 3
    try:
        for _ in range(2):
            head = value[at]
            if not _SHORT < head <= _LONG:
                return 0
            at += 1 + head - _SHORT if head < _LONG else 2 + value[at + 1]
    except IndexError:
        return 0
    return at + 10  # behind the instance, and the heads of both
