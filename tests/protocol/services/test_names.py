from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol import MAX_ADDRESS_VALUE, Address, RouteTooLong, route
from onward.protocol.bare import encode_string
from onward.protocol.services import (
    MAX_NAME,
    REGISTER,
    RELAY_PREFIX,
    ServiceError,
    check_name,
    decode_subscription,
    decode_text,
    encode_subscription,
    named_address,
    relayed,
)

NAME = st.text(min_size=1, max_size=60).filter(str.isprintable)


def test_the_registration_with_a_dynamic_relay_service_is_ockams() -> None:
    # The payload of vector a10, derived by hand.
    assert encode_string(REGISTER).hex() == "087265676973746572"
    assert decode_text(bytes.fromhex("087265676973746572"), "a registration") == REGISTER


@pytest.mark.parametrize("payload", [b"", b"\x09register", b"\x08register!", b"\x01\xff"])
def test_what_is_not_one_string_is_not_understood(payload: bytes) -> None:
    with pytest.raises(ServiceError, match=r"^not understood: a registration: not BARE"):
        decode_text(payload, "a registration")


@given(NAME.filter(lambda name: ":" not in name), NAME)
def test_reading_a_subscription_is_the_inverse_of_writing(name: str, topic: str) -> None:
    assert decode_subscription(encode_subscription(name, topic)) == (name, topic)


@pytest.mark.parametrize("text", ["", "name", ":topic", "name:", "name:a\nb", f"name:{'x' * 256}"])
def test_a_subscription_that_is_none(text: str) -> None:
    with pytest.raises(ServiceError):
        decode_subscription(encode_string(text))


def test_a_subscription_that_cannot_be_written() -> None:
    with pytest.raises(ServiceError, match="a subscriber's name with a colon"):
        encode_subscription("a:b", "topic")
    with pytest.raises(ServiceError, match="a topic's name of 0 bytes"):
        encode_subscription("a", "")


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME + 1), "a\0b", "\ud800"])
def test_a_name_that_cannot_be_one(name: str) -> None:
    with pytest.raises(ServiceError, match="an alias"):
        check_name(name, "an alias")


def test_an_address_of_a_prefix_and_a_name() -> None:
    assert named_address(RELAY_PREFIX, "orders") == Address(0, b"forward_to_orders")
    for prefix, name in ((MAX_ADDRESS_VALUE * "x", "y"), ("", "")):
        with pytest.raises(ServiceError, match="an address of"):
            named_address(prefix, name)


def test_a_relay_puts_the_stored_route_in_its_own_place_less_who_registered() -> None:
    stored = route("conn => hop => client")
    assert relayed(stored, route("relay => echo => more")) == route("conn => hop => echo => more")
    assert relayed(route("client"), route("relay => echo")) == route("echo")
    with pytest.raises(RouteTooLong):
        relayed(stored, route(*["x"] * 64))
