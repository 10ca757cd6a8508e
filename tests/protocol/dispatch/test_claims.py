"""The node that has a direct name, when several claim it."""

from __future__ import annotations

from hypothesis import given, strategies as st

from onward.protocol.dispatch import direct_node

claims = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))


def test_the_oldest_has_the_name_or_the_newest() -> None:
    found = {"b": 5, "c": 3, "a": 7}
    assert direct_node(found, newest=False) == "c"
    assert direct_node(found, newest=True) == "a"
    assert direct_node({}, newest=False) is None


@given(claims, st.booleans())
def test_all_nodes_choose_the_same_one(found: dict[str, int], newest: bool) -> None:
    other = dict(reversed(found.items()))
    chosen = direct_node(found, newest=newest)
    assert chosen == direct_node(other, newest=newest)
    # It stays, whichever of the others goes.
    for gone in found.keys() - {chosen}:
        rest = {node: since for node, since in found.items() if node != gone}
        assert direct_node(rest, newest=newest) == chosen
