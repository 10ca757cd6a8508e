"""The engines of a node: its workers that are reached by an identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import Address
from ...protocol.identity import Identity, SigningKey, derived_engine
from .._errors import LimitReached
from ._errors import EngineInUse

if TYPE_CHECKING:
    from .._node import Node

__all__ = ["Engine", "Engines"]


class Engine(NamedTuple):
    """A worker of this node that is reached by an identity.

    Attributes:
        identity: Its identity.
        address: The primary address of the worker.
        key: Its own key; `None`: its node signs for it.
    """

    identity: Identity
    address: Address
    key: SigningKey | None


class Engines:
    """The engines of a node, by identity and by worker.

    Args:
        node: The node.
        own: The identity of the node.
        limit: Most engines.
        on_end: Receives each engine that ends, with its worker or before.
    """

    def __init__(
        self, node: Node, own: Identity, limit: int, on_end: Callable[[Engine], object]
    ) -> None:
        self._node: Final = node
        self._own: Final = own
        self._limit: Final = limit
        self._on_end: Final = on_end
        self._by_identity: Final[dict[Identity, Engine]] = {}
        self._by_address: Final[dict[Address, Engine]] = {}
        self._unwatch: Final[dict[Address, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._by_identity)

    def __iter__(self) -> Iterator[Engine]:
        return iter(tuple(self._by_identity.values()))

    def add(self, worker: Address, key: SigningKey | None) -> Engine:
        """Make a worker an engine, until it ends.

        Args:
            worker: Its primary address.
            key: Its own key; `None`: its identity is derived of the node and this address.

        Raises:
            UnknownAddress: There is no such worker.
            EngineInUse: The worker is an engine, or another one has this key.
            LimitReached: There are as many engines as there may be.
        """
        if len(self) >= self._limit:
            raise LimitReached("engines", self._limit)
        identity = derived_engine(self._own, worker.value) if key is None else key.identity
        if worker in self._by_address or identity in self._by_identity or identity == self._own:
            raise EngineInUse(worker, identity)
        engine = Engine(identity, worker, key)
        self._unwatch[worker] = self._node.watch(worker, lambda: self.remove(worker))
        self._by_identity[identity] = engine
        self._by_address[worker] = engine
        return engine

    def remove(self, worker: Address) -> bool:
        """End an engine, without its worker; return whether there was one."""
        engine = self._by_address.pop(worker, None)
        if engine is None:
            return False
        del self._by_identity[engine.identity]
        self._unwatch.pop(worker)()
        self._on_end(engine)
        return True

    def of(self, identity: Identity) -> Engine | None:
        """Return the engine of an identity."""
        return self._by_identity.get(identity)

    def at(self, worker: Address) -> Engine | None:
        """Return the engine that a worker is."""
        return self._by_address.get(worker)

    def close(self) -> None:
        """End the watches of all workers."""
        for unwatch in self._unwatch.values():
            unwatch()
        self._unwatch.clear()
        self._by_address.clear()  # an end that is on its way is of no engine any more
        self._by_identity.clear()
