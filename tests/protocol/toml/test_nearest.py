"""Which name somebody may have meant."""

from __future__ import annotations

import pytest

from onward.protocol.toml._nearest import nearest, suggestion

NAMES = ("echo", "forward", "relay", "a")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ecoh", "echo"),
        ("Echo", "echo"),
        ("forwad", "forward"),
        ("fforwardd", "forward"),
        ("realy", "relay"),
        ("b", "a"),
        ("xyz", None),
        ("", "a"),
        ("e" * 65, None),
    ],
)
def test_the_nearest_name(name: str, found: str | None) -> None:
    assert nearest(name, NAMES) == found


def test_the_first_of_names_that_are_equally_near() -> None:
    assert nearest("cat", ["bat", "hat"]) == "bat"


def test_a_suggestion_is_made_if_there_is_one() -> None:
    assert suggestion("ecoh", NAMES) == "; did you mean 'echo'?"
    assert suggestion("xyz", NAMES) == ""
