"""The topics of other nodes that engines of this node are subscribed to, or want to be.

A topic is found by its advert: its first publisher is an engine, which is at a node, or the node
itself. Other nodes are asked for what is missing, and a node without a link is dialled if it may
be; both again and again, with a time between that doubles, up to the patience of a subscription.

A node that publishes and says that it has no such topic may have been started anew, and create it
soon. It is asked again for a minute, which `SubscriptionLimits.absence` says; then the topic ends
here as `UNKNOWN`. A topic that its node says is deleted ends at once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ....protocol.identity import (
    DeliverEvent,
    Destination,
    DestinationKind,
    Event,
    EventsLost,
    Identity,
    LookUp,
    PublisherRestarted,
    RefusalReason,
    Refuse,
    ResultCode,
    SendTopicRecord,
    SubscriptionAction,
    SubscriptionState,
    ToPeer,
    TopicAdvert,
    TopicProgress,
    TopicSubscribed,
    TopicUnsubscribed,
    short_text,
)
from ..._worker import Worker
from ...runtime._timer import Timer
from .._engines import Engine
from .._reminders import Reminders
from ._places import TopicPlaces
from ._publications import tell_record
from ._subscriptions import (
    PATIENCE,
    FollowedTopics,
    Following,
    FollowingEvents,
    WaitingSubscription,
    WaitingSubscriptions,
)

if TYPE_CHECKING:
    from .._router import Router

__all__ = ["Followings"]

_logger = logging.getLogger("onward.actors.identity")

_MOST_SOUGHT: Final = 1024
"""Most topics that messages wait for. Beyond: the one that was wanted longest ago is looked for no
more, and its messages wait for their time."""
_SEARCH_AGAIN: Final = 1.0
"""Time until a topic that subscriptions wait for is looked for again, in seconds. It doubles."""
_CALL_AGAIN: Final = 2.0
"""Time until a node that has no link any more is dialled for its topics, in seconds: one that is
joined is back before. It doubles."""
_LONGEST: Final = 60.0
"""The longest time until the same is tried again, in seconds."""
_MOST_ASKED: Final = 64
"""Most topics that a node which joins is asked for. Others wait until they are told."""
_SOON: Final = 0.05
"""Time from a change of what is known until it is looked at, in seconds: once for many changes."""
_REFUSALS: Final = {
    RefusalReason.SCOPE: ResultCode.SCOPE,
    RefusalReason.BANNED: ResultCode.DENIED,
}


class Followings:
    """The topics of other nodes. All of it on the node's loop.

    Args:
        router: The router.
        worker: Its worker.
        events: Receives what happens.

    Attributes:
        topics: The topics that are followed, or asked for.
        places: Where topics are.
        waiting: The subscriptions that wait.
    """

    def __init__(self, router: Router, worker: Worker, events: FollowingEvents) -> None:
        self._router: Final = router
        self.places: Final = TopicPlaces(router)
        self._worker: Final = worker
        self._events: Final = events
        self.topics: Final = FollowedTopics()
        self.waiting: Final = WaitingSubscriptions()
        # The topics that subscriptions wait for, and the nodes of topics that have no link.
        self._searches: Final = Reminders(_SEARCH_AGAIN, _LONGEST)
        self._calls: Final = Reminders(_CALL_AGAIN, _LONGEST)
        # The topics that messages wait for.
        self._sought: Final[dict[Identity, None]] = {}
        self._look_at: float | None = None
        self._timer: Timer | None = None
        self._due = 0.0

    # --- to find a topic ----------------------------------------------------------------------

    def learn(self, topic: Identity) -> tuple[Identity, TopicAdvert] | None:
        """Learn the node of a topic by the directory; `None` if it is not known."""
        found = self.places.learn(topic)
        if self.places.is_full:
            self.known()  # what is of no use any more is forgotten then
        return found

    def seek(self, topic: Identity) -> None:
        """Look for a topic that messages wait for, as more becomes known."""
        if topic not in self._sought:
            self._router.lookups.ask(topic)
        self._sought.pop(topic, None)
        self._sought[topic] = None
        if len(self._sought) > _MOST_SOUGHT:
            del self._sought[next(iter(self._sought))]

    def known(self, identity: Identity | None = None) -> None:
        """Receive word that more is known, of an identity or of any."""
        if identity is not None and identity not in self.places.watched:
            return
        if self._look_at is None and (self.topics or self.waiting or self._sought):
            self._look_at = self._router.loop_time() + _SOON
            self._arm(self._look_at)

    def _look(self) -> None:
        """Go on with all that waits for what is known now."""
        self._look_at = None
        self.places.watched.clear()
        for topic in tuple(self._sought):
            if self.learn(topic) is not None:
                del self._sought[topic]
                self._router.awaited.found(topic)
        for following in self.topics:
            found = self.learn(following.topic)
            if found is not None and found != (following.node, following.advert):
                self._move(following, *found)
        for topic in self.waiting:
            self._begin(topic)

    # --- to subscribe -------------------------------------------------------------------------

    def ask(self, topic: Identity, waiting: WaitingSubscription) -> None:
        """Subscribe an engine to a topic of another node, once it is found."""
        code = self.waiting.add(topic, waiting)
        if code is not ResultCode.OK:
            waiting.done(code)
            return
        if len(self.waiting.of(topic)) == 1:
            self._searches.remove(topic)  # it may be one of before
        self._arm(self._searches.add(topic, self._router.loop_time()))
        self._search(topic)
        self._arm(waiting.until)

    def patience(self) -> float:
        """Return until when a subscription that is made now waits, in seconds of the loop."""
        return self._router.loop_time() + PATIENCE

    def _search(self, topic: Identity) -> None:
        """Look for a topic that subscriptions wait for, and for its node."""
        if topic not in self.waiting or topic in self.topics:
            self._searches.remove(topic)
            return
        if self.learn(topic) is None:
            self._router.lookups.ask(topic)
        self._begin(topic)

    def _begin(self, topic: Identity) -> None:
        """Ask the node of a topic, if it is known and there is a link to it, or dial it."""
        if topic in self.topics or topic not in self.waiting:
            return
        router = self._router
        if router.table.is_banned(topic):
            self.waiting.settle(topic, lambda _: ResultCode.DENIED)
            return
        found = self.learn(topic)
        if found is None:
            return
        destination = Destination(DestinationKind.TOPIC, topic)
        linked = False
        wanted: dict[Identity, None] = {}
        refused: dict[int, ResultCode] = {}
        for each in self.waiting.of(topic):
            match router.decide(destination, each.scope, each.engine.identity):
                case Refuse(reason):
                    refused[id(each)] = _REFUSALS.get(reason, ResultCode.UNKNOWN)
                case ToPeer(_, int()):
                    linked = True
                case ToPeer(node):
                    wanted[node] = None
                case LookUp(missing):
                    wanted[missing.identity] = None
                case _:
                    pass
        if refused:
            self.waiting.settle(topic, lambda each: refused.get(id(each)))
        for identity in wanted:
            router.awaited.want(identity)
        if linked:
            self._follow(topic, *found)

    def _follow(self, topic: Identity, node: Identity, advert: TopicAdvert) -> None:
        following = Following(topic, node, advert)
        self.topics.add(following)
        self._run(following, following.subscription.join(self._router.loop_time()))

    def engine_ended(self, engine: Engine) -> None:
        """End the subscriptions of an engine that wait."""
        for topic in self.waiting:
            self.cancel(topic, engine)

    def cancel(self, topic: Identity, engine: Engine) -> None:
        """End the subscription of an engine that waits for a topic, as `DENIED`."""
        self.waiting.settle(
            topic, lambda each: ResultCode.DENIED if each.engine is engine else None
        )
        self._leave_unwanted(topic)

    # --- what the node of a topic sends -------------------------------------------------------

    def receive(
        self, node: Identity, record: TopicSubscribed | TopicUnsubscribed | TopicProgress
    ) -> None:
        """Receive a record of the node of a topic."""
        following = self.topics.find_at(node, record.topic)
        if following is None:
            self._router.counts["records of topics that are not followed there"] += 1
            return
        actions = following.subscription.receive(record, self._router.loop_time())
        self._take(following)
        self._run(following, actions)

    def receive_event(self, node: Identity, event: Event) -> None:
        """Receive an event of which the signature has been verified."""
        following = self.topics.find_at(node, event.topic)
        if following is None:
            self._router.counts["records of topics that are not followed there"] += 1
            return
        subscription = following.subscription
        self._run(following, subscription.receive_event(event, self._router.loop_time()))

    def _take(self, following: Following) -> None:
        """Subscribe what waits, once the node has taken the subscription of this one."""
        if following.is_taken or following.subscription.state is not SubscriptionState.FOLLOWING:
            return
        following.is_taken = True
        if not self._events.taken(following, self.waiting.take(following.topic)):
            self.leave(following.topic)

    def _run(self, following: Following, actions: list[SubscriptionAction]) -> None:
        for action in actions:
            match action:
                case SendTopicRecord(record):
                    tell_record(self._router, following.node, record)
                case DeliverEvent(event):
                    self._events.delivered(following, event)
                case EventsLost(_, lost):
                    self._lost(following, lost)
                case PublisherRestarted():
                    self._lost(following, None)
                case _:
                    self._end(following, action.result)
        self._arm(following.subscription.get_timer())

    def _lost(self, following: Following, number: int | None) -> None:
        counts = self._router.counts
        if number is None:
            counts["restarts of nodes that publish topics"] += 1
        else:
            counts["events of topics that were lost"] += number
        _logger.warning(
            "events of the topic %s were lost: %s",
            short_text(following.topic),
            "as many as there were" if number is None else number,
            extra={"event": "identity.events_lost"},
        )
        self._events.lost(following, number)

    def _end(self, following: Following, reason: ResultCode) -> None:
        """End a topic, by its node or for this one."""
        self.topics.remove(following)
        self.waiting.settle(following.topic, lambda _: reason)
        if not following.is_taken:
            return
        if following.subscription.is_absent:
            self._router.counts["topics that their node did not have again in time"] += 1
        _logger.warning(
            "the topic %s has ended here: %s",
            short_text(following.topic),
            reason.name,
            extra={"event": "identity.topic_ended"},
        )
        self._events.gone(following, reason)

    def _move(self, following: Following, node: Identity, advert: TopicAdvert) -> None:
        """Follow a topic by another advert, which may lead to another node."""
        following.advert = advert
        if node == following.node:
            self._events.changed(following)
            return
        self._run(following, following.subscription.leave())
        self.topics.remove(following)
        if not following.is_taken:
            return  # what waits begins anew
        after = Following(following.topic, node, advert, is_taken=True)
        self.topics.add(after)
        self._events.changed(after)
        self._lost(after, None)
        if node in self._router.peers.sessions:
            self._run(after, after.subscription.join(self._router.loop_time()))
        else:
            self._call(node)
            self._router.awaited.want(node)

    def leave(self, topic: Identity) -> None:
        """End the subscription of this node, as no engine has it any more."""
        following = self.topics.find(topic)
        if following is not None:
            self._run(following, following.subscription.leave())
            self.topics.remove(following)

    # --- nodes, bans and time -----------------------------------------------------------------

    def node_joined(self, node: Identity) -> None:
        """Ask a node for its topics again, as there is a link to it."""
        self._calls.remove(node)
        for following in self.topics.at(node):
            self._run(following, following.subscription.join(self._router.loop_time()))
        for topic in [*self.waiting, *self._sought][:_MOST_ASKED]:
            if self.learn(topic) is None:
                self._router.lookups.ask(topic)
        self.known()

    def node_began(self, node: Identity) -> None:
        """Ask a node for its topics again, which it may have dropped with its session."""
        for following in self.topics.at(node):
            self._run(following, following.subscription.cut())
            self._run(following, following.subscription.join(self._router.loop_time()))

    def node_lost(self, node: Identity) -> None:
        """Wait for the next link to a node, which is dialled if it may be."""
        for following in self.topics.at(node):
            self._run(following, following.subscription.cut())
        if self.topics.is_any_at(node):
            self._call(node)

    def _call(self, node: Identity) -> None:
        self._arm(self._calls.add(node, self._router.loop_time()))

    def _call_again(self, node: Identity) -> None:
        """Dial or look up a node of topics that has no link; it answers by joining."""
        if node in self._router.peers.sessions or not self.topics.is_any_at(node):
            self._calls.remove(node)
        else:
            self._router.awaited.want(node)

    def banned(self, identity: Identity) -> None:
        """End what has no trust any more: a topic, or those of a node or by a publisher."""
        for each in self.topics:
            if identity in {each.topic, each.node, each.publisher}:
                self._run(each, each.subscription.leave())
                self._end(each, ResultCode.DENIED)
        self.known()

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, due: float | None) -> None:
        """Set the timer for what is due at a time, unless something is due before."""
        if due is None or (self._timer is not None and self._due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        delay = max(0.0, due - self._router.loop_time())
        self._timer = self._worker.after(delay, self._late)

    def _late(self) -> None:
        self._timer = None
        now = self._router.loop_time()
        if self._look_at is not None and self._look_at <= now:
            self._look()
        for following in self.topics:
            self._run(following, following.subscription.handle_timer(now))
        for node in self._calls.take_due(now):
            self._call_again(node)
        for topic in self._searches.take_due(now):
            self._search(topic)
        for topic in self.waiting.late(now):
            self._give_up(topic, now)
        self._arm(self._look_at)
        for each in self.topics:
            self._arm(each.subscription.get_timer())
        for table in (self._calls, self._searches, self.waiting):
            self._arm(table.get_timer())

    def _give_up(self, topic: Identity, now: float) -> None:
        following, late = self.topics.find(topic), ResultCode.TIMEOUT
        if self.learn(topic) is None or (
            following is not None and following.subscription.is_absent
        ):
            late = ResultCode.UNKNOWN
        self.waiting.settle(topic, lambda each: late if each.until <= now else None)
        self._leave_unwanted(topic)

    def _leave_unwanted(self, topic: Identity) -> None:
        """End the subscription of this node that no engine waits for any more."""
        following = self.topics.find(topic)
        if topic not in self.waiting and following is not None and not following.is_taken:
            self.leave(topic)
