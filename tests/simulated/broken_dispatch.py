"""Nodes of a network of dispatchers that are broken on purpose."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from onward.protocol.dispatch import (
    Asks,
    Knowledge,
    ListChange,
    ListKind,
    ListPart,
    Neighbour,
    Network,
    Paths,
    ToldName,
)
from tests.simulated.dispatch_network import checked_run


class LastNames(Paths):
    """Paths of which the last names win, where several cost the same."""

    def next_hop(self, node: str) -> str | None:
        total = self.cost(node)
        if not total:
            return None
        links = self.graph.links[self.graph.numbers[self.own]]
        return max(
            peer
            for number, cost in links
            if (rest := Paths(self.graph, peer := self.graph.names[number]).cost(node)) is not None
            and rest + cost == total
        )


class PassesAll(Paths):
    """Paths of which each is said to pass here."""

    def passes(self, ingress: str, node: str) -> bool:
        return self.cost(node) is not None


class _OtherPaths(Network):
    kind: type[Paths] = Paths

    def events(self) -> list[Any]:
        found = super().events()
        if type(self.snapshot) is not self.kind:
            self.snapshot = self.kind(self.snapshot.graph, self.own, self.snapshot.epoch)
        return found


class ChoosesOtherTies(_OtherPaths):
    """Breaks ties in another way than its neighbours, if it is one of a few."""

    def __init__(self, own: str, *given: Any) -> None:
        self.kind = LastNames if ord(own[-1]) % 2 else Paths
        super().__init__(own, *given)


class SendsToAllNodes(_OtherPaths):
    """Forwards a multicast also on paths that do not pass here."""

    kind = PassesAll


class NoticesNoSilence(Network):
    """Waits for a hello as long as there is the link."""

    def due(self, now: float) -> list[tuple[Hashable, bytes]]:
        for each in self._neighbours.links.values():
            each.hello.missed_at = None if each.hello.missed_at is None else now + 9
        return super().due(now)


class NoticesNoLoss(Network):
    """Keeps a neighbour with a link that is lost."""

    def neighbour_lost(self, link: Hashable, now: float) -> None:
        if link in self._neighbours.links:
            self._neighbours.links[link].hello.missed_at = None


class TellsNoRemovals(Network):
    """Does not tell that the last consumer of a name has gone."""

    def names_changed(
        self, added: Mapping[str, ToldName], removed: Iterable[str], now: float
    ) -> None:
        super().names_changed(added, (), now)


class _KnowsOtherwise(Network):
    """A node with another knowledge."""

    kind: type[Knowledge] = Knowledge

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._knowledge.__class__ = self.kind


class _Gaps(Knowledge):
    def on_list_change(self, neighbour: Neighbour, found: ListChange, now: float) -> None:
        known = self.names.others.get(found.node)
        if found.kind is ListKind.NAMES and known and known.instance == found.instance:
            known.number = max(known.number, found.number - 1)
        super().on_list_change(neighbour, found, now)


class AppliesWhateverComes(_KnowsOtherwise):
    """Applies a change of names also if one before it is missing."""

    kind = _Gaps


class _NoRelay(Knowledge):
    def untell(self, node: str, but: Neighbour | None = None) -> None:
        if node == self._own:
            super().untell(node, but)

    def untell_all(self, neighbour: Neighbour) -> None:
        neighbour.untold[self._own] = None


class PassesNothingOn(_KnowsOtherwise):
    """Advertises itself and no other node."""

    kind = _NoRelay


class _ForEver(Knowledge):
    def let_go(self, now: float) -> None:
        self.unreachable.clear()


class KeepsNamesForEver(_KnowsOtherwise):
    """Does not let go of the names of a node that cannot be reached."""

    kind = _ForEver


class _Patient(Asks):
    def expire(self, now: float) -> int:
        return 0


class _NoEnd(Knowledge):
    def sweep(self, now: float) -> None:
        for asks in (self._link_asks, *self._list_asks.values()):
            asks.__class__ = _Patient
        super().sweep(now)


class AsksOnce(_KnowsOtherwise):
    """Waits for ever for an answer that was lost."""

    kind = _NoEnd


class _Provided(Knowledge):
    def on_list_part(self, neighbour: Neighbour, found: ListPart, now: float) -> None:
        if found.kind is ListKind.PROVISIONS:
            found = replace(found, held={})
        super().on_list_part(neighbour, found, now)


class ForgetsProvisions(_KnowsOtherwise):
    """Takes no provision of a node that it has come to know later."""

    kind = _Provided


BROKEN: Final[tuple[type[Network], ...]] = (
    ChoosesOtherTies,
    SendsToAllNodes,
    NoticesNoSilence,
    NoticesNoLoss,
    TellsNoRemovals,
    AppliesWhateverComes,
    PassesNothingOn,
    KeepsNamesForEver,
    AsksOnce,
    ForgetsProvisions,
)
"""Each is one mistake in a node."""


def catches(kind: type[Network], seed: int) -> bool:
    """Return whether a run shows that nodes are broken like this."""
    return bool(checked_run(seed, kind)[2])


def caught(job: tuple[int, int]) -> tuple[int, bool]:
    """Return that for a node of `BROKEN`, by its number, and a seed."""
    kind, seed = job
    return kind, catches(BROKEN[kind], seed)
