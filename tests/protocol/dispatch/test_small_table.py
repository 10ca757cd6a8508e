"""Tables that are small while they have one item: they do what a dictionary does."""

from __future__ import annotations

from random import Random

import pytest

from onward.protocol.dispatch._small_table import EMPTY, Single, SmallTable, put, without
from tests.support.counts import times


def check(table: SmallTable[int, str], plain: dict[int, str]) -> None:
    """Check that a table reads like a dictionary."""
    assert list(table) == list(plain)
    assert list(table.values()) == list(plain.values())
    assert list(table.items()) == list(plain.items())
    assert len(table) == len(plain)
    assert bool(table) == bool(plain)
    for key in range(4):
        assert table.get(key) == plain.get(key)
        assert (key in table) == (key in plain)
        if key in plain:
            assert table[key] == plain[key]
        else:
            with pytest.raises(KeyError):
                table[key]


@pytest.mark.parametrize("seed", range(times(5, 50)))
def test_it_does_what_a_dictionary_does(seed: int) -> None:
    random = Random(seed)
    table: SmallTable[int, str] = EMPTY
    plain: dict[int, str] = {}
    for number in range(60):
        key = random.randrange(4)
        if random.random() < 0.5:
            plain[key] = f"{number}"
            table = put(table, key, f"{number}")
        else:
            plain.pop(key, None)
            table = without(table, key)
        check(table, plain)
        assert not EMPTY


def test_one_item_takes_less_than_a_dictionary_and_none_takes_nothing() -> None:
    one = put(EMPTY, 1, "a")
    assert isinstance(one, Single)
    assert not isinstance(put(one, 2, "b"), Single)
    assert without(one, 1) is EMPTY
    assert without(without(put(one, 2, "b"), 1), 2) is EMPTY
