"""The methods a broker knows: built-in ones, and plug-ins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from onward.actors.broker import ChoiceOptions
from onward.actors.broker.table import _methods
from onward.actors.broker.table._methods import BALANCER_GROUP, SHARD_GROUP, Methods
from onward.protocol.broker import (
    BALANCERS,
    SHARD_METHODS,
    Balancer,
    Candidate,
    Jump,
    Random,
    Rendezvous,
    RoundRobin,
)
from tests.support.fixtures import Caplog, Patch


class First(Balancer):
    """Always the first."""

    def pick(self, candidates: Sequence[Candidate], now: float, random: Callable[[], float]) -> int:
        return 0


class Hidden(Rendezvous):
    """Another name for it."""


def install(monkeypatch: Patch, **plugins: dict[str, str]) -> None:
    """Have entry points: name to what it refers to, for each group."""

    def found(*, group: str) -> EntryPoints:
        names = plugins.get(group.rpartition(".")[2], {})
        return EntryPoints(EntryPoint(name, value, group) for name, value in names.items())

    monkeypatch.setattr(_methods, "entry_points", found)


def test_what_is_built_in() -> None:
    methods = Methods(ChoiceOptions())
    assert (methods.balancer, methods.sharding) == ("roundrobin", "rendezvous")
    for name, kind in BALANCERS.items():
        assert methods.knows_balancer(name)
        assert type(methods.make_balancer(name)) is kind
    for name, shards in SHARD_METHODS.items():
        assert methods.knows_sharding(name)
        assert type(methods.make_sharding(name)) is shards
    assert not methods.knows_balancer("rendezvous")
    assert not methods.knows_sharding("")


def test_the_default_can_be_said_in_any_spelling() -> None:
    methods = Methods(ChoiceOptions(method="Least_Outstanding", shard_method="JUMP"))
    assert (methods.balancer, methods.sharding) == ("leastoutstanding", "jump")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (ChoiceOptions(method="best"), "method: 'best' is none of"),
        (ChoiceOptions(shard_method=""), "shard_method: '' is none of"),
    ],
)
def test_a_default_that_nobody_knows(options: ChoiceOptions, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Methods(options)


def test_a_method_that_is_given_twice_is_refused() -> None:
    options = ChoiceOptions(balancers={"the-first": First, "The_First": RoundRobin})
    with pytest.raises(ValueError, match="a method is given twice: the-first and The_First"):
        Methods(options)


def test_a_plug_in_does_not_replace_another(monkeypatch: Patch, caplog: Caplog) -> None:
    here = f"{__name__}:First"
    install(monkeypatch, balancers={"mine": here, "Mine": f"{__name__}:RoundRobin"})
    methods = Methods(ChoiceOptions())
    assert type(methods.make_balancer("mine")).__name__ == "First"
    (record,) = caplog.records
    assert record.getMessage() == (
        f"the method 'Mine' of {__name__}:RoundRobin is left out: {here} has one of that name"
    )


def test_methods_of_ones_own() -> None:
    options = ChoiceOptions(
        method="the-first",
        balancers={"The-First": First, "round_robin": Random},
        shard_methods={"mine": Hidden},
    )
    methods = Methods(options)
    assert methods.balancer == "thefirst"
    assert type(methods.make_balancer("thefirst")) is First
    assert type(methods.make_balancer("roundrobin")) is Random
    assert type(methods.make_sharding("mine")) is Hidden


def test_methods_of_installed_packages(monkeypatch: Patch) -> None:
    install(
        monkeypatch,
        balancers={"In-Turn": "onward.protocol.broker:RoundRobin", "any": "onward.nothing:Any"},
        shard_methods={"hop": "onward.protocol.broker:Jump"},
    )
    options = ChoiceOptions(balancers={"any": First})
    methods = Methods(options)
    assert type(methods.make_balancer("inturn")) is RoundRobin
    assert type(methods.make_balancer("any")) is First
    assert type(methods.make_sharding("hop")) is Jump


def test_a_plug_in_that_fails_to_load_spares_the_others(monkeypatch: Patch, caplog: Caplog) -> None:
    install(
        monkeypatch,
        balancers={"broken": "onward.nothing:Any", "good": "onward.protocol.broker:Random"},
    )
    with caplog.at_level(logging.ERROR, "onward.actors.broker"):
        methods = Methods(ChoiceOptions())
    assert not methods.knows_balancer("broken")
    assert methods.knows_balancer("good")
    assert "'broken'" in caplog.text


def test_the_groups() -> None:
    assert (BALANCER_GROUP, SHARD_GROUP) == ("onward.balancers", "onward.shard_methods")
