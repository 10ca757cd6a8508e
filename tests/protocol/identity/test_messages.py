"""The messages of engines and for relays."""

from __future__ import annotations

from onward.protocol.identity import (
    SCOPE_LOCAL,
    Destination,
    DestinationKind,
    EngineMessage,
    EngineOrigin,
    Protocol,
    RelayMessage,
    RoutingPrefs,
    Security,
    SigningKey,
    TransportPrefs,
    Verifiers,
    derived_engine,
    open_engine_message,
    open_relay_message,
    parse_engine_message,
    parse_relay_message,
    serialize_engine_message,
    serialize_relay_message,
    sign_engine_message,
    sign_relay_message,
)

NODE = SigningKey(bytes(range(32)))
OTHER = SigningKey(bytes(32))
DERIVED = EngineMessage(
    derived_engine(NODE.identity, b"printer"),
    Destination(DestinationKind.ENGINE, OTHER.identity),
    7,
    Protocol("wire", 1),
    b"hello",
    expiry=5,
    rprefs=RoutingPrefs(SCOPE_LOCAL),
    tprefs=TransportPrefs(security=Security.ONION, hops=3),
    origin=EngineOrigin(NODE.identity, b"printer"),
)
RELAY = RelayMessage(NODE.identity, OTHER.identity, 9, b"sealed")


def test_a_message_is_read_as_it_was_written() -> None:
    assert parse_engine_message(serialize_engine_message(DERIVED)) == DERIVED
    assert parse_relay_message(serialize_relay_message(RELAY)) == RELAY


def test_an_envelope_is_opened_with_the_key_of_its_message() -> None:
    assert open_engine_message(sign_engine_message(DERIVED, NODE), Verifiers()) == DERIVED
    assert open_relay_message(sign_relay_message(RELAY, NODE), Verifiers()) == RELAY
