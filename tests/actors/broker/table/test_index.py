"""What the tag index makes of an address, as the node's rule."""

from __future__ import annotations

import pytest

from onward.protocol import Address, AddressError, Message, UnreadableAddress
from tests.support.rsocket_peer import World, in_world


@pytest.mark.parametrize("text", ["32#%20", "32#%ff"])
@in_world()
async def test_a_query_that_cannot_be_read(w: World, text: str) -> None:
    with pytest.raises(UnreadableAddress):
        w.node.send(text, b"")
    with pytest.raises(AddressError):  # no address at all
        w.node.send(f"{text}=%zz", b"")


@in_world()
async def test_only_queries_are_resolved(w: World) -> None:
    with pytest.raises(AddressError):
        w.broker.index.resolve(Message((Address(33, b"a=b"),), (), b""))
