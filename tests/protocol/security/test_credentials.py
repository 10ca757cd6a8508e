"""The authentication entry, byte by byte."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from onward.protocol.security import (
    MAX_PASSWORD,
    MAX_TOKEN,
    MAX_USERNAME,
    BadCredentials,
    BearerToken,
    Credentials,
    CustomCredentials,
    UserPassword,
    format_credentials,
    parse_credentials,
)

WHOLE: list[tuple[Credentials, str]] = [
    (UserPassword("user", "password"), "80 0004 75736572 70617373776f7264"),
    (UserPassword("u", ""), "80 0001 75"),
    (UserPassword("ä", "ö"), "80 0002 c3a4 c3b6"),
    (BearerToken(b"tok"), "81 746f6b"),
    (CustomCredentials("k", b""), "00 6b"),
    (CustomCredentials("key", b"\x00\xff"), "02 6b6579 00ff"),
    (CustomCredentials("x" * 128, b"1"), f"7f {'78' * 128} 31"),
]


@pytest.mark.parametrize(("credentials", "octets"), WHOLE, ids=lambda value: str(value)[:20])
def test_each_layout(credentials: Credentials, octets: str) -> None:
    entry = bytes.fromhex(octets)
    assert format_credentials(credentials) == entry
    assert parse_credentials(entry) == credentials


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        ("", "the entry is empty"),
        ("80", "the user name is cut short"),
        ("80 00", "the user name is cut short"),
        ("80 0004 757365", "the user name is cut short"),
        ("80 0000", "the user name is empty"),
        ("80 0001 ff", "the user name is not utf-8"),
        ("80 0001 75 ff", "the password is not utf-8"),
        (f"80 0100 {'75' * 256}", "the user name is over 255 bytes"),
        (f"80 0001 75 {'70' * 1025}", "the password is over 1024 bytes"),
        ("81", "the token is empty"),
        (f"81 {'74' * 8193}", "the token is over 8192 bytes"),
        ("82", "the authentication type 0x02 is unknown"),
        ("ff 00", "the authentication type 0x7f is unknown"),
        ("02 6b65", "the authentication type is cut short"),
        ("00 ff", "the authentication type is not ascii"),
        (f"00 6b {'00' * 8193}", "the credentials are over 8192 bytes"),
    ],
)
def test_what_is_broken_is_refused(octets: str, reason: str) -> None:
    with pytest.raises(BadCredentials) as caught:
        parse_credentials(bytes.fromhex(octets))
    assert caught.value.reason == reason
    assert str(caught.value) == f"bad credentials: {reason}"


@pytest.mark.parametrize(
    ("credentials", "reason"),
    [
        (UserPassword("", "p"), "the user name is empty"),
        (UserPassword("u" * (MAX_USERNAME + 1), "p"), "the user name is over 255 bytes"),
        (UserPassword("u", "p" * (MAX_PASSWORD + 1)), "the password is over 1024 bytes"),
        (BearerToken(b""), "the token is empty"),
        (BearerToken(bytes(MAX_TOKEN + 1)), "the token is over 8192 bytes"),
        (CustomCredentials("", b""), "the authentication type is empty"),
        (CustomCredentials("k" * 129, b""), "the authentication type is over 128 bytes"),
        (CustomCredentials("é", b""), "the authentication type is not ascii"),
        (CustomCredentials("k", bytes(MAX_TOKEN + 1)), "the credentials are over 8192 bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_has_no_layout_is_refused(credentials: Credentials, reason: str) -> None:
    with pytest.raises(BadCredentials) as caught:
        format_credentials(credentials)
    assert caught.value.reason == reason


@given(st.binary(max_size=200))
def test_any_entry_is_read_whole_or_refused(entry: bytes) -> None:
    try:
        credentials = parse_credentials(entry)
    except BadCredentials:
        return
    assert format_credentials(credentials) == entry


@pytest.mark.parametrize(
    "credentials", [each for each, _ in WHOLE], ids=lambda value: str(value)[:20]
)
def test_no_secret_is_in_the_text(credentials: Credentials) -> None:
    for secret in ("password", "tok", "\\x00\\xff"):
        assert f"={secret}" not in repr(credentials)
        assert f"'{secret}'" not in repr(credentials)
