"""Nodes of a network of dispatchers that are broken on purpose."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final

from onward.protocol.dispatch import Network, Paths
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
        for each in self._neighbours.values():
            each.hello.missed_at = None if each.hello.missed_at is None else now + 9
        return super().due(now)


class NoticesNoLoss(Network):
    """Keeps a neighbour with a link that is lost."""

    def neighbour_lost(self, link: Hashable, now: float) -> None:
        if link in self._neighbours:
            self._neighbours[link].hello.missed_at = None


class TellsNoRemovals(Network):
    """Does not tell that the last consumer of a name has gone."""

    def names_changed(self, added: Mapping[str, str], removed: Iterable[str], now: float) -> None:
        super().names_changed(added, (), now)


class AppliesWhateverComes(Network):
    """Applies a change of names also if one before it is missing."""

    def _on_names_change(self, neighbour: Any, found: Any, now: float) -> None:
        known = self._names.others.get(found.node)
        if known is not None and known.instance == found.instance and found.names > known.number:
            known.number = found.names - 1
        super()._on_names_change(neighbour, found, now)


class PassesNothingOn(Network):
    """Advertises itself and no other node."""

    def _untell(self, node: str, but: Any = None) -> None:
        if node == self.own:
            super()._untell(node, but)

    def _untold_all(self, neighbour: Any) -> None:
        neighbour.untold[self.own] = None


class KeepsNamesForEver(Network):
    """Does not let go of the names of a node that cannot be reached."""

    def _let_go(self, now: float) -> None:
        self._unreachable.clear()


class AsksOnce(Network):
    """Waits for ever for an answer that was lost."""

    def _sweep(self, now: float) -> None:
        asked = dict(self._links_asked), dict(self._names_asked)
        super()._sweep(now)
        self._links_asked, self._names_asked = asked


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
)
"""Each is one mistake in a node."""


def catches(kind: type[Network], seed: int) -> bool:
    """Return whether a run shows that nodes are broken like this."""
    return bool(checked_run(seed, kind)[2])


def caught(job: tuple[int, int]) -> tuple[int, bool]:
    """Return that for a node of `BROKEN`, by its number, and a seed."""
    kind, seed = job
    return kind, catches(BROKEN[kind], seed)
