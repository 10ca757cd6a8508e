"""The provisions of a node, and the hints of others."""

from __future__ import annotations

from typing import Any

import pytest

from onward.protocol.dispatch import (
    BadPattern,
    BadSemantics,
    Conflict,
    DispatchLimits,
    Last,
    Mechanism,
    NamePattern,
    PatternInUse,
    Provision,
    Provisions,
    Redirect,
    RoutingPattern,
    Semantics,
    TooManyProvisions,
    UnknownProvision,
    parse_name,
)

BALANCED = Semantics()
MULTICAST = Semantics(pattern=RoutingPattern.MULTICAST)
DIRECT = Semantics(pattern=RoutingPattern.DIRECT)
CLOSEST = Semantics(pattern=RoutingPattern.CLOSEST)
UNAVAILABLE = Semantics(pattern=RoutingPattern.UNAVAILABLE)


def provision(pattern: str, semantics: Semantics = DIRECT, **values: Any) -> Provision:
    return Provision(NamePattern.parse(pattern), semantics, **values)


def semantics_of(provisions: Provisions, name: str) -> Semantics:
    return provisions.semantics_of(parse_name(name, "a"))


def test_semantics_of_names() -> None:
    provisions = Provisions(UNAVAILABLE)
    provisions.add(provision("orders.#", MULTICAST))
    provisions.add(provision("orders", DIRECT))
    assert semantics_of(provisions, "orders") == DIRECT
    assert semantics_of(provisions, "amqp://host/orders/x") == MULTICAST
    assert semantics_of(provisions, "other") == UNAVAILABLE
    assert semantics_of(Provisions(), "other") == BALANCED
    provisions.default = CLOSEST
    assert semantics_of(provisions, "other") == CLOSEST
    found = provisions.provision_of(parse_name("orders/x", "a"))
    assert found is not None
    assert str(found) == "orders.#: multicast (program)"
    assert provisions.provision_of(parse_name("x", "a")) is None


def test_names_that_mean_what_they_say() -> None:
    provisions = Provisions(UNAVAILABLE)
    provisions.add(provision("#", DIRECT))
    assert semantics_of(provisions, "_temp/b/x") == BALANCED
    assert semantics_of(provisions, "_topo/b/x") == CLOSEST
    assert semantics_of(provisions, "_topo/all/x") == MULTICAST
    assert semantics_of(provisions, "_topo/a/x") == DIRECT  # _local/x
    assert provisions.provision_of(parse_name("_topo/b/x", "a")) is None
    for pattern in ("_temp/#", "_topo.b.x"):
        with pytest.raises(BadPattern, match="cannot be provisioned"):
            provision(pattern)


def test_a_name_redirected_to_itself() -> None:
    with pytest.raises(BadSemantics, match="orders is redirected to itself"):
        provision("orders", Semantics(undeliverable=(Redirect("34#orders"), Last.DROP)))
    for pattern, to in (("orders/#", "34#orders"), ("orders", "34#other"), ("orders", "orders")):
        assert provision(pattern, Semantics(undeliverable=(Redirect(to), Last.DROP)))


def test_add_replace_withdraw() -> None:
    provisions = Provisions(limits=DispatchLimits(max_provisions=2))
    provisions.add(provision("a.#"))
    with pytest.raises(PatternInUse):
        provisions.add(provision("a/#"))
    provisions.add(provision("b"))
    with pytest.raises(TooManyProvisions, match="the limit of 2 provisions is reached"):
        provisions.add(provision("c"))
    assert provisions.replace(provision("b", MULTICAST)).semantics == DIRECT
    assert semantics_of(provisions, "b") == MULTICAST
    assert provisions.withdraw(NamePattern.parse("a/#")).pattern.written == "a.#"
    assert [str(each.pattern) for each in provisions] == ["b"]
    with pytest.raises(UnknownProvision):
        provisions.withdraw(NamePattern.parse("a/#"))
    with pytest.raises(UnknownProvision):
        provisions.replace(provision("a"))
    assert len(provisions) == 1


