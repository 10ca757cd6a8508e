"""Names: gathered changes, changes in order, and all names in parts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    Assembly,
    ListChange,
    ListKind,
    ListPart,
    ListSync,
    NetworkLimits,
    ToldName,
)

LIMITS = NetworkLimits(gather=0.1, max_names=4)
NAMES, PROVISIONS = ListKind
ONE, OTHER = ToldName(2), ToldName(0, 7)


def synced(limits: NetworkLimits = LIMITS) -> ListSync[ToldName]:
    return ListSync[ToldName].of_names(limits)


def take(names: ListSync[ToldName], *parts: ListPart) -> bool:
    """Apply all parts of a list; return whether it is complete."""
    first = parts[0]
    assembly = Assembly(NAMES, first.node, first.instance, first.number)
    done = False
    for part in parts:
        assert not done
        assert assembly.takes(part)
        done = names.apply_part(assembly, part)
    return done


def test_what_is_added_and_removed_in_a_moment_is_not_told() -> None:
    names = synced()
    names.change({"a": ONE, "b": ONE}, (), 1.0)
    names.change({"c": ONE}, ("b",), 1.05)
    assert names.gather_at == 1.1
    assert names.gather("n", 5) == [ListChange(NAMES, "n", 5, 1, {"a": ONE, "c": ONE})]
    assert names.gather_at is None
    names.change({}, ("a",), 2.0)
    names.change({"a": ONE}, (), 2.0)
    assert names.gather_at is None
    names.change({"a": OTHER}, ("c", "x"), 3.0)
    assert names.gather("n", 5) == [ListChange(NAMES, "n", 5, 2, {"a": OTHER}, ("c",))]
    assert [part.held for part in names.own_parts("n", 5)] == [{"a": OTHER}]


def test_changes_are_applied_in_order_and_gaps_are_noticed() -> None:
    names = synced(NetworkLimits())
    assert names.apply(ListChange(NAMES, "n", 5, 2, {"a": ONE})) is False
    assert names.apply(ListChange(NAMES, "n", 5, 1, {"a": ONE, "b": OTHER})) is True
    assert names.apply(ListChange(NAMES, "n", 5, 1, {"x": ONE})) is False
    held = [("n", 5, 1), ("n", 5, 2), ("n", 5, 0), ("n", 6, 1), ("m", 5, 1)]
    assert [names.holds(*each) for each in held] == [True, False, False, False, False]
    assert names.apply(ListChange(NAMES, "n", 5, 3, {"x": ONE})) is False
    assert names.apply(ListChange(NAMES, "n", 5, 2, {"a": ONE, "c": ONE}, ("b", "y"))) is True
    assert names.take_changed().keys() == {("a", "n"), ("c", "n")}
    assert dict(names.nodes_of("a")) == {"n": ONE}
    assert dict(names.nodes_of("b")) == {}
    assert names.apply(ListChange(NAMES, "m", 5, 1, {"a": OTHER})) is True
    assert dict(names.nodes_of("a")) == {"n": ONE, "m": OTHER}
    # The node was started again.
    assert names.apply(ListChange(NAMES, "n", 6, 1, {"d": ONE})) is True
    assert dict(names.nodes_of("a")) == {"m": OTHER}
    assert names.take_changed().keys() == {("a", "n"), ("a", "m"), ("c", "n"), ("d", "n")}
    names.drop("m")
    names.drop("m")
    assert dict(names.nodes_of("a")) == {}


def test_all_names_replace_those_that_were_there() -> None:
    one, other = synced(NetworkLimits()), synced(NetworkLimits())
    many = {f"{number:0200}": ONE for number in range(500)}
    one.change(many, (), 0.0)
    one.gather("n", 5)
    parts = one.own_parts("n", 5)
    assert len(parts) > 2
    other.apply(ListChange(NAMES, "n", 5, 1, {"old": ONE}))
    assert take(other, *parts)
    assert other.others["n"].held == many
    assert other.others["n"].number == one.number
    assert dict(other.nodes_of("old")) == {}
    assert set(other.keys()) == many.keys()
    assert other.parts("n", 5) == parts
    assert other.parts("n", 6) == other.parts("x", 5) == []
    # A node that was started again, without names.
    empty = replace(parts[0], instance=6, number=0, last=True, held={})
    assert take(other, empty)
    assert other.others["n"].held == {}
    assert other.parts("n", 6) == []


def test_a_part_is_the_next_one_of_one_list_as_of_one_number() -> None:
    part = ListPart(NAMES, "n", 5, 9, 1, False, {})
    assembly = Assembly(NAMES, "n", 5, 9, 1)
    assert assembly.takes(part)
    for other in (
        replace(part, kind=PROVISIONS),
        replace(part, node="m"),
        replace(part, instance=6),
        replace(part, number=8),
        replace(part, part=0),
        replace(part, part=2),
    ):
        assert not assembly.takes(other)


def test_what_is_back_to_what_it_was_has_not_changed() -> None:
    names = synced()
    names.apply(ListChange(NAMES, "n", 5, 1, {"a": ONE, "b": ONE}))
    assert names.take_changed() == {("a", "n"): None, ("b", "n"): None}
    names.apply(ListChange(NAMES, "n", 5, 2, {"a": OTHER}))
    names.apply(ListChange(NAMES, "n", 5, 3, {"a": ONE}, ("b",)))
    names.apply(ListChange(NAMES, "n", 5, 4, {"c": ONE}))
    names.apply(ListChange(NAMES, "n", 5, 5, {}, ("c",)))
    assert names.take_changed() == {("b", "n"): ONE}


def test_names_beyond_the_limit_are_refused_and_counted() -> None:
    names = synced()
    names.apply(ListChange(NAMES, "n", 5, 1, dict.fromkeys("abc", ONE)))
    names.apply(ListChange(NAMES, "m", 5, 1, dict.fromkeys("abc", ONE)))
    assert (names.refused, names.others["m"].held) == (2, {"a": ONE})
    # A removal makes room, and the refused names stay away until all are asked for.
    names.apply(ListChange(NAMES, "n", 5, 2, {}, ("a", "b")))
    one = synced(NetworkLimits())
    one.change(dict.fromkeys("abcde", ONE), (), 0.0)
    one.gather("m", 5)
    (part,) = one.own_parts("m", 5)
    assert take(names, part)
    assert names.others["m"].held == dict.fromkeys("abc", ONE)
    assert names.refused == 4


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from([None, ONE, OTHER]), st.booleans()),
        max_size=30,
    )
)
def test_changes_lead_to_the_same_names_whatever_is_gathered(
    steps: list[tuple[str, ToldName | None, bool]],
) -> None:
    one, other, truth = synced(), synced(), dict[str, ToldName]()
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
    assert ({} if known is None else known.held) == truth
    assert {name for name in "abc" if other.nodes_of(name)} == truth.keys()
