"""The ids of messages to nodes that there is no link to: they are reached over relays.

A node that was started a moment ago accepts those ids alone that have a time more than `MAX_SKEW`
after its start, and at most `MAX_SKEW` from now. Over a link it says when that was. Over relays its
advert does: the time of it is by the clock of the node, and not before the start. So ids begin
above the one that the advert says, and again when there is another advert. They begin the later,
the older the advert is, as a sender that is started again would else take those that it has taken
before. It is late by a part of that age alone, as the clock of the sender may be ahead.

Nothing says that a node which is reached so was started again, or that an engine has moved, until
an answer does not come. So what is known of them is looked up again from time to time while
messages are sent there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ....protocol.identity import (
    MAX_SKEW,
    Destination,
    Identity,
    MessageIds,
    NodeAdvert,
    read_advert,
)

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["ReachedNodes"]


class ReachedNodes:
    """The nodes that messages were sent to over relays.

    Args:
        router: The router.
        limit: Most nodes. Beyond: the one that was sent to longest ago is forgotten; ids for it
            then begin anew.
    """

    __slots__ = ("_limit", "_nodes", "_router")

    def __init__(self, router: Router, limit: int) -> None:
        self._router: Final = router
        self._limit: Final = limit
        self._nodes: Final[OrderedDict[Identity, _Reached]] = OrderedDict()

    def take_id(self, node: Identity, own: Identity, to: Destination, above: int) -> int:
        """Take the id of a message to a node, or to an engine at it.

        Args:
            node: The node.
            own: The identity that the message is of.
            to: What it is for.
            above: The time that ids for the node began with by its last greeting; 0 without one.
        """
        reached, created = self._reached(node), self.created(node)
        if reached.created != created or not reached.begins:
            # Above all ids before: their times are that of the advert before, or earlier. They are
            # not if its clock was set back meanwhile, and would be of a time to come there.
            was_set_back = 0 < created < reached.created
            before = 0 if was_set_back else max(reached.begins, above)
            now = self._router.milliseconds()
            from_start = created + MAX_SKEW + max(0, now - created) // _PART
            reached.begins = max(now + MAX_SKEW // 2, from_start, before + 1 if before else 0)
            blind = self._nodes.get(to.identity)
            if blind is not None and blind is not reached and blind.begins == reached.begins:
                reached.begins += 1  # others may be under way with these
            reached.created, reached.ids = created, MessageIds()
        return reached.ids.take(own, to, reached.begins)

    def take_blind_id(
        self, own: Identity, to: Destination, is_linked: Callable[[int], bool] = lambda _: False
    ) -> int:
        """Take the id of a message to a destination of which the node is not looked for.

        Its node may be started again unheard of, so that it takes no ids of before: they begin
        anew once in a while.

        Args:
            own: The identity that the message is of.
            to: What it is for.
            is_linked: Whether ids over a link have a time, as its node may be at the end of one.
        """
        reached, from_now = self._reached(to.identity), self._router.milliseconds() + MAX_SKEW // 2
        if from_now - reached.begins >= _BEGIN_ANEW:
            while is_linked(from_now) or any(
                each.begins == from_now for each in self._nodes.values()
            ):
                from_now += 1  # ids to its node may begin with that
            reached.begins, reached.ids = from_now, MessageIds()
        return reached.ids.take(own, to, reached.begins)

    def begins(self, identity: Identity) -> int:
        """Return the time that ids for an identity begin with, if it is not reached over a link."""
        reached = self._nodes.get(identity)
        return 0 if reached is None else reached.begins

    def adopt(self, node: Identity, started: int, now: int) -> MessageIds | None:
        """Return the ids for a node that has now greeted; `None` if they are of an earlier start.

        They go on over the link, as others may begin with the same time.

        Args:
            node: The node.
            started: When it was started, in Unix milliseconds of its own.
            now: The time there. What is of a later one was before its clock was set back.
        """
        reached = self._nodes.get(node)
        if reached is None or not started <= reached.created <= now:
            return None
        return reached.ids

    def forget_all(self) -> None:
        """Forget all nodes, as ids for them are of a time to come: they begin anew."""
        self._nodes.clear()

    def look_again(self, node: Identity, to: Destination) -> None:
        """Look up what is known of a node that is sent to, if that is a while ago."""
        reached, now = self._reached(node), self._router.loop_time()
        if now - reached.asked >= _ASK_AGAIN:
            reached.asked = now
            for identity in dict.fromkeys((node, to.identity)):
                self._router.lookups.ask(identity)

    def _reached(self, node: Identity) -> _Reached:
        reached = self._nodes.get(node)
        if reached is None:
            reached = self._nodes[node] = _Reached(self._router.loop_time())
            if len(self._nodes) > self._limit:
                self._nodes.popitem(last=False)
        self._nodes.move_to_end(node)
        return reached

    def created(self, node: Identity) -> int:
        """Return the time of the advert of a node, in Unix milliseconds; 0 without an advert."""
        record = self._router.directory.peek(node)
        if record is None or record.advert is None:
            return 0
        advert = read_advert(record.advert).advert
        return advert.created if isinstance(advert, NodeAdvert) else 0


class _Reached:
    """A node that is reached over relays.

    Attributes:
        created: The time of its advert, in Unix milliseconds.
        begins: The time that ids begin with; 0 before the first.
        ids: The ids.
        asked: When its advert was asked for last, in seconds of the loop.
    """

    __slots__ = ("asked", "begins", "created", "ids")

    def __init__(self, now: float) -> None:
        self.created = 0
        self.begins = 0
        self.ids = MessageIds()
        self.asked = now


_BEGIN_ANEW: Final = 30_000
"""Time after which ids for a node that is not looked for begin anew, in milliseconds: as long, a
node that was started again may refuse what is sent to it so."""
_PART: Final = 16
"""The part of the age of an advert by which ids for its node begin later: a sixteenth, so those of
a sender that is started again differ once it was away for 16 milliseconds, and those of one of
which the clock is ahead by 15 times the age are accepted yet."""
_ASK_AGAIN: Final = 10.0
"""Least time between two look-ups of a node that messages are sent to over relays, in seconds."""
