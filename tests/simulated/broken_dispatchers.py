"""Dispatchers that are broken on purpose: a harness that does not catch them shows nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest import mock

from onward.actors.dispatch._copies import Copies
from onward.actors.dispatch._fast_path import FastPaths
from onward.actors.dispatch._fast_unsettled import FastUnsettled
from onward.actors.dispatch._hold_store import HoldStore
from onward.actors.dispatch._name_actions import NameActions
from onward.actors.dispatch._name_table import NameTable
from onward.actors.dispatch._reply_paths import ReplyPaths
from onward.actors.dispatch._stored import StoredMessages
from onward.actors.dispatch._topology import Topology
from onward.protocol.dispatch import (
    ACCEPTED,
    MAX_PATH,
    MODIFIED,
    RELEASED,
    CopyEnd,
    Dropped,
    DuplicateWindow,
    NodeTotals,
    Paths,
    is_too_far,
)
from onward.protocol.dispatch._choice import Chooser
from onward.protocol.dispatch._consumer_queue import ConsumerQueue
from onward.protocol.dispatch._copies import CopyTable
from onward.protocol.dispatch._deliveries import Deliveries
from onward.protocol.dispatch._name_messages import NameMessages
from onward.protocol.dispatch._producer_window import ProducerWindows
from tests.simulated.dispatchers import checked_run


class Broken:
    """A mistake: a method of a class, and what is in its place.

    Attributes:
        place: The class.
        method: The name of the method.
    """

    place: type
    method: str

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Perform the method wrongly, with the right one to call."""
        raise NotImplementedError


class ReleasesWhatWasSent(Broken):
    """Says of what a lost consumer or link has that it was certainly not handled."""

    place, method = Deliveries, "_end"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        table, copy, outcome, end, *rest = given
        if end is CopyEnd.LOST and outcome == MODIFIED:
            outcome = RELEASED
        return right(table, copy, outcome, end, *rest, **named)


class SendsAgainInDoubt(Broken):
    """Sends to another consumer what the first one may have handled."""

    place, method = Deliveries, "_end"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        table, copy, outcome, *rest = given
        if outcome == MODIFIED and copy.delivery.fan_out is None:
            outcome = RELEASED
        return right(table, copy, outcome, *rest, **named)


class TakesAnyForAccepted(Broken):
    """Tells the producer that a message was accepted, whatever the consumer said."""

    place, method = ReplyPaths, "tell"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        ways, arrival, outcome, *rest = given
        return right(ways, arrival, ACCEPTED if outcome == MODIFIED else outcome, *rest, **named)


class TellsNoNode(Broken):
    """Does not pass an outcome on to the node before it."""

    place, method = ReplyPaths, "_tell_node"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, given, named


class WaitsForEver(Broken):
    """Has no deadline for a copy."""

    place, method = CopyTable, "get_timer"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, given, named


class GivesNoCreditBack(Broken):
    """Keeps the credit of what is settled."""

    place, method = ProducerWindows, "settled"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        windows, producer = given
        window = windows._producers.get(producer)
        if window is None or window.unsettled < 2:
            return right(*given, **named)
        window.size -= 1
        window.unsettled -= 1
        return []


class AnnouncesNoEnd(Broken):
    """Does not tell that the last consumer of a name has gone."""

    place, method = Topology, "announce"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if given[2] is not None:
            right(*given, **named)


class ForgetsNoCopy(Broken):
    """Keeps the token of a copy that has ended."""

    place, method = Copies, "ended"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, given, named


class KeepsNames(Broken):
    """Keeps the state of a name of which nothing is left."""

    place, method = NameTable, "tidy"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, given, named


class DropsInSilence(Broken):
    """Drops what no consumer takes without a dead letter."""

    place, method = NameActions, "perform"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if not isinstance(given[2], Dropped):
            right(*given, **named)


class SendsToAllNodes(Broken):
    """Forwards a multicast also on paths that do not pass here."""

    place, method = Paths, "passes"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, named
        paths, _, node = given
        return paths.cost(node) is not None


class ForgetsTheFile(Broken):
    """Does not go on with what a process before it has accepted."""

    place, method = StoredMessages, "restore"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, given, named


class AcceptsUnwritten(Broken):
    """Accepts every fourth message that is not written, as a commit that comes too late."""

    place, method = HoldStore, "put"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        number = right(*given, **named)
        store = given[0]
        if number % 4 == 1:
            store._file.execute("DELETE FROM message WHERE number = ?", (number,))
        return number


