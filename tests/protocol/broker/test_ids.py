from __future__ import annotations

import uuid

import pytest
from hypothesis import given, strategies as st

from onward.protocol import AddressError
from onward.protocol.broker import canonical_id, format_id, parse_id

ID = bytes.fromhex("112233445566778899aabbccddeeff00")
TEXT = "11223344-5566-7788-99aa-bbccddeeff00"
BARE = TEXT.replace("-", "")


def test_text_is_that_of_a_uuid() -> None:
    assert format_id(ID) == TEXT
    assert parse_id(TEXT) == ID


SPELLINGS = [form % text for form in ("%s", "Id{%s}", "id{%s}", "{%s}") for text in (TEXT, BARE)]


@pytest.mark.parametrize("text", [*SPELLINGS, *(each.upper() for each in SPELLINGS)])
def test_reads_other_spellings(text: str) -> None:
    assert parse_id(text) == ID
    assert canonical_id(text) == TEXT


@pytest.mark.parametrize(
    "text",
    ["", TEXT[:-1], TEXT + "0", BARE + "0", f"Id{{{TEXT}", f"Id{{{{{TEXT}}}}}", "Id{}", f" {TEXT}"],
)
def test_refuses_what_is_no_id(text: str) -> None:
    with pytest.raises(AddressError, match="not a UUID"):
        parse_id(text)
    assert canonical_id(text) == text


@pytest.mark.parametrize("value", [b"", ID[:-1], ID + b"\0"])
def test_refuses_to_write_another_size(value: bytes) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        format_id(value)


@given(st.binary(min_size=16, max_size=16))
def test_agrees_with_uuid(value: bytes) -> None:
    assert format_id(value) == str(uuid.UUID(bytes=value))
    assert parse_id(format_id(value)) == value
