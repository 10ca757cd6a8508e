"""Routers of identities that are broken on purpose: a harness that misses them shows nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest import mock

from onward.actors.identity import _incoming
from onward.actors.identity._correspondences import Correspondences
from onward.actors.identity._incoming import Incoming
from onward.actors.identity._parking import Parking
from onward.actors.identity._router import Router
from onward.actors.identity.directory._standing import Standing
from onward.actors.identity.links import _greetings
from onward.actors.identity.links._peers import Peers
from onward.actors.identity.topics._followings import Followings
from onward.protocol import LinkDown
from onward.protocol.identity import (
    MAX_SKEW,
    SCOPE_ANY,
    DeliverLocally,
    DomainRequests,
    HandleRefusal,
    HandleTable,
    LayerTags,
    Refuse,
    ReplayWindows,
    ResultCode,
    RoutingTable,
    Subscription,
    Verifiers,
    _replay,
)
from onward.protocol.identity._routes import RefusalReason
from onward.transports.node import _link
from tests.simulated.identities import checked_run

__all__ = ["BROKEN", "catches", "caught"]


class Broken:
    """A mistake: a function of a class or module, and what is in its place.

    Attributes:
        place: The class or module.
        name: The name of the function.
        seeds: Seeds whose runs show it.
    """

    place: Any
    name: str
    seeds: tuple[int, ...]

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Do nothing; or as the right one does, wrongly."""
        del right, given, named


class SeesNoRepeat(Broken):
    """Takes each message for a new one."""

    place, name = ReplayWindows, "record"
    seeds = (0, 4)


class BelievesSignatures(Broken):
    """Believes that each message is of its source."""

    place, name = Verifiers, "is_signed_by"
    seeds = (0, 4)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return True


class TakesExpired(Broken):
    """Takes messages whose time is over, or far ahead."""

    place, name = _replay, "expiry_refusal"
    seeds = (0, 5)


class BeginsIdsAgain(Broken):
    """Begins the ids of messages at the same number after a start."""

    place, name = _greetings, "first_id_time"
    seeds = (0, 1)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return given[0] + MAX_SKEW + 1


class TakesAllScopes(Broken):
    """Takes what may not leave the node that it is of."""

    place, name = RoutingTable, "decide"
    seeds = (1, 10)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return right(*given[:4], SCOPE_ANY, *given[5:], **named)


class TakesWhatIsForOthers(Broken):
    """Delivers what is for an engine elsewhere."""

    place, name = RoutingTable, "decide"
    seeds = (4, 25)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        decision = right(*given, **named)
        if isinstance(decision, Refuse) and decision.reason is RefusalReason.NOT_HERE:
            return DeliverLocally(None)
        return decision


class BansNone(Broken):
    """Bans an identity in its directory alone."""

    place, name = Standing, "ban"
    seeds = (0, 2)


class SaysCertain(Broken):
    """Says of what was under way over a lost link that it was certainly not handed over."""

    place, name = _link, "LinkLost"
    seeds = (1, 6)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return LinkDown(*given, **named)


class ResumesTwice(Broken):
    """Resolves twice what has waited."""

    place, name = Parking, "resume"
    seeds = (0, 1)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        parking, identity = given
        for pending in parking._parked.get(identity, {}).values():
            for each in tuple(pending._kept):
                pending._table._again(each.message, each.until)
        right(*given, **named)


class ParksAll(Broken):
    """Has no limit for what waits for an identity."""

    place, name = Parking, "count"
    seeds = (0, 4)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        count = right(*given, **named)
        return count if count != given[0]._limit else count - 1


class MixesSenders(Broken):
    """Sends by the identity of its node what an engine sends."""

    place, name = Router, "own_of"
    seeds = (0, 1)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return given[0].own


class NamesAnotherMessage(Broken):
    """Says of an answer that it is to the message after the one that was asked."""

    place, name = _incoming, "answer_address"
    seeds = (0, 1)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        own, to, number = given
        return right(own, to, number + 1)


class BelievesAnswers(Broken):
    """Takes answers to messages that it has not sent."""

    place, name = Incoming, "_has_sent"
    seeds = (0, 5)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return True


class KeepsDeadSessions(Broken):
    """Does not dial again if the other node has no session any more."""

    place, name = Peers, "_dial_again"
    seeds = (0, 9)


class KeepsLinks(Broken):
    """Ends no link of an identity to make room for another one."""

    place, name = Correspondences, "_end"
    seeds = (0, 1)


class KeepsLostLinks(Broken):
    """Learns of the end of no link."""

    place, name = Peers, "_gone"
    seeds = (0, 1)


class MissesEvents(Broken):
    """Takes events of a topic without those before them."""

    place, name = Subscription, "_ask_again"
    seeds = (49, 57)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        subscription = given[0]
        subscription._next = min(subscription._held, default=subscription._known)
        subscription._go_on(0.0)


class SubscribesOnce(Broken):
    """Does not ask a node for its topics again that has lost its session alone."""

    place, name = Followings, "node_began"
    seeds = (29, 49)


class ForgetsItsStart(Broken):
    """Takes what it may have taken before it was started again."""

    place, name = ReplayWindows, "__init__"
    seeds = (4, 19)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        right(given[0], 0, 0, **named)


class AsksAgainInDoubt(Broken):
    """Sends a request to a domain to another member when it is in doubt."""

    place, name = DomainRequests, "_doubt"
    seeds = (87,)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        requests, pending = given
        pending.tried.add(requests._node if pending.member is None else pending.member)
        pending.member = None
        return requests._place(pending, 0, ResultCode.REMOTE_FAILED)


class RaisesNoFloor(Broken):
    """Forgets what it may have taken with a window that was let go."""

    place, name = ReplayWindows, "_forget_first"
    seeds = (7, 12)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        windows = given[0]
        floor, is_forgotten = windows.floor, right(windows)
        windows.floor = floor
        return is_forgotten


class OpensLayersTwice(Broken):
    """Remembers no layer that it has opened as a relay."""

    place, name = LayerTags, "record"
    seeds = (0, 1)


class UsesHandlesTwice(Broken):
    """Passes on as many answers by a handle as there are."""

    place, name = HandleTable, "_take"
    seeds = (1, 17)

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        table, handle, _, now = given
        entry = right(*given)
        if not isinstance(entry, HandleRefusal):
            table._add(handle, entry, now)
        return entry


BROKEN: Final[tuple[type[Broken], ...]] = (
    *(SeesNoRepeat, BelievesSignatures, TakesExpired),
    *(BeginsIdsAgain, TakesAllScopes, TakesWhatIsForOthers, BansNone),
    *(SaysCertain, ResumesTwice, ParksAll, MixesSenders, NamesAnotherMessage),
    *(KeepsDeadSessions, KeepsLinks, KeepsLostLinks),
    *(MissesEvents, SubscribesOnce, ForgetsItsStart, AsksAgainInDoubt),
    *(BelievesAnswers, RaisesNoFloor, OpensLayersTwice, UsesHandlesTwice),
)


def catches(broken: type[Broken], seed: int) -> bool:
    """Whether the run of a seed catches a mistake."""
    right = getattr(broken.place, broken.name)

    def wrong(*given: Any, **named: Any) -> Any:
        return broken.instead(right, *given, **named)

    with mock.patch.object(broken.place, broken.name, wrong):
        return bool(checked_run(seed)[2])


def caught(given: tuple[int, int]) -> tuple[int, bool]:
    """Return the number of a mistake, and whether the run of a seed catches it."""
    kind, seed = given
    return kind, catches(BROKEN[kind], seed)
