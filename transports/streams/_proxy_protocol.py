"""The header of a proxy, version 2 of the PROXY protocol: the peer for which it has connected.

The specification is `doc/proxy-protocol.txt` of HAProxy, section 2.2:

```
0d0a0d0a000d0a515549540a  2  command (4 bits)  family (4 bits)  protocol (4 bits)  length (16 bits)
source  destination  source port (16 bits)  destination port (16 bits)  further fields
```
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Final, NamedTuple

__all__ = [
    "MAX_HEADER",
    "SIGNATURE",
    "UNEXPECTED",
    "BadProxyHeader",
    "ProxyHeader",
    "is_proxy_header",
    "parse_proxy_header",
]

UNEXPECTED: Final = "a PROXY header, which is not expected"
"""The reason for which a connection is refused that begins with one at a listener without proxies;
without TLS and WebSockets it is found by the protocol above."""

SIGNATURE: Final = bytes.fromhex("0d0a0d0a000d0a515549540a")
"""The first bytes of each header."""

MAX_HEADER: Final = 4096
"""The maximum size of a header in bytes, with the further fields, which are skipped."""

_VERSION_1: Final = b"PROXY "
_FIXED: Final = 16
_LOCAL, _PROXY = 0, 1
_UNSPECIFIED, _IPV4, _IPV6, _UNIX = range(4)
_STREAM, _DATAGRAM = 1, 2
_SIZES: Final = {_IPV4: 12, _IPV6: 36, _UNIX: 216}
"""The bytes of the addresses of each family."""
_PATH: Final = 108
"""The bytes of the path of a Unix socket."""


class BadProxyHeader(ValueError):
    """The first bytes of a connection are not a header of version 2, or one that is wrong."""


class ProxyHeader(NamedTuple):
    """The header of a proxy.

    Attributes:
        size: Its size in bytes.
        local: Whether the proxy has connected for itself, as it does for health checks.
        source: The socket address of the peer: host and port, or the path of a Unix socket; `None`
            if it is unknown.
    """

    size: int
    local: bool
    source: tuple[str, int] | str | None


def is_proxy_header(data: bytes) -> bool:
    """Whether a connection begins with a header, of version 1 or 2."""
    return data.startswith((SIGNATURE, _VERSION_1))


def parse_proxy_header(data: bytes) -> ProxyHeader | None:
    """Read the header at the beginning of a connection; `None` while it is not whole.

    Raises:
        BadProxyHeader: It is none, as the first wrong byte shows. No text has a part of it.
    """
    if data[:12] != SIGNATURE[: len(data)]:
        start = data[: len(_VERSION_1)]
        if start == _VERSION_1:
            raise BadProxyHeader("the PROXY header is of version 1, and not of version 2")
        if not _VERSION_1.startswith(start):
            raise BadProxyHeader("there is no PROXY header")
        return None
    if len(data) <= 12:
        return None
    version, command = data[12] >> 4, data[12] & 0xF
    # "As of this specification, it must always be sent as \x2 and the receiver must only accept
    # this value."
    if version != 2:
        raise BadProxyHeader("the version of the PROXY header is unknown")
    # "Receivers must drop connections presenting unexpected values here."
    if command not in {_LOCAL, _PROXY}:
        raise BadProxyHeader("the command of the PROXY header is unknown")
    if len(data) < _FIXED:
        return None
    family, protocol = data[13] >> 4, data[13] & 0xF
    # "Receivers MUST always consider this field to skip the appropriate number of bytes and must
    # not assume zero is presented for LOCAL connections."
    size = _FIXED + int.from_bytes(data[14:16])
    if size > MAX_HEADER:
        raise BadProxyHeader("the PROXY header is too long")
    # "The receiver [...] must use the real connection endpoints and discard the protocol block
    # including the family which is ignored."
    local = command == _LOCAL
    if not local:
        _check_family(family, protocol, size)
    # "The receiver must not start to parse an address before the whole address block is received."
    if len(data) < size:
        return None
    source = None if local or protocol != _STREAM else _source(family, data)
    return ProxyHeader(size, local, source)


def _check_family(family: int, protocol: int, size: int) -> None:
    # "Other values are unspecified and must not be emitted in version 2 of this protocol and must
    # be rejected as invalid by receivers."
    if family > _UNIX or protocol > _DATAGRAM:
        raise BadProxyHeader("the address family of the PROXY header is unknown")
    if size < _FIXED + _SIZES.get(family, 0):
        raise BadProxyHeader("the PROXY header is too short for its addresses")


def _source(family: int, data: bytes) -> tuple[str, int] | str | None:
    """Return the address of a stream's source.

    "A receiver is not required to implement other ones, provided that it automatically falls back
    to the UNSPEC mode": so those of datagrams count as unknown.
    """
    if family == _IPV4:
        return str(IPv4Address(data[16:20])), int.from_bytes(data[24:26])
    if family == _IPV6:
        found = IPv6Address(data[16:32])
        return str(found.ipv4_mapped or found), int.from_bytes(data[48:50])
    if family == _UNIX:
        return data[16 : 16 + _PATH].rstrip(b"\0").decode("utf-8", "backslashreplace")
    return None
