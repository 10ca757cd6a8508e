"""The header of a proxy, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.transports.streams._proxy_protocol import (
    MAX_HEADER,
    SIGNATURE,
    BadProxyHeader,
    ProxyHeader,
    parse_proxy_header,
)
from tests.support.proxy import LOCAL, UNKNOWN, header, header_of

FIELDS = bytes.fromhex("040000") + bytes.fromhex("200005") + bytes(5)
PATHS = b"/run/client\0".ljust(108, b"\0") + b"/run/server".ljust(108, b"\0")

HEADERS = {
    "local": (LOCAL, None),
    "local with addresses of any kind": (header(0x20, 0xFF, bytes(7)), None),
    "unknown": (UNKNOWN, None),
    "unknown with addresses": (header(0x21, 0x00, bytes(12)), None),
    "an unknown protocol": (header(0x21, 0x10, bytes(12)), None),
    "IPv4": (header_of("203.0.113.7", 56324), ("203.0.113.7", 56324)),
    "IPv6": (header_of("2001:db8::7", 1), ("2001:db8::7", 1)),
    "IPv4 in IPv6": (header_of("::ffff:203.0.113.7", 9), ("203.0.113.7", 9)),
    "further fields": (header_of("203.0.113.7", 65535, FIELDS), ("203.0.113.7", 65535)),
    "the longest": (
        header_of("203.0.113.7", 5, bytes(MAX_HEADER - 28)),
        ("203.0.113.7", 5),
    ),
    "datagrams of IPv4": (header(0x21, 0x12, bytes(12)), None),
    "datagrams of IPv6": (header(0x21, 0x22, bytes(36)), None),
    "datagrams of Unix": (header(0x21, 0x32, bytes(216)), None),
    "Unix": (header(0x21, 0x31, PATHS), "/run/client"),
    "Unix without a name": (header(0x21, 0x31, bytes(216)), ""),
    "Unix with a name that is no text": (header(0x21, 0x31, b"\xff" + bytes(215)), "\\xff"),
}


@pytest.mark.parametrize(("data", "source"), HEADERS.values(), ids=HEADERS)
def test_a_header_is_read_once_it_is_whole(data: bytes, source: tuple[str, int] | str) -> None:
    for size in range(len(data)):
        assert parse_proxy_header(data[:size]) is None
    wanted = ProxyHeader(len(data), data[12] == 0x20, source)
    for rest in (b"", b"\x16\x03\x01", data):
        assert parse_proxy_header(data + rest) == wanted


WRONG = {
    "no header": (b"\x16\x03\x01", 1, "there is no PROXY header"),
    "version 1": (b"PROXY TCP4 1.1.1.1", 6, "of version 1, and not of version 2"),
    "nearly version 1": (b"PROXIED", 5, "there is no PROXY header"),
    "nearly a signature": (SIGNATURE[:-1] + b"\r", 12, "there is no PROXY header"),
    "version 1 of the binary form": (header(0x11, 0x11), 13, "the version"),
    "version 3": (header(0x31, 0x11), 13, "the version"),
    "a command": (header(0x22, 0x11), 13, "the command"),
    "a family": (header(0x21, 0x41), 16, "the address family"),
    "a protocol": (header(0x21, 0x13), 16, "the address family"),
    "no room for IPv4": (header(0x21, 0x11, size=11), 16, "too short"),
    "no room for IPv6": (header(0x21, 0x21, size=35), 16, "too short"),
    "no room for datagrams": (header(0x21, 0x12, size=0), 16, "too short"),
    "no room for paths": (header(0x21, 0x31, size=215), 16, "too short"),
    "too long": (header(0x21, 0x11, size=MAX_HEADER - 15), 16, "too long"),
    "too long for itself": (header(0x20, 0x00, size=0xFFFF), 16, "too long"),
}


@pytest.mark.parametrize(("data", "at", "reason"), WRONG.values(), ids=WRONG)
def test_a_wrong_header_is_refused_at_its_first_wrong_byte(
    data: bytes, at: int, reason: str
) -> None:
    for size in range(len(data) + 1):
        if size < at:
            assert parse_proxy_header(data[:size]) is None
        else:
            with pytest.raises(BadProxyHeader, match=reason):
                parse_proxy_header(data[:size])


@pytest.mark.parametrize("at", range(12))
def test_each_byte_of_the_signature_counts(at: int) -> None:
    data = bytearray(header_of("203.0.113.7", 1))
    data[at] ^= 1
    with pytest.raises(BadProxyHeader):
        parse_proxy_header(bytes(data[: at + 1]))


@given(st.binary(max_size=300), st.booleans())
def test_whatever_comes(data: bytes, signed: bool) -> None:
    data = SIGNATURE + data if signed else data
    found: list[object] = []
    for size in range(len(data) + 1):
        try:
            found.append(parse_proxy_header(data[:size]))
        except BadProxyHeader as error:
            found.append(str(error))
    first = next((each for each in found if each is not None), None)
    # Once it is decided, it stays so, whatever else comes.
    assert all(each == first for each in found[found.index(first) :])
