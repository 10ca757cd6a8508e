"""What pictures in SVG begin with, and text in them."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, strategies as st

from onward.protocol.drawing import escaped, page


@given(st.text())
def test_any_title_makes_a_picture_that_can_be_read(title: str) -> None:
    text = "\n".join([*page("640", "480", title, "text{fill:#fff}"), "</svg>"])
    root = ET.fromstring(text)
    assert root.get("viewBox") == "0 0 640 480"
    assert [child.tag.rpartition("}")[2] for child in root] == ["title", "style", "rect"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("<a & b>", "&lt;a &amp; b&gt;"), ("a\0b", "a\ufffdb"), ("\ud800", "\ufffd"), ("é…", "é…")],
)
def test_what_xml_cannot_hold_is_replaced(text: str, shown: str) -> None:
    assert escaped(text) == shown
