"""The methods by which a broker chooses: the built-in ones, and plug-ins.

A plug-in is found by its name in an option, or as an entry point of the group
`onward.balancers` or `onward.shard_methods`. In names case, `-` and `_` do not matter. An option
goes before an entry point, and that before what is built in.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any, Final, TypeVar

from ....protocol.broker import (
    BALANCERS,
    SHARD_METHODS,
    Balancer,
    Sharding,
    method_name,
    written_method,
)
from .._options import BrokerOptions

__all__ = ["Methods"]

_logger = logging.getLogger("onward.actors.broker")

BALANCER_GROUP: Final = "onward.balancers"
SHARD_GROUP: Final = "onward.shard_methods"

Method = TypeVar("Method", Balancer, Sharding)


class Methods:
    """The methods that one broker knows, by the normal form of their names.

    Args:
        options: Its options.

    Raises:
        ValueError: A method of the options is unknown, or given twice.

    Attributes:
        balancer: The name of the method of unicast where a request says none.
        sharding: The name of the method of sharding where a request says none.
    """

    def __init__(self, options: BrokerOptions) -> None:
        self._balancers = _known(BALANCERS, BALANCER_GROUP, options.balancers)
        self._shardings = _known(SHARD_METHODS, SHARD_GROUP, options.shard_methods)
        self.balancer: Final = method_name(options.method)
        self.sharding: Final = method_name(options.shard_method)
        _expect("method", options.method, self.balancer, self._balancers)
        _expect("shard_method", options.shard_method, self.sharding, self._shardings)

    def knows_balancer(self, name: str) -> bool:
        """Say whether there is a method of unicast of that name."""
        return name in self._balancers

    def knows_sharding(self, name: str) -> bool:
        """Say whether there is a method of sharding of that name."""
        return name in self._shardings

    def make_balancer(self, name: str) -> Balancer:
        """Make a method of unicast, with a state of its own."""
        return self._balancers[name]()

    def make_sharding(self, name: str) -> Sharding:
        """Make a method of sharding."""
        return self._shardings[name]()


def _known(
    built_in: Mapping[str, Callable[[], Method]],
    group: str,
    given: Mapping[str, Callable[[], Method]],
) -> dict[str, Callable[[], Method]]:
    known = dict(built_in)
    plugged: dict[str, str] = {}
    for entry in entry_points(group=group):
        name = method_name(entry.name)
        if name in plugged:
            text = "the method %r of %s is left out: %s has one of that name"
            _logger.error(text, entry.name, entry.value, plugged[name])
            continue
        try:
            loaded: Any = entry.load()
        except Exception:
            # One broken plug-in must not take the others with it.
            _logger.exception("the method %r cannot be loaded", entry.name)
        else:
            known[name] = loaded
            plugged[name] = entry.value
    names = Counter(map(method_name, given))
    if twice := [name for name in given if names[method_name(name)] > 1]:
        raise ValueError(f"a method is given twice: {' and '.join(twice)}")
    known.update((method_name(name), made) for name, made in given.items())
    return known


def _expect(option: str, given: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise ValueError(
            f"{option}: {given!r} is none of {', '.join(sorted(map(written_method, known)))}"
        )
