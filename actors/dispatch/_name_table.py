"""The names of a node that have a state: they are made when they are used, and forgotten after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ...protocol.dispatch import ALL_NODES, Name, NameKind, Share
from ._consumer_record import Accept, ConsumerRecord
from ._name_state import NameState
from ._stored import effective

if TYPE_CHECKING:
    from ._core import DispatchCore

__all__ = ["NameTable"]


class NameTable:
    """The states of the names of a node.

    Args:
        core: The dispatcher.

    Attributes:
        states: The states, by the text of the name.
    """

    def __init__(self, core: DispatchCore) -> None:
        self._core: Final = core
        self.states: Final[dict[str, NameState]] = {}
        # Names that do not know the network as it is now.
        self._late: dict[str, NameState] = {}

    @property
    def is_full(self) -> bool:
        """Whether there are `DispatchOptions.max_names`."""
        return len(self.states) >= self._core.options.max_names

    def network_changed(self, texts: Iterable[str] | None = None) -> None:
        """Give names the paths and the nodes of the network as they are now, in slices.

        Args:
            texts: The names; `None`: all.
        """
        self._core.fast.clear()
        under_way = bool(self._late)
        if texts is None:
            self._late = self.states.copy()
        else:
            states = self.states
            self._late.update((text, states[text]) for text in texts if text in states)
        if self._late and not under_way:
            self._core.slices.begin(self._taken(), self._catch_up)

    def _taken(self) -> Iterator[str]:
        while self._late:
            yield self._late.popitem()[0]

    def _catch_up(self, text: str) -> None:
        state = self.states.get(text)
        if state is not None:
            self._core.topology.joined(state)
            self.tidy(state)

    def find(self, name: Name, share: Share | None = None) -> NameState | None:
        """Return the state of a name, made if need be; `None` if there are too many.

        Args:
            name: The name.
            share: What the source has that uses it, which may have a part of
                `DispatchOptions.max_names`.
        """
        text = name.text
        if text in self._late:
            # It is used before its turn has come.
            del self._late[text]
            self._catch_up(text)
        if self._core.provisioning.late and (state := self.states.get(text)) is not None:
            self._core.provisioning.apply(state)
        return self.states.get(text) or self._make(name, share)

    def _make(self, name: Name, share: Share | None) -> NameState | None:
        core = self._core
        if self.is_full:
            core.counts["more than max_names"] += 1
            return None
        if share is not None:
            if not share.may_have("names", 1, core.options.max_names):
                core.counts["more names than the share of a source"] += 1
                return None
            share.count("names", 1)
        semantics = effective(core.provisioning.semantics_of(name))
        state = self.states[name.text] = NameState(core, name, semantics, share)
        if name.kind is NameKind.TOPOLOGICAL and name.node == ALL_NODES:
            self._add_own_copy(state)
        core.topology.joined(state)
        return state

    def _add_own_copy(self, state: NameState) -> None:
        """Make this node one of those that get a copy of what is sent to all nodes."""
        core = self._core
        record = ConsumerRecord(
            core.number(),
            (core.address,),
            core.options.max_names,
            Accept.REPLY,
            remote=False,
            ended=lambda _: None,
            state=state,
            local=Name(NameKind.LOCAL, state.name.local_text),
        )
        state.add_consumer(record)

    def tidy(self, state: NameState) -> None:
        """Forget the state of a name of which nothing is left."""
        if state.consumers and state.name.node != ALL_NODES:
            return
        text = state.name.text
        if text in self._core.watches:
            return
        if _is_idle(state) and self.states.get(text) is state:
            del self.states[text]
            self._core.fast.forget(state)
            self._core.schedule.forget(state)
            if state.share is not None:
                state.share.count("names", -1)

    def nodes(self, name: Name, told: Mapping[str, int]) -> Mapping[str, int]:
        """Return the other nodes with consumers of a name, with their claims."""
        if name.kind is NameKind.MOBILE:
            return told
        if name.kind is NameKind.LOCAL:
            return {}
        nodes = self._core.paths.nodes if name.node == ALL_NODES else (name.node,)
        return dict.fromkeys(nodes, 0)


def _is_idle(state: NameState) -> bool:
    name = state.name
    if name.kind in (NameKind.MOBILE, NameKind.LOCAL):
        return state.idle
    # The name itself says which nodes it is of, and those stay: nothing of it has to be kept.
    gone = name.node == ALL_NODES or not state.consumers
    return gone and not state.busy
