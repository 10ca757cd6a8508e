"""Limits of the deliveries of names, and what all names of a node have together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from ..options import Count, Range, Seconds, Size, check_options
from ._recent_multicasts import RecentMulticasts
from ._recent_paths import RecentPaths

__all__ = ["DeliveryLimits", "NodeTotals", "Share"]

_SPARE: Final = 64
"""Shares of sources without anything that are kept beyond as many as have something."""

_ANONYMOUS: Final = "all that are not authenticated", 0
"""The source that all connections which are not authenticated are together."""

Percent: TypeAlias = Annotated[int, Range(least=1, most=100)]
"""A part of a whole, in percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryLimits:
    """Limits of what a name keeps of its deliveries at one node.

    Attributes:
        max_unsettled: Unsettled deliveries of a name. Beyond: a further one is released and
            counted.
        max_unsettled_size: Bytes of the messages of unsettled deliveries of all names of a node
            together, those on hold included. Beyond: as with `max_unsettled`.
        max_settled_size: Bytes of pre-settled messages of all names of a node together that are on
            hold or wait for the credit of consumers. Beyond: one that waits for the same consumer
            is dropped, the oldest or the newest as with its window, and none is held.
        max_share: What one connection, or one principal that is not anonymous, may have of the
            limits of a node and of a name, in percent: of unsettled deliveries, of the bytes of
            unsettled and of pre-settled messages, of `DispatchOptions.max_names`, of producers and
            of consumers. Beyond: as with that limit, and counted. The program itself has no share.
        max_anonymous_share: What all connections that are not authenticated may have of the limits
            of a node, and of the consumers and producers of a name, together, in percent, so that
            many of them leave room to others. Beyond: the same.
        max_neighbour_share: What one neighbour may have of them, in percent. Beyond: the same.
        max_node_consumers: Consumers of all names of a node. Beyond: a further one is refused and
            counted.
        max_node_producers: Producers of all names of a node. Beyond: as with consumers.
        max_consumers: Consumers of one name at a node, standbys included. Beyond: the same.
        max_producers: Producers of one name at a node, and anonymous producers of a node. Beyond:
            the same.
        finished_tokens: Tokens of ended copies that are kept, so that a disposition that comes
            late or twice is known. Beyond: the oldest are forgotten, and their dispositions count
            as unknown.
        max_tries: Targets that are asked for one delivery, if each releases it. Beyond: it is
            released.
        try_time: Time from the first bind on in which a released delivery is sent to another
            target, in seconds. Later: it is released.
        promise_time: Time in which a consumer has to settle a message that was accepted as it is on
            disk, in seconds. Later: it is in doubt, and sent again.
        settle_time: Time in which a consumer of this node has to settle a message that it has, in
            seconds. Later: it is in doubt, and counted; a consumer with credit by calls, as clients
            of AMQP are, is detached. It is noticed up to a second late.
        stuck_time: Time after which a message that a target has not settled counts as stuck, and a
            consumer or producer that waits for credit as blocked, in seconds.
        duplicate_ids: Deliveries of a name that are remembered by their identity, to know
            duplicates. Beyond: the oldest are forgotten and counted.
        multicast_ids: Multicasts of one other node that are remembered by their identity, so that
            a second copy, as while links change, is dropped. Beyond: the oldest are forgotten.
        multicast_ingresses: Other nodes of which multicasts are remembered. Beyond: those of one
            that has sent none for the longest time are forgotten.

        path_overlap: Time for which multicasts also go along the paths before a change, in seconds,
            as other nodes may not know of it yet: so no consumer loses one, and second copies are
            known. As long another message that has come to a node which is on no path any more, or
            that has passed too many nodes by the new paths, goes along those before. Later: along
            the new paths alone.

    Raises:
        ValueError: A value is out of its range.
    """

    max_unsettled: Count = 100_000
    max_unsettled_size: Count = 256 * 1024 * 1024
    max_settled_size: Count = 64 * 1024 * 1024
    max_share: Percent = 25
    max_anonymous_share: Percent = 75
    max_neighbour_share: Percent = 75
    max_node_consumers: Count = 100_000
    max_node_producers: Count = 100_000
    max_consumers: Count = 1_000
    max_producers: Count = 10_000
    finished_tokens: Size = 4_096
    max_tries: Count = 16
    try_time: Seconds = 30.0
    promise_time: Seconds = 300.0
    settle_time: Seconds = 1_800.0
    stuck_time: Seconds = 10.0
    duplicate_ids: Count = 65_536
    multicast_ids: Count = 2_048
    multicast_ingresses: Count = 256

    path_overlap: Seconds = 1.0

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(slots=True, eq=False)
class Share:
    """The part of the limits of a node that a source has: a connection, principal or neighbour.

    Attributes:
        percent: What it may have of each limit, in percent.
        whole: That of all sources alike, of which it is a part; `None` if it is of no such.
        unsettled: Number of its unsettled deliveries.
        size: Bytes of their messages.
        settled_size: Bytes of its pre-settled messages that are on hold or wait for credit.
        producers: Number of its producers.
        anonymous: Number of its anonymous producers.
        consumers: Number of its consumers.
        names: Number of the names that have a state because of it.
    """

    percent: int
    whole: Share | None = None
    unsettled: int = 0
    size: int = 0
    settled_size: int = 0
    producers: int = 0
    anonymous: int = 0
    consumers: int = 0
    names: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing."""
        attached = self.producers or self.anonymous or self.consumers or self.names
        return not (attached or self.unsettled or self.settled_size)

    def has_room(self, wanted: int, most: int) -> bool:
        """Whether it may have so much of a limit of all."""
        return wanted <= max(1, most * self.percent // 100)

    def may_have(self, what: str, more: int, most: int) -> bool:
        """Whether it, and the whole of which it is a part, may have so much more.

        Args:
            what: The name of the figure, such as `names`.
            more: How much more.
            most: The limit of all.
        """
        mine = self.has_room(getattr(self, what) + more, most)
        return mine and (self.whole is None or self.whole.may_have(what, more, most))

    def may_join(self, others: Collection[Share | None], most: int) -> bool:
        """Whether it, and the whole of which it is a part, may have one more place of a name.

        Args:
            others: The shares of those that have the other places.
            most: The places.
        """
        here = sum(each is not None and self in (each, each.whole) for each in others)
        mine = self.has_room(here + 1, most)
        return mine and (self.whole is None or self.whole.may_join(others, most))

    def begin(self, size: int, most: int, most_size: int) -> bool:
        """Count one more unsettled delivery, if it may have one; return whether it may.

        Args:
            size: The bytes of its message.
            most: The limit of all on deliveries.
            most_size: That on the bytes of their messages.
        """
        percent, whole = self.percent, self.whole
        if (
            self.unsettled >= max(1, most * percent // 100)
            or self.size + size > max(1, most_size * percent // 100)
            or (whole is not None and not whole.begin(size, most, most_size))
        ):
            return False
        self.unsettled += 1
        self.size += size
        return True

    def end(self, size: int) -> None:
        """Count an unsettled delivery less."""
        self.unsettled -= 1
        self.size -= size
        if self.whole is not None:
            self.whole.end(size)

    def count(self, what: str, more: int) -> None:
        """Count that it has so much more, or less."""
        setattr(self, what, getattr(self, what) + more)
        if self.whole is not None:
            self.whole.count(what, more)


@dataclass(slots=True)
class NodeTotals:
    """The figures of all names of a node together, which they share, so that limits hold for it.

    Attributes:
        limits: The limits.
        unsettled: Number of unsettled deliveries.
        size: Bytes of their messages.
        settled_size: Bytes of pre-settled messages that are on hold or wait for credit.
        consumers: Number of consumers.
        producers: Number of producers.
        counts: What was dropped or refused, by its reason.
        shares: The shares of the sources that have something, and some of others.
        sweep_at: Number of shares at which those of sources that have nothing are forgotten.
        multicasts: The multicasts that have come lately from other nodes.
        paths: The paths of the network, now and a while before.
    """

    limits: DeliveryLimits = field(default_factory=DeliveryLimits)
    unsettled: int = 0
    size: int = 0
    settled_size: int = 0
    consumers: int = 0
    producers: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    shares: dict[Hashable, Share] = field(default_factory=dict[Hashable, Share])
    sweep_at: int = _SPARE
    multicasts: RecentMulticasts = field(init=False)
    paths: RecentPaths = field(default_factory=RecentPaths, init=False)

    def __post_init__(self) -> None:
        limits = self.limits
        self.multicasts = RecentMulticasts(limits.multicast_ids, limits.multicast_ingresses)

    def share_of(
        self, source: Hashable, *, neighbour: bool = False, anonymous: bool = False
    ) -> Share:
        """Return the share of a source.

        Args:
            source: The source.
            neighbour: Whether it is a neighbour.
            anonymous: Whether it is a connection that is not authenticated: all of them have a
                share together, too.
        """
        share = self.shares.get(source)
        if share is None:
            if len(self.shares) >= self.sweep_at:
                self._sweep()
            limits = self.limits
            percent = limits.max_neighbour_share if neighbour else limits.max_share
            whole = self._anonymous() if anonymous else None
            share = self.shares[source] = Share(percent, whole)
        return share

    def _anonymous(self) -> Share:
        """Return the share of all connections that are not authenticated."""
        if _ANONYMOUS not in self.shares:
            self.shares[_ANONYMOUS] = Share(self.limits.max_anonymous_share)
        return self.shares[_ANONYMOUS]

    def _sweep(self) -> None:
        """Forget the shares of sources that have nothing."""
        for source in [each for each, share in self.shares.items() if share.is_idle]:
            del self.shares[source]
        self.sweep_at = 2 * len(self.shares) + _SPARE

    def count(self, size: int, share: Share | None, sign: int) -> None:
        """Count an unsettled delivery of a message of some bytes, or with -1 its end."""
        self.unsettled += sign
        self.size += sign * size
        while share is not None:
            share.unsettled += sign
            share.size += sign * size
            share = share.whole

    def has_settled_room(self, size: int) -> bool:
        """Whether there is room for a pre-settled message of some bytes that waits."""
        return self.settled_size + size <= self.limits.max_settled_size

    def may_have_settled(self, size: int, share: Share | None) -> bool:
        """Whether its source may have one more."""
        most = self.limits.max_settled_size
        return share is None or share.may_have("settled_size", size, most)

    def count_settled(self, size: int, share: Share | None, sign: int) -> None:
        """Count a pre-settled message that waits, or with -1 that it does not any more."""
        self.settled_size += sign * size
        if share is not None:
            share.count("settled_size", sign * size)
