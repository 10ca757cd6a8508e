"""Names: gathered changes, changes in order, and all names in parts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from onward.protocol.dispatch import NamesChange, NameSync, NetworkLimits

LIMITS = NetworkLimits(gather=0.1, max_names=4)


def test_what_is_added_and_removed_in_a_moment_is_not_told() -> None:
    names = NameSync(LIMITS)
    names.change({"a": "", "b": ""}, (), 1.0)
    names.change({"c": ""}, ("b",), 1.05)
    assert names.gather_at == 1.1
    assert names.gather("n", 5) == [NamesChange("n", 5, 1, {"a": "", "c": ""})]
    assert names.gather_at is None
    names.change({}, ("a",), 2.0)
    names.change({"a": ""}, (), 2.0)
    assert names.gather_at is None
    names.change({"a": "hint"}, ("c", "x"), 3.0)
    assert names.gather("n", 5) == [NamesChange("n", 5, 2, {"a": "hint"}, ("c",))]
    assert [part.held for part in names.own_parts("n", 5)] == [{"a": "hint"}]


def test_changes_are_applied_in_order_and_gaps_are_noticed() -> None:
    names = NameSync(NetworkLimits())
    assert names.apply(NamesChange("n", 5, 2, {"a": ""})) is False
    assert names.apply(NamesChange("n", 5, 1, {"a": "", "b": "h"})) is True
    assert names.apply(NamesChange("n", 5, 1, {"x": ""})) is None
    assert names.apply(NamesChange("n", 5, 3, {"x": ""})) is False
    assert names.apply(NamesChange("n", 5, 2, {"a": "", "c": ""}, ("b", "y"))) is True
    assert names.take_changed() == {"a", "b", "c"}
    assert dict(names.nodes_of("a")) == {"n": ""}
    assert dict(names.nodes_of("b")) == {}
    assert names.apply(NamesChange("m", 5, 1, {"a": "h"})) is True
    assert dict(names.nodes_of("a")) == {"n": "", "m": "h"}
    # The node was started again.
    assert names.apply(NamesChange("n", 6, 1, {"d": ""})) is True
    assert dict(names.nodes_of("a")) == {"m": "h"}
    assert names.take_changed() == {"a", "c", "d"}
    names.drop("m")
    names.drop("m")
    assert dict(names.nodes_of("a")) == {}


def test_all_names_replace_those_that_were_there() -> None:
    one, other = NameSync(NetworkLimits()), NameSync(NetworkLimits())
    many = {f"{number:0200}": "" for number in range(500)}
    one.change(many, (), 0.0)
    one.gather("n", 5)
    parts = one.own_parts("n", 5)
    assert len(parts) > 2
    other.apply(NamesChange("n", 5, 1, {"old": ""}))
    assert [other.apply_part(part) for part in parts] == [False] * (len(parts) - 1) + [True]
    assert other.others["n"].names == many
    assert other.others["n"].number == one.number
    assert dict(other.nodes_of("old")) == {}
    assert other.parts("n", 5) == parts
    assert other.parts("n", 6) == other.parts("x", 5) == []
    # Parts out of order, or of two numbers, are none.
    assert other.apply_part(parts[1]) is None
    assert other.apply_part(parts[0]) is False
    assert other.apply_part(replace(parts[1], names=9)) is None
    # A node that was started again, without names.
    empty = replace(parts[0], instance=6, names=0, last=True, held={})
    assert other.apply_part(empty) is True
    assert other.others["n"].names == {}
    assert other.parts("n", 6) == []


def test_names_beyond_the_limit_are_refused_and_counted() -> None:
    names = NameSync(LIMITS)
    names.apply(NamesChange("n", 5, 1, dict.fromkeys("abc", "")))
    names.apply(NamesChange("m", 5, 1, dict.fromkeys("abc", "")))
    assert (names.refused, names.others["m"].names) == (2, {"a": ""})
    # A removal makes room, and the refused names stay away until all are asked for.
    names.apply(NamesChange("n", 5, 2, {}, ("a", "b")))
    one = NameSync(NetworkLimits())
    one.change(dict.fromkeys("abcde", ""), (), 0.0)
    one.gather("m", 5)
    (part,) = one.own_parts("m", 5)
    assert names.apply_part(part) is True
    assert names.others["m"].names == dict.fromkeys("abc", "")
    assert names.refused == 4


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([None, "", "h"]), st.booleans()),
        max_size=30,
    )
)
def test_changes_lead_to_the_same_names_whatever_is_gathered(
    steps: list[tuple[str, str | None, bool]],
) -> None:
    one, other, truth = NameSync(NetworkLimits()), NameSync(NetworkLimits()), dict[str, str]()
    for name, hint, tell in steps:
        if hint is None:
            truth.pop(name, None)
            one.change({}, (name,), 0.0)
        else:
            truth[name] = hint
            one.change({name: hint}, (), 0.0)
        if tell and one.gather_at is not None:
            for change in one.gather("n", 5):
                assert change.added or change.removed
                assert other.apply(change)
    if one.gather_at is not None:
        assert all(other.apply(change) for change in one.gather("n", 5))
    known = other.others.get("n")
    assert ({} if known is None else known.names) == truth
    assert {name for name in "abc" if other.nodes_of(name)} == truth.keys()
