"""Ends and containers of circuits that record what they are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onward.actors.dispatch import CircuitContainer, CircuitLink, Dispatcher
from onward.protocol.dispatch import (
    CircuitAttach,
    DetachKind,
    Mechanism,
    Reattach,
    Refusal,
    RoutingPattern,
    Semantics,
)

LINK = Semantics(mechanism=Mechanism.LINK)
AGAIN = Semantics(mechanism=Mechanism.LINK, reattach=Reattach.AGAIN)
RESUME = Semantics(mechanism=Mechanism.LINK, reattach=Reattach.RESUME)
DIRECT = Semantics(mechanism=Mechanism.LINK, pattern=RoutingPattern.DIRECT)


class KeptEnd:
    """An end that keeps what it is told.

    Attributes:
        told: The names of the calls, each with its values.
        link: What the end calls.
    """

    link: CircuitLink

    def __init__(self, react: Callable[[KeptEnd, str], object] | None = None) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._react = react or _nothing

    def named(self, name: str) -> list[tuple[Any, ...]]:
        """Return the values of the calls of a name."""
        return [each[1:] for each in self.told if each[0] == name]

    def last(self) -> tuple[Any, ...]:
        """Return the last call with its values."""
        return self.told[-1]

    def _tell(self, name: str, *values: Any) -> None:
        self.told.append((name, *values))
        self._react(self, name)

    def attached(self, properties: bytes) -> None:
        self._tell("attached", properties)

    def refused(self, condition: str, description: str) -> None:
        self._tell("refused", condition, description)

    def flow(self, credit: int, drain: bool) -> None:
        self._tell("flow", credit, drain)

    def drained(self, credit: int) -> None:
        self._tell("drained", credit)

    def transfer(
        self, tag: bytes, payload: bytes, more: bool, aborted: bool, settled: bool
    ) -> None:
        self._tell("transfer", tag, payload, more, aborted, settled)

    def disposition(self, tag: bytes, state: bytes, settled: bool) -> None:
        self._tell("disposition", tag, state, settled)

    def unresolved(self, tag: bytes) -> None:
        self._tell("unresolved", tag)

    def down(self, how: DetachKind, condition: str, description: str, again: bool) -> None:
        self._tell("down", how, condition, description, again)

    def ready(self) -> None:
        self._tell("ready")


class Served:
    """A container that keeps the ends that it accepts.

    Attributes:
        ends: The ends, in order.
        attaches: What was asked for.
        container: The container.
        ended: Why it has ended.
    """

    container: CircuitContainer

    def __init__(self, accept: Callable[[CircuitLink], object] | None = None) -> None:
        self.ends: list[KeptEnd] = []
        self.attaches: list[CircuitAttach] = []
        self.ended: list[Refusal] = []
        self._accept: Callable[[CircuitLink], object] = accept or (lambda link: link.accept(b"own"))

    def __call__(self, attach: CircuitAttach, link: CircuitLink) -> KeptEnd:
        end = KeptEnd()
        end.link = link
        self.ends.append(end)
        self.attaches.append(attach)
        self._accept(link)
        return end

    def serve(self, dispatcher: Dispatcher, name: str = "orders", **options: Any) -> Served:
        self.container = dispatcher.serve_circuits(
            name, self, ended=lambda error: self.ended.append(error.reason), **options
        )
        return self


def _nothing(_end: KeptEnd, _name: str) -> None:
    """Receive a call without any reaction."""


def opened(
    dispatcher: Dispatcher, name: str = "orders", *, producer: bool = True, **options: Any
) -> KeptEnd:
    """Return an end that has attached."""
    end = KeptEnd(options.pop("react", _nothing))
    end.link = dispatcher.open_circuit(name, end, producer=producer, **options)
    return end
