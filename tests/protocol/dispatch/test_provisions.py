"""The provisions of a node, and those of others."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from onward.protocol.dispatch import (
    Access,
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
    ToldName,
    TooManyProvisions,
    UnknownProvision,
    encode_semantics,
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
    provisions = Provisions("m", UNAVAILABLE)
    provisions.add(provision("orders.#", MULTICAST))
    provisions.add(provision("orders", DIRECT))
    assert semantics_of(provisions, "orders") == DIRECT
    assert semantics_of(provisions, "amqp://host/orders/x") == MULTICAST
    assert semantics_of(provisions, "other") == UNAVAILABLE
    assert semantics_of(Provisions("m"), "other") == BALANCED
    provisions.default = CLOSEST
    assert semantics_of(provisions, "other") == CLOSEST
    found = provisions.provision_of(parse_name("orders/x", "a"))
    assert found is not None
    assert str(found) == "orders.#: multicast (program)"
    assert provisions.provision_of(parse_name("x", "a")) is None


def test_names_that_mean_what_they_say() -> None:
    provisions = Provisions("m", UNAVAILABLE)
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
    provisions = Provisions("m", limits=DispatchLimits(max_provisions=2))
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
    provisions = Provisions("m", limits=DispatchLimits(max_provisions=4))
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


# --- provisions of other nodes ----------------------------------------------------------------


def learn(provisions: Provisions, node: str, **patterns: Semantics | None) -> None:
    """Let another node tell of patterns, with `_` for `.`; `None`: it withdraws one."""
    texts = {pattern.replace("_", "."): each for pattern, each in patterns.items()}
    added = {text: encode_semantics(each) for text, each in texts.items() if each is not None}
    provisions.learn(node, added, [text for text, each in texts.items() if each is None])


def test_what_one_node_has_provisioned_counts_at_all() -> None:
    provisions = Provisions("m", UNAVAILABLE)
    learn(provisions, "z", orders=DIRECT)
    assert semantics_of(provisions, "orders") == DIRECT
    found = provisions.provision_of(parse_name("orders", "m"))
    assert str(found) == "orders: direct (node z)"
    learn(provisions, "z", orders=MULTICAST)
    assert semantics_of(provisions, "orders") == MULTICAST
    assert len(provisions) == 0
    assert [str(each) for each in provisions.deciding()] == ["orders: multicast (node z)"]
    learn(provisions, "z", orders=None)
    learn(provisions, "z", orders=None, other=None)
    assert semantics_of(provisions, "orders") == UNAVAILABLE
    assert provisions.provision_of(parse_name("orders", "m")) is None


def test_the_best_pattern_of_all_other_nodes_decides() -> None:
    provisions = Provisions("m")
    learn(provisions, "b", **{"orders_#": CLOSEST})
    learn(provisions, "z", orders_eu=MULTICAST)
    learn(provisions, "a", orders=DIRECT)
    assert semantics_of(provisions, "orders/eu") == MULTICAST
    assert semantics_of(provisions, "orders/us") == CLOSEST
    assert semantics_of(provisions, "orders") == DIRECT
    assert provisions.conflicts() == ((), 0)


def test_of_one_pattern_the_other_node_with_the_smallest_name_decides() -> None:
    told = {"a": CLOSEST, "k": DIRECT, "z": MULTICAST}
    for order in permutations(told):
        provisions = Provisions("m")
        for node in order:
            learn(provisions, node, orders=told[node])
        assert semantics_of(provisions, "orders") == CLOSEST
        found, count = provisions.conflicts()
        assert count == 2
        assert [(each.node, each.there) for each in found] == [("k", DIRECT), ("z", MULTICAST)]
        assert {each.here for each in found} == {CLOSEST}


def test_no_node_changes_what_a_pattern_of_the_own_one_matches() -> None:
    provisions = Provisions("m")
    provisions.add(provision("orders.#", CLOSEST))
    provisions.add(provision("orders.*.x", DIRECT))
    # Equal, more exact and wider ones, of nodes with smaller and greater names.
    learn(provisions, "a", **{"orders_#": MULTICAST, "orders_eu": MULTICAST, "#": BALANCED})
    learn(provisions, "z", **{"orders_eu_*": MULTICAST, "orders_*_#": CLOSEST})
    assert semantics_of(provisions, "orders") == CLOSEST
    assert semantics_of(provisions, "orders/eu") == CLOSEST
    assert semantics_of(provisions, "orders/eu/y") == CLOSEST
    assert semantics_of(provisions, "orders/eu/x") == DIRECT
    assert semantics_of(provisions, "mail") == BALANCED
    found = provisions.provision_of(parse_name("orders/eu", "m"))
    assert str(found) == "orders.#: closest (program)"
    assert [str(each) for each in provisions.conflicts()[0]] == [
        "orders.#: closest here, multicast at a",
        "orders.eu: closest here, multicast at a",
        "orders.eu.*: closest here, multicast at z",
    ]
    provisions.withdraw(NamePattern.parse("orders.#"))
    assert semantics_of(provisions, "orders/eu") == MULTICAST
    assert provisions.conflicts() == ((), 0)


def test_a_withdrawal_makes_room_for_the_next_node() -> None:
    provisions = Provisions("m")
    provisions.add(provision("orders", DIRECT))
    learn(provisions, "a", orders=CLOSEST)
    learn(provisions, "z", orders=MULTICAST)
    assert semantics_of(provisions, "orders") == DIRECT
    learn(provisions, "a", orders=None)
    assert semantics_of(provisions, "orders") == DIRECT
    provisions.replace(provision("orders", BALANCED))
    assert semantics_of(provisions, "orders") == BALANCED
    learn(provisions, "a", orders=CLOSEST)
    provisions.withdraw(NamePattern.parse("orders"))
    assert semantics_of(provisions, "orders") == CLOSEST
    learn(provisions, "a", orders=None)
    assert semantics_of(provisions, "orders") == MULTICAST
    assert provisions.conflicts() == ((), 0)
    provisions.load([provision("orders", DIRECT, source="f")], "f")
    assert semantics_of(provisions, "orders") == DIRECT
    provisions.load([], "f")
    assert semantics_of(provisions, "orders") == MULTICAST


def test_no_node_closes_a_name_at_another() -> None:
    provisions = Provisions("m")
    learn(provisions, "a", orders=UNAVAILABLE, only=UNAVAILABLE)
    provisions.add(provision("orders", DIRECT))
    assert semantics_of(provisions, "orders") == DIRECT
    assert semantics_of(provisions, "only") == BALANCED
    assert [str(each) for each in provisions.conflicts()[0]] == [
        "only: balanced here, unavailable at a",
        "orders: direct here, unavailable at a",
    ]


def test_no_node_opens_a_name_that_is_closed_here() -> None:
    provisions = Provisions("m")
    provisions.add(provision("orders.#", UNAVAILABLE))
    learn(provisions, "a", **{"orders_#": DIRECT, "orders_eu": DIRECT})
    for name in ("orders", "orders/eu"):
        assert semantics_of(provisions, name) == UNAVAILABLE
        found = provisions.provision_of(parse_name(name, "m"))
        assert found is not None
        assert found.source == "program"
    assert provisions.conflicts()[1] == 2
    # A closed world: own provisions decide all names.
    provisions.add(provision("#", UNAVAILABLE))
    learn(provisions, "a", other=DIRECT)
    assert semantics_of(provisions, "other") == UNAVAILABLE


def test_the_roles_are_those_of_the_own_node() -> None:
    shop, all_but = Access(producers=frozenset({"shop"})), frozenset({"billing"})
    provisions = Provisions("m")
    provisions.add(provision("orders.#", Semantics(access=shop)))
    learn(provisions, "a", **{"orders_#": MULTICAST, "orders_eu": DIRECT})
    for name in ("orders", "orders/eu"):
        assert semantics_of(provisions, name) == Semantics(access=shop)
    theirs = Access(consumers=all_but)
    learn(provisions, "a", mail=Semantics(access=theirs))
    assert semantics_of(provisions, "mail").access == theirs
    provisions.add(provision("mail"))
    assert semantics_of(provisions, "mail").access == Access()


def no_circuits(told: Provision) -> None:
    if told.semantics.mechanism is Mechanism.LINK:
        raise BadSemantics(["no circuits"])


def test_semantics_that_cannot_be_read_or_served_decide_nothing() -> None:
    provisions = Provisions("m", check=no_circuits)
    circuits = encode_semantics(Semantics(mechanism=Mechanism.LINK))
    itself = encode_semantics(Semantics(undeliverable=(Redirect("34#loop"), Last.DROP)))
    provisions.learn("a", {"x": b"\xff", "y": circuits, "loop": itself}, ())
    assert provisions.unread == 3
    for name in ("x", "y", "loop"):
        assert semantics_of(provisions, name) == BALANCED
    assert [str(each) for each in provisions.conflicts()[0]] == [
        "loop: balanced here, something unknown at a",
        "x: balanced here, something unknown at a",
        "y: balanced here, something unknown at a",
    ]
    learn(provisions, "a", x=DIRECT)
    assert semantics_of(provisions, "x") == DIRECT


def test_a_hint_shows_a_conflict_and_decides_nothing() -> None:
    told = {
        "same": {"b": ToldName(BALANCED.hint)},
        "closed": {"b": ToldName(UNAVAILABLE.hint)},
        "other": {"c": ToldName(99), "b": ToldName(MULTICAST.hint, 5)},
    }
    provisions = Provisions("m", nodes_of=told.__getitem__)
    assert {semantics_of(provisions, name) for name in told} == {BALANCED}
    assert provisions.conflicts() == ((), 0)
    assert provisions.conflicts(told) == (
        (
            Conflict("closed", BALANCED, "b", UNAVAILABLE),
            Conflict("other", BALANCED, "b", MULTICAST),
            Conflict("other", BALANCED, "c", None),
        ),
        3,
    )
    assert Provisions("m").conflicts(told) == ((), 0)


def test_conflicts_beyond_the_limit_are_counted() -> None:
    provisions = Provisions("m", limits=DispatchLimits(max_conflicts=2))
    for pattern in ("x", "y", "z"):
        provisions.add(provision(pattern))
    learn(provisions, "a", x=MULTICAST, y=MULTICAST, z=MULTICAST)
    found, count = provisions.conflicts()
    assert [str(each) for each in found] == [
        "x: direct here, multicast at a",
        "y: direct here, multicast at a",
    ]
    assert count == 3


def test_patterns_of_local_names_are_not_told() -> None:
    assert provision("_local/#").told_pattern is None
    assert provision("//a/#.*").told_pattern == "a.*.#"


def test_semantics_that_are_too_long_to_tell_are_refused() -> None:
    roles = frozenset(f"{number:0100}" for number in range(21))
    with pytest.raises(BadSemantics, match="over the limit of 2048"):
        provision("x", Semantics(access=Access(producers=roles)))


def test_roles_are_looked_for_only_if_a_name_has_some() -> None:
    guarded = Semantics(access=Access(producers=frozenset({"shop"})))
    provisions = Provisions("m")
    assert not provisions.guarded
    learn(provisions, "z", orders=guarded)
    assert provisions.guarded
    learn(provisions, "z", orders=None)
    assert not provisions.guarded
    orders = NamePattern.parse("orders")
    provisions.add(Provision(orders, guarded))
    learn(provisions, "a", orders=DIRECT)
    assert provisions.guarded
    provisions.withdraw(orders)
    assert not provisions.guarded
    provisions.default = guarded
    assert provisions.guarded
