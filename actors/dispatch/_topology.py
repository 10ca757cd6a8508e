"""The network of dispatchers, driven over the links of a node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ...protocol import Address, Message, OnwardError, UnknownAddress
from ...protocol.dispatch import (
    MAX_COST,
    CostsDiffer,
    LaterFrames,
    NameClaimed,
    NameKind,
    NeighbourClosed,
    NeighbourJoined,
    NeighbourLeft,
    Network,
    NodesChanged,
    PathsChanged,
    Provision,
    ProvisionsTold,
    ToldName,
    check_node_name,
    encode_semantics,
)
from ...protocol.options import Count, check_value
from ...protocol.security import ANONYMOUS
from ._name_state import NameState
from ._schedule import Alarm

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["Topology"]

_logger: Final = logging.getLogger("onward.actors.dispatch")


class Topology:
    """The part of a dispatcher that drives a `Network`.

    Args:
        core: The dispatcher.
        network: The network.

    Attributes:
        network: The network.
        links: The links to neighbours, by their text.
    """

    def __init__(self, core: DispatchCore, network: Network) -> None:
        self._core: Final = core
        self.network: Final = network
        self.links: Final[dict[str, Address]] = {}
        self._texts: Final[dict[Address, str]] = {}  # of the same links
        self._link_of: Final = self._link_to  # one method for all names, and not one for each
        self._alarm: Final = Alarm(core.worker, self.drive)
        self._unwatch: Final[dict[str, tuple[Callable[[], None], ...]]] = {}
        # By link its cost, and the name that the neighbour must have.
        self._links: Final[dict[str, tuple[int, str]]] = {}
        self._warn_at = 0.0
        self._busy = False
        # Lost links that are brought up again once what was under way on them has ended.
        self._returning: Final[set[str]] = set()

    # --- links ------------------------------------------------------------------------------

    async def join(self, to: str | Address, cost: int | None, name: str) -> Address:
        """Join another dispatcher over a link; see `Dispatcher.neighbour`."""
        if name:
            check_node_name(name)
        node = self._core.node
        cost = self._core.options.cost if cost is None else cost
        check_value("cost", cost, Count)
        if cost > MAX_COST:
            raise ValueError(f"a cost is at most {MAX_COST}, not {cost}")
        if isinstance(to, Address):
            node.expose(to, self._core.address)
            link = to
        else:
            link = await node.connect(to, expose=[self._core.address])
        self.add_link(link, cost, name)
        return link

    def add_link(self, link: Address, cost: int, expected: str = "") -> None:
        """Add a link to a neighbour.

        Args:
            link: The link.
            cost: Its cost.
            expected: The name that the neighbour must have; empty for any.

        Raises:
            UnknownAddress: There is no such link.
        """
        key, node = str(link), self._core.node
        if key in self.links:
            if self._links[key] != (cost, expected):
                # Its peer was the first to say that it is one.
                self._links[key] = cost, expected
                self._broken(key)
            return
        ended = node.watch(link, lambda: self._lost(key))
        lost = node.parts.workers.watch_losses(link, lambda: self._broken(key))
        self._unwatch[key] = ended, lost
        self.links[key] = link
        self._texts[link] = key
        self._links[key] = cost, expected
        self.network.neighbour_up(key, cost, self._core.now(), expected)
        self.drive()

    def is_joined(self, message: Message) -> bool:
        """Whether a message has come from a neighbour: both ends have heard each other."""
        source = message.source
        return source is not None and self.network.is_joined(self.text_of(source))

    def text_of(self, link: Address) -> str:
        """Return a link as text: that of a neighbour is not made for each message."""
        return self._texts.get(link) or str(link)

    def receive(self, message: Message) -> None:
        """Read a frame of a neighbour; the first one of a link makes it one to a neighbour."""
        link = message.source
        if link is None:
            self._core.counts["frames of no link"] += 1
            return
        if str(link) not in self.links:
            if not self._may_join(link):
                return
            try:
                self.add_link(link, self._core.options.cost)
            except UnknownAddress:
                return
        self.network.receive(str(link), message.payload, self._core.now())
        self.drive()

    def _may_join(self, link: Address) -> bool:
        """Whether the peer of a link that it has made may be a neighbour."""
        roles = self._core.options.neighbour_roles
        principal = self._core.provisioning.principal_of(link) or ANONYMOUS
        if not roles or not principal.roles.isdisjoint(roles):
            return True
        self._core.counts["frames of peers that may not be neighbours"] += 1
        if self._core.now() >= self._warn_at:
            self._warn_at = self._core.now() + _WARN
            _logger.warning(
                "%s wants to be a neighbour, and has none of the roles for it",
                principal.name,
                extra={"event": "neighbour.refused"},
            )
        return False

    def _broken(self, key: str) -> None:
        """Receive the loss of a connection; the link may make another one."""
        if key not in self._returning:
            self._returning.add(key)
            self._end(key, lambda: self._up_again(key))

    def _up_again(self, key: str) -> None:
        self._returning.discard(key)
        link, known = self.links.get(key), self._links.get(key)
        if link is not None and known is not None and self._core.node.has(link):
            cost, expected = known
            self.network.neighbour_up(key, cost, self._core.now(), expected)
            self.drive()

    def _lost(self, key: str) -> None:
        for unwatch in self._unwatch.pop(key, ()):
            unwatch()
        link = self.links.pop(key, None)
        if link is not None:
            self._texts.pop(link, None)
        self._links.pop(key, None)
        self._end(key, None)

    def _end(self, key: str, then: Callable[[], object] | None) -> None:
        """End what is under way on a link: of names with something unsettled on it, in slices."""
        self.network.neighbour_lost(key, self._core.now())
        self._end_under_way(key, then)
        self.drive()

    def _end_under_way(self, key: str, then: Callable[[], object] | None) -> None:
        self._core.bundles.link_lost(key)
        self._core.circuits.link_lost(key)
        states = iter(self._core.copies.lost(key))
        self._core.slices.begin(states, lambda state: self._end_of(state, key), then)

    def _end_of(self, state: NameState, key: str) -> None:
        state.link_lost(key)
        self._core.names.tidy(state)

    def close(self) -> None:
        """Send the last hellos, and end the watches of links."""
        self._core.bundles.flush()
        for link, frame in self.network.stop():
            self._send(str(link), frame)
        for watches in self._unwatch.values():
            for unwatch in watches:
                unwatch()
        self._unwatch.clear()

    # --- driving ----------------------------------------------------------------------------

    def drive(self) -> None:
        """Send what is due, and act on what has happened."""
        if self._busy:
            return
        self._busy = True
        try:
            for _ in range(_ROUNDS):
                frames = self.network.due(self._core.now())
                events = self.network.events()
                for link, frame in frames:
                    self._send(str(link), frame)
                for event in events:
                    self._act(event)
                if not events:
                    break
        finally:
            self._busy = False
        self._alarm.set(self.network.get_timer())

    def _send(self, key: str, frame: bytes) -> None:
        link = self.links.get(key)
        if link is None:
            return
        try:
            self._core.worker.send((link, self._core.address), frame)
        except OnwardError as error:
            error.lost = None  # a later frame tells it again
            self._core.counts["frames that a link did not take"] += 1

    def _act(self, event: object) -> None:
        match event:
            case PathsChanged(paths):
                self._core.paths = paths
                # Also where no name has a state: one begins with the first message on a path.
                overlap = self._core.options.deliveries.path_overlap
                self._core.totals.paths.change(paths, self._core.now(), overlap)
                self._core.names.network_changed()
            case NodesChanged(names):
                self._core.names.network_changed(names)
            case ProvisionsTold(node, added, removed):
                self._core.provisioning.learn(node, added, removed)
            case NeighbourClosed(link, node, reason):
                self._close_link(str(link), node, reason)
            case NeighbourLeft(link, _, True):
                # The names know no way over the link then, until they are given the paths.
                self._end_under_way(str(link), self._core.names.network_changed)
            case NeighbourJoined(link):
                self._core.names.network_changed()
                address = self.links.get(str(link))
                if address is not None:
                    self._core.bundles.offer(address)
            case NeighbourLeft(link):
                self._core.bundles.link_lost(str(link))
                self._core.names.network_changed()
            case LaterFrames(link, version):
                _logger.warning(
                    "neighbour %s sends frames of version %d",
                    link,
                    version,
                    extra={"event": "neighbour.version"},
                )
            case NameClaimed(link):
                _logger.warning(
                    "another node of the network may have the name of this one",
                    extra={"event": "neighbour.claim"},
                )
                self._core.counts["claims of the name of this node"] += 1
                del link
            case CostsDiffer(node, own, theirs):
                _logger.warning(
                    "the link to %s costs %d here and %d there",
                    node,
                    own,
                    theirs,
                    extra={"event": "neighbour.cost"},
                )
            case _:
                raise AssertionError(f"unexpected event {event}")

    def _close_link(self, key: str, node: str, reason: str) -> None:
        _logger.warning(
            "link %s to neighbour %r is closed: %s",
            key,
            node,
            reason,
            extra={"event": "neighbour.closed"},
        )
        self._core.counts["neighbours that were closed"] += 1
        link = self.links.get(key)
        self._lost(key)
        cell = None if link is None else self._core.node.parts.table.cell_at(link)
        if cell is not None:
            cell.worker.stop()

    # --- names ------------------------------------------------------------------------------

    def joined(self, state: NameState) -> None:
        """Give a name the paths and the nodes of the network, as they are now."""
        state.set_paths(self._core.paths, self._link_of)
        state.set_nodes(self._core.names.nodes(state.name, self._claims(state.name.text)))

    def _claims(self, text: str) -> dict[str, int]:
        return {node: told.since for node, told in self.network.nodes_of(text).items()}

    def _link_to(self, node: str) -> str | None:
        link = self.network.link_to(node)
        return link if isinstance(link, str) else None

    def announce(self, state: NameState, claim: int | None) -> None:
        """Announce that there are consumers of a name here, or none any more."""
        if state.name.kind is not NameKind.MOBILE:
            return
        text, now = state.name.text, self._core.now()
        if claim is None:
            self.network.names_changed({}, [text], now)
        else:
            told = _told(state.semantics.hint, claim)
            self.network.names_changed({text: told}, [], now)
        self._alarm.set(self.network.get_timer())

    def tell_provisions(self, added: Iterable[Provision], removed: Iterable[Provision]) -> None:
        """Announce to other nodes the provisions of this one that are new or gone."""
        new = {each.told_pattern: encode_semantics(each.semantics) for each in added}
        told = {text: semantics for text, semantics in new.items() if text is not None}
        gone = [each.told_pattern for each in removed]
        now = self._core.now()
        self.network.provisions_changed(told, [each for each in gone if each is not None], now)
        self._alarm.set(self.network.get_timer())


@lru_cache(64)
def _told(hint: int, claim: int) -> ToldName:
    """Return what is told of a name, which is the same for most of them."""
    return ToldName(hint, claim)


_WARN: Final = 60.0
"""Time between two warnings of peers that may not be neighbours, in seconds."""

_ROUNDS: Final = 8
"""Passes over what is due in one turn; what is then left waits for the next one."""
