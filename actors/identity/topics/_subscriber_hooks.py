"""What is called for subscribers of topics."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from ....protocol.identity import Identity, ResultCode

__all__ = ["HookTable", "SubscriberHooks"]

T = TypeVar("T")

_logger = logging.getLogger("onward.actors.identity")


@dataclass(frozen=True, slots=True)
class SubscriberHooks:
    """The functions that are called for a subscriber of a topic.

    All of them are called on the node's loop, and their exceptions are logged.

    Attributes:
        on_lost: Receives the number of events that were missed for good; `None` as the number if
            that is not known, as the node that publishes has started anew.
        on_end: Receives the reason when the topic is gone, as its last call.
    """

    on_lost: Callable[[int | None], object] | None = None
    on_end: Callable[[ResultCode], object] | None = None


_NO_HOOKS: Final = SubscriberHooks()


class HookTable:
    """The hooks of the subscribers of a node, by their engines and topics."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        # By the engine, then by the topic: as many as there are subscriptions.
        self._of: Final[dict[Identity, dict[Identity, SubscriberHooks]]] = {}

    def add(self, engine: Identity, topic: Identity, hooks: SubscriberHooks) -> None:
        """Add what is called for a subscriber."""
        self._of.setdefault(engine, {})[topic] = hooks

    def remove(self, engine: Identity, topic: Identity) -> SubscriberHooks:
        """Remove what is called for a subscriber, and return it."""
        of_engine = self._of.get(engine, {})
        hooks = of_engine.pop(topic, _NO_HOOKS)
        if not of_engine:
            self.remove_engine(engine)
        return hooks

    def remove_engine(self, engine: Identity) -> None:
        """Remove all that is called for an engine."""
        self._of.pop(engine, None)

    def end(self, engines: Iterable[Identity], topic: Identity, reason: ResultCode) -> None:
        """Report the end of a topic to its subscribers."""
        for engine in engines:
            _call(self.remove(engine, topic).on_end, reason)

    def lose(self, engines: Iterable[Identity], topic: Identity, number: int | None) -> None:
        """Report a number of events that were missed for good to subscribers."""
        for engine in engines:
            _call(self._of.get(engine, {}).get(topic, _NO_HOOKS).on_lost, number)


def _call(hook: Callable[[T], object] | None, value: T) -> None:
    if hook is None:
        return
    try:
        hook(value)
    except Exception:
        _logger.exception(
            "what is called for a subscriber of a topic failed",
            extra={"event": "identity.subscriber_failed"},
        )
