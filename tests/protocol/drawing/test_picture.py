"""Where everything is in a picture of boxes and arrows, and its SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings, strategies as st

from onward.protocol.drawing import Arrow, Box, Row, draw, lay_out
from onward.protocol.drawing._picture import LONGEST, shortened
from tests.support.counts import times
from tests.support.pictures import check

TEXTS = st.text(max_size=50)
NAMES = st.text(min_size=1, max_size=50)
SVG = "{http://www.w3.org/2000/svg}"


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
    paths = [each.get("class") for each in root.iter(f"{SVG}path")]
    assert paths.count("link") == len(arrows)


def test_an_arrow_needs_both_of_its_boxes() -> None:
    with pytest.raises(KeyError):
        lay_out("", [Box("a")], [Arrow("a", "b", "")])


def test_the_text_of_peers_stays_text() -> None:
    box = Box("<script>alert(1)</script>", [Row("</text>", '" onload="x')])
    picture = lay_out("&", [box, Box("b", outside=True)], [Arrow("b", box.name, "<b>")])
    written = draw(picture)
    root = ET.fromstring(written)
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert texts == ["&", "<b>", box.name, "</text>", '" onload="x', "b"]
    assert not list(root.iter(f"{SVG}script"))
    assert draw(lay_out("&", [box, Box("b", outside=True)], [Arrow("b", box.name, "<b>")])) == (
        written
    )


def test_a_long_name_is_shown_without_its_middle() -> None:
    assert shortened("n" * LONGEST) == "n" * LONGEST
    name = "first" + "m" * LONGEST + "last"
    short = shortened(name)
    assert len(short) == LONGEST
    assert (short[:5], short.count("…"), short[-4:]) == ("first", 1, "last")
    picture = lay_out("", [Box(name), Box(name + "s", outside=True)], [])
    check(picture)
    texts = [each.text for each in ET.fromstring(draw(picture)).iter(f"{SVG}text")]
    assert texts[1:] == [short, shortened(name + "s")]


def test_uris_stand_below_the_rows_and_a_rule() -> None:
    rows, uris = [Row("worker", "Echo", exposed=True)], [Row("tcp", "tcp://127.0.0.1:4000")]
    picture = lay_out("", [Box("a", rows, uris), Box("b")], [])
    check(picture)
    root = ET.fromstring(draw(picture))
    (rule,) = (each for each in root.iter(f"{SVG}path") if each.get("class") == "rule")
    box = next(each for each in picture.boxes if each.name == "a")
    height = float((rule.get("d") or "").split()[1].split("H")[0])
    below = {each.text: float(each.get("y") or 0) for each in root.iter(f"{SVG}text")}
    assert box.y < below["Echo"] < height < below["tcp"] == below["tcp://127.0.0.1:4000"]
    assert height < box.y + box.height
