"""The credentials of a peer: the entry `message/x.rsocket.authentication.v0` of its metadata.

The layouts are those of the RSocket extension "Authentication":

```
simple    80  user length (16 bits)  user  password (the rest)
bearer    81  token (the rest)
custom    length - 1 (bit 7 clear)  name in ASCII  payload (the rest)
```
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ._errors import BadCredentials

__all__ = [
    "AUTHENTICATION_MIME",
    "MAX_PASSWORD",
    "MAX_TOKEN",
    "MAX_USERNAME",
    "BearerToken",
    "Credentials",
    "CustomCredentials",
    "UserPassword",
    "format_credentials",
    "parse_credentials",
]

AUTHENTICATION_MIME: Final = "message/x.rsocket.authentication.v0"
"""The MIME type of the entry; its well-known id is 0x7C."""

MAX_USERNAME: Final = 255
"""The maximum size of a user name, in bytes of UTF-8."""
MAX_PASSWORD: Final = 1024
"""The maximum size of a password, in bytes of UTF-8."""
MAX_TOKEN: Final = 8192
"""The maximum size of a bearer token, and of the payload of a custom type, in bytes."""
MAX_TYPE: Final = 128
"""The maximum size of the name of a custom type, in bytes: the length minus one has 7 bits."""

_WELL_KNOWN: Final = 0x80
_SIMPLE: Final = 0x80
_BEARER: Final = 0x81


@dataclass(frozen=True, slots=True)
class UserPassword:
    """A user name and a password (authentication type "simple").

    Attributes:
        username: The name, 1 to `MAX_USERNAME` bytes.
        password: The password, at most `MAX_PASSWORD` bytes. It is not in the `repr`.
    """

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token (authentication type "bearer"): an opaque one of this broker, or a JWT.

    Attributes:
        token: The token, 1 to `MAX_TOKEN` bytes. It is not in the `repr`.
    """

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CustomCredentials:
    """Credentials of a type that a plug-in knows.

    Attributes:
        type: The name of the type, 1 to 128 bytes of ASCII.
        payload: The credentials, at most `MAX_TOKEN` bytes. They are not in the `repr`.
    """

    type: str
    payload: bytes = field(repr=False)


Credentials: TypeAlias = UserPassword | BearerToken | CustomCredentials
"""The credentials in an authentication entry."""


def parse_credentials(entry: bytes) -> Credentials:
    """Read the content of an authentication entry.

    Raises:
        BadCredentials: It is cut short, not text where text is required, or too long.
    """
    if not entry:
        raise BadCredentials("the entry is empty")
    head = entry[0]
    # Authentication: "If the M flag is set, indicates a Well-known Auth Type ID. If not set, the
    # encoding of the auth type name, and its length."
    if head == _SIMPLE:
        return _user_password(entry)
    if head == _BEARER:
        return BearerToken(_limited("the token", entry[1:], MAX_TOKEN))
    if head & _WELL_KNOWN:
        raise BadCredentials(f"the authentication type {head & 0x7F:#04x} is unknown")
    # The text of the extension has the plain length here. The Java, JavaScript and Python
    # implementations all write the length minus one.
    end = head + 2
    if len(entry) < end:
        raise BadCredentials("the authentication type is cut short")
    payload = entry[end:]
    if len(payload) > MAX_TOKEN:
        raise BadCredentials(f"the credentials are over {MAX_TOKEN} bytes")
    return CustomCredentials(_text("the authentication type", entry[1:end], "ascii"), payload)


def _user_password(entry: bytes) -> UserPassword:
    # Simple Authentication Type: "Username Length", 16 bits, then the username; the password is
    # the rest of the entry.
    end = 3 + int.from_bytes(entry[1:3])
    if len(entry) < 3 or len(entry) < end:
        raise BadCredentials("the user name is cut short")
    username = _limited("the user name", entry[3:end], MAX_USERNAME)
    password = entry[end:]
    if len(password) > MAX_PASSWORD:
        raise BadCredentials(f"the password is over {MAX_PASSWORD} bytes")
    return UserPassword(_text("the user name", username), _text("the password", password))


def format_credentials(credentials: Credentials) -> bytes:
    """Return the content of an authentication entry: the inverse of `parse_credentials`.

    Raises:
        BadCredentials: A part is empty, too long, or not ASCII where the entry requires it.
    """
    if isinstance(credentials, UserPassword):
        username = _limited("the user name", credentials.username.encode(), MAX_USERNAME)
        password = credentials.password.encode()
        if len(password) > MAX_PASSWORD:
            raise BadCredentials(f"the password is over {MAX_PASSWORD} bytes")
        return bytes((_SIMPLE,)) + len(username).to_bytes(2) + username + password
    if isinstance(credentials, BearerToken):
        return bytes((_BEARER,)) + _limited("the token", credentials.token, MAX_TOKEN)
    if not credentials.type.isascii():
        raise BadCredentials("the authentication type is not ascii")
    name = _limited("the authentication type", credentials.type.encode(), MAX_TYPE)
    if len(credentials.payload) > MAX_TOKEN:
        raise BadCredentials(f"the credentials are over {MAX_TOKEN} bytes")
    return bytes((len(name) - 1,)) + name + credentials.payload


def _limited(what: str, value: bytes, most: int) -> bytes:
    if not value:
        raise BadCredentials(f"{what} is empty")
    if len(value) > most:
        raise BadCredentials(f"{what} is over {most} bytes")
    return value


def _text(what: str, value: bytes, encoding: str = "utf-8") -> str:
    try:
        return value.decode(encoding)
    except UnicodeDecodeError:
        raise BadCredentials(f"{what} is not {encoding}") from None
