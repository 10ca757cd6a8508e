"""Messages and tables as text."""

from __future__ import annotations

import pytest

from onward.cli._show import describe, describe_message, printable, table
from onward.protocol import Message, parse_route


def test_a_message_is_one_line() -> None:
    message = Message(parse_route("relay => echo"), parse_route("1#a:1 => b"), b"hello")
    line = "onward 0#relay => 0#echo  return 1#a:1 => 0#b  5 bytes"
    assert describe_message(message) == line
    assert describe((), (), b"") == "onward (none)  return (none)  0 bytes"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain ü", "plain ü"), ("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\u202e", "\\u202e")],
)
def test_nothing_moves_the_cursor(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_table_aligns_text_left_and_numbers_right() -> None:
    assert table(("NAME", "N"), [("a", 7), ("long name", 123)]).splitlines() == [
        "NAME         N",
        "a            7",
        "long name  123",
    ]


def test_a_table_without_rows_is_its_headings() -> None:
    assert table(("A", "B"), []) == "A  B"
