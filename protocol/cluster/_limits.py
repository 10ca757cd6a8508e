"""Limits of the state machines of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import Count, Probability, Seconds, Size, check_options
from ._elements import BatchSize
from ._route_filter import FilterSize

__all__ = ["ClusterLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimits:
    """Limits of what a broker keeps for its cluster, and its times.

    Attributes:
        max_batch: Bytes that are gathered for one element of a route stream, before compression. A
            single longer frame has an element of its own.
        log_changes: Changes of this broker's routes that are kept for peer brokers that are behind:
            at most two for each route and not fewer than 256, as to send all routes costs less than
            more of them. A peer broker that is further behind gets all routes.
        log_bytes: Bytes of these changes. Beyond: as with `log_changes`.
        gather: Time for which changes are gathered before they are sent, in seconds.
        mark: Time between two marks of a route stream, in seconds.
        max_ahead: Time by which the timestamp of a route may be ahead of this broker's clock, in
            seconds. Beyond: the route is refused and counted, and one of another zone does not end
            an own connection. It has to be more than the clocks of two honest brokers differ: their
            routes would be missing here.
        max_peers: Peer brokers that this broker has links with. Beyond: no other is dialled, and a
            link from one is refused.
        max_gateways: Links with brokers of other zones that this broker has dialled, and as many
            again that others have. Beyond: no other is dialled, and a link from one is refused.
        max_groups: Groups of routes with tags that other zones are told. Beyond: further ones are
            folded into a group of their service without tags; beyond twice as many, groups are not
            told, and counted, and those that another zone tells are refused and counted.
        zone_gather: Time for which changes of a zone are gathered before other zones are told, in
            seconds.
        filter_every: Time after which the filter of a zone's route ids is made anew if routes have
            joined or left, in seconds. A tenth of it if they have become a quarter more.
        filter_ids: Route ids that are kept for followers of the filter that are behind. Beyond: the
            filter is made anew, and they get it.
        filter_bytes: Bytes of a filter. Beyond: more ids are taken for known that are not; the
            filter of another zone is refused as a bad frame.
        duplicate_ids: Route ids for each other zone about which it is still to be asked whether it
            has them as well. Beyond: the oldest are dropped and counted.
        duplicate_hold: Time for which a zone is asked for such an id, from when it was found, in
            seconds. Beyond, as the zone does not answer: it is dropped and counted, until it is
            found again. If the last link to it is lost, all of the zone are looked up anew with the
            next one.
        taken_ids: Route ids that are remembered as those of other principals in other zones, so
            that they are refused at once. Beyond: the oldest are forgotten and counted.
        taken_hold: Time for which such an id is refused, in seconds. It doubles each time that the
            other zone is found to have the id still; if it has not, the id is free at once.
        longest_taken_hold: Longest such time, in seconds.
        max_known: Brokers that are remembered. Beyond: others are ignored and counted.
        retry: Time after which a peer broker is dialled again for the first time, in seconds; it
            doubles with each attempt.
        longest_retry: Longest such time, in seconds.
        jitter: Random part of that time, from 0 (none) to 1 (up to twice or down to nothing).
        compare: Time after which two peer brokers compare the lists of brokers that they know, in
            seconds.
        forget_after: Time after which a broker that this one has no link with, and that no peer
            broker has named, is forgotten, in seconds.
        peer_hold: Time for which the routes of a peer broker are kept, hidden, when its link is
            lost, in seconds. Then they are removed.
        flap_losses: Losses of a link within `flap_window` after which its routes stay hidden for a
            while when it is back.
        flap_window: Time within which losses are counted together, in seconds.
        flap_hold: How long the routes stay hidden at first, in seconds; it doubles with each loss.
        longest_flap_hold: Longest such time, in seconds.
        pause: Time for which there is no link to a peer broker that has sent a bad frame, in
            seconds.

    Raises:
        ValueError: A value is out of its range.
    """

    max_batch: BatchSize = 64 * 1024
    log_changes: Size = 100_000
    log_bytes: Size = 64 * 1024 * 1024
    gather: Seconds = 0.02
    mark: Seconds = 10.0
    max_ahead: Seconds = 3600.0
    max_peers: Count = 64
    max_gateways: Count = 128
    max_groups: Count = 10_000
    zone_gather: Seconds = 1.0
    filter_every: Seconds = 60.0
    filter_ids: Size = 65_536
    filter_bytes: FilterSize = 4 * 1024 * 1024
    duplicate_ids: Size = 65_536
    duplicate_hold: Seconds = 600.0
    taken_ids: Count = 10_000
    taken_hold: Seconds = 30.0
    longest_taken_hold: Seconds = 960.0
    max_known: Count = 1024
    retry: Seconds = 1.0
    longest_retry: Seconds = 30.0
    jitter: Probability = 0.5
    compare: Seconds = 60.0
    forget_after: Seconds = 86_400.0
    peer_hold: Seconds = 30.0
    flap_losses: Count = 3
    flap_window: Seconds = 60.0
    flap_hold: Seconds = 10.0
    longest_flap_hold: Seconds = 120.0
    pause: Seconds = 60.0

    def __post_init__(self) -> None:
        check_options(self)
