"""Payloads as words."""

from __future__ import annotations

import io
import sys

import pytest

from onward.cli import main
from onward.cli._payload import BARE_STRING, HEX, TEXT, decode_bare_string, encode_bare_string
from onward.cli._status import Status
from tests.support.fixtures import Capsys, Patch

# From the specification of BARE: a uint is seven bits a byte, the lowest first.
BARE_STRINGS = [
    ("", "00"),
    ("hello", "0568656c6c6f"),
    ("ü", "02c3bc"),
    ("x" * 127, "7f" + "78" * 127),
    ("x" * 128, "8001" + "78" * 128),
    ("x" * 20_000, "a09c01" + "78" * 20_000),
]


@pytest.mark.parametrize(("text", "encoded"), BARE_STRINGS)
def test_bare_strings(text: str, encoded: str) -> None:
    assert encode_bare_string(text.encode()).hex() == encoded
    assert decode_bare_string(bytes.fromhex(encoded)) == text


@pytest.mark.parametrize("wrong", ["", "05", "0161ff", "80", "02ff", "ff" * 11, "01ff"])
def test_what_is_no_bare_string(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"length|utf-8"):
        decode_bare_string(bytes.fromhex(wrong))


def test_text_that_is_no_text_is_shown_with_escapes() -> None:
    assert TEXT.decode(b"a\xff") == "a\\xff"


def test_hexadecimal_digits() -> None:
    assert HEX.encode(b"00 ff") == b"\x00\xff"
    assert HEX.decode(b"\x00\xff") == "00ff"


@pytest.mark.parametrize(
    ("option", "word", "form"), [("--hex", "0g", HEX), ("--bare-string", "\udcff", BARE_STRING)]
)
def test_a_payload_of_another_form(option: str, word: str, form: object, capsys: Capsys) -> None:
    assert main(["send", "nobody", word, option]) == Status.USAGE
    assert "onward send: the payload cannot be read: " in capsys.readouterr().err


def test_a_payload_from_standard_input(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"zz")))
    assert main(["send", "nobody", "-", "--hex"]) == Status.USAGE
    assert "the payload cannot be read" in capsys.readouterr().err
