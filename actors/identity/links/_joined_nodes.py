"""The nodes that a program has joined: one without a link is dialled by other ways.

A link that this node has dialled is dialled again by `Peers`, at its own address. Where that fails
for a while, the advert of the node is looked up, and its newer addresses are dialled. Where the
link was one of the other node, as both have joined each other and one link is enough, this end
dials the address that its program has named.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from ....protocol import Address
from ....protocol.identity import Identity
from ..._worker import Worker
from ...runtime._timer import Timer
from .._reminders import Reminders

if TYPE_CHECKING:
    from .._router import Router
    from ._dialling import Dialling
    from ._session import Session

__all__ = ["JoinedNodes"]

_MOST_JOINED: Final = 4096
"""Most nodes that are remembered as joined. Beyond: the one that was joined longest ago is dialled
by its own link alone."""
_CALL_AFTER: Final = 4.0
"""Time from the loss of a link until the node is dialled by other ways, in seconds: its own link
has failed twice by then. It doubles, up to a minute."""
_LONGEST: Final = 60.0
_ROOM_AFTER: Final = 1.0
"""Time until it is looked again whether there is a place to dial a node, in seconds. Those that
were dialled longest ago come first."""


class JoinedNodes:
    """The nodes that a program has joined.

    Args:
        router: The router.
        worker: Its worker, for timers.
        dialling: What dials them.
    """

    __slots__ = ("_calls", "_dialling", "_router", "_timer", "_to", "_worker")

    def __init__(self, router: Router, worker: Worker, dialling: Dialling) -> None:
        self._router: Final = router
        self._worker: Final = worker
        self._dialling: Final = dialling
        # What each was joined at, the one that was joined longest ago first.
        self._to: Final[OrderedDict[Identity, str | Address]] = OrderedDict()
        self._calls: Final = Reminders(_CALL_AFTER, _LONGEST)
        self._timer: Timer | None = None

    def __contains__(self, node: object) -> bool:
        return node in self._to

    def add(self, node: Identity, to: str | Address) -> None:
        """Add a node that is joined."""
        self._to[node] = to
        self._to.move_to_end(node)
        if len(self._to) > _MOST_JOINED:
            self._to.popitem(last=False)

    def way_to(self, node: Identity) -> tuple[str | Address, ...]:
        """Return what to dial before the addresses of its advert."""
        to = self._to.get(node)
        if to is None or self._router.peers.redials(node):
            return ()  # its own link is dialled again as it is
        if isinstance(to, Address) and not self._worker.node.has(to):
            return ()  # the link of the program has ended
        return (to,)

    def lost(self, session: Session) -> None:
        """Dial a node by other ways after a while, if its session has ended and none follows."""
        node = session.node
        if node in self._to:
            if not session.dialled or self._router.peers.redials(node):
                self._calls.add(node, self._router.loop_time())
                self._arm()
            else:
                self.forget(node)  # its link was ended here

    def is_lost(self, node: Identity) -> bool:
        """Whether a node is joined, and has no link for now."""
        return node in self._calls

    def forget(self, node: Identity) -> None:
        """Forget a node: it is not to be joined any more."""
        self._to.pop(node, None)
        self._calls.remove(node)

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due = self._calls.get_timer()
        if self._timer is None and due is not None:
            least = 0.0 if self._dialling.places else _ROOM_AFTER
            delay = max(least, due - self._router.loop_time())
            self._timer = self._worker.after(delay, self._late)

    def _late(self) -> None:
        self._timer = None
        for node in self._calls.take_due(self._router.loop_time(), self._dialling.places):
            if node in self._router.peers.sessions or node not in self._to:
                self._calls.remove(node)
            elif self._router.table.is_banned(node):
                self.forget(node)
            else:
                self._router.lookups.ask(node)
                self._dialling.dial(node)
        self._arm()
