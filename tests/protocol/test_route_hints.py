"""Usual mistakes in the text of a route: where they are, and the right form."""

from __future__ import annotations

import pytest

from onward.protocol import Address, AddressError, format_route, parse_route

SEPARATOR = "'=>' stands between the addresses of a route, not "
URI = "a URI is not an address, which has a type and no scheme"
NO_TLS = "an address cannot ask for TLS: connect to the URI first, with Node.connect or --connect"
SCHEME = "an address begins with a type and '#', not with a scheme"
NO_TYPE = "a host and a port need a type"


@pytest.mark.parametrize(
    ("text", "reason", "written"),
    [
        ("f -> echo", f"{SEPARATOR}'->'", "f => echo"),
        ("f→echo", f"{SEPARATOR}'→'", "f => echo"),
        ("1#h:4000 -> echo", f"{SEPARATOR}'->'", "1#h:4000 => echo"),
        ("a -> b -> c", f"{SEPARATOR}'->'", "a => b => c"),
        ("->", f"{SEPARATOR}'->'", ""),
        ("echo, relay", f"{SEPARATOR}','", "echo => relay"),
        ("a -> b, c", f"{SEPARATOR}'->'", "a => b => c"),
        ("tcp://h:4000 => echo", URI, "1#h:4000 => echo"),
        ("TCP://h:4000 => echo", URI, "1#h:4000 => echo"),
        ("udp://h:4000", URI, "2#h:4000"),
        ("ws://h:4000/path", URI, "3#h:4000/path"),
        ("uds:///run/node.sock => echo", URI, "5#/run/node.sock => echo"),
        ("sim://far => echo", URI, "240#far => echo"),
        ("relay => tcp://h:1 -> echo", f"{SEPARATOR}'->'", "relay => 1#h:1 => echo"),
        ("tls://h:4000 => echo", NO_TLS, ""),
        ("wss://h:4000 => echo", NO_TLS, ""),
        ("http://h => echo", "a URI is not an address, and there is no type for this scheme", ""),
        ("tcp:h:4000 => echo", SCHEME, "1#h:4000 => echo"),
        ("udp:[::1]:4000", SCHEME, "2#[::1]:4000"),
        ("tcp#h:4000 => echo", "the type of an address is a number, not 'tcp'", "1#h:4000 => echo"),
        ("127.0.0.1:4000 => echo", NO_TYPE, "1#127.0.0.1:4000 => echo"),
        ("localhost:4000", NO_TYPE, "1#localhost:4000"),
        ("node.example.org:4000", NO_TYPE, "1#node.example.org:4000"),
        ("[::1]:4000", NO_TYPE, "1#[::1]:4000"),
        ("::1:4000", f"{NO_TYPE}, and an IPv6 host brackets", "1#[::1]:4000"),
        ("tcp://h:1 => tls://h:2", URI, ""),
        ("tcp://h:1 => x#a", URI, ""),
        (" => ".join(["a,b"] * 100), f"{SEPARATOR}','", ""),
    ],
)
def test_a_mistake_is_refused_with_the_right_form(text: str, reason: str, written: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_route(text)
    assert (caught.value.reason, caught.value.written) == (reason, written)
    assert str(caught.value).endswith(f"; write `{written}`" if written else reason)
    if written:
        parse_route(written)


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("f=>echo", "0#f => 0#echo"),
        ("0#a,b", "0#a,b"),
        ("0#tcp://h:4000", "0#tcp://h:4000"),
        ("0#localhost:4000", "0#localhost:4000"),
        ("orders:42", "0#orders:42"),
        ("aa:bb:cc", "0#aa:bb:cc"),
        ("a-b", "0#a-b"),
        ("a > b", "0#a%20%3E%20b"),
        ("tcp", "0#tcp"),
        ("32#service=a,b", "32#service=a,b"),
    ],
)
def test_a_name_that_could_be_one_is_one(text: str, route: str) -> None:
    assert format_route(parse_route(text)) == route


def test_the_error_says_what_was_read_and_where() -> None:
    with pytest.raises(AddressError) as caught:
        parse_route("relay => tcp://h:1 => echo")
    assert str(caught.value) == (
        f"bad address 'tcp://h:1', number 2 of 'relay => tcp://h:1 => echo': {URI}; "
        "write `relay => 1#h:1 => echo`"
    )


def test_the_place_is_told_of_every_address_that_cannot_be_read() -> None:
    with pytest.raises(AddressError, match=r"number 2 of 'a => 300#b': the type is not a number"):
        parse_route("a => 300#b")


def test_one_address_has_hints_too() -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse(" tcp://h:1 ")
    assert str(caught.value) == f"bad address 'tcp://h:1': {URI}; write `1#h:1`"
