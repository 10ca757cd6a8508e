"""The links of a cluster that others have replaced."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from onward.actors.cluster._link_workers import ReplacedLinks


class Link:
    """A link with as many requests as are set."""

    def __init__(self, broker: int) -> None:
        self.info = SimpleNamespace(broker_id=bytes((broker,)))
        self.in_flight = 1
        self.closed: list[str] = []

    def close(self, reason: str, text: str) -> None:
        assert text
        self.closed.append(reason)


def test_there_is_one_for_each_peer_broker() -> None:
    timers: list[Callable[[], object]] = []
    replaced = ReplacedLinks(lambda _, action: timers.append(action))
    first, second, other = links = [Link(1), Link(1), Link(2)]
    for each in links:
        given: Any = each
        replaced.add(given, at_once=False)
    assert [each.closed for each in (first, second, other)] == [["duplicate"], [], []]
    gone: Any = first
    replaced.discard(gone)
    for action in timers[:]:
        action()
    assert [each.closed for each in links] == [["duplicate"], [], []]
    second.in_flight = 0
    for action in timers[3:]:
        action()
    assert [each.closed for each in links] == [["duplicate"], ["duplicate"], []]
    assert [*replaced] == [second, other]
