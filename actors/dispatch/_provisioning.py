"""What names mean at a node, and what follows when that changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ...protocol import Address, Message
from ...protocol.dispatch import (
    BadSemantics,
    Name,
    NamePattern,
    Network,
    PatternTable,
    Provision,
    Provisions,
    ProvisionsChange,
    Semantics,
    Share,
    Throttle,
)
from ...protocol.security import ANONYMOUS, Principal
from ._access import PrincipalOf, may_produce
from ._name_state import NameState
from ._schedule import Alarm
from ._served import check_provision, check_told, read_served
from ._stored import effective
from ._tag_consumers import TagConsumers

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["Provisioning"]


class Provisioning:
    """The provisions of a node, which follow those of other nodes.

    Args:
        core: The dispatcher.
        network: The network.
        principal_of: Returns the principal of the peer of a link; `None`: no peer has one.

    Attributes:
        provisions: The provisions, and those that other nodes have told of.
        tags: The consumers of names by tags; `None`: the node has no broker for them.
        late: Whether some names have not followed the provisions yet.
    """

    def __init__(
        self, core: DispatchCore, network: Network, principal_of: PrincipalOf | None
    ) -> None:
        self._core: Final = core
        self._principal_of: Final = principal_of
        options = core.options
        self.provisions: Final = Provisions(
            core.own,
            options.default,
            options.limits,
            network.nodes_of,
            lambda provision: check_told(provision, options),
        )
        self.tags: TagConsumers | None = None
        self.late = False
        self._tagged: Final[dict[NamePattern, Provision]] = {}
        # What names have not followed yet: changed patterns, or all names.
        self._patterns: dict[NamePattern, None] = {}
        self._all = False
        self._under_way = False
        limits = options.network
        self._pause: Final = Throttle(limits.pause, limits.longest_pause)
        self._alarm: Final = Alarm(core.worker, self._begin)

    def semantics_of(self, name: Name) -> Semantics:
        """Return the semantics of a name."""
        return self.provisions.semantics_of(name)

    # --- provisions of this node ------------------------------------------------------------

    def add(self, pattern: str, semantics: Semantics) -> None:
        """Provision a pattern."""
        self.provisions.add(made := self._made(pattern, semantics))
        self._changed([made])

    def replace(self, pattern: str, semantics: Semantics) -> None:
        """Give a pattern other semantics."""
        self.provisions.replace(made := self._made(pattern, semantics))
        self._changed([made])

    def withdraw(self, pattern: str) -> None:
        """Withdraw a provision."""
        gone = self.provisions.withdraw(NamePattern.parse(pattern))
        self._changed([], [gone])

    def load(self, content: str | bytes, file: str) -> ProvisionsChange:
        """Provision what a file has, in the place of all that was loaded from it before."""
        options = self._core.options
        read = read_served(content, file, options)
        self._check_tags(read.provisions)
        change = self.provisions.load(read.provisions, file)
        default = read.default or options.default
        self._all = self._all or self.provisions.default != default
        self.provisions.default = default
        self._changed((*change.added, *change.changed), change.withdrawn)
        return change

    def _made(self, pattern: str, semantics: Semantics) -> Provision:
        made = Provision(NamePattern.parse(pattern), semantics)
        check_provision(made, self._core.options)
        self._check_tags([made])
        return made

    def _check_tags(self, provisions: Iterable[Provision]) -> None:
        """Refuse names by tags without a broker: none of their messages would have a consumer."""
        tagged = [each.pattern for each in provisions if each.semantics.tags]
        if self.tags is None and tagged:
            raise BadSemantics(f"{pattern}: {_NO_BROKER}" for pattern in tagged)

    def _changed(self, added: Iterable[Provision], removed: Iterable[Provision] = ()) -> None:
        """Announce provisions of this node to others, and give each name its semantics."""
        added, removed = tuple(added), tuple(removed)
        self._core.topology.tell_provisions(added, removed)
        for each in (*removed, *added):
            self._tagged.pop(each.pattern, None)
            self._patterns[each.pattern] = None
        self._tagged.update((each.pattern, each) for each in added if each.semantics.tags)
        self.late = True
        self._core.fast.clear()
        if not self._under_way:
            self._begin()

    # --- those of other nodes ---------------------------------------------------------------

    def learn(self, node: str, added: Mapping[str, bytes], removed: Iterable[str]) -> None:
        """Keep what another node has provisioned; names follow after a pause that grows."""
        self.provisions.learn(node, added, removed)
        for text in (*added, *removed):
            self._patterns[NamePattern.parse(text)] = None
        if len(self._patterns) > _PATTERNS:
            self._patterns.clear()
            self._all = True
        self.late = True
        self._core.fast.clear()
        if not self._under_way:
            self._alarm.set(self._pause.next(self._core.now()))

    # --- what follows -----------------------------------------------------------------------

    def _begin(self) -> None:
        """Give each name that the changed patterns match its semantics, in slices."""
        if self._under_way or not self.late:
            return
        self._under_way = True
        patterns, self._patterns = self._patterns, {}
        every, self._all = self._all, False
        self._core.circuits.check_access()
        if self.tags is not None:
            # Which destinations here consume is for this node to say, and for no other.
            self.tags.provisioned(self._tagged.values())
        table = PatternTable[bool]()
        for pattern in patterns:
            table.add(pattern, True)

        def look_at(text: str) -> None:
            state = self._core.names.states.get(text)
            if state is not None and (every or table.find(text)):
                self.apply(state)

        self._core.slices.begin(iter(tuple(self._core.names.states)), look_at, self._applied)

    def _applied(self) -> None:
        self._under_way, self.late = False, self._all or bool(self._patterns)
        now = self._core.now()
        self._pause.used(now)
        if self.late:
            self._alarm.set(self._pause.next(now))
        self._core.restore()

    def apply(self, state: NameState) -> None:
        """Give a name the semantics that it has now, and detach what these refuse."""
        state.update(effective(self.semantics_of(state.name)))
        self._core.attachments.check_access(state)
        self._core.names.tidy(state)

    def allows(self, name: Name, message: Message) -> bool:
        """Whether the sender of a message may send to a name."""
        source = message.source
        if (
            not self.provisions.guarded
            or source is None
            or self._core.node.parts.table.is_inside(source)
        ):
            return True
        return may_produce(self.semantics_of(name), self.principal_of(source) or ANONYMOUS)

    def principal_of(self, link: Address) -> Principal | None:
        """Return the principal of the peer of a link; `None` if it is not authenticated."""
        return None if self._principal_of is None else self._principal_of(link)

    def share_of_sender(self, message: Message) -> Share | None:
        """Return what the sender of a message has at this node; `None`: it is of this node."""
        source = message.source
        if source is None or self._core.node.parts.table.is_inside(source):
            return None
        return self._core.share_of(self.principal_of(source), source)


_NO_BROKER: Final = (
    "tags need a broker at this node: Dispatcher.attach(node, broker=broker); "
    "elsewhere the name is known by the node with the broker"
)

_PATTERNS: Final = 1000
"""Changed patterns that names are matched with; beyond, all names are looked at."""
