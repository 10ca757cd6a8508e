"""The table of the deliveries of a name at one node: what is unsettled, and what is on hold.

A delivery enters it, has its copies, and leaves it. A pre-settled message is here but for the time
that it is on hold. What comes of each copy is said by `Deliveries`, which has this table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, Generic, TypeVar

from ._copies import CopyTable
from ._delivery import FIGURES, OUTCOME_FIGURES, DeliveriesStatistics, Delivery
from ._delivery_limits import NodeTotals, Share
from ._fast_path import FastDelivery, FastPath
from ._hold_queue import HoldQueue
from ._loads import ConsumerTarget, Target
from ._outcomes import FanOut, Outcome, Released
from ._semantics_parts import Retry

__all__ = ["DeliveryTable", "earlier"]

M = TypeVar("M")

_NONE: Final[dict[Any, Any]] = {}
_NO_COPIES: Final[CopyTable[Any]] = CopyTable(bytes, 0)


def earlier(one: float | None, other: float | None) -> float | None:
    """Return the earlier of two times; `None` is never."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class DeliveryTable(Generic[M]):
    """The table of the deliveries of a name.

    Args:
        make_token: Gives 8 random bytes.
        totals: What all names of the node have together.

    Attributes:
        unsettled: Number of unsettled deliveries that are not on the fast path.
        fast: Those on the fast path, if the name has one.
        settle_time: Time in which a consumer here has to settle a message of the name, in seconds.
        changes: Number of changes after which the fast path has to be planned again.
    """

    __slots__ = (
        "_copies",
        "_counted",
        "_hold",
        "_limits",
        "_make_token",
        "_of_source",
        "_of_token",
        "_settle_at",
        "_size",
        "_totals",
        "changes",
        "fast",
        "settle_time",
        "unsettled",
    )

    def __init__(self, make_token: Callable[[], bytes], totals: NodeTotals | None = None) -> None:
        self._totals = totals or NodeTotals()
        self._limits = self._totals.limits
        self._make_token = make_token
        # Most names have no unsettled message: these are made for the first one.
        self._copies: CopyTable[M] = _NO_COPIES
        self._of_source: dict[Hashable, dict[Delivery[M], None]] = _NONE
        self._of_token: dict[tuple[Hashable, bytes], Delivery[M]] = _NONE
        self._hold: HoldQueue[M] | None = None
        self.unsettled = self._size = self.changes = 0
        self._counted: Counter[str] | None = None
        self.settle_time = self._limits.settle_time
        self._settle_at: float | None = None  # when to look for what is not settled
        self.fast: FastPath[M] | None = None

    @property
    def _counts(self) -> Counter[str]:
        if self._counted is None:
            self._counted = Counter()
        return self._counted

    def __len__(self) -> int:
        """Return the number of deliveries: those that are unsettled or on hold."""
        settled = 0 if self._hold is None else self._hold.settled
        return self._all_unsettled() + settled

    def _all_unsettled(self) -> int:
        return self.unsettled if self.fast is None else self.unsettled + len(self.fast.entries)

    # --- entry and end ----------------------------------------------------------------------

    def has_room(self, size: int, share: Share | None = None) -> bool:
        """Whether there is room for an unsettled delivery of a message of some bytes.

        Args:
            size: The bytes.
            share: What its source has.
        """
        limits = self._limits
        return (
            self._totals.size + size <= limits.max_unsettled_size
            and self._all_unsettled() < limits.max_unsettled
            and self.may_have(size, share)
        )

    def may_have(self, size: int, share: Share | None) -> bool:
        """Whether a source may have one more delivery, of a message of some bytes."""
        limits = self._limits
        return share is None or (
            share.may_have("size", size, limits.max_unsettled_size)
            and share.may_have("unsettled", 1, limits.max_unsettled)
        )

    def enter(self, delivery: Delivery[M], now: float) -> bool:
        """Begin an unsettled delivery, to be bound, held or ended; return whether there is room."""
        room = delivery.promised or self.has_room(delivery.size, delivery.share)
        if not room or (delivery.source, delivery.token) in self._of_token:
            self._counts["refused"] += 1
            return False
        self._enter(delivery, now)
        return True

    def count_released(self) -> None:
        """Count a message that was released before its delivery had begun."""
        self._counts[OUTCOME_FIGURES[Released]] += 1

    def _enter(self, delivery: Delivery[M], now: float) -> None:
        delivery.since = now
        if self._of_source is _NONE:
            self._of_source, self._of_token = {}, {}
        if delivery.token is not None:
            self._of_token[delivery.source, delivery.token] = delivery
        self._of_source.setdefault(delivery.source, {})[delivery] = None
        self._count(delivery, 1)

    def end(self, delivery: Delivery[M], outcome: Outcome) -> None:
        """End a delivery without copies with an outcome."""
        delivery.outcome = outcome
        if not delivery.settled:
            self._counts[OUTCOME_FIGURES[type(outcome)]] += 1
        self.leave(delivery)

    def leave(self, delivery: Delivery[M]) -> None:
        """Forget a delivery that has no copies, as when it is redirected."""
        self._unhold(delivery)
        if self._has(delivery):
            self._forget(delivery)

    def of_token(self, token: bytes) -> Delivery[M] | None:
        """Return the delivery of an open copy."""
        self.promote(token)
        copy = self._copies.get(token)
        return None if copy is None else copy.delivery

    # --- the fast path ----------------------------------------------------------------------

    def leave_fast_path(self) -> None:
        """Close the fast path, and make full records of what is on it."""
        self.changes += 1
        if self.fast is not None:
            self._adopt(self.fast, self.fast.close())

    def promote(self, token: bytes) -> None:
        """Make the full record of a delivery, if it is on the fast path."""
        if self.fast is not None and token in self.fast.entries:
            self._adopt(self.fast, [(token, self.fast.take(token))])

    def _adopt(self, fast: FastPath[M], entries: Iterable[tuple[bytes, FastDelivery[M]]]) -> None:
        for token, entry in entries:
            delivery = fast.promote(token, entry)
            target, _, since, _, _, _ = entry
            delivery.limit = delivery.deadline
            self._enter(delivery, since)
            delivery.tries = 1
            self._add_copy(delivery, target.target, token)
            self.sent(token, since)

    # --- copies -----------------------------------------------------------------------------

    def bind(
        self,
        delivery: Delivery[M],
        targets: Sequence[Target],
        *,
        accepts: int | None = None,
        early: bool = True,
        limit: float | None = None,
    ) -> list[bytes]:
        """Make a copy of a delivery for each target; return their tokens.

        Args:
            delivery: The delivery: new, returned, or on hold.
            targets: At least one target; only one if it is no multicast.
            accepts: Acceptances that make a multicast accepted, or `ALL`; `None` if it is none.
            early: Whether a multicast is decided before all copies have ended: at its ingress.
            limit: When the copies end in any case, in seconds.
        """
        self._unhold(delivery)
        if delivery.tries:
            self._counts["reforwarded"] += 1
        delivery.tries += 1
        delivery.limit = limit
        delivery.fan_out = None
        if accepts is not None:
            here = sum(isinstance(target, ConsumerTarget) for target in targets)
            delivery.fan_out = FanOut(here, len(targets) - here, accepts, early=early)
        return [self._add_copy(delivery, target) for target in targets]

    def _add_copy(self, delivery: Delivery[M], target: Target, token: bytes = b"") -> bytes:
        if self._copies is _NO_COPIES:
            self._copies = CopyTable(self._make_token, self._limits.finished_tokens)
        return self._copies.add(delivery, target, token)

    def sent(self, token: bytes, now: float) -> None:
        """Receive word that a copy was sent; from now on it is in doubt if its target is lost."""
        copy = self._copies.get(token)
        if copy is not None and copy.sent is None:
            copy.sent = now
            if isinstance(copy.target, ConsumerTarget):
                self._settle_at = earlier(self._settle_at, now + self.settle_time)

    def set_settle_time(self, seconds: float | None) -> None:
        """Replace the time in which a consumer has to settle; `None`: that of the node."""
        self.settle_time = seconds or self._limits.settle_time
        if self._copies:
            self._settle_at = 0.0  # look at all of them anew

    def unread(self, token: bytes) -> Delivery[M] | None:
        """Receive word that a copy was not handed over, although it was sent.

        Returns:
            Its delivery, if no other copy of it was sent; `None` if one was, or if it has ended.
        """
        self.promote(token)
        copy = self._copies.get(token)
        if copy is None:
            return None
        copy.sent = None
        others = map(self._copies.get, copy.delivery.copies)
        sent = any(each is not None and each.sent is not None for each in others)
        return None if sent else copy.delivery

    def open_at(self, target: Target) -> int:
        """Return the number of open copies of a target."""
        return self._copies.count(target)

    # --- hold -------------------------------------------------------------------------------

    def set_hold(self, retry: Retry | None) -> list[Delivery[M]]:
        """Replace the bounds and times of the hold; return the deliveries that were there.

        These are to be answered by `bind`, `hold` or `end` at once.
        """
        gone = [] if self._hold is None else self._hold.clear()
        self._hold = None if retry is None else HoldQueue(retry, self._totals)
        return gone

    def hold(self, delivery: Delivery[M], now: float) -> bool:
        """Hold a delivery without copies; return whether there is room and time."""
        return self._hold is not None and self._hold.put(delivery, now)

    def joined(self, target: Target) -> list[Delivery[M]]:
        """Return the deliveries on hold that a new target can be asked for at once."""
        return [] if self._hold is None else self._hold.joined(target)

    def forget_tried(self, target: Target) -> None:
        """Forget that a target was tried, since it leads to others now."""
        for deliveries in self._of_source.values():
            for delivery in deliveries:
                delivery.tried.discard(target)

    # --- figures ---------------------------------------------------------------------------

    def get_ages(self, now: float) -> tuple[float, int]:
        """Return the age of the oldest copy that a target has, in seconds, and how many are stuck.

        Args:
            now: The time, in seconds.
        """
        if not self._copies and self.fast is None:
            return 0.0, 0
        times = [copy.sent for copy in self._copies if copy.sent is not None]
        if self.fast is not None:
            times += [entry[2] for entry in self.fast.entries.values()]
        if not times:
            return 0.0, 0
        end = now - self._limits.stuck_time
        return max(0.0, now - min(times)), sum(each < end for each in times)

    def get_last(self, source: Hashable) -> float | None:
        """Return when the last delivery of a source came that is here; `None` if none is."""
        found = self._of_source.get(source)
        return next(reversed(found)).since if found else None

    def statistics(self) -> DeliveriesStatistics:
        """Return the figures of the table at this moment."""
        hold, fast = self._hold, self.fast
        entries = () if fast is None else tuple(fast.entries.values())
        figures = {name: self._counts[name] for name in FIGURES}
        figures["accepted"] += 0 if fast is None else fast.accepted
        return DeliveriesStatistics(
            unsettled=self._all_unsettled(),
            size=self._size + sum(each[1] for each in entries),
            copies=len(self._copies) + len(entries),
            held=0 if hold is None else len(hold),
            held_settled=0 if hold is None else hold.settled,
            held_size=0 if hold is None else hold.size,
            **figures,
            hold_expired=0 if hold is None else hold.expired,
            hold_refused=0 if hold is None else hold.refused,
        )

    def left(self) -> list[Delivery[M]]:
        """Return the deliveries that have not ended, as when their node stops."""
        self.leave_fast_path()
        held = () if self._hold is None else self._hold
        unsettled = (each for deliveries in self._of_source.values() for each in deliveries)
        return list(dict.fromkeys((*unsettled, *held)))

    # --- records ----------------------------------------------------------------------------

    def _count(self, delivery: Delivery[M], sign: int) -> None:
        self.unsettled += sign
        self._size += sign * delivery.size
        self._totals.count(delivery.size, delivery.share, sign)

    def _unhold(self, delivery: Delivery[M]) -> None:
        if self._hold is not None:
            self._hold.remove(delivery)

    def _has(self, delivery: Delivery[M]) -> bool:
        return delivery in self._of_source.get(delivery.source, ())

    def _forget(self, delivery: Delivery[M]) -> None:
        deliveries = self._of_source[delivery.source]
        del deliveries[delivery]
        if not deliveries:
            del self._of_source[delivery.source]
        if delivery.token is not None:
            self._of_token.pop((delivery.source, delivery.token), None)
        self._count(delivery, -1)
