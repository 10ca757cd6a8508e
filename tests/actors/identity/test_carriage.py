"""What the router writes into routes for itself."""

from __future__ import annotations

import pytest
from cbor2 import dumps

from onward.actors.identity._carriage import (
    ASKS,
    ENGINE,
    Carriage,
    answer_address,
    answered_at,
    carriage_at,
    is_reserved,
    reply_address,
    reply_at,
)
from onward.protocol import IDENTITY, Address
from onward.protocol.identity import (
    SCOPE_LOCAL,
    BadRecord,
    DestinationKind,
    Ordering,
    RoutingPrefs,
    TransportPrefs,
)
from tests.support.identities import key_of

RELAYS = tuple(key_of(str(each)).identity for each in range(8))


@pytest.mark.parametrize(
    "carriage",
    [
        Carriage(DestinationKind.DOMAIN),
        Carriage(DestinationKind.ENGINE, RELAYS),
        Carriage(
            DestinationKind.NODE,
            RELAYS[:1],
            RoutingPrefs(SCOPE_LOCAL),
            TransportPrefs(Ordering.UNORDERED),
            RELAYS[2],
        ),
        Carriage(DestinationKind.ENGINE, RELAYS[:2], exit=True),
    ],
)
def test_a_carriage_is_read_as_it_was_written(carriage: Carriage) -> None:
    assert carriage_at((carriage.address, ENGINE)) == carriage
    assert is_reserved(carriage.address)
    assert reply_at((carriage.address,)) is None


def test_a_carriage_that_another_node_writes_is_refused() -> None:
    # It knows how one is written, and may have it stand behind the address of a link: at the end
    # of a return route of a message that was passed on.
    written = Carriage(DestinationKind.NODE, RELAYS[:1], topic=RELAYS[1]).address.value
    forged = b"by:" + dumps((int(DestinationKind.NODE), RELAYS[:1], None, None, RELAYS[1], 0))
    assert written.endswith(forged.removeprefix(b"by:"))
    flipped = bytearray(written)
    flipped[-1] ^= 1
    for value in (forged, b"by:" + bytes(16) + forged[3:], bytes(flipped), written + b"\0"):
        with pytest.raises(BadRecord):
            carriage_at((Address(IDENTITY, value),))


def test_an_answer_has_its_part_and_its_token() -> None:
    address = reply_address(DestinationKind.RELAY, b"0123456789abcdef")
    assert reply_at((address, ENGINE)) == (DestinationKind.RELAY, b"0123456789abcdef")
    assert is_reserved(address)
    assert carriage_at((address,)) is None


def test_an_answer_has_the_id_of_its_message() -> None:
    own, to = RELAYS[:2]
    address = answer_address(own, to, 2**64 - 1)
    assert answered_at((address, ENGINE), own, to) == 2**64 - 1
    assert is_reserved(address)
    assert is_reserved(ASKS)
    assert carriage_at((address,)) is None
    assert reply_at((address,)) is None
    # It is of these two alone, and another node writes none.
    flipped = bytearray(address.value)
    flipped[-1] ^= 1
    for pair in ((to, own), (own, RELAYS[2])):
        with pytest.raises(BadRecord):
            answered_at((address,), *pair)
    for value in (bytes(flipped), b"answers:", b"answers:" + bytes(24), address.value + b"\0"):
        with pytest.raises(BadRecord):
            answered_at((Address(IDENTITY, value),), own, to)


def test_other_addresses_say_nothing() -> None:
    for address in (Address(0, b"by:"), Address(IDENTITY, b"engine:x"), Address(1, b"reply:")):
        assert not is_reserved(address)
        assert carriage_at((address,)) is None
        assert reply_at((address,)) is None
        assert answered_at((address,), *RELAYS[:2]) is None
    assert answered_at((), *RELAYS[:2]) is None
    assert carriage_at(()) is None
    assert reply_at(()) is None
    assert is_reserved(ENGINE)


@pytest.mark.parametrize("value", [b"reply:", b"reply:\x05x", b"by:", b"by:x", b"by:\x85\x05"])
def test_an_address_of_the_router_that_cannot_be_read_is_refused(value: bytes) -> None:
    route = (Address(IDENTITY, value),)
    with pytest.raises(BadRecord):
        _ = reply_at(route), carriage_at(route)