class GivesUpInDoubt(Broken):
    """Takes a message for ended that its consumer had when it went away."""

    place, method = Deliveries, "_end"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        given[1].delivery.promised = False
        return right(*given, **named)


class GivesUpMulticastsInDoubt(Broken):
    """Takes a multicast on disk for ended when all that had it have gone away with it."""

    place, method = Deliveries, "_end"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        delivery = given[1].delivery
        delivery.promised = delivery.promised and delivery.fan_out is None
        return right(*given, **named)


class ForgetsPathsBefore(Broken):
    """Sends multicasts along the paths that it knows of alone, as other nodes do not know them."""

    place, method = Chooser, "set_paths"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        right(*given[:3], **named)


class CountsTheRadius(Broken):
    """Takes a multicast that comes by the longer path for one that has gone too far."""

    place, method = NameMessages, "bind"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        state, delivery, *rest = given
        if is_too_far(len(delivery.path), state._totals.paths.radius):
            delivery.path = (b"many",) * MAX_PATH
        right(state, delivery, *rest, **named)


class WaitsForConsumers(Broken):
    """Leaves a message to a consumer that never settles it."""

    place, method = Deliveries, "lapse"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, given, named
        return []


class KeepsTheRow(Broken):
    """Leaves in the file what a consumer has settled."""

    place, method = HoldStore, "remove"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, given, named


class TakesOthersForDuplicates(Broken):
    """Knows messages by their number alone, and not by the start of their node."""

    place, method = DuplicateWindow, "arrived"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        window, (_, _, number), now = given
        return right(window, ("", b"", number), now, **named)


class KeepsTheFastPathOfALostLink(Broken):
    """Makes no full records of messages on the fast path that are on a lost link."""

    place, method = FastPaths, "link_lost"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        del right, given, named


class ForgetsNoNeighbour(Broken):
    """Keeps by what a neighbour knows a message after it was accepted on the fast path."""

    place, method = FastUnsettled, "answer"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        table, message, *_ = given
        came = table.came[message.source]
        mark = message.return_route[-1].value
        kept = came[mark]
        made = right(*given, **named)
        came[mark] = kept
        return made


class HandsOverWithoutCredit(Broken):
    """Gives a slow reader more than it has asked for."""

    place, method = ConsumerQueue, "take"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        queue = given[0]
        queue.credit += bool(len(queue))
        return right(*given, **named)


class KeepsTheBytes(Broken):
    """Counts the bytes of pre-settled messages and not that they have gone."""

    place, method = NodeTotals, "count_settled"

    @staticmethod
    def instead(right: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if given[3] > 0:
            right(*given, **named)


BROKEN: Final[tuple[type[Broken], ...]] = (
    ReleasesWhatWasSent,
    SendsAgainInDoubt,
    TakesAnyForAccepted,
    TellsNoNode,
    WaitsForEver,
    GivesNoCreditBack,
    AnnouncesNoEnd,
    ForgetsNoCopy,
    KeepsNames,
    DropsInSilence,
    SendsToAllNodes,
    ForgetsTheFile,
    AcceptsUnwritten,
    GivesUpInDoubt,
    GivesUpMulticastsInDoubt,
    WaitsForConsumers,
    ForgetsPathsBefore,
    CountsTheRadius,
    KeepsTheRow,
    TakesOthersForDuplicates,
    KeepsTheFastPathOfALostLink,
    ForgetsNoNeighbour,
    HandsOverWithoutCredit,
    KeepsTheBytes,
)
"""Each is one mistake."""


def wrong_of(kind: type[Broken], seed: int) -> list[str]:
    """Return what a run shows of dispatchers that are broken like this."""
    right = getattr(kind.place, kind.method)

    def instead(*given: Any, **named: Any) -> Any:
        return kind.instead(right, *given, **named)

    with mock.patch.object(kind.place, kind.method, instead):
        return checked_run(seed)[2]


def catches(kind: type[Broken], seed: int) -> bool:
    """Return whether a run shows that dispatchers are broken like this."""
    return bool(wrong_of(kind, seed))


def caught(job: tuple[int, int]) -> tuple[int, bool]:
    """Return that for one of `BROKEN`, by its number, and a seed."""
    kind, seed = job
    return kind, catches(BROKEN[kind], seed)
