"""Where everything is in a picture of boxes and arrows, and its SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.drawing import Arrow, Box, Row, draw, lay_out
from tests.support.counts import times
from tests.support.pictures import check

TEXTS = st.text(max_size=50)
NAMES = st.text(min_size=1, max_size=50)


@settings(max_examples=times(25, 100))
@given(st.lists(NAMES, unique=True, max_size=8), st.data())
def test_any_boxes_and_arrows(names: list[str], data: st.DataObject) -> None:
    boxes = [
        Box(name, [Row(*row) for row in data.draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=3))])
        for name in names
    ]
    arrows: list[Arrow] = []
    if len(names) > 1:
        ends = st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)
        drawn = data.draw(st.lists(ends, max_size=9))
        arrows = [Arrow(start, end, data.draw(TEXTS)) for start, end in drawn]
    picture = lay_out("any", boxes, arrows)
    check(picture)
    root = ET.fromstring(draw(picture))
    paths = [each.get("class") for each in root.iter("{http://www.w3.org/2000/svg}path")]
    assert paths.count("link") == len(arrows)


def test_an_arrow_needs_both_of_its_boxes() -> None:
    with pytest.raises(KeyError):
        lay_out("", [Box("a")], [Arrow("a", "b", "")])


def test_the_text_of_peers_stays_text() -> None:
    box = Box("<script>alert(1)</script>", [Row("</text>", '" onload="x')])
    picture = lay_out("&", [box, Box("b", outside=True)], [Arrow("b", box.name, "<b>")])
    written = draw(picture)
    root = ET.fromstring(written)
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["&", "<b>", box.name, "</text>", '" onload="x', "b"]
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert draw(lay_out("&", [box, Box("b", outside=True)], [Arrow("b", box.name, "<b>")])) == (
        written
    )
