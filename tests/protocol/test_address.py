from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given, strategies as st

from onward.protocol import (
    MAX_ADDRESS_VALUE,
    MAX_ROUTE_LENGTH,
    TCP,
    Address,
    AddressError,
    RouteTooLong,
    address,
    format_route,
    parse_route,
    route,
)

addresses = st.builds(
    Address,
    st.integers(0, 255),
    st.binary(min_size=1, max_size=60) | st.text(min_size=1, max_size=20).map(str.encode),
)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("echo", Address(0, b"echo")),
        ("0#echo", Address(0, b"echo")),
        ("1#127.0.0.1:4000", Address(TCP, b"127.0.0.1:4000")),
        ("32#service=orders&zone=a", Address(32, b"service=orders&zone=a")),
        ("255#x", Address(255, b"x")),
        ("007#x", Address(7, b"x")),
        ("  echo  ", Address(0, b"echo")),
        ("0#a b", Address(0, b"a b")),
        ("%00%ff", Address(0, b"\x00\xff")),
        ("caf%C3%A9", Address(0, "café".encode())),
        ("café", Address(0, "café".encode())),
        ("%20a", Address(0, b" a")),
    ],
)
def test_parse(text: str, made: Address) -> None:
    assert Address.parse(text) == made


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the value has 0 bytes, not 1 to 1024"),
        ("1#", "the value has 0 bytes, not 1 to 1024"),
        ("#a", "the type is not a number from 0 to 255"),
        ("256#a", "the type is not a number from 0 to 255"),
        ("-1#a", "the type is not a number from 0 to 255"),
        ("x#a", "the type is not a number from 0 to 255"),
        ("0001#a", "the type is not a number from 0 to 255"),
        ("\u0661#a", "the type is not a number from 0 to 255"),
        ("1#a#b", "more than one '#'"),
        ("%", "a '%' without two hexadecimal digits"),
        ("%4", "a '%' without two hexadecimal digits"),
        ("%zz", "a '%' without two hexadecimal digits"),
        ("a\ud800", "a character that UTF-8 cannot write"),
        ("a" * (MAX_ADDRESS_VALUE + 1), "the value has 1025 bytes, not 1 to 1024"),
    ],
)
def test_what_cannot_be_parsed(text: str, reason: str) -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (Address(0, b"echo"), "0#echo"),
        (Address(1, b"127.0.0.1:4000"), "1#127.0.0.1:4000"),
        (Address(0, b"a b"), "0#a b"),
        (Address(0, b" a"), "0#%20a"),
        (Address(0, b"a=>b"), "0#a%3D%3Eb"),
        (Address(0, b"100%"), "0#100%25"),
        (Address(0, b"a#b"), "0#a%23b"),
        (Address(0, b"\x00\xff"), "0#%00%FF"),
        (Address(0, b"a\n"), "0#a%0A"),
    ],
)
def test_print(made: Address, text: str) -> None:
    assert str(made) == text
    assert repr(made) == f"<{text}>"
    assert Address.parse(text) == made


def test_an_address_made_by_hand_of_a_value_of_another_type_has_a_text() -> None:
    assert str(Address(0, cast("bytes", 7))) == "0#7"


@given(addresses)
def test_parsing_an_address_is_the_inverse_of_printing(made: Address) -> None:
    assert Address.parse(str(made)) == made


@given(st.lists(addresses, max_size=6).map(tuple))
def test_parsing_a_route_is_the_inverse_of_printing(made: tuple[Address, ...]) -> None:
    assert parse_route(format_route(made)) == made


def test_an_address_is_made_of_what_is_like_one() -> None:
    echo = Address(0, b"echo")
    assert address(echo) is echo
    assert address("echo") == address(b"echo") == echo
    # Bytes are a value, never read as text.
    assert address(b"1#a") == Address(0, b"1#a")


@pytest.mark.parametrize("bad", [None, 1, ("echo",), bytearray(b"echo")])
def test_what_is_not_like_an_address(bad: Any) -> None:
    with pytest.raises(AddressError, match="not an address, a str or bytes"):
        address(bad)


@pytest.mark.parametrize("bad", [b"", b"a" * (MAX_ADDRESS_VALUE + 1)])
def test_bytes_out_of_range(bad: bytes) -> None:
    with pytest.raises(AddressError):
        address(bad)


def test_an_address_type_out_of_range_is_caught_where_it_is_checked() -> None:
    from onward.protocol._address import checked

    with pytest.raises(AddressError, match="0 to 255"):
        checked(Address(256, b"a"))
    with pytest.raises(AddressError, match="0 to 255"):
        checked(Address(-1, b"a"))


def test_a_route_is_made_of_any_mix() -> None:
    relay, echo = Address(0, b"relay"), Address(0, b"echo")
    for steps in (
        ("relay", "echo"),
        ("relay => echo",),
        ("relay=>echo",),
        (("relay",), "echo"),
        (relay, echo),
        ((relay, "echo"),),
        ([b"relay"], echo),
    ):
        assert route(*cast(Any, steps)) == (relay, echo)
    assert route() == route("") == route(()) == ()
    assert route(b"1#a") == (Address(0, b"1#a"),)


def test_an_empty_step_of_a_text_is_an_error() -> None:
    for text in ("a => => b", "a =>", "=> a"):
        with pytest.raises(AddressError):
            route(text)


def test_a_route_has_a_limit() -> None:
    assert len(route(["a"] * MAX_ROUTE_LENGTH)) == MAX_ROUTE_LENGTH
    with pytest.raises(RouteTooLong) as caught:
        route(["a"] * (MAX_ROUTE_LENGTH + 1))
    assert (caught.value.length, caught.value.limit) == (65, 64)
    with pytest.raises(RouteTooLong):
        parse_route(" => ".join("a" * 65))


def test_a_step_that_cannot_be_read() -> None:
    with pytest.raises(AddressError):
        route("a", "b#c")