def test_load_puts_a_source_in_the_place_of_itself() -> None:
    provisions = Provisions(limits=DispatchLimits(max_provisions=4))
    provisions.add(provision("own"))
    first = [provision(each, source="f", line=2) for each in ("a", "b", "c")]
    assert provisions.load(first, "f").added == tuple(first)
    second = [provision("a", source="f"), provision("b", MULTICAST, source="f")]
    second.append(provision("d", source="f"))
    change = provisions.load(second, "f")
    assert (change.added, change.changed, change.withdrawn) == (
        (second[2],),
        (second[1],),
        (first[2],),
    )
    assert not provisions.load(second, "f")
    assert sorted(str(each.pattern) for each in provisions) == ["a", "b", "d", "own"]
    assert str(first[0]) == "a: direct (f:2)"

    before = list(provisions)
    refused: list[tuple[list[str], type[Exception]]] = [
        (["own"], PatternInUse),
        (["x.#", "x/#"], PatternInUse),
        (["a", "a"], PatternInUse),
        (["a", "b", "c", "d"], TooManyProvisions),
    ]
    for patterns, error in refused:
        with pytest.raises(error):
            provisions.load([provision(each, source="f") for each in patterns], "f")
        assert list(provisions) == before
    assert len(provisions.load([], "f").withdrawn) == 3
    assert len(provisions) == 1


def test_hints_decide_where_no_provision_does() -> None:
    provisions = Provisions(UNAVAILABLE)
    provisions.hint("b", "orders", MULTICAST.hint)
    assert semantics_of(provisions, "orders") == MULTICAST
    provisions.hint("b", "orders", CLOSEST.hint)
    assert semantics_of(provisions, "orders") == CLOSEST
    provisions.add(provision("orders"))
    assert semantics_of(provisions, "orders") == DIRECT
    provisions.withdraw(NamePattern.parse("orders"))
    assert provisions.hinting("orders") == {"b"}
    assert provisions.hinting("other") == frozenset()
    provisions.unhint("c", "orders")
    provisions.unhint("b", "other")
    assert semantics_of(provisions, "orders") == CLOSEST
    provisions.unhint("b", "orders")
    assert semantics_of(provisions, "orders") == UNAVAILABLE


def test_a_node_that_takes_no_hint() -> None:
    provisions = Provisions(UNAVAILABLE)
    provisions.add(provision("#", UNAVAILABLE))
    provisions.hint("b", "orders", MULTICAST.hint)
    assert semantics_of(provisions, "orders") == UNAVAILABLE
    assert provisions.conflicts()[1] == 1


def test_the_first_node_by_name_decides() -> None:
    for order in (("b", "c"), ("c", "b")):
        provisions = Provisions()
        for node in order:
            semantics = MULTICAST if node == "b" else CLOSEST
            provisions.hint(node, "orders", semantics.hint)
        assert semantics_of(provisions, "orders") == MULTICAST
        assert provisions.conflicts() == ((Conflict("orders", MULTICAST, "c", CLOSEST),), 1)
        provisions.forget("b")
        assert semantics_of(provisions, "orders") == CLOSEST
        assert provisions.conflicts() == ((), 0)


def test_conflicts_are_reported() -> None:
    provisions = Provisions(limits=DispatchLimits(max_conflicts=3))
    provisions.add(provision("orders"))
    provisions.hint("c", "orders", Semantics(mechanism=Mechanism.LINK).hint)
    provisions.hint("b", "orders", 99)
    provisions.hint("d", "orders", DIRECT.hint)
    provisions.hint("b", "new", 99)
    found, count = provisions.conflicts()
    assert count == 3
    assert [str(each) for each in found] == [
        "new: balanced here, something unknown at b",
        "orders: direct here, something unknown at b",
        "orders: direct here, balanced circuits at c",
    ]
    provisions.hint("b", "more", 99)
    assert [len(each) if isinstance(each, tuple) else each for each in provisions.conflicts()] == [
        3,
        4,
    ]
    provisions.forget("b")
    provisions.forget("c")
    assert provisions.conflicts() == ((), 0)


def test_hints_are_bounded() -> None:
    provisions = Provisions(limits=DispatchLimits(max_hints=2))
    provisions.hint("b", "x", MULTICAST.hint)
    provisions.hint("c", "x", MULTICAST.hint)
    provisions.hint("b", "y", MULTICAST.hint)
    assert provisions.hints_refused == 1
    assert semantics_of(provisions, "y") == BALANCED
    provisions.hint("c", "x", DIRECT.hint)
    assert provisions.hints_refused == 1
    provisions.forget("c")
    provisions.hint("b", "y", MULTICAST.hint)
    assert semantics_of(provisions, "y") == MULTICAST
