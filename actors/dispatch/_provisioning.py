"""What names mean at a node, and what follows when that changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ...protocol import Address, Message
from ...protocol.dispatch import (
    Name,
    NamePattern,
    Network,
    Provision,
    Provisions,
    ProvisionsChange,
    Semantics,
    Share,
    read_provisions,
)
from ...protocol.security import ANONYMOUS, Principal
from ._access import PrincipalOf, may_produce, restricts
from ._served import check_default, check_provision, check_told
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
        self._guarded = False
        self._follow_access()

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
        read = read_provisions(content, file, options.limits)
        for each in read.provisions:
            check_provision(each, options)
        default = read.default or options.default
        check_default(default, options)
        change = self.provisions.load(read.provisions, file)
        self.provisions.default = default
        self._changed((*change.added, *change.changed), change.withdrawn)
        return change

    def _made(self, pattern: str, semantics: Semantics) -> Provision:
        made = Provision(NamePattern.parse(pattern), semantics)
        check_provision(made, self._core.options)
        return made

    def _changed(self, added: Iterable[Provision], removed: Iterable[Provision] = ()) -> None:
        """Announce provisions of this node to others, and give each name its semantics."""
        self._core.topology.tell_provisions(added, removed)
        self.refresh()

    # --- what follows -----------------------------------------------------------------------

    def refresh(self) -> None:
        """Give each name the semantics that it has now."""
        self._follow_access()
        names = self._core.names
        for state in list(names.states.values()):
            state.update(effective(self.semantics_of(state.name)))
            self._core.attachments.check_access(state)
            names.tidy(state)
        self._core.circuits.check_access()
        if self.tags is not None:
            # Which destinations here consume is for this node to say, and for no other alone.
            own = {each.pattern.written: each.semantics.tags for each in self.provisions}
            self.tags.provisioned(
                each
                for each in self.provisions.deciding()
                if own.get(each.pattern.written) == each.semantics.tags
            )
        self._core.restore()

    def _follow_access(self) -> None:
        """Check roles if a name has any, which costs each message a look-up."""
        provisions = self.provisions
        deciding = (each.semantics for each in (*provisions, *provisions.deciding()))
        self._guarded = any(map(restricts, (provisions.default, *deciding)))

    def allows(self, name: Name, message: Message) -> bool:
        """Whether the sender of a message may send to a name."""
        source = message.source
        if not self._guarded or source is None or self._core.node.parts.table.is_inside(source):
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
