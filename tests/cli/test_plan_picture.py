"""Where everything is in a picture: nothing overlaps, nothing is outside."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from onward.cli._plan_picture import picture_of
from onward.cli._up import read_file
from onward.protocol.drawing import points, shortened
from onward.protocol.topology import read_topology
from tests.protocol.topology.kinds import KINDS
from tests.support.counts import times
from tests.support.pictures import check

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "topologies"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.toml")), ids=lambda file: file.stem)
def test_the_examples(file: Path) -> None:
    picture = picture_of(read_file(str(file)))
    check(picture)
    assert picture.title


NAMES = st.sampled_from(["a", "bb", "a-node-with-a-long-name", "d", "e", "f"])


@settings(max_examples=times(25, 100))
@given(
    st.lists(st.tuples(NAMES, NAMES), max_size=14),
    st.dictionaries(NAMES, st.integers(0, 5), max_size=6),
    st.booleans(),
)
def test_any_topology(links: list[tuple[str, str]], workers: dict[str, int], outside: bool) -> None:
    names = list(dict.fromkeys([*workers, *(name for link in links for name in link), "z"]))
    text = 'title = "any"\n'
    for name in names:
        text += f'[nodes.{name}.listeners]\nmain = "tcp://127.0.0.1:0"\n[nodes.{name}.workers]\n'
        text += "".join(f'worker-{index} = "echo"\n' for index in range(workers.get(name, 0)))
    for index, (start, end) in enumerate(links):
        text += f'[[links]]\nfrom = "{start}"\nto = "{end}"\nas = "link-{index}"\n'
    if outside:
        for number in range(2):
            text += '[[links]]\nfrom = "z"\nto = "tcp://far.example:4000"\n'
            text += f'as = "world{number}"\n'
    check(picture_of(read_topology(text, kinds=KINDS)))


def test_a_node_that_is_joined_to_itself_needs_no_arrow() -> None:
    text = '[nodes.a]\nlisteners.x = "tcp://h:1"\n[[links]]\nfrom = "a"\nto = "a"'
    assert picture_of(read_topology(text, kinds=KINDS)).curves == []


def test_what_is_exposed_is_known() -> None:
    (box,) = picture_of(read_file(str(EXAMPLES / "1_echo.toml"))).boxes
    assert [row.exposed for row in box.rows] == [False]
    near_or_far = picture_of(read_file(str(EXAMPLES / "2_relay.toml"))).boxes
    assert [(row.left, row.exposed) for row in near_or_far[0].rows] == [
        ("relay", True),
        ("echo", False),
    ]


def test_brokers_are_joined_and_show_their_destinations() -> None:
    picture = picture_of(read_file(str(EXAMPLES / "cluster.toml")))
    assert [(row.left, row.right, row.exposed) for row in picture.boxes[0].rows] == [
        ("stock", "echo", False),
        ("broker", "cluster shop", False),
        ("service=stock", "stock", True),
    ]
    check(picture)
    assert [label.text for label in picture.labels] == ["brokers"] * 3  # each pair once


def test_numbers_and_names_are_short() -> None:
    assert points(1.0, 2.25, 1 / 3, 100000.04) == "1 2.2 0.3 100000"
    assert shortened("x" * 36) == "x" * 36
    assert len(shortened("x" * 37)) == 36
