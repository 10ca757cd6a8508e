"""Keys of tags and metadata: well-known numbers, extension numbers, literal texts.

On the wire a key is a number from 0 to 127 or a text (section Well-known Keys). A number the
tables do not know stays that number. Here a key is an `int` or a `str`, and the two never
compare equal: the literal text `io.rsocket.routing.ServiceName` is another key than number 1.

Only for people, in `parse_key`, do names stand for numbers: `service`, `region` and the
specification's long names. `format_key` is its inverse.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, TypeAlias
from urllib.parse import quote, unquote_to_bytes

from .._errors import AddressError

__all__ = [
    "MAX_KEY_SIZE",
    "Key",
    "WellKnownKey",
    "extension_key",
    "format_key",
    "parse_key",
]

MAX_KEY_SIZE: Final = 127
"""Most bytes of a literal key in UTF-8: its length field has 7 bits."""

Key: TypeAlias = int | str
"""A well-known number (0 to 127), an `extension_key`, or a literal text of 1 to 127 bytes."""


class WellKnownKey(IntEnum):
    """The well-known keys, by the specification's names.

    0x16 to 0x19 are not assigned. 0x1F to 0x22 are the Java reference's own.
    """

    NO_TAG = 0x00
    SERVICE_NAME = 0x01
    ROUTE_ID = 0x02
    INSTANCE_NAME = 0x03
    CLUSTER_NAME = 0x04
    PROVIDER = 0x05
    REGION = 0x06
    ZONE = 0x07
    DEVICE = 0x08
    OS = 0x09
    USER_NAME = 0x0A
    USER_ID = 0x0B
    MAJOR_VERSION = 0x0C
    MINOR_VERSION = 0x0D
    PATCH_VERSION = 0x0E
    VERSION = 0x0F
    ENVIRONMENT = 0x10
    TEST_CELL = 0x11
    DNS = 0x12
    IPV4 = 0x13
    IPV6 = 0x14
    COUNTRY = 0x15
    TIME_ZONE = 0x1A
    SHARD_KEY = 0x1B
    SHARD_METHOD = 0x1C
    STICKY_ROUTE_KEY = 0x1D
    LB_METHOD = 0x1E
    REFERENCE_BROKER_EXT = 0x1F
    REFERENCE_WELL_KNOWN_EXT = 0x20
    BROKER_PROXY_URI = 0x21
    BROKER_CLUSTER_URI = 0x22
    BROKER_EXT = 0x7C
    WELL_KNOWN_EXT = 0x7F


EXTENSION_SPACES: Final = frozenset(
    {int(WellKnownKey.BROKER_EXT), int(WellKnownKey.WELL_KNOWN_EXT)}
)
"""The two numbers that a 16-bit number follows in the specification's dialect."""

# For each key that people may name: the name without its prefix, and the short one.
_NAMES: Final = {
    WellKnownKey.SERVICE_NAME: ("ServiceName", "service"),
    WellKnownKey.ROUTE_ID: ("RouteId", "route"),
    WellKnownKey.INSTANCE_NAME: ("InstanceName", "instance"),
    WellKnownKey.CLUSTER_NAME: ("ClusterName", "cluster"),
    WellKnownKey.PROVIDER: ("Provider", "provider"),
    WellKnownKey.REGION: ("Region", "region"),
    WellKnownKey.ZONE: ("Zone", "zone"),
    WellKnownKey.DEVICE: ("Device", "device"),
    WellKnownKey.OS: ("OS", "os"),
    WellKnownKey.USER_NAME: ("UserName", "user"),
    WellKnownKey.USER_ID: ("UserId", "user-id"),
    WellKnownKey.MAJOR_VERSION: ("MajorVersion", "major"),
    WellKnownKey.MINOR_VERSION: ("MinorVersion", "minor"),
    WellKnownKey.PATCH_VERSION: ("PatchVersion", "patch"),
    WellKnownKey.VERSION: ("Version", "version"),
    WellKnownKey.ENVIRONMENT: ("Environment", "environment"),
    WellKnownKey.TEST_CELL: ("TestCell", "test-cell"),
    WellKnownKey.DNS: ("DNS", "dns"),
    WellKnownKey.IPV4: ("IPv4", "ipv4"),
    WellKnownKey.IPV6: ("IPv6", "ipv6"),
    WellKnownKey.COUNTRY: ("Country", "country"),
    WellKnownKey.TIME_ZONE: ("TimeZone", "time-zone"),
    WellKnownKey.SHARD_KEY: ("ShardKey", "shard-key"),
    WellKnownKey.SHARD_METHOD: ("ShardMethod", "shard-method"),
    WellKnownKey.STICKY_ROUTE_KEY: ("StickyRouteKey", "sticky-route"),
    WellKnownKey.LB_METHOD: ("LBMethod", "lb-method"),
    WellKnownKey.BROKER_PROXY_URI: ("BrokerProxyUri", "proxy-uri"),
    WellKnownKey.BROKER_CLUSTER_URI: ("BrokerClusterUri", "cluster-uri"),
}
_PREFIXES: Final = ("io.rsocket.routing.", "io.rsocket.broker.")

