"""The methods by which a broker chooses destinations: the built-in ones, and plug-ins.

A plug-in is found by its name in an option, or as an entry point of the group
`onward.balancers` or `onward.shard_methods`. In names case, `-` and `_` do not matter. An option
has precedence over an entry point, and an entry point over a built-in method.
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
from .._options import ChoiceOptions

__all__ = ["Methods"]

_logger = logging.getLogger("onward.actors.broker")

BALANCER_GROUP: Final = "onward.balancers"
SHARD_GROUP: Final = "onward.shard_methods"

Method = TypeVar("Method", Balancer, Sharding)


class Methods:
    """The methods of one broker, by the normal form of their names.

    Args:
        options: The broker's options.

    Raises:
        ValueError: A method of the options is unknown, or given twice.

    Attributes:
        balancer: The default method of unicast.
        sharding: The default method of shard.
    """

    def __init__(self, options: ChoiceOptions) -> None:
        self._balancers = _known(BALANCERS, BALANCER_GROUP, options.balancers)
        self._shardings = _known(SHARD_METHODS, SHARD_GROUP, options.shard_methods)
        self.balancer: Final = method_name(options.method)
        self.sharding: Final = method_name(options.shard_method)
        _expect("method", options.method, self.balancer, self._balancers)
        _expect("shard_method", options.shard_method, self.sharding, self._shardings)

    def knows_balancer(self, name: str) -> bool:
        """Whether there is a unicast method of that name."""
        return name in self._balancers

    def knows_sharding(self, name: str) -> bool:
        """Whether there is a shard method of that name."""
        return name in self._shardings

    def make_balancer(self, name: str) -> Balancer:
        """Make an instance of a unicast method, with its own state."""
        return self._balancers[name]()

    def make_sharding(self, name: str) -> Sharding:
        """Make an instance of a shard method."""
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
            _logger.error(
                text, entry.name, entry.value, plugged[name], extra={"event": "method.ambiguous"}
            )
            continue
        try:
            loaded: Any = entry.load()
        except Exception:
            # A broken plug-in must not disable the others.
            _logger.exception(
                "the method %r cannot be loaded", entry.name, extra={"event": "method.load_failed"}
            )
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
