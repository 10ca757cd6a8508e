"""Checks of pictures of boxes and arrows."""

from __future__ import annotations

from itertools import combinations

import pytest

from onward.protocol.drawing import HEAD, Box, Label, Picture

__all__ = ["check"]


def rectangle(thing: Box | Label) -> tuple[float, float, float, float]:
    if isinstance(thing, Box):
        return thing.x, thing.y, thing.x + thing.width, thing.y + thing.height
    return thing.x, thing.y - 10, thing.x + thing.width, thing.y + 3


def check(picture: Picture) -> None:
    """Have nothing overlap, and all be in the picture."""
    things: list[Box | Label] = [*picture.boxes, *picture.labels]
    for one, other in combinations(things, 2):
        left, top, right, bottom = rectangle(one)
        left2, top2, right2, bottom2 = rectangle(other)
        apart = right <= left2 or right2 <= left or bottom <= top2 or bottom2 <= top
        assert apart, (one, other)
    for thing in things:
        left, top, right, bottom = rectangle(thing)
        assert left >= 0
        assert top >= HEAD
        assert right <= picture.width
        assert bottom <= picture.height
    for x, y, from_left in picture.tips:
        # Each arrow ends at an edge of a box.
        assert any(
            (box.x if from_left else box.x + box.width) == pytest.approx(x)
            and box.y <= y <= box.y + box.height
            for box in picture.boxes
        )