_SHORT: Final = {int(key): short for key, (_, short) in _NAMES.items()}
_WORDS: Final = {short: key for key, short in _SHORT.items()} | {
    prefix + name: int(key) for key, (name, _) in _NAMES.items() for prefix in _PREFIXES
}
_LONG: Final = {int(key): _PREFIXES[0] + name for key, (name, _) in _NAMES.items()}
_NUMBER: Final = re.compile(r"0x(?:[0-9a-f]{2}|7[cf][0-9a-f]{4})")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SAFE: Final = ":/@,+*"


def extension_key(space: int, number: int) -> int:
    """Return the key for a 16-bit number in one of the two extension spaces.

    Args:
        space: `WellKnownKey.BROKER_EXT` or `WellKnownKey.WELL_KNOWN_EXT`.
        number: 0 to 65,535.

    Raises:
        ValueError: There is no such space, or the number is out of range.
    """
    if space not in EXTENSION_SPACES or not 0 <= number <= 0xFFFF:
        raise ValueError(f"no extension key {space:#x} {number}")
    return int(space) << 16 | number


def is_key_number(key: int) -> bool:
    """Whether a number is a well-known key or an extension key."""
    return 0 <= key <= 0x7F or key >> 16 in EXTENSION_SPACES


def parse_key(word: str) -> Key:
    """Read a key as people write it.

    A short name, a specification name with either prefix, or `0x` and two lower-case
    hexadecimal digits (six for an extension key) is a number. Any other word is a literal
    key, and so is every word with a percent-escape in it.

    Raises:
        AddressError: An escape is broken, the text is not UTF-8, or a literal key is empty
            or longer than `MAX_KEY_SIZE`.
    """
    number = _WORDS.get(word)
    if number is not None:
        return number
    if _NUMBER.fullmatch(word):
        number = int(word, 16)
        if is_key_number(number):
            return number
    literal = unescape(word)
    if not 0 < len(literal.encode()) <= MAX_KEY_SIZE:
        raise AddressError(word[:80], f"a key has 1 to {MAX_KEY_SIZE} bytes")
    return literal


def format_key(key: Key) -> str:
    """Write a key for people: the inverse of `parse_key`."""
    if isinstance(key, int):
        return _SHORT.get(key) or f"0x{key:02x}"
    if key in _WORDS or _NUMBER.fullmatch(key) or key[0] == "@":
        # Escaping one character makes the word literal again. A word that begins with an
        # '@' says how to choose, and is no tag.
        return f"%{ord(key[0]):02X}{escape(key[1:])}"
    return escape(key)


def metadata_key(key: Key) -> str:
    """Write a key as the value of a ShardKey or StickyRouteKey, for any broker to read."""
    if isinstance(key, str):
        return key
    return _LONG.get(key) or format_key(key)


def escape(text: str) -> str:
    """Write all but plain characters as percent-escapes of their UTF-8."""
    return quote(text, safe=_SAFE)


def unescape(text: str) -> str:
    """Read percent-escapes: the inverse of `escape`.

    Raises:
        AddressError: An escape is broken, or the bytes are not UTF-8.
    """
    if "%" not in text and text.isascii():
        return text
    if _BROKEN_ESCAPE.search(text):
        raise AddressError(text[:80], "a '%' without two hexadecimal digits")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeError:
        raise AddressError(text[:80], "not UTF-8") from None
